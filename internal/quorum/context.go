package quorum

import (
	"context"
	"sync"
	"time"
)

// term is the context of the commands of a round: it carries the values of another context and ends
// at a deadline, or when nobody needs it any more. It is what [context.WithDeadline] makes, without the
// timer, which the round has anyway, and with a channel only for who asks for one.
type term struct {
	context.Context // values
	deadline        time.Time

	mu   sync.Mutex // guards what follows
	done chan struct{}
	err  error
}

func (t *term) Deadline() (time.Time, bool) { return t.deadline, true }

func (t *term) Done() <-chan struct{} {
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

func (t *term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// end ends the context, once.
func (t *term) end(err error) {
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
