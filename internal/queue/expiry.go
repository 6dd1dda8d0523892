package queue

import (
	"sync"
	"time"
)

// Expiry is when a quorum of nodes will have no key any more, as far as an attempt has told. It is
// safe for concurrent use.
type Expiry struct {
	told chan struct{} // something is new; has room for one

	mu sync.Mutex // guards at
	at time.Time  // zero: not known
}

// NewExpiry knows nothing yet.
func NewExpiry() *Expiry { return &Expiry{told: make(chan struct{}, 1)} }

// Note notes what an attempt has told.
func (e *Expiry) Note(at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = at
	signal(e.told)
}

// forget drops a time up to now, when an attempt begins or has won: that asks the nodes anew.
func (e *Expiry) forget(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.at.After(now) {
		e.at = time.Time{}
	}
}

// time returns the time, or zero.
func (e *Expiry) time() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
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

// sooner returns a time, or so much later than now if that is sooner.
func sooner(than time.Time, d time.Duration) time.Time {
	if soon := time.Now().Add(d); soon.Before(than) {
		return soon
	}
	return than
}
