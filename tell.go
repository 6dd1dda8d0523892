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
		quorum.Watched(m.nodes.Pipelines, t.called)
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

// operation is one Lock, extension or Unlock whose end Events are told of. A nil one does nothing.
type operation[E any] struct {
	t       *teller
	start   time.Time
	what    E             // is told of the end
	done    func(E)       // nil: nobody wants to know, or the end was noted
	overdue time.Duration // how long after the end of the lease it began, or 0
}

// begin tells of a beginning. It returns the context with which the operation goes on, and the
// operation, or nil if nobody wants to know how it ends.
func begin[B, E any](ctx context.Context, t *teller, tell notify.Begin[B, E], b B, what E,
	overdue time.Duration) (context.Context, *operation[E]) {
	var done func(E)
	if tell != nil {
		var told context.Context
		told, done = tell(ctx, b)
		ctx = notify.WithValues(ctx, told)
	}
	if done == nil && overdue == 0 {
		return ctx, nil
	}
	return ctx, &operation[E]{t, t.m.core.now(), what, done, overdue}
}

// note changes what is told of the end.
func (o *operation[E]) note(change func(what *E)) {
	if o != nil {
		change(&o.what)
	}
}

// attempted counts an attempt.
func attempted(told *operation[Acquired]) {
	told.note(func(what *Acquired) { what.Attempts++ })
}

// end notes the end, once; fill completes what is told. The caller holds mu.
func (o *operation[E]) end(fill func(what *E, now time.Time)) {
	if o == nil || o.done == nil {
		return
	}
	done := o.done
	o.done = nil
	fill(&o.what, o.t.m.core.now())
	o.t.noted.Add(func() { done(o.what) })
}

// over tells what is left to be told when an operation of that name is over. Of renewals that fail
// one after the other for want of a quorum, only the first is told as a failure.
func over[E any](t *teller, o *operation[E], name string, l *lease, who by, err error,
	fill func(what *E, now time.Time)) {
	if t == nil {
		return
	}
	if o != nil || err != nil || who == byHold {
		t.m.mu.Lock()
		o.end(fill)
		if o != nil && o.overdue > 0 {
			e := Overrun{Name: t.m.name, Key: t.m.key, Token: l.Token, Operation: name,
				By: o.overdue, Err: err}
			t.noted.Add(func() { t.Overrun(e) })
		}
		if !(who == byHold && t.silent) && t.NoQuorum != nil && errors.Is(err, ErrNoQuorum) {
			f := Failure{Name: t.m.name, Key: t.m.key, Operation: name, Err: err}
			t.noted.Add(func() { t.NoQuorum(f) })
		}
		if who == byHold {
			t.silent = err != nil
		}
		t.m.mu.Unlock()
	}
	t.all()
}

// errPanicked is the outcome of a Lock in which a function of the caller's has panicked.
var errPanicked = errors.New("redlock: the call has panicked, or its goroutine has ended")

// tellLock is obtain, and tells of it.
func (m *Mutex) tellLock(ctx context.Context, tries int, h *handoff) (l *lease, err error) {
	t := m.tell
	if t == nil {
		return h.obtain(ctx, m, tries, nil)
	}
	b := Acquiring{Name: m.name, Key: m.key, Tries: tries, Fencing: m.cfg.Fencing}
	ctx, told := begin(ctx, t, t.Acquire, b, Acquired{Acquiring: b}, 0)
	err = errPanicked
	defer func() {
		over(t, told, "acquire", nil, byOwner, err, func(what *Acquired, now time.Time) {
			what.Outcome, what.Err, what.Took = outcomeOf(err), err, now.Sub(told.start)
			what.Waited = what.Took
		})
	}()
	l, err = h.obtain(ctx, m, tries, told)
	return l, err
}

