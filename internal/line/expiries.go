package line

import (
	"slices"
	"sync"
	"time"
)

// fresh is within what time two replies about the same key may have overtaken each other.
const fresh = 10 * time.Millisecond

// Expiries is when the nodes will have no key any more, as far as they have told. It is safe for
// concurrent use.
type Expiries struct {
	told chan struct{} // something is new; has room for one

	mu    sync.Mutex  // guards what follows
	free  []time.Time // zero: not known
	noted []time.Time // when
}

// NewExpiries knows nothing yet of that many nodes.
func NewExpiries(nodes int) *Expiries {
	return &Expiries{told: make(chan struct{}, 1), free: make([]time.Time, nodes),
		noted: make([]time.Time, nodes)}
}

// Note notes when a node will have no key any more. Two replies that come together may have
// overtaken each other: then the earlier time counts.
func (e *Expiries) Note(node int, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Sub(e.noted[node]) < fresh && !e.free[node].IsZero() && e.free[node].Before(at) {
		return
	}
	e.free[node], e.noted[node] = at, now
	signal(e.told)
}

// forget drops the times up to now, when an attempt begins or has won. It asks those nodes anew,
// and one that is silent since then may have a key.
func (e *Expiries) forget(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, t := range e.free {
		if !t.After(now) {
			e.free[i] = time.Time{}
		}
	}
}

// on returns when so many nodes will have no key any more, if so many have told.
func (e *Expiries) on(nodes int) (at time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := make([]time.Time, 0, len(e.free))
	for _, t := range e.free {
		if !t.IsZero() {
			known = append(known, t)
		}
	}
	if len(known) < nodes {
		return time.Time{}, false
	}
	slices.SortFunc(known, time.Time.Compare)
	return known[nodes-1], true
}

// signal puts something into a channel with room for one, unless it is full.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// received reports whether there was something to receive, or the channel is closed.
func received(from <-chan struct{}) bool {
	select {
	case <-from:
		return true
	default:
		return false
	}
}
