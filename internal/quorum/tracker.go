package quorum

import (
	"context"
	"sync/atomic"
)

// Tracker counts what is under way and waits for its end. A [sync.WaitGroup] will not
// do: commands may begin while somebody waits, and the wait must end with a context.
//
// It is safe for concurrent use.
type Tracker struct {
	n       atomic.Int64
	waiting atomic.Bool
	zero    chan struct{} // capacity 1: a leave saw zero while somebody waited
}

// NewTracker returns a Tracker with nothing under way.
func NewTracker() *Tracker {
	return &Tracker{zero: make(chan struct{}, 1)}
}

// Enter counts something in. Every Enter is followed by one [Tracker.Leave].
func (t *Tracker) Enter() { t.n.Add(1) }

// Leave counts something out.
func (t *Tracker) Leave() {
	if t.n.Add(-1) == 0 && t.waiting.Load() {
		select {
		case t.zero <- struct{}{}:
		default:
		}
	}
}

// Wait blocks until nothing is under way, and returns 0, or until ctx is done, and
// returns how many were left. It is called by one goroutine at a time.
func (t *Tracker) Wait(ctx context.Context) int {
	// waiting is stored before n is loaded, and Leave decrements n before it loads waiting:
	// either this sees zero, or the last Leave sees the waiter and sends.
	t.waiting.Store(true)
	defer t.waiting.Store(false)
	for {
		n := t.n.Load()
		if n == 0 {
			return 0
		}
		select {
		case <-t.zero:
		case <-ctx.Done():
			return int(n)
		}
	}
}
