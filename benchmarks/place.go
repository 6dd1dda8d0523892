package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// A place is since when one waiter is in the queue on the nodes. It is in the queue when a quorum
// of them has said that it has the ticket on which it has agreed: docs/safety.md promises its order
// from then on. What is sent to the nodes and what they reply shows that.
//
// Of a ticket that fewer than a quorum gave at first, the commands that follow say that it is
// agreed on. So since may change as long as the waiter waits.
type place struct {
	quorum int

	mu      sync.Mutex // guards what follows
	member  string     // in the queue; "": it has not stood there since its Lock was called
	before  string     // the one of an earlier Lock, which commands may still be under way for
	tickets []int64    // of the member, by node; 0 is not known
	agreed  int64      // the ticket, if a command has shown that the member has agreed on it
	known   int64      // the ticket that a quorum has, or 0
	since   int64      // when it had, in nanoseconds since the epoch; 0: it has not
}

// begin notes that the waiter's Lock is called.
func (p *place) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.member != "" {
		p.before = p.member
	}
	p.member = ""
	p.reset()
}

// reset forgets the place. The caller holds mu.
func (p *place) reset() {
	clear(p.tickets)
	p.agreed, p.known, p.since = 0, 0, 0
}

// stands notes a command that is about to be sent: a member stands in the queue. One whose earlier
// member has left has a new place.
func (p *place) stands(member string, ticket int64, agreed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if member == p.before {
		return
	}
	if member != p.member {
		p.member = member
		p.reset()
	}
	if agreed && p.agreed != ticket {
		p.agreed = ticket
		p.look()
	}
}

// told notes a node's reply to that: the ticket that the member has there.
func (p *place) told(node int, member string, ticket int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if member != p.member {
		return
	}
	p.tickets[node] = ticket
	p.look()
}

// look sets since when a quorum has the same ticket, unless the member has agreed on another one.
// The caller holds mu.
func (p *place) look() {
	for _, t := range p.tickets {
		if t == 0 || p.agreed != 0 && t != p.agreed {
			continue
		}
		have := 0
		for _, other := range p.tickets {
			if other == t {
				have++
			}
		}
		if have < p.quorum {
			continue
		}
		if t != p.known {
			p.known, p.since = t, time.Now().UnixNano()
		}
		return
	}
	p.known, p.since = 0, 0
}

// reached returns since when the waiter is in the queue, or 0 if it is not.
func (p *place) reached() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since
}

// node is what the adapters for clients implement.
type node interface {
	pool.Pool
	pool.Carrier
	pool.Subscriber
	pool.Doer
	pool.Addressed
	pool.Explainer
}

// seenNode is a node whose queue one waiter alone stands in by it. Commands that do not stand there
// cost it a comparison.
type seenNode struct {
	node
	index int
	place *place
}

// see returns the nodes so that the place of their only waiter is known.
func see(pools []pool.Pool) ([]pool.Pool, *place) {
	p := &place{quorum: quorum.Majority(len(pools)), tickets: make([]int64, len(pools))}
	seen := slices.Clone(pools)
	for i, n := range pools {
		if n, ok := n.(node); ok {
			seen[i] = &seenNode{n, i, p}
		}
	}
	return seen, p
}

// Start implements [pool.Starter].
func (n *seenNode) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	if c.Script() != scripts.Stand {
		n.node.Start(ctx, c, to)
		return
	}
	const keys = 4 // after EVALSHA, the script, and how many there are: see stand.lua
	argv := c.Args()[3+keys:]
	member, _ := argv[1].(string)
	ticket, _ := argv[2].(int64)
	n.place.stands(member, ticket, argv[3] == 1)
	n.node.Start(ctx, c, &stood{n, member, to})
}

// stood is told the reply to a command that stands in the queue.
type stood struct {
	n      *seenNode
	member string
	to     pool.Receiver
}

// Receive implements [pool.Receiver].
func (s *stood) Receive(reply any, err error) {
	if said, ok := reply.([]any); ok && err == nil && len(said) > 0 {
		if ticket, ok := said[0].(int64); ok {
			s.n.place.told(s.n.index, s.member, ticket)
		}
	}
	s.to.Receive(reply, err)
}