// obtain adopts the handoff for m, or locks m if the handoff is nil.
func (h *handoff) obtain(ctx context.Context, m *Mutex, tries int,
	told *operation[Acquired]) (*lease, error) {
	if h == nil {
		return m.lock(ctx, tries, told)
	}
	return h.adopt(ctx, m, told)
}

// waits returns who is told that a Lock of the mutex, which begins to wait now, has waited for
// long. It is nil if nobody wants to know.
func (m *Mutex) waits(tries int) func(queue.LongWait) {
	if m.tell == nil || m.tell.Waiting == nil {
		return nil
	}
	start := m.core.now()
	return func(l queue.LongWait) {
		d, _ := l.Latest.(*grant.FailedAttempt)
		m.tell.Waiting(Waiting{
			Acquiring: Acquiring{
				Name: m.name, Key: m.key, Tries: tries, Fencing: m.cfg.Fencing,
			},
			Waited: m.core.now().Sub(start), Callers: l.Waiters, Ahead: l.Ahead,
			Err: m.attemptError(d),
		})
	}
}

// granted notes that the lock was granted. The caller holds mu.
func granted(told *operation[Acquired], l *lease) {
	told.end(func(what *Acquired, now time.Time) {
		start := told.start
		what.Outcome, what.Took, what.Waited = OutcomeOK, now.Sub(start), l.Began.Sub(start)
		what.Raised, what.Token, what.Until = l.Raised, l.Token, l.until
	})
}

// extending tells that an extension or a renewal begins.
func (t *teller) extending(ctx context.Context, l *lease,
	who by) (context.Context, *operation[Extended]) {
	if t == nil {
		return ctx, nil
	}
	b := Extending{Name: t.m.name, Key: t.m.key, Token: l.Token, Renewal: who == byHold}
	return begin(ctx, t, t.Extend, b, Extended{Extending: b}, t.overdue(l))
}

// confirmed notes that a quorum has confirmed the lease in round r, and that until has moved from
// before. The caller holds mu.
func confirmed(told *operation[Extended], l *lease, r *quorum.Round, before time.Time) {
	told.end(func(what *Extended, now time.Time) {
		what.Outcome, what.Took, what.Until = OutcomeOK, now.Sub(told.start), l.until
		what.Left = remaining(now, before)
		what.Healed = r.Outcomes().Count(quorum.Outcome.Gone)
	})
}

// extended tells what is left to be told when an extension is over.
func (t *teller) extended(told *operation[Extended], l *lease, who by, err error) {
	over(t, told, "extend", l, who, err, func(what *Extended, now time.Time) {
		what.Outcome, what.Err, what.Took = outcomeOf(err), err, now.Sub(told.start)
		what.Left = remaining(now, l.until)
	})
}

// remaining returns how far ahead until is, or 0 if it is not known.
func remaining(now, until time.Time) time.Duration {
	if until.IsZero() {
		return 0
	}
	return clock.Remaining(now, until)
}

// unlocking tells that an Unlock begins.
func (t *teller) unlocking(ctx context.Context, l *lease,
	who by) (context.Context, *operation[Released]) {
	if t == nil {
		return ctx, nil
	}
	overdue := time.Duration(0)
	if who == byOwner { // the work was over when Close began, or its owner was told
		overdue = t.overdue(l)
	}
	b := Releasing{Name: t.m.name, Key: t.m.key, Token: l.Token, Closing: who == byClose}
	return begin(ctx, t, t.Release, b, Released{Releasing: b}, overdue)
}

// outcome returns what completes what is told of the end of an Unlock.
func outcome(told *operation[Released], err error) func(*Released, time.Time) {
	return func(what *Released, now time.Time) {
		what.Outcome, what.Err, what.Took = outcomeOf(err), err, now.Sub(told.start)
	}
}

// unlocked tells what is left to be told when an Unlock is over.
func (t *teller) unlocked(told *operation[Released], l *lease, who by, err error) {
	over(t, told, "release", l, who, err, outcome(told, err))
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
