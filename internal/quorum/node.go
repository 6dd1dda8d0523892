// Package quorum sends one command to every node of a group and decides by majority.
//
// Four things work together. A [Node] has a breaker, which keeps commands back while it does not
// answer. It also has the releases that are pending, to be sent again. A [Pipeline] keeps the
// commands of one mutex on one node in order. A [WriteSet] is what one acquisition leaves on the
// nodes. A [Round] is one command for all pipelines. It collects the votes, and tells as soon as no
// vote that is still missing could change the outcome.
package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/pool"
)

// Node is one node of a group. It is safe for concurrent use.
type Node struct {
	// Pool reaches the node.
	Pool pool.Pool
	// Index is the node's place in the group.
	Index int

	starter pool.Starter // the Pool, or what makes one of it
	carrier pool.Carrier // the Pool, or nil if it is none

	health  health // where a Watch looks
	tracker *Tracker
	breaker breaker
	retries retries
}

// Nodes makes a group of the pools. The tracker counts their commands, from the time they are
// submitted until the client has returned.
func Nodes(pools []pool.Pool, tracker *Tracker) []*Node {
	nodes := make([]*Node, len(pools))
	for i, p := range pools {
		n := &Node{Pool: p, Index: i, starter: runner{p}, tracker: tracker}
		if s, ok := p.(pool.Starter); ok {
			n.starter = s
		}
		n.carrier, _ = p.(pool.Carrier)
		nodes[i] = n
	}
	return nodes
}

// Unfit says what is wrong with the pools of a group, and what they must be, or nothing. One node
// that counts twice would make a quorum of less than half.
func Unfit(pools []pool.Pool) (what, rule string) {
	if len(pools) == 0 {
		return "no pools", "needs at least one pool"
	}
	seen, addrs := map[pool.Pool]int{}, map[string]int{}
	for i, p := range pools {
		v := reflect.ValueOf(p)
		if p == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return fmt.Sprintf("pool %d is nil", i), "needs pools that are not nil"
		}
		if v.Comparable() {
			if first, ok := seen[p]; ok {
				return fmt.Sprintf("pools %d and %d are the same", first, i), "needs each node once"
			}
			seen[p] = i
		}
		addr := addrOf(p)
		if first, ok := addrs[addr]; ok && addr != "" {
			return fmt.Sprintf("pools %d and %d have the address %s", first, i, addr),
				"needs each node once: a server counts once, whatever the database"
		}
		addrs[addr] = i
	}
	return "", ""
}

// left notes that the client has returned from a call, and returns the error to report: a
// [TimeoutError] if the call's time was over. A client's own timers, set for the same moment, may
// fire before ours, or be shorter.
func (n *Node) left(c *call, err error) error {
	if err == nil {
		n.retries.answered() // before the breaker lets other commands go
		n.breaker.leave(c.probe, true)
		return nil
	}
	r, now := c.round, time.Now()
	budget, took := r.spec.Budget, time.Duration(clock.Ticks(now)-c.began)
	over := r.Err() == context.DeadlineExceeded || !now.Before(r.limit)
	late := over || errors.Is(err, context.DeadlineExceeded) // the call may have begun late
	// An error that took long is a client's timeout, not an answer of the node; nor is it one if
	// nothing was sent.
	n.breaker.leave(c.probe, !late && !errors.Is(err, ErrUnsent) && took < budget/4)
	switch {
	case over:
		return n.Timeout(budget, err)
	case late:
		return n.Timeout(min(took, budget), err)
	}
	return err
}

// Timeout returns the outcome of a command that used up its budget. Err is what the client said, or
// nil if it has not returned.
func (n *Node) Timeout(budget time.Duration, err error) *TimeoutError {
	if err == nil || err.Error() == context.DeadlineExceeded.Error() { // marked or not
		err = cmp.Or(n.explain(), err)
	}
	return &TimeoutError{Budget: budget, Err: err}
}

// explain returns what the client knows of why the node does not answer, or nil.
func (n *Node) explain() (why error) {
	defer guard(&why)
	if e, ok := n.Pool.(pool.Explainer); ok {
		why = e.Explain()
	}
	return why
}

// Addr returns the node's address, or "".
func (n *Node) Addr() string { return addrOf(n.Pool) }

// addrOf returns the address of a pool, or "". A pool that panics has none.
func addrOf(of pool.Pool) string {
	p, ok := of.(pool.Addressed)
	if !ok {
		return ""
	}
	defer func() { _ = recover() }()
	addr := p.Addr()
	// What stands before an @ may be a password.
	return errtext.Text(addr[strings.LastIndexByte(addr, '@')+1:])
}

// Finish waits until the clients have returned from every command and no release is pending for a
// node, or until ctx is done. A node that fails one more release has none any more. What is pending
// in the end is forgotten: its keys expire by themselves.
func Finish(ctx context.Context, nodes []*Node) {
	if len(nodes) == 0 {
		return
	}
	for _, n := range nodes {
		n.retries.lastTry()
	}
	nodes[0].tracker.Wait(ctx) // they share it
	for _, n := range nodes {
		n.retries.end()
	}
}
