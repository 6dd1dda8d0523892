package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/notify"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// teller tells Events what happens to one mutex. A nil teller tells nobody.
//
// What happens is noted while the mutex's mu is held, and told without it by the first who comes.
// So the order is that of the states, and no function is called twice at a time. A function that
// uses the mutex does not wait for itself.
type teller struct {
	*Events
	m *Mutex

	// The mutex's mu guards these.
	noted  notify.Queue
	silent bool // renewals fail for want of a quorum
}

// newTeller returns the teller of a mutex, or nil if nobody wants to be told.
func newTeller(m *Mutex) *teller {
	if m.cfg.events == nil {
		return nil
	}
	t := &teller{Events: m.cfg.events, m: m, noted: notify.NewQueue(&m.mu)}
	if t.Node != nil || t.NodeState != nil {
		quorum.Watched(m.nodes.Lanes, t.called)
	}
	return t
}

// all tells what was noted. The caller does not hold mu.
func (t *teller) all() {
	if t != nil {
		t.noted.Run()
	}
}

// end notes that nobody relies on the lease any more. The caller holds mu.
func (t *teller) end(l *lease, reason EndReason, cause error) {
	if t == nil || l.Began.IsZero() { // zero: the lock was handed over
		return
	}
	lost := reason == EndLost || reason == EndMargin || reason == EndMaxHold
	if t.End == nil && !(lost && t.Lost != nil) {
		return
	}
	now, h := t.m.core.now(), l.hold
	e := Ended{
		Name: t.m.name, Key: t.m.key, Token: l.Token, Reason: reason,
		Held: now.Sub(l.Began), Overdue: ago(now, l.until), Err: cause,
	}
	t.noted.Add(func() {
		if h != nil {
			h.cancel(cause) // its owner is about to do so
		}
		if lost && t.Lost != nil {
			t.Lost(e)
		}
		if t.End != nil {
			t.End(e)
		}
	})
}

// ago returns how long ago until was, or 0.
func ago(now, until time.Time) time.Duration { return max(-remaining(now, until), 0) }

// called tells of a command that a client has returned from.
func (t *teller) called(n *quorum.Node, c *pool.Command, k quorum.Kind, began int64, err error) {
	if t.NodeState != nil {
		if turned, up := n.Turned(k, began, err); turned {
			t.NodeState(NodeState{Node: n.Index, Addr: n.Addr(), Up: up, Err: exported(err)})
		}
	}
	if t.Node != nil {
		t.Node(NodeCall{
			Name: t.m.name, Key: t.m.key, Node: n.Index, Addr: n.Addr(),
			Operation: commandName(c, k), Took: time.Duration(clock.Ticks(time.Now()) - began),
			Err: exported(err),
		})
	}
}

// commandName is what a command is called. One that is decided late is not known, but there are
// few.
func commandName(c *pool.Command, k quorum.Kind) string {
	switch {
	case c == nil && k == quorum.Write:
		return "heal"
	case c == nil:
		return "release" // or what is done instead, see linger
	case c.Script() == nil:
		return "acquire"
	}
	return c.Script().Name
}

// by says who asks for an operation.
type by uint8

const (
	byOwner by = iota // of the mutex
	byHold            // a renewal
	byClose
)

// operation is what Events are told of the end of one Lock, extension or Unlock.
type operation[E any] struct {
	t     *teller
	start time.Time
	what  E
	done  func(E) // nil: nobody wants to know, or its end was noted
}

// begin tells of a beginning. It returns the context with which the operation goes on, when it
// began, and who is told of its end. If done is nil, nobody wants to know, and start is zero.
func begin[B, E any](ctx context.Context, t *teller, tell notify.Begin[B, E], b B) (
	next context.Context, start time.Time, done func(E)) {
	if tell == nil {
		return ctx, start, nil
	}
	told, done := tell(ctx, b)
	if done != nil {
		start = t.m.core.now()
	}
	return notify.WithValues(ctx, told), start, done
}

// end notes the end, once; fill completes what is told. The caller holds mu.
func (o *operation[E]) end(fill func(what *E, now time.Time)) {
	if o.done == nil {
		return
	}
	done := o.done
	o.done = nil
	fill(&o.what, o.t.m.core.now())
	o.t.noted.Add(func() { done(o.what) })
}

