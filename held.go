package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// heldContext is the context of a hold. It shows what is known of that: the deadline of
// WithMaxHold, at which the hold cancels it, the fencing token, and the hold itself.
type heldContext struct {
	context.Context
	h *hold
}

func (c *heldContext) Deadline() (time.Time, bool) {
	d, ok := c.Context.Deadline()
	if c.h.limit.IsZero() || ok && d.Before(c.h.limit) {
		return d, ok
	}
	return c.h.limit, true
}

// over reports whether the context has ended, or its deadline has passed: after the process stood
// still, timers are late.
func (c *heldContext) over(now time.Time) bool {
	d, ok := c.Deadline()
	return c.Err() != nil || ok && clock.Remaining(now, d) <= 0
}

// The keys of the innermost hold's token and of the hold among a context's values.
type (
	tokenKey struct{}
	holdKey  struct{}
)

// Value finds the token also where it is 0, and so hides that of an outer lock.
func (c *heldContext) Value(key any) any {
	switch key {
	case tokenKey{}:
		return c.h.l.Token
	case holdKey{}:
		return c.h
	}
	return c.Context.Value(key)
}

// FencingToken returns the fencing token of the lock whose held context ctx is, or was derived
// from: it is how the function that [Redlock.Do] calls gets it. Claim the resource with it before
// the first read, see [Mutex.FencingToken]. Of locks within each other the innermost counts. The
// token is 0 if there is no lock, or if the innermost is held without [WithFencing]. It is the same
// after the lock was lost, which is when the resource needs it most.
func FencingToken(ctx context.Context) uint64 {
	needContext(ctx)
	token, _ := ctx.Value(tokenKey{}).(uint64)
	return token
}

// self is the error of a Lock that would wait for itself: ctx comes from a hold of the same lock.
// It is nil if that hold is over: the caller may have waited for that. It is nil if ctx is done.
func (m *Mutex) self(ctx context.Context) error {
	h := holdOf(ctx, func(h *hold) bool { return h.keeps(m.core, m.key) })
	if h == nil || ctx.Err() != nil {
		return nil
	}
	return newError(m.name, notAcquired,
		"held by the caller itself: its context comes from a hold of this lock",
		ErrFailed, ErrTaken, ErrSelf)
}

// holdOf returns the innermost hold that ctx comes from and that is the one looked for, or nil.
func holdOf(ctx context.Context, is func(*hold) bool) *hold {
	for {
		h, _ := ctx.Value(holdKey{}).(*hold)
		if h == nil || is(h) {
			return h
		}
		ctx = h.held.Context // locks within each other
	}
}

// sayNeighbour says in the error of a Lock if a hold of another mutex of this process has the lock.
func (m *Mutex) sayNeighbour(err error) {
	var e *Error
	if m.err != nil || !errors.As(err, &e) || !errors.Is(e, ErrTaken) || errors.Is(e, ErrSelf) {
		return
	}
	if e.last != nil {
		e = e.last
	}
	for _, h := range m.core.holds.All() {
		if h.l.m != m && h.keeps(m.core, m.key) {
			_ = e.adding(", held by another mutex of this process")
			return
		}
	}
}

// keeps reports whether h keeps a lock of that key extended.
func (h *hold) keeps(c *core, key string) bool {
	if h.l.m.core != c || h.l.m.key != key {
		return false
	}
	h.l.m.mu.Lock()
	defer h.l.m.mu.Unlock()
	return h.l.kept()
}
