package quorum

import (
	"context"
	"sync"
	"time"
)

// roundContext is the context of a round's commands. It carries the values of another one, and
// ends when it is told to. It is what [context.WithDeadline] makes, without the timer, which the
// round has.
type roundContext struct {
	context.Context           // values
	limit           time.Time // the deadline

	mu   sync.Mutex // guards what follows
	err  error      // not nil once it has ended
	done chan struct{}
}

// Deadline implements [context.Context].
func (t *roundContext) Deadline() (time.Time, bool) { return t.limit, true }

// Done implements [context.Context].
func (t *roundContext) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = make(chan struct{})
		if t.err != nil {
			close(t.done)
		}
	}
	return t.done
}

// Err implements [context.Context].
func (t *roundContext) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// end ends the context for a reason, unless it has ended.
func (t *roundContext) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	t.err = err
	if t.done != nil {
		close(t.done)
	}
}
