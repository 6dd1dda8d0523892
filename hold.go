package redlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// A hold keeps a lease extended. This is all it can be:
//
//	          Hold                  a third of what was left has passed
//	(Lock) ---------> held -------------------------------------> renewing
//	                  |  ^                                         |    |
//	                  |  |     a quorum confirmed: until moves     |    |
//	                  |  +-----------------------------------------+    |
//	                  |  |     too few answered: again, sooner     |    |
//	                  |  +-----------------------------------------+    |
//	                  |                                                 |
//	                  +---------------+----------------+----------------+
//	                  |               |                |
//	  Unlock or Close |   WithMaxHold |                | until has passed, or a quorum
//	                  |    WithMargin |                | is proven impossible
//	                  v               v                v
//	               released         let go            lost
//
// Each final state cancels the held context first and is never left. A lock that was let go stays
// locked until its deadline, and Unlock releases it. A lost one is being released. On every lane a
// release comes after what a renewal has sent, and what the renewal has not sent is dropped. Unlock
// also waits for the renewal's end. So nothing writes the key after Unlock has returned.
//
// Between renewals a hold is a timer and no goroutine. The renewal runs on another goroutine: the
// timer ends the hold in time, whatever the network does.
type hold struct {
	m      *Mutex
	l      *lease
	values context.Context         // for renewals
	cancel context.CancelCauseFunc // of the held context
	limit  time.Time               // of WithMaxHold, or zero
	held   heldContext             // what the holder is given

	// The mutex's mu guards these.
	over    bool
	timer   *time.Timer // ends in tick
	next    time.Time   // when to renew
	due     bool        // among the renewals that wait
	renewal *renewal    // under way, or nil

	// Of the renewals that have failed since one succeeded: the last of those that had most time.
	failed *quorum.Round
	had    time.Duration
}

// Hold is LockContext followed by keeping the lock. It extends the lock each time a third of its
// validity has passed, and sooner again when that failed. It blocks as LockContext does and
// returns the same errors, with a nil context.
//
// The held context carries the values of ctx. It is done
//   - as soon as the lock cannot be trusted any more, at the latest at [Mutex.Until] by the local
//     clock, or earlier by [WithMargin]. [context.Cause] then matches [ErrLost] and says which
//     nodes did what. What is left of the lock is being released. An outage does not end the hold
//     if at its end Until is still six times as far away as the nodes take to answer. A process
//     with more than 256 holds needs the time of two more answers for each further 256, and a
//     tenth of a second.
//   - when ctx is done, with the cause of ctx. The lock itself is still kept: work can be wound
//     down under it.
//   - at Unlock or Close, with the cause [ErrReleased].
//
// The lock is kept until Unlock, Close, the loss, [WithMaxHold] or [WithMargin]. So an Unlock
// must follow every Hold. A paused process learns of a loss when it runs again. On a machine that
// was suspended, that may take a tenth of the expiry more, or a second if that is longer; see
// docs/safety.md.
//
// A lock is not reentrant. While the hold lasts, to lock the same name again on the same nodes with
// the held context, or one derived from it, fails at once with [ErrSelf]. That includes a context
// of [context.WithoutCancel]: a goroutine that shall wait for the end of the hold needs one that
// does not come from it.
func (m *Mutex) Hold(ctx context.Context) (context.Context, error) {
	m.mustBeMade(ctx)
	l, err := m.tellLock(ctx, m.cfg.tries)
	if err != nil {
		return nil, err
	}
	held, cancel := context.WithCancelCause(ctx)
	h := &hold{m: m, l: l, values: context.WithoutCancel(ctx), cancel: cancel}
	if m.cfg.maxHold > 0 {
		h.limit = l.granted.Add(m.cfg.maxHold)
	}
	h.held = heldContext{held, h}
	if !m.core.register(h) {
		_ = m.tellUnlock(ctx, l, nil, true)
		cancel(ErrReleased)
		return nil, closedError(m.name)
	}
	now := m.core.now()
	tell := func() {}
	m.mu.Lock()
	l.hold = h
	over := h.over // by Close, which releases it
	switch {
	case over:
	case l.releasing: // by an Unlock that could not see the hold yet
		tell = func() { h.end(ErrReleased) }
	case l.lost != nil: // as somebody else has found out meanwhile
		tell = m.lose(l, l.lost)
	default:
		h.next = now.Add(clock.Remaining(now, h.deadline()) / 3)
		h.timer = time.AfterFunc(h.wait(now), h.tick)
	}
	m.mu.Unlock()
	if over {
		return nil, closedError(m.name)
	}
	tell()
	return &h.held, nil
}

