package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/grant"
)

// A lease is a lock granted to a mutex, or handed over to it. This is all it can be:
//
//	        a third of what was left has passed
//	held ----------------------------------------> renewing
//	|  ^     a quorum confirmed: until moves         |  |
//	|  +---------------------------------------------+  |
//	|  |     too few answered: again, sooner         |  |
//	|  +---------------------------------------------+  |
//	|                                                   |
//	+---------+--------------------------+--------------+
//	          |                          |
//	          | WithMaxHold, WithMargin, | a quorum is proven impossible; or, under
//	          | or Close has begun       | a Hold, until has passed
//	          v        the same          v
//	       let go --------------------> lost
//	          |                          |
//	          +-------------+------------+      Unlock leads from each state above
//	                        |
//	                        v   too few nodes answered
//	                    releasing --------------------> unreleased
//	                        |  ^                          |
//	                        |  +--------------------------+
//	                        v             Unlock again
//	                    released
//
// A lease that is handed off is released in the same way, without a word to the nodes.
//
// Only a Hold renews a lease and lets it go. Its owner relies on a lease that is held or renewing.
// The held context is done, and Events are told of the end, when the lease leaves these two.
type lease struct {
	m           *Mutex
	grant.Grant // what the nodes have of it: value, token, when the attempt began

	// The mutex's mu guards these once the lease is granted.
	state    state
	overran  bool           // Events were told of an operation that came too late
	until    time.Time      // zero: not known
	loss     *Error         // why the lease was lost; nil if it was not
	hold     *hold          // that renews it, or nil
	renewal  *grant.Renewal // under way, or nil
	unlocked chan struct{}  // closed at the end of the Unlock under way; nil if nobody waits for it
}

// state is where a lease is in the drawing.
type state uint8

const (
	stateHeld       state = iota // the owner relies on it until its deadline
	stateRenewing                // the same; a renewal is due or under way
	stateLetGo                   // it goes on until its deadline, without renewals
	stateLost                    // nobody may trust it any more; what is left is being released
	stateReleasing               // an Unlock is under way: nothing writes the key any more
	stateUnreleased              // an Unlock has failed for want of a quorum
	stateReleased                // nothing is left to release
)

// arrows are those of the drawing.
var arrows = [...][]state{
	stateHeld:       {stateRenewing, stateLetGo, stateLost, stateReleasing},
	stateRenewing:   {stateHeld, stateLetGo, stateLost, stateReleasing},
	stateLetGo:      {stateLost, stateReleasing},
	stateLost:       {stateReleasing},
	stateReleasing:  {stateUnreleased, stateReleased},
	stateUnreleased: {stateReleasing},
	stateReleased:   {},
}

// relied reports whether the owner relies on a lease in the state.
func (s state) relied() bool { return s <= stateRenewing }

// trusted reports whether a lease in the state counts until its deadline.
func (s state) trusted() bool { return s <= stateLetGo }

// newLease returns a lease that has written nothing to the nodes.
func newLease(m *Mutex, value string) *lease {
	l := &lease{m: m}
	l.Open(&m.nodes, value)
	return l
}

// current returns the lease that Unlock, Extend and Valid are about: a released one if the mutex is
// not locked.
func (m *Mutex) current() *lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cur == nil {
		return &lease{m: m, state: stateReleased}
	}
	return m.cur
}

// change moves the lease to a state if an arrow leads there, and does nothing otherwise. If the
// owner relied on the lease before and no longer does, the lease ends, for the reason and with the
// cause. The caller holds mu. After unlocking it, the caller runs the returned effects, and has
// the teller tell all. A change that does not end the lease returns none.
func (l *lease) change(to state, reason EndReason, cause error) effects {
	from := l.state
	if !slices.Contains(arrows[from], to) {
		return effects{}
	}
	l.state = to
	if !from.relied() || to.relied() {
		return effects{}
	}
	l.m.tell.end(l, reason, cause)
	if l.hold != nil {
		l.hold.timer.Stop()
	}
	return effects{hold: l.hold, reason: reason, cause: cause}
}

// effects are what follows a change of state. They run without mu, because they wait.
type effects struct {
	hold    *hold // that is over, or nil
	reason  EndReason
	cause   error          // of the held context
	renewal *grant.Renewal // that is stopped, or nil
}

// cancel ends the held context.
func (a effects) cancel() {
	if a.hold != nil {
		a.hold.cancel(a.cause)
	}
}

func (a effects) run() {
	a.cancel()
	a.renewal.Stop()
	if a.hold != nil && a.reason != EndClosed { // Close has still to release it
		a.hold.l.m.core.holds.remove(a.hold)
	}
}

// lose ends a lease that is gone. The caller holds mu, and goes on as after change.
func (l *lease) lose(reason EndReason, why *Error) effects {
	if !l.state.trusted() {
		return effects{}
	}
	if l.kept() {
		why = why.asLoss()
	}
	l.loss = why
	return l.change(stateLost, reason, why)
}

// letGo ends the renewals of the lease. What is left of it is for the end of the work. The caller
// holds mu, and goes on as after change.
func (l *lease) letGo(reason EndReason, cause error) effects {
	l.renewal.Cancel()
	return l.change(stateLetGo, reason, cause)
}

// releasing begins a release of the lease. The caller holds mu, and goes on as after change.
func (l *lease) releasing(reason EndReason) effects {
	after := l.change(stateReleasing, reason, ErrReleased)
	after.renewal = l.renewal
	return after
}

// closing lets the lease go for Close. The caller does not hold mu.
func (l *lease) closing() effects {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	after := l.letGo(EndClosed, ErrReleased)
	after.renewal = l.renewal
	return after
}

// trusted reports whether the lease counts until its deadline.
func (l *lease) trusted() bool {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return l.state.trusted()
}

// over reports whether a release of the lease has begun.
func (l *lease) over() bool {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return l.state > stateLost
}

// ranOut reports whether the lease was not lost before its deadline, which has passed.
func (l *lease) ranOut() bool {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return l.loss == nil && clock.Remaining(l.m.core.now(), l.until) <= 0
}

// kept reports whether a hold keeps the lease extended. The caller holds mu.
func (l *lease) kept() bool { return l.hold != nil && l.state.relied() }

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
	for _, h := range m.core.holds.list() {
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