// errPanicked is the outcome of a Lock in which a function of the caller's has panicked.
var errPanicked = errors.New("redlock: the call has panicked, or its goroutine has ended")

// acquisition is one Lock whose end Events are told of. A nil one does nothing.
type acquisition struct{ operation[Acquired] }

// tellLock is obtain, and tells of it.
func (m *Mutex) tellLock(ctx context.Context, tries int, h *handoff) (l *lease, err error) {
	t := m.tell
	if t == nil {
		return h.obtain(ctx, m, tries, nil)
	}
	begun := Acquiring{Name: m.name, Key: m.key, Tries: tries, Fencing: m.cfg.Fencing}
	ctx, start, done := begin(ctx, t, t.Acquire, begun)
	var a *acquisition
	if done != nil {
		a = &acquisition{operation[Acquired]{t, start, Acquired{Acquiring: begun}, done}}
	}
	err = errPanicked
	defer func() { t.acquired(a, err) }()
	l, err = h.obtain(ctx, m, tries, a)
	return l, err
}

// obtain adopts the handoff for m, or locks m if the handoff is nil.
func (h *handoff) obtain(ctx context.Context, m *Mutex, tries int,
	told *acquisition) (*lease, error) {
	if h == nil {
		return m.lock(ctx, tries, told)
	}
	return h.adopt(ctx, m, told)
}

// attempt counts an attempt.
func (a *acquisition) attempt() {
	if a != nil {
		a.what.Attempts++
	}
}

// queue notes that the Lock has to wait.
func (a *acquisition) queue() {
	if a != nil {
		a.what.Queued = true
	}
}

// waits returns who is told that a Lock of the mutex, which begins to wait now, has waited for
// long. It is nil if nobody wants to know.
func (m *Mutex) waits(tries int) func(queue.LongWait) {
	if m.tell == nil || m.tell.Waiting == nil {
		return nil
	}
	start := m.core.now()
	return func(l queue.LongWait) {
		d, _ := l.Latest.(*grant.Defeat)
		m.tell.Waiting(Waiting{
			Acquiring: Acquiring{
				Name: m.name, Key: m.key, Tries: tries, Fencing: m.cfg.Fencing,
			},
			Waited: m.core.now().Sub(start), Callers: l.Waiters, Ahead: l.Ahead, Err: m.defeated(d),
		})
	}
}

// granted notes that the lock was granted. The caller holds mu.
func (a *acquisition) granted(l *lease) {
	if a == nil {
		return
	}
	a.end(func(what *Acquired, now time.Time) {
		what.Outcome, what.Took, what.Waited = OutcomeOK, now.Sub(a.start), l.Began.Sub(a.start)
		what.Raised, what.Token, what.Until = l.Raised, l.Token, l.until
	})
}

// acquired tells what is left to be told when a Lock is over.
func (t *teller) acquired(a *acquisition, err error) {
	if a == nil && err == nil {
		t.all()
		return
	}
	t.m.mu.Lock()
	if a != nil {
		a.end(func(what *Acquired, now time.Time) {
			what.Outcome, what.Err, what.Took = outcomeOf(err), err, now.Sub(a.start)
			what.Waited = what.Took
		})
	}
	t.failed("acquire", err)
	t.m.mu.Unlock()
	t.all()
}

// extension is one Extend or renewal that Events are told of. A nil one does nothing.
type extension struct {
	operation[Extended]
	overdue time.Duration
}

// extending tells that an extension begins.
func (t *teller) extending(ctx context.Context, l *lease, who by) (context.Context, *extension) {
	if t == nil {
		return ctx, nil
	}
	overdue := t.overdue(l)
	begun := Extending{Name: t.m.name, Key: t.m.key, Token: l.Token, Renewal: who == byHold}
	ctx, start, done := begin(ctx, t, t.Extend, begun)
	if done == nil && overdue == 0 {
		return ctx, nil
	}
	o := operation[Extended]{t, start, Extended{Extending: begun}, done}
	return ctx, &extension{o, overdue}
}

