package quorum

import (
	"context"
	"sync"
	"sync/atomic"
)

// Tracker counts what is under way and waits for its end. A [sync.WaitGroup] will not
// do: commands may begin while somebody waits, and the wait must end with a context.
//
// It is safe for concurrent use.
type Tracker struct {
	n       atomic.Int64
	waiting atomic.Int64

	mu   sync.Mutex
	zero chan struct{} // closed, and made anew, when a Leave saw zero while somebody waited
}

// NewTracker returns a Tracker with nothing under way.
func NewTracker() *Tracker {
	return &Tracker{zero: make(chan struct{})}
}

// Enter counts something in. Every Enter is followed by one [Tracker.Leave].
func (t *Tracker) Enter() { t.n.Add(1) }

// Leave counts something out.
func (t *Tracker) Leave() {
	if t.n.Add(-1) == 0 && t.waiting.Load() > 0 {
		t.mu.Lock()
		close(t.zero)
		t.zero = make(chan struct{})
		t.mu.Unlock()
	}
}

// Wait blocks until nothing is under way, or until ctx is done. It returns how many are under way
// then.
func (t *Tracker) Wait(ctx context.Context) int {
	// Wait counts itself in and takes zero before it loads n; Leave decrements n before it looks
	// for waiters. So either this sees nothing under way, or the last Leave sees the waiter and
	// closes zero.
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	for {
		t.mu.Lock()
		zero := t.zero
		t.mu.Unlock()
		n := t.n.Load()
		if n == 0 {
			return 0
		}
		select {
		case <-zero:
		case <-ctx.Done():
			return int(t.n.Load())
		}
	}
}

// Each calls do for every number below n, on goroutines that it counts in, at most limit at a time.
// It calls over, on the caller's goroutine, with what each returns. Each blocks until all have
// returned, or until ctx is done: then it begins no more, and leaves those that are under way.
func (t *Tracker) Each(
	ctx context.Context, n, limit int, do func(i int) error, over func(err error),
) {
	outcomes := make(chan error, limit) // nobody waits to send
	for begun, ended := 0, 0; ended < n; {
		for ; begun < n && begun-ended < limit; begun++ {
			i := begun
			t.Enter()
			go func() {
				defer t.Leave()
				outcomes <- do(i)
			}()
		}
		select {
		case err := <-outcomes:
			ended++
			over(err)
		case <-ctx.Done():
			return
		}
	}
}
