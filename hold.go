package redlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/lease"
	"github.com/redlock-go/redlock/internal/quorum"
)

// hold keeps a lease extended, and cancels the held context at its end; see the drawing in package
// lease. A lease that was let go stays locked until its deadline, and Unlock releases it. A lost
// one is being released. On every node a release comes after what has been sent that may set the
// key. What a renewal has not sent is dropped. Unlock also waits for the renewal's end. So nothing
// writes the key after Unlock has returned.
//
// Between renewals a hold is a timer and no goroutine. The renewal runs on another goroutine: the
// timer ends the hold in time, whatever the network does.
type hold struct {
	m      *Mutex
	l      *lease.Lease
	cancel context.CancelCauseFunc // of the held context
	limit  time.Time               // of WithMaxHold, or zero
	held   heldContext             // what the holder is given

	// The Mu of the mutex's lock guards these.
	timer *time.Timer   // ends in tick
	next  time.Time     // when to renew
	long  time.Duration // when it has lasted for so long, Events are told; 0: they are not

	// Of the renewals that have failed since one succeeded: the last of those that had most time.
	failed *quorum.Round
	had    time.Duration

	mu     sync.Mutex                               // guards what follows
	beside map[*heldContext]context.CancelCauseFunc // of callers who share the hold
}

// holding are the options that count while the lock is held, and on no node.
type holding struct {
	maxHold  time.Duration // 0: no bound
	margin   time.Duration
	longHold time.Duration // or 0
	events   *Events
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
	l, err := m.acquire(ctx, m.cfg.tries, "")
	if err != nil {
		return nil, err
	}
	return m.keep(ctx, l)
}

// keep begins to hold a lease that was just granted, and returns the held context.
func (m *Mutex) keep(ctx context.Context, l *lease.Lease) (context.Context, error) {
	held, cancel := context.WithCancelCause(ctx)
	h := &hold{m: m, l: l, cancel: cancel}
	if m.cfg.maxHold > 0 {
		h.limit = l.Began.Add(m.cfg.maxHold)
	}
	h.held, h.long = heldContext{held, h}, m.cfg.longHold
	if !m.core.holds.add(h) {
		_ = m.unlock(ctx, l, byClose)
	} else if h.begin() || !m.core.holds.isClosed() {
		return &h.held, nil
	}
	cancel(ErrReleased)
	return nil, m.error(notAcquired, lease.ErrClosed)
}

// begin begins to keep the lease extended. It reports false if the lease has ended meanwhile: Close
// has begun to release it, or another user of the mutex has unlocked it or proven its loss. Then
// the held context is done.
func (h *hold) begin() bool {
	l, m := h.l, h.m
	now := m.core.Now()
	m.lock.Mu.Lock()
	defer m.lock.Mu.Unlock()
	switch {
	case l.Keep(h.end):
		m.held = h
		h.next = now.Add(clock.Remaining(now, h.deadline()) / 3)
		h.timer = time.AfterFunc(h.wait(now), h.tick)
		return true
	case l.State == lease.StateLetGo, m.core.holds.isClosed(): // Close goes on with it
		return false
	case l.Loss != nil:
		h.end(lease.EndLost, m.error(lost, l.Loss))
	default:
		h.end(lease.EndReleased, ErrReleased)
	}
	return false
}

// end ends the hold with its lease.
func (h *hold) end(reason lease.EndReason, cause error) {
	if h.timer != nil {
		h.timer.Stop()
	}
	h.cancel(cause)
	h.mu.Lock()
	for _, cancel := range h.beside {
		cancel(cause)
	}
	h.mu.Unlock()
	if reason != lease.EndClosed { // Close has still to release it
		h.m.core.holds.remove(h)
	}
}

// glance is the least time after which a hold looks at the clocks again.
const glance = time.Second

// deadline is when the held context ends unless the lease is extended. The caller holds Mu.
func (h *hold) deadline() time.Time { return h.l.Until.Add(-h.m.cfg.margin) }

// wait is how long the timer has to run from now. The timer stands still while the machine is
// suspended. So it also fires from time to time with nothing due, to look at the wall clock. The
// caller holds Mu.
func (h *hold) wait(now time.Time) time.Duration {
	d := clock.Remaining(now, h.deadline())
	if !h.limit.IsZero() {
		d = min(d, clock.Remaining(now, h.limit))
	}
	if h.l.State == lease.StateHeld {
		d = min(d, clock.Remaining(now, h.next))
	}
	return clock.TimerDelay(min(d, max(h.m.cfg.Expiry/10, glance)))
}

// tick does what is due.
func (h *hold) tick() {
	l, m := h.l, h.m
	m.lock.Mu.Lock()
	if !l.Kept() {
		m.lock.Mu.Unlock()
		return
	}
	now := m.core.Now()
	var after lease.Effects
	switch {
	case clock.Remaining(now, l.Until) <= 0:
		after = l.Lose(lease.EndLost, lease.NotInTime(h.failed))
	case !h.limit.IsZero() && clock.Remaining(now, h.limit) <= 0:
		after = l.LetGo(lease.EndMaxHold, &lease.Failure{
			Reason: fmt.Sprintf("held for the maximum of %v", m.cfg.maxHold),
		})
	case clock.Remaining(now, h.deadline()) <= 0:
		after = l.LetGo(lease.EndMargin, lease.NotInTime(h.failed))
	case l.State == lease.StateHeld && clock.Remaining(now, h.next) <= 0:
		l.Change(lease.StateRenewing, "", nil)
		m.core.renewals.Add(h.renew, h.deadline())
		fallthrough
	default:
		h.timer.Reset(h.wait(now))
	}
	lost := l.State == lease.StateLost
	m.tell.longHold(h, now)
	m.lock.Mu.Unlock()
	after.Run()
	m.tell.all()
	if lost {
		l.Release(h.held.Context, quorum.Spec{})
	}
}

