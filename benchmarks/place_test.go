package main

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// answers is a node that keeps what it is sent, and replies when the test says so.
type answers struct {
	node
	to []pool.Receiver
}

func (a *answers) Start(_ context.Context, _ *pool.Command, to pool.Receiver) {
	a.to = append(a.to, to)
}

// ignored is a receiver that counts.
type ignored int

func (i *ignored) Receive(any, error) { *i++ }

// A waiter is in the queue from when a quorum of nodes has said that it has the ticket on which it
// has agreed, and not by tickets of other members, errors, or commands that do something else.
func TestAPlaceIsKnownWhenAQuorumHasTheTicket(t *testing.T) {
	synctest.Test(t, placeIsKnown)
}

func placeIsKnown(t *testing.T) {
	var nodes [3]*answers
	var pools []pool.Pool
	for i := range nodes {
		nodes[i] = &answers{}
		pools = append(pools, nodes[i])
	}
	seen, p := see(pools)
	lock := wire.NewLock("name", &wire.Terms{Queue: true}, nil)
	var got ignored
	stand := func(member string, ticket int64, agreed bool) {
		c := lock.Stand(wire.Member{ID: member, Ticket: ticket, Agreed: agreed}, time.Minute)
		for _, n := range seen {
			n.(pool.Starter).Start(t.Context(), c.Command, &got)
		}
	}
	answer := func(node int, ticket int64, err error) {
		to := nodes[node].to[0]
		nodes[node].to = nodes[node].to[1:]
		if err != nil {
			to.Receive(nil, err)
		} else {
			to.Receive([]any{ticket, int64(3), int64(-1)}, nil)
		}
	}
	check := func(what string, want bool) (since int64) {
		t.Helper()
		if since = p.reached(); (since != 0) != want {
			t.Errorf("%s: in the queue since %d", what, since)
		}
		return since
	}
	p.begin()
	stand("a", 5, false)
	answer(0, 5, nil)
	check("one node", false)
	answer(1, 0, io.EOF)
	check("an error", false)
	answer(2, 5, nil)
	since := check("a quorum", true)
	stand("a", 5, true)
	if again := check("the same ticket", true); again != since {
		t.Errorf("since %d and %d", since, again)
	}
	p.begin()
	check("a new Lock", false)
	for i := range nodes {
		answer(i, 5, nil)
	}
	stand("a", 5, true) // which has waited behind a slow node
	for i := range nodes {
		answer(i, 5, nil)
	}
	check("what an earlier Lock has left", false)
	stand("b", 7, false)
	answer(0, 7, nil)
	answer(1, 8, nil)
	check("different tickets", false)
	answer(2, 7, nil)
	check("a quorum, by chance", true)
	stand("b", 8, true)
	check("it has agreed on another one", false)
	answer(0, 8, nil)
	check("a quorum of the agreed one", true)
	stand("c", 9, false)
	check("it has left the queue, and come again", false)
	answer(1, 8, nil)
	answer(2, 8, nil)
	answer(0, 9, nil)
	answer(1, 9, nil)
	since = check("a quorum", true)
	stand("c", 9, false)
	time.Sleep(time.Second)
	answer(2, 10, nil)
	answer(0, 10, nil)
	if moved := check("a later place", true); moved != since+int64(time.Second) {
		t.Errorf("since %d and %d", since, moved)
	}
	if got != 19 {
		t.Errorf("%d of 19 replies", got)
	}
}
