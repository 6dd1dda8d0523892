package redlock

import (
	"fmt"

	"github.com/redlock-go/redlock/internal/line"
)

// WithMaxWaiters bounds how many callers of this process wait for a lock. Where n wait for the name
// already, Lock, Hold and Do fail at once, with [ErrTaken], instead of waiting behind them. So a
// server that is late with a name sheds work, and does not pile it up.
//
// All that wait for the name count, on this Redlock and on others from the same New, whatever their
// options. The holder does not count, and neither do waiters of other processes. The bound is that
// of the caller who arrives. At least 1, or [Unlimited]. To wait for nothing, use [Mutex.TryLock]
// or [WithTries] with 1 instead. Default: Unlimited.
func WithMaxWaiters(n int) Option {
	return option(func(c *config) { c.maxWaiters = n })
}

// crowded is the error of a Lock for which too many callers wait already. It tells what its own
// attempt came to, if it has made one.
func (m *Mutex) crowded(answer line.Answer) *Error {
	reason := fmt.Sprintf("%d callers of this process wait already", answer.Crowd)
	if answer.Crowd == 1 {
		reason = "1 caller of this process waits already"
	}
	e := newError(m.name, notAcquired, reason, ErrFailed, ErrTaken)
	if d, ok := answer.Refusal.(*defeat); ok {
		e.after(d.explain())
	}
	return e
}
