// Package quorum sends one command to every node of a group and decides by majority.
//
// Three things work together. A [Node] is a node and the limit on commands it may leave
// unanswered. A [Lane] keeps the commands of one acquisition on one node in order.
// A [Round] is one command for all lanes: it collects the votes, and tells as soon as no
// vote that is still missing could change the outcome.
package quorum

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
)

// maxUnanswered is how many commands may wait on a node that has stopped answering.
// It bounds the goroutines that a frozen node can hold; while the node answers, however slowly,
// there is no limit.
const maxUnanswered = 64

// Node is one node of a group. It is safe for concurrent use.
type Node struct {
	// Pool reaches the node.
	Pool pool.Pool
	// Index is the node's place in the group.
	Index int

	// Starter is the Pool, if it is one.
	Starter pool.Starter

	tracker    *Tracker
	schedule   *schedule    // of all nodes
	unanswered atomic.Int64 // commands in the client's hands
	silent     atomic.Int64 // when the first was sent that the node has not answered since; 0 after an answer; see clock.Ticks
}

// Nodes makes a group of the pools. The tracker counts their commands, from the time they are
// submitted until the client has returned.
func Nodes(pools []pool.Pool, tracker *Tracker) []*Node {
	nodes, schedule := make([]*Node, len(pools)), &schedule{}
	for i, p := range pools {
		nodes[i] = &Node{Pool: p, Index: i, tracker: tracker, schedule: schedule}
		nodes[i].Starter, _ = p.(pool.Starter)
	}
	return nodes
}

// UnresponsiveError is the outcome of a command that was not sent because the node
// has left too many unanswered for too long. It matches [ErrTimeout].
type UnresponsiveError struct {
	Unanswered int           // commands waiting on the node
	Silence    time.Duration // since the first that it was sent after its last answer
}

func (e *UnresponsiveError) Error() string {
	return fmt.Sprintf("not sent: the node has answered nothing for %v and leaves %d commands waiting",
		e.Silence.Round(time.Millisecond), e.Unanswered)
}

// Is reports whether target is [ErrTimeout].
func (e *UnresponsiveError) Is(target error) bool { return target == ErrTimeout }

// enter counts a command in, or refuses it: a node that has been silent for a quarter of
// the command's budget while many commands wait is taken to be frozen. One answer is enough
// to open it again.
func (n *Node) enter(now int64, budget time.Duration) error {
	unanswered := n.unanswered.Add(1)
	since := n.silent.Load()
	if since == 0 || unanswered == 1 {
		n.silent.Store(now)
	} else if silence := time.Duration(now - since); unanswered > maxUnanswered && silence > budget/4 {
		n.unanswered.Add(-1)
		return &UnresponsiveError{Unanswered: int(unanswered - 1), Silence: silence}
	}
	return nil
}

// explain returns what the client knows of why the node does not answer, or nil.
func (n *Node) explain() (why error) {
	e, ok := n.Pool.(pool.Explainer)
	if !ok {
		return nil
	}
	defer func() {
		if value := recover(); value != nil {
			why = pool.Recovered(value)
		}
	}()
	return e.Explain()
}

// Timeout returns the outcome of a command that used up its budget. Err is what the client said, or
// nil if it has not returned.
func (n *Node) Timeout(budget time.Duration, err error) *TimeoutError {
	if err == nil || err == context.DeadlineExceeded {
		if why := n.explain(); why != nil {
			err = why
		}
	}
	return &TimeoutError{Budget: budget, Err: err}
}

// leave counts a command out.
func (n *Node) leave(answered bool) {
	if answered {
		n.silent.Store(0)
	}
	n.unanswered.Add(-1)
}

// Silence returns for how long a node has answered nothing although commands wait for it.
func (n *Node) Silence(now time.Time) time.Duration {
	since := n.silent.Load()
	if since == 0 || n.unanswered.Load() == 0 {
		return 0
	}
	return time.Duration(clock.Ticks(now) - since)
}
