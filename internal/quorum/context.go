package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// roundContext is the context of a round's commands. It carries the values of another one, and
// ends when it is told to: by Cancel, or by Expire at its limit. It is what [context.WithDeadline]
// makes, without the timer, which the round has.
type roundContext struct {
	context.Context           // values
	Limit           time.Time // the deadline

	ended atomic.Pointer[error]

	mu   sync.Mutex // guards done, and is held while ended is set
	done chan struct{}
}

// Deadline implements [context.Context].
func (t *roundContext) Deadline() (time.Time, bool) { return t.Limit, true }

// Done implements [context.Context].
func (t *roundContext) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = make(chan struct{})
		if t.ended.Load() != nil {
			close(t.done)
		}
	}
	return t.done
}

// Err implements [context.Context].
func (t *roundContext) Err() error {
	if err := t.ended.Load(); err != nil {
		return *err
	}
	return nil
}

// The ends of a context, by their address.
var (
	errCanceled = context.Canceled
	errDeadline = context.DeadlineExceeded
)

// Cancel ends the context because nobody needs it any more, unless it has ended.
func (t *roundContext) Cancel() { t.end(&errCanceled) }

// Expire ends the context because its time is over, unless it has ended.
func (t *roundContext) Expire() { t.end(&errDeadline) }

func (t *roundContext) end(err *error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended.Load() != nil {
		return
	}
	t.ended.Store(err)
	if t.done != nil {
		close(t.done)
	}
}