// WithLongHold tells [Events] of a lock that Hold or Do has kept for d, and goes on keeping: by
// LongHold, and a warning of [LogEvents]. A hold whose Unlock was forgotten lasts for ever, without
// an error. It is told up to a second late, or a tenth of the expiry if that is longer. A negative
// d is an [*OptionError]. Default: 0, which tells nothing.
func WithLongHold(d time.Duration) Option {
	return option(func(c *config) { c.longHold = d })
}

// renewalTimeout is how long the nodes have for a renewal, at least, unless two thirds of the time
// left is less. It is enough for a client that has to dial, or to send a script, over a slow
// network.
const renewalTimeout = 5 * time.Second

// leastLeft is the least time before the deadline with which a renewal begins: no node can be
// expected to answer within less.
const leastLeft = time.Millisecond

// renew extends the lease, unless the hold is over by now, and reports whether a quorum confirmed
// it. It ends within its budget.
//
// Nobody waits for a renewal, as others do for a Lock. So the nodes have five seconds at least, and
// twice as long after each renewal that failed, but no more than two thirds of the time left. Say
// that an outage ends with a time L left before the deadline. Then the renewal under way ends with
// no less than a third of L left, and the next begins.
func (h *hold) renew() (renewed bool) {
	l, m := h.l, h.m
	m.lock.Mu.Lock()
	kept, start := l.Kept(), m.core.Now()
	left := clock.Remaining(start, h.deadline())
	if kept && left < leastLeft {
		h.plan(start, start.Add(leastLeft)) // later than the deadline
	}
	m.lock.Mu.Unlock()
	if !kept || left < leastLeft {
		return false
	}
	budget := min(max(m.cfg.NodeTimeout, renewalTimeout, 2*h.had), left/3*2)
	ctx, told := m.tell.extending(context.WithoutCancel(h.held.Context), l, byHold)
	round, f := l.Renew(ctx, budget, confirmed(told, l))
	m.lock.Mu.Lock()
	h.renewed(start, budget, round, f == nil)
	m.lock.Mu.Unlock()
	m.tell.extended(told, l, byHold, m.error(notExtended, f))
	return f == nil
}

// renewed notes what became of a renewal that began at start. The caller holds Mu.
func (h *hold) renewed(start time.Time, budget time.Duration, round *quorum.Round, confirmed bool) {
	if !h.l.Kept() {
		return
	}
	now := h.m.core.Now()
	if confirmed {
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

// plan ends a renewal, and sets when the next one begins. The caller holds Mu.
func (h *hold) plan(now, next time.Time) {
	h.l.Change(lease.StateHeld, "", nil)
	h.next = next
	h.timer.Reset(h.wait(now))
}

// holds is the set of a Redlock's holds. Nothing is added to it once it is closed. It is safe for
// concurrent use.
type holds struct {
	open context.Context // done when it is closed

	mu  sync.Mutex // guards what follows, and is held while the set is closed
	end context.CancelFunc
	all map[*hold]struct{}
}

// newHolds returns an empty set that is not closed.
func newHolds() *holds {
	hs := &holds{all: map[*hold]struct{}{}}
	hs.open, hs.end = context.WithCancel(context.Background())
	return hs
}

// isClosed reports whether close has been called.
func (hs *holds) isClosed() bool { return hs.open.Err() != nil }

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

// close lets nothing be added any more, and leaves what is there.
func (hs *holds) close() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.end()
}

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
		return c
	}
	return c.Context.Value(key)
}

// self is the error of a Lock that would wait for itself: ctx comes from a hold of the same lock.
// It is nil if that hold is over, or the caller's part in it: the caller may have waited for that.
// It is nil if ctx is done.
func (m *Mutex) self(ctx context.Context) error {
	h := holdOf(ctx, func(c *heldContext) bool { return c.h.keeps(m) && !c.hasLeft() })
	if h == nil || ctx.Err() != nil || m.lock.Misuse != nil {
		return nil
	}
	return m.error(notAcquired, &lease.Failure{Kind: lease.Taken | lease.Self,
		Reason: "held by the caller itself: its context comes from a hold of this lock"})
}

// holdOf returns the innermost hold that ctx comes from and that is the one looked for, or nil.
func holdOf(ctx context.Context, is func(*heldContext) bool) *hold {
	for {
		c, _ := ctx.Value(holdKey{}).(*heldContext)
		if c == nil {
			return nil
		}
		if is(c) {
			return c.h
		}
		ctx = c.Context // locks within each other
	}
}

// isOver reports whether the hold has ended, or should have: after the process stood still, timers
// are late.
func (h *hold) isOver() bool {
	now := h.m.core.Now()
	h.m.lock.Mu.Lock()
	defer h.m.lock.Mu.Unlock()
	end, ok := h.held.Deadline()
	return !h.l.Kept() || h.held.Err() != nil || clock.Remaining(now, h.deadline()) <= 0 ||
		ok && clock.Remaining(now, end) <= 0
}

// keeps reports whether h keeps the lock of m extended, perhaps for another mutex.
func (h *hold) keeps(m *Mutex) bool {
	return h.m.core == m.core && h.m.key == m.key && h.l.Look().Kept()
}
