package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/quorum"
)

// hold keeps a lease extended, and cancels the held context at its end; see the drawing in
// lease.go. A lease that was let go stays locked until its deadline, and Unlock releases it. A
// lost one is being released. On every node a release comes after what has been sent that may set
// the key. What a renewal has not sent is dropped. Unlock also waits for the renewal's end. So
// nothing writes the key after Unlock has returned.
//
// Between renewals a hold is a timer and no goroutine. The renewal runs on another goroutine: the
// timer ends the hold in time, whatever the network does.
type hold struct {
	l      *lease
	values context.Context         // for renewals
	cancel context.CancelCauseFunc // of the held context
	limit  time.Time               // of WithMaxHold, or zero
	held   heldContext             // what the holder is given

	// The mutex's mu guards these.
	timer *time.Timer   // ends in tick
	next  time.Time     // when to renew
	long  time.Duration // when it has lasted for so long, Events are told; 0: they are not

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
//     nodes did what. What is left of the lock is being released. The hold survives an outage if,
//     when that ends, the time left to Until is at least six times the nodes' response time. With
//     more than 256 holds in a process it is two response times more for each further 256, and a
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
// A lock is not reentrant. While the hold lasts, a Lock of the same name with the held context, or
// one derived from it, fails at once with [ErrSelf]. That includes a context of
// [context.WithoutCancel]. To wait for the end of the hold, a goroutine needs a context that does
// not come from it.
func (m *Mutex) Hold(ctx context.Context) (context.Context, error) {
	m.mustBeMade(ctx)
	l, err := m.tellLock(ctx, m.cfg.tries, nil)
	if err != nil {
		return nil, err
	}
	return l.keep(ctx)
}

// keep begins to hold a lease that was just granted, and returns the held context.
func (l *lease) keep(ctx context.Context) (context.Context, error) {
	m := l.m
	held, cancel := context.WithCancelCause(ctx)
	h := &hold{l: l, values: context.WithoutCancel(ctx), cancel: cancel}
	if m.cfg.maxHold > 0 {
		h.limit = l.Began.Add(m.cfg.maxHold)
	}
	h.held, h.long = heldContext{held, h}, m.cfg.longHold
	if !m.core.holds.add(h) {
		_ = l.unlock(ctx, byClose)
	} else if h.begin() || !m.core.holds.isClosed() {
		return &h.held, nil
	}
	cancel(ErrReleased)
	return nil, closedError(m.name, notAcquired)
}

// begin begins to keep the lease extended. It reports false if the lease has ended meanwhile: Close
// has begun to release it, or another user of the mutex has unlocked it or proven its loss. Then
// the held context is done.
func (h *hold) begin() bool {
	l, m := h.l, h.l.m
	now := m.core.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	cause := error(ErrReleased)
	switch {
	case l.state == stateHeld:
		l.hold = h
		h.next = now.Add(clock.Remaining(now, h.deadline()) / 3)
		h.timer = time.AfterFunc(h.wait(now), h.tick)
		return true
	case l.state == stateLetGo, m.core.holds.isClosed(): // Close goes on with it
		return false
	case l.loss != nil:
		l.loss = l.loss.asLoss()
		cause = l.loss
	}
	h.cancel(cause)
	m.core.holds.remove(h)
	return false
}

// Do holds the lock while it runs fn: [Mutex.Hold], fn, [Mutex.Unlock]. It waits for the lock as
// [Mutex.LockContext] does: by default for about five seconds, or 21 if a majority of nodes is
// silent. Unlock adds up to a node timeout. Do calls fn once it holds the lock, with the held
// context. That is cancelled with the cause [ErrLost] when the lock cannot be trusted any more; fn
// must return then. The lock is released even if fn panics.
//
// If Hold fails, Do returns its error, which matches [ErrFailed], and does not call fn. Otherwise
// fn ran, and Do returns the error of fn, or of Unlock, or one that wraps both. An error of Unlock
// matches [ErrNotReleased]: the work is done, and doing it again would do it twice. It matches
// [ErrExpired] if the nodes had lost the lock by the end of fn, and [ErrLost] too if that had ended
// the held context. If Close released the lock while fn ran, the error matches [ErrReleased]
// instead.
func (r *Redlock) Do(ctx context.Context, name string, fn func(ctx context.Context) error,
	opts ...Option) error {
	if fn == nil {
		return &OptionError{"Do", nil, "needs a function"}
	}
	m := r.NewMutex(name, opts...)
	held, err := m.Hold(ctx)
	if err != nil {
		return err
	}
	return m.during(ctx, func() error { return fn(held) })
}

// during runs what is done under a hold of the mutex, and unlocks it.
func (m *Mutex) during(ctx context.Context, fn func() error) (err error) {
	defer func() {
		var closeErr error
		if m.current().over() {
			closeErr = newError(m.name, "not held to the end", "released by Close", ErrReleased)
		}
		_, unlockErr := m.UnlockContext(ctx)
		if errors.Is(unlockErr, ErrNotHeld) {
			unlockErr = nil // Close has done it
		}
		err = errtext.Join(err, closeErr, unlockErr)
	}()
	return fn()
}

// glance is the least time after which a hold looks at the clocks again.
const glance = time.Second

// deadline is when the held context ends unless the lease is extended. The caller holds mu.
func (h *hold) deadline() time.Time { return h.l.until.Add(-h.l.m.cfg.margin) }

// wait is how long the timer has to run from now. The timer stands still while the machine is
// suspended. So it also fires from time to time with nothing due, to look at the wall clock. The
// caller holds mu.
func (h *hold) wait(now time.Time) time.Duration {
	d := clock.Remaining(now, h.deadline())
	if !h.limit.IsZero() {
		d = min(d, clock.Remaining(now, h.limit))
	}
	if h.l.state == stateHeld {
		d = min(d, clock.Remaining(now, h.next))
	}
	return clock.TimerDelay(min(d, max(h.l.m.cfg.Expiry/10, glance)))
}

// tick does what is due.
func (h *hold) tick() {
	l, m := h.l, h.l.m
	m.mu.Lock()
	if !l.kept() {
		m.mu.Unlock()
		return
	}
	now := m.core.now()
	var after effects
	switch {
	case clock.Remaining(now, l.until) <= 0:
		after = l.lose(EndLost, h.tooLate())
	case !h.limit.IsZero() && clock.Remaining(now, h.limit) <= 0:
		after = l.letGo(EndMaxHold, m.fail("lost", ErrLost,
			fmt.Sprintf("held for the maximum of %v", m.cfg.maxHold)))
	case clock.Remaining(now, h.deadline()) <= 0:
		after = l.letGo(EndMargin, h.tooLate().asLoss())
	case l.state == stateHeld && clock.Remaining(now, h.next) <= 0:
		l.change(stateRenewing, "", nil)
		m.core.renewals.Add(h, h.deadline())
		fallthrough
	default:
		h.timer.Reset(h.wait(now))
	}
	lost := l.state == stateLost
	h.tellLong(now)
	m.mu.Unlock()
	after.run()
	m.tell.all()
	if lost {
		l.Release(h.values, quorum.Spec{})
	}
}

// WithLongHold tells [Events] of a lock that Hold or Do has kept for d, and goes on keeping: by
// LongHold, and a warning of [LogEvents]. A hold whose Unlock was forgotten lasts for ever, without
// an error. It is told up to a second late, or a tenth of the expiry if that is longer. A negative
// d is an [*OptionError]. Default: 0, which tells nothing.
func WithLongHold(d time.Duration) Option {
	return option(func(c *config) { c.longHold = d })
}

// tellLong notes for Events that the hold lasts for long. The caller holds mu.
func (h *hold) tellLong(now time.Time) {
	l, t, held := h.l, h.l.m.tell, now.Sub(h.l.Began)
	if h.long == 0 || held < h.long || t == nil || t.LongHold == nil || !l.kept() {
		return
	}
	h.long = clock.Times(held, 2)
	e := LongHold{Name: l.m.name, Key: l.m.key, Token: l.Token, Held: held}
	t.noted.Add(func() { t.LongHold(e) })
}

// tooLate says why the lease was not extended in time. The caller holds mu.
func (h *hold) tooLate() *Error {
	if h.failed == nil {
		return newError(h.l.m.name, "not extended", "not extended in time")
	}
	// Nodes that have answered since the round was decided did their part.
	e, _ := h.l.denial("not extended", h.failed)
	e.reason = "not extended in time: " + strings.TrimPrefix(e.reason, "lost: ")
	return e
}

// renewalTimeout is how long the nodes have for a renewal, at least, unless half of the time left
// is less. It is enough for a client that has to dial, or to send a script, over a slow network.
const renewalTimeout = 5 * time.Second

// leastLeft is the least time before the deadline with which a renewal begins: no node can be
// expected to answer within less.
const leastLeft = time.Millisecond

// Renew extends the lease, unless the hold is over by now, and reports whether a quorum confirmed
// it. It ends within its budget.
//
// Nobody waits for a renewal, as others do for a Lock. So the nodes have five seconds at least, and
// twice as long after each renewal that failed, but no more than half of the time left. Say that an
// outage ends with a time L left before the deadline. Then the renewal under way ends with no less
// than half of L left, and the next begins.
func (h *hold) Renew() (confirmed bool) {
	l, m := h.l, h.l.m
	m.mu.Lock()
	kept, start := l.kept(), m.core.now()
	left := clock.Remaining(start, h.deadline())
	if kept && left < leastLeft {
		h.plan(start, start.Add(leastLeft)) // later than the deadline
	}
	m.mu.Unlock()
	if !kept || left < leastLeft {
		return false
	}
	budget := min(max(m.cfg.NodeTimeout, renewalTimeout, 2*h.had), left/2)
	ctx, call := grant.BeginRenewal(h.values)
	defer call.Cancel()
	ctx, told := m.tell.extending(ctx, l, byHold)

	m.mu.Lock()
	if l.kept() {
		l.renewal = call
	} else { // it was let go while Events were told
		call.Cancel()
	}
	m.mu.Unlock()
	round, err := l.prolong(ctx, budget, told)
	m.mu.Lock()
	l.renewal = nil
	h.renewed(start, budget, round, err)
	m.mu.Unlock()
	call.End() // before Events are told: their functions may unlock
	m.tell.extended(told, l, byHold, err)
	return err == nil
}

// renewed notes what became of a renewal that began at start. The caller holds mu.
func (h *hold) renewed(start time.Time, budget time.Duration, round *quorum.Round, err error) {
	if !h.l.kept() {
		return
	}
	now := h.l.m.core.now()
	if err == nil {
		h.failed, h.had = nil, 0
		h.plan(now, start.Add(clock.Remaining(start, h.deadline())/3))
		return
	}
	// What the nodes do not answer within ever less time, towards the end, is not what is wrong
	// with them.
	if round != nil && budget >= h.had {
		h.failed, h.had = round, budget
	}
	// Often enough for several more, and ever more often towards the end.
	left := clock.Remaining(start, h.deadline())
	h.plan(now, start.Add(max(min(left/8, budget), time.Millisecond)))
}

// plan ends a renewal, and sets when the next one begins. The caller holds mu.
func (h *hold) plan(now, next time.Time) {
	h.l.change(stateHeld, "", nil)
	h.next = next
	h.timer.Reset(h.wait(now))
}

// holds is the set of a Redlock's holds. Nothing is added to it once it is closed. It is safe for
// concurrent use.
type holds struct {
	closed chan struct{}

	mu  sync.Mutex // guards all, and is held while closed is closed
	all map[*hold]struct{}
}

// newHolds returns an empty set that is not closed.
func newHolds() *holds {
	return &holds{closed: make(chan struct{}), all: map[*hold]struct{}{}}
}

// add adds a hold, unless the set is closed. It reports whether it did.
func (hs *holds) add(h *hold) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.isClosed() {
		return false
	}
	hs.all[h] = struct{}{}
	return true
}

// remove removes a hold, if it is there.
func (hs *holds) remove(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.all, h)
}

// list returns what is there, in no order.
func (hs *holds) list() []*hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.Collect(maps.Keys(hs.all))
}

// close lets nothing be added any more, and leaves what is there. It reports false if that was done
// before.
func (hs *holds) close() (first bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.isClosed() {
		return false
	}
	close(hs.closed)
	return true
}

// ended returns a channel that is closed by close.
func (hs *holds) ended() <-chan struct{} { return hs.closed }

// isClosed reports whether close has been called.
func (hs *holds) isClosed() bool {
	select {
	case <-hs.closed:
		return true
	default:
		return false
	}
}
