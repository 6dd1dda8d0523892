package quorum

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// maxUnanswered is how many commands may wait on a node that has stopped answering.
const maxUnanswered = 64

// breaker keeps commands back from a node that has stopped answering: it has been silent for a
// quarter of the node timeout, and maxUnanswered commands wait on it. This bounds the goroutines
// and connections that a frozen node can hold, and what it executes when it thaws. A node that
// answers, however slowly, has no limit. An error that comes at once is an answer, too: see
// Node.left.
//
// No command fails because of the breaker. What it keeps back is sent as soon as the node answers
// anything, and ends when its own time is over. As a client may never return from earlier calls,
// a command goes as a probe when none has gone for a quarter of its own node timeout. Probes that
// the client never returns from would add up, so the interval doubles with every maxUnanswered of
// them. A node that comes back is asked within a node timeout, or a fiftieth of the time that it
// was away if that is longer.
//
// The zero value keeps nothing back. A breaker is safe for concurrent use.
type breaker struct {
	mu         sync.Mutex // guards what follows; a pipeline's comes first
	unanswered int        // commands in flight
	silent     int64      // when the first was sent since the last answer, or 0; see clock.Ticks
	patience   int64      // a quarter of its budget
	tripped    bool
	probes     int     // in flight
	probed     int64   // when the last one was sent, or the breaker tripped
	kept       []*call // in the order in which they came
}

// pass reports whether c may be sent now, and counts it in if so. Otherwise the breaker keeps c,
// and its pipeline resumes it later unless it is dropped first. The caller holds the pipeline's mu.
func (b *breaker) pass(c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	quarter := c.round.spec.Budget / 4
	if b.silent == 0 || b.unanswered == 0 {
		b.silent, b.patience = c.began, int64(quarter)
	}
	if b.unanswered >= maxUnanswered && c.began-b.silent > max(int64(quarter), b.patience) &&
		!b.tripped {
		b.tripped, b.probed = true, c.began
	}
	if b.tripped {
		wait := clock.Sub(clock.Times(quarter, 1<<min(b.probes/maxUnanswered, 32)),
			time.Duration(c.began-b.probed))
		if wait > 0 {
			c.kept = true
			b.kept = append(b.kept, c)
			if wait < c.round.spec.Budget { // else its own time is over before
				time.AfterFunc(wait, func() { c.pipeline.resume(c) })
			}
			return false
		}
		c.probe = true
		b.probes++
		b.probed = c.began
	}
	b.unanswered++
	return true
}

// drop forgets c, if the breaker keeps it. The caller holds the pipeline's mu.
func (b *breaker) drop(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.kept = false
	if i := slices.Index(b.kept, c); i >= 0 {
		b.kept = slices.Delete(b.kept, i, i+1)
	}
}

// leave counts a command out. An answer resets the breaker, and all that it has kept is resumed.
func (b *breaker) leave(probe, answered bool) {
	b.mu.Lock()
	b.unanswered--
	if probe {
		b.probes--
	}
	var kept []*call
	if answered {
		b.silent, b.tripped = 0, false
		kept, b.kept = b.kept, nil
	}
	b.mu.Unlock()
	for _, c := range kept {
		c.pipeline.resume(c)
	}
}

// unresponsive is the outcome of a command that the breaker has kept for all its time.
func (n *Node) unresponsive(budget time.Duration) error {
	n.breaker.mu.Lock()
	count := n.breaker.unanswered
	n.breaker.mu.Unlock()
	return n.Timeout(budget, fmt.Errorf("not sent: the node leaves %d commands unanswered", count))
}
