package redlock

import (
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/renew"
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
	overran  bool          // Events were told of an operation that came too late
	until    time.Time     // zero: not known
	loss     *Error        // why the lease was lost; nil if it was not
	hold     *hold         // that renews it, or nil
	renewal  *renew.Call   // under way, or nil
	unlocked chan struct{} // closed at the end of the Unlock under way; nil if nobody waits for it
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
// cause. The caller holds mu. After unlocking it, the caller runs the returned aftermath, and has
// the teller tell all. A change that does not end the lease returns an empty aftermath.
func (l *lease) change(to state, reason EndReason, cause error) aftermath {
	from := l.state
	if !slices.Contains(arrows[from], to) {
		return aftermath{}
	}
	l.state = to
	if !from.relied() || to.relied() {
		return aftermath{}
	}
	l.m.tell.end(l, reason, cause)
	if l.hold != nil {
		l.hold.timer.Stop()
	}
	return aftermath{hold: l.hold, reason: reason, cause: cause}
}

// aftermath is what follows a change of state. It runs without mu, because it waits.
type aftermath struct {
	hold    *hold // that is over, or nil
	reason  EndReason
	cause   error       // of the held context
	renewal *renew.Call // that is stopped, or nil
}

// cancel ends the held context.
func (a aftermath) cancel() {
	if a.hold != nil {
		a.hold.cancel(a.cause)
	}
}

func (a aftermath) run() {
	a.cancel()
	a.renewal.Stop()
	if a.hold != nil && a.reason != EndClosed { // Close has still to release it
		a.hold.l.m.core.holds.Remove(a.hold)
	}
}

// lose ends a lease that is gone. The caller holds mu, and goes on as after change.
func (l *lease) lose(reason EndReason, why *Error) aftermath {
	if !l.state.trusted() {
		return aftermath{}
	}
	if l.kept() {
		why = why.asLoss()
	}
	l.loss = why
	return l.change(stateLost, reason, why)
}

// letGo ends the renewals of the lease. What is left of it is for the end of the work. The caller
// holds mu, and goes on as after change.
func (l *lease) letGo(reason EndReason, cause error) aftermath {
	l.renewal.Cancel()
	return l.change(stateLetGo, reason, cause)
}

// releasing begins a release of the lease. The caller holds mu, and goes on as after change.
func (l *lease) releasing(reason EndReason) aftermath {
	after := l.change(stateReleasing, reason, ErrReleased)
	after.renewal = l.renewal
	return after
}

// closing lets the lease go for Close. The caller does not hold mu.
func (l *lease) closing() aftermath {
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