// confirmed notes that a quorum has confirmed the lease in round r, and that until has moved from
// before. The caller holds mu.
func (x *extension) confirmed(l *lease, r *quorum.Round, before time.Time) {
	if x == nil {
		return
	}
	x.end(func(what *Extended, now time.Time) {
		what.Outcome, what.Took, what.Until = OutcomeOK, now.Sub(x.start), l.until
		what.Left = remaining(now, before)
		what.Healed = r.Outcomes().Count(quorum.Outcome.Gone)
	})
}

// extended tells what is left to be told when an extension is over.
func (t *teller) extended(x *extension, l *lease, who by, err error) {
	if t == nil {
		return
	}
	t.m.mu.Lock()
	if x != nil {
		x.end(func(what *Extended, now time.Time) {
			what.Outcome, what.Err, what.Took = outcomeOf(err), err, now.Sub(x.start)
			what.Left = remaining(now, l.until)
		})
		t.overran(l, "extend", x.overdue, err)
	}
	if who != byHold || !t.silent {
		t.failed("extend", err)
	}
	if who == byHold {
		t.silent = err != nil
	}
	t.m.mu.Unlock()
	t.all()
}

// remaining returns how far ahead until is, or 0 if it is not known.
func remaining(now, until time.Time) time.Duration {
	if until.IsZero() {
		return 0
	}
	return clock.Remaining(now, until)
}

// unlocking is one Unlock that Events are told of. A nil one does nothing.
type unlocking struct {
	operation[Released]
	overdue time.Duration
}

// unlocking tells that an Unlock begins.
func (t *teller) unlocking(ctx context.Context, l *lease, who by) (context.Context, *unlocking) {
	if t == nil {
		return ctx, nil
	}
	overdue := time.Duration(0)
	if who == byOwner { // the work was over when Close began, or its owner was told
		overdue = t.overdue(l)
	}
	begun := Releasing{Name: t.m.name, Key: t.m.key, Token: l.Token, Closing: who == byClose}
	ctx, start, done := begin(ctx, t, t.Release, begun)
	if done == nil && overdue == 0 {
		return ctx, nil
	}
	o := operation[Released]{t, start, Released{Releasing: begun}, done}
	return ctx, &unlocking{o, overdue}
}

// ended notes the end. The caller holds mu.
func (u *unlocking) ended(err error) {
	if u == nil {
		return
	}
	u.end(func(what *Released, now time.Time) {
		what.Outcome, what.Err, what.Took = outcomeOf(err), err, now.Sub(u.start)
	})
}

// unlocked tells what is left to be told when an Unlock is over.
func (t *teller) unlocked(u *unlocking, l *lease, err error) {
	if t == nil {
		return
	}
	if u == nil && err == nil {
		t.all()
		return
	}
	t.m.mu.Lock()
	if u != nil {
		u.ended(err)
		t.overran(l, "release", u.overdue, err)
	}
	t.failed("release", err)
	t.m.mu.Unlock()
	t.all()
}

// overdue returns how long ago until was, if somebody wants to know and has not been told, or 0.
func (t *teller) overdue(l *lease) time.Duration {
	if t.Overrun == nil {
		return 0
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if l.overran || l.state == stateReleased {
		return 0
	}
	by := ago(t.m.core.now(), l.until)
	l.overran = by > 0
	return by
}

// overran notes an operation that came too late, unless by is 0. The caller holds mu.
func (t *teller) overran(l *lease, operation string, by time.Duration, err error) {
	if by == 0 {
		return
	}
	o := Overrun{Name: t.m.name, Key: t.m.key, Token: l.Token, Operation: operation, By: by,
		Err: err}
	t.noted.Add(func() { t.Overrun(o) })
}

// failed notes an operation that has failed for want of a quorum. The caller holds mu.
func (t *teller) failed(operation string, err error) {
	if err == nil || t.NoQuorum == nil || !errors.Is(err, ErrNoQuorum) {
		return
	}
	f := Failure{Name: t.m.name, Key: t.m.key, Operation: operation, Err: err}
	t.noted.Add(func() { t.NoQuorum(f) })
}