// live reports whether h keeps a lease extended; nil does not. The caller holds the mutex's mu.
func (h *hold) live() bool { return h != nil && !h.over }

// glance is the least time after which a hold looks at the clocks again.
const glance = time.Second

// deadline is when the held context ends unless the lease is extended. The caller holds mu.
func (h *hold) deadline() time.Time { return h.l.until.Add(-h.m.cfg.margin) }

// wait is how long the timer has to run from now. The timer stands still while the machine is
// suspended, so it also fires from time to time with nothing due, to look at the clock that does
// not. The caller holds mu.
func (h *hold) wait(now time.Time) time.Duration {
	d := clock.Remaining(now, h.deadline())
	if !h.limit.IsZero() {
		d = min(d, clock.Remaining(now, h.limit))
	}
	if h.resting() {
		d = min(d, clock.Remaining(now, h.next))
	}
	return clock.Ahead(min(d, max(h.m.cfg.expiry/10, glance)))
}

// resting reports whether no renewal is under way or waits for its turn. The caller holds mu.
func (h *hold) resting() bool { return h.renewal == nil && !h.due }

// tick does what is due.
func (h *hold) tick() {
	h.m.mu.Lock()
	if h.over {
		h.m.mu.Unlock()
		return
	}
	now := h.m.core.now()
	tell, lost := func() {}, false
	switch {
	case clock.Remaining(now, h.l.until) <= 0:
		tell, lost = h.m.lose(h.l, h.tooLate()), true
	case !h.limit.IsZero() && clock.Remaining(now, h.limit) <= 0:
		tell = h.letGo(EndMaxHold, h.m.fail("lost", ErrLost,
			fmt.Sprintf("held for the maximum of %v", h.m.cfg.maxHold)))
	case clock.Remaining(now, h.deadline()) <= 0:
		tell = h.letGo(EndMargin, h.loss(h.tooLate()))
	case h.resting() && clock.Remaining(now, h.next) <= 0:
		h.m.core.renewals.add(h)
		fallthrough
	default:
		h.timer.Reset(h.wait(now))
	}
	h.m.mu.Unlock()
	tell()
	if lost {
		h.m.release(h.values, h.l, quorum.Spec{})
	}
}

// tooLate says why the lease was not extended in time. The caller holds mu.
func (h *hold) tooLate() *Error {
	if h.failed == nil {
		return &Error{Name: h.m.name, failed: "not extended", reason: "not extended in time"}
	}
	// Nodes that have answered since the round was decided did their part.
	e, _ := h.m.unconfirmed("not extended", h.failed)
	e.reason = "not extended in time: " + strings.TrimPrefix(e.reason, "lost: ")
	return e
}

// loss is the cause of the held context of a lease that was lost.
func (h *hold) loss(why *Error) *Error {
	return &Error{
		Name: h.m.name, failed: "lost", kinds: []error{ErrLost},
		reason: strings.TrimPrefix(why.reason, "lost: "),
		causes: []error{why}, nodes: why.nodes,
	}
}

// letGo ends the hold of a lock that has been held for as long as it may, or was not extended
// before the margin. What is left of the lease is for the end of the work. The caller holds mu,
// and calls tell after unlocking it.
func (h *hold) letGo(reason EndReason, why *Error) (tell func()) {
	h.finish()
	h.m.end(h.l, reason, why)
	if h.renewal != nil {
		h.renewal.cancel()
	}
	return func() {
		h.cancel(why)
		h.m.core.unregister(h)
		h.m.tellAll()
	}
}

// end stops the hold for its owner's Unlock, which Close leaves to the owner.
func (h *hold) end(cause error) {
	if h.stop(cause, EndReleased) {
		h.m.core.unregister(h)
	}
}

// stop stops the hold for a release, and returns when no renewal is under way any more. It reports
// whether the hold was not over before. The caller calls tellAll.
func (h *hold) stop(cause error, reason EndReason) bool {
	h.m.mu.Lock()
	over, r := h.over, h.renewal
	h.finish()
	if !over {
		h.m.end(h.l, reason, cause)
	}
	h.m.mu.Unlock()
	if !over {
		h.cancel(cause)
	}
	if r != nil {
		r.cancel()
		<-r.done
	}
	return !over
}

// finish makes the hold over. The caller holds mu.
func (h *hold) finish() {
	h.over = true
	if h.timer != nil {
		h.timer.Stop()
	}
}
