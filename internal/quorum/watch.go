package quorum

import (
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
)

// Watch is told of each command of a pipeline when the client has returned from it. It began at a
// time, see clock.Ticks. Watch is called without any mutex of the package, must not block, and must
// not panic.
type Watch func(n *Node, c *pool.Command, k Kind, began int64, err error)

// Watched lets w watch pipelines that have not been used yet.
func Watched(pipelines []Pipeline, w Watch) {
	for i := range pipelines {
		pipelines[i].watch = w
	}
}

const (
	// downAfter is how many errors in a row mark a node down.
	downAfter = 3
	// good is how long after its last error a node is up again when it answers a command of
	// the kind that has failed.
	good = time.Second
	// forgotten is how long after its last error a node is up again when it answers anything:
	// nobody sends it commands of the kind that has failed.
	forgotten = time.Minute
)

// health is what a Watch has seen of a node. A node may answer commands of one kind and refuse
// those of another: a replica deletes nothing but says so, and one without memory releases locks
// that it would not grant.
type health struct {
	mu       sync.Mutex
	answered [Release + 1]int64 // when the node last answered that kind; see clock.Ticks
	errors   [Release + 1]int   // in a row
	failed   int64              // when the last of them came
	down     bool
	kind     Kind // that has failed, if down
}

// Turned notes whether a command of that kind, which began then, has failed on the node. It reports
// whether the node is marked down by that, or up again.
func (n *Node) Turned(k Kind, began int64, err error) (turned, up bool) {
	h, now := &n.health, clock.NowTicks()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if began < h.answered[k] { // and the node has answered since: the error is an old one
			return false, false
		}
		h.failed = now
		h.errors[k]++
		if h.down || h.errors[k] < downAfter {
			return false, false
		}
		h.down, h.kind = true, k
		return true, false
	}
	h.answered[k], h.errors[k] = now, 0
	since := time.Duration(now - h.failed)
	if !h.down || since < good || k != h.kind && since < forgotten {
		return false, true
	}
	h.down, h.errors = false, [Release + 1]int{}
	h.answered = [Release + 1]int64{now, now, now} // what was sent before says nothing any more
	return true, true
}
