package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/lease"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// notifier tells Events what happens to one mutex.
//
// What happens is noted while the Mu of the mutex's lock is held, and told without it by the first
// who comes. So the order is that of the states, and no function is called twice at a time. A
// function that uses the mutex does not wait for itself.
type notifier struct {
	*Events
	m      *Mutex
	silent bool // renewals fail for want of a quorum; Mu guards it
}

// nobody is Events without functions, which mutexes have by default.
var nobody = &Events{}

// attach lets the notifier tell what happens to a mutex.
func (t *notifier) attach(m *Mutex) {
	t.Events, t.m = m.cfg.events, m
	if t.Node != nil || t.NodeState != nil {
		quorum.Watched(m.lock.Pipelines, t.called)
	}
	if t.Waiting != nil {
		m.lock.OnLongWait = t.waits
	}
}

// all tells what was noted. The caller does not hold Mu.
func (t *notifier) all() { t.m.lock.Tell() }

// end notes that nobody relies on the lease any more. The caller holds Mu.
func (t *notifier) end(l *lease.Lease, reason EndReason, cause error) {
	lost := reason == EndLost || reason == EndMargin || reason == EndMaxHold
	handedOver := l.Began.IsZero()
	if handedOver || t.End == nil && !(lost && t.Lost != nil) {
		return
	}
	now := t.m.core.Now()
	e := Ended{
		Name: t.m.name, Key: t.m.key, Token: l.Token, Reason: reason,
		Held: now.Sub(l.Began), Overdue: max(-remaining(now, l.Until), 0), Err: cause,
	}
	t.m.lock.Note(func() {
		l.EndHold(lease.EndReason(reason), cause) // its owner is about to do so
		if lost && t.Lost != nil {
			t.Lost(e)
		}
		if t.End != nil {
			t.End(e)
		}
	})
}

// longHold notes that a hold lasts for long. The caller holds Mu.
func (t *notifier) longHold(h *hold, now time.Time) {
	held := now.Sub(h.l.Began)
	if h.long == 0 || held < h.long || t.LongHold == nil || !h.l.Kept() {
		return
	}
	h.long = clock.Times(held, 2)
	e := LongHold{Name: h.m.name, Key: h.m.key, Token: h.l.Token, Held: held}
	t.m.lock.Note(func() { t.LongHold(e) })
}

// called tells of a command that a client has returned from.
func (t *notifier) called(n *quorum.Node, c *pool.Command, k quorum.Kind, began int64, err error) {
	if t.NodeState != nil {
		if turned, up := n.Turned(k, began, err); turned {
			t.NodeState(NodeState{Node: n.Index, Addr: n.Addr(), Up: up, Err: exported(err)})
		}
	}
	if t.Node != nil {
		t.Node(NodeCall{
			Name: t.m.name, Key: t.m.key, Node: n.Index, Addr: n.Addr(),
			Command: commandName(c), Took: time.Duration(clock.NowTicks() - began),
			Err: exported(err),
		})
	}
}

// commandName is what a command is called.
func commandName(c *pool.Command) string {
	if c.Script() == nil {
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
	t       *notifier
	start   time.Time
	what    E             // is told of the end
	done    func(E)       // nil: nobody wants to know, or the end was noted
	overdue time.Duration // how long after the end of the lease it began, or 0
}

// begin tells of a beginning. It returns the context with which the operation goes on, and the
// operation, or nil if nobody wants to know how it ends.
func begin[B, E any](ctx context.Context, t *notifier, tell beginFunc[B, E], b B, what E,
	overdue time.Duration) (context.Context, *operation[E]) {
	var done func(E)
	if tell != nil {
		var told context.Context
		told, done = tell(ctx, b)
		ctx = withValues(ctx, told)
	}
	if done == nil && overdue == 0 {
		return ctx, nil
	}
	return ctx, &operation[E]{t, t.m.core.Now(), what, done, overdue}
}

// end notes the end, once; fill completes what is told. The caller holds Mu.
func (o *operation[E]) end(fill func(what *E, now time.Time)) {
	if o == nil || o.done == nil {
		return
	}
	done := o.done
	o.done = nil
	fill(&o.what, o.t.m.core.Now())
	o.t.m.lock.Note(func() { done(o.what) })
}

// errPanicked is the outcome of a Lock in which a function of the caller's has panicked.
var errPanicked = errors.New("redlock: the call has panicked, or its goroutine has ended")

// over tells what is left to be told when an operation is over. Of renewals that fail
// one after the other for want of a quorum, only the first is told as a failure.
func over[E any](t *notifier, o *operation[E], op Operation, l *lease.Lease, who by, err error,
	fill func(what *E, now time.Time)) {
	t.m.lock.Mu.Lock()
	o.end(fill)
	if o != nil && o.overdue > 0 {
		e := Overrun{Name: t.m.name, Key: t.m.key, Token: l.Token, Operation: op,
			By: o.overdue, Err: err}
		t.m.lock.Note(func() { t.Overrun(e) })
	}
	if !(who == byHold && t.silent) && t.NoQuorum != nil && errors.Is(err, ErrNoQuorum) {
		f := Failure{Name: t.m.name, Key: t.m.key, Operation: op, Err: err}
		t.m.lock.Note(func() { t.NoQuorum(f) })
	}
	switch {
	case who == byHold:
		t.silent = err != nil
	case op == OperationAcquire && err == nil: // another lock
		t.silent = false
	}
	t.m.lock.Mu.Unlock()
	t.all()
}

// acquiring tells that a Lock begins.
func (t *notifier) acquiring(ctx context.Context, tries int) (context.Context,
	*operation[Acquired]) {
	b := t.m.acquiring(tries)
	return begin(ctx, t, t.Acquire, b, Acquired{Acquiring: b}, 0)
}

// acquiring is what is told of a Lock that begins.
func (m *Mutex) acquiring(tries int) Acquiring {
	return Acquiring{m.name, m.key, tries, m.cfg.Fencing, m.cfg.Shared}
}

// acquired tells what is left to be told when a Lock is over.
func (t *notifier) acquired(told *operation[Acquired], err error) {
	over(t, told, OperationAcquire, nil, byOwner, err, func(what *Acquired, now time.Time) {
		what.Outcome, what.Err, what.Took = outcomeOf(err), err, now.Sub(told.start)
		what.Waited = what.Took
	})
}

// witness lets Events know how a Lock goes on. It implements [lease.Witness].
type witness struct{ *operation[Acquired] }

func (w witness) Attempts() { w.what.Attempts++ }

func (w witness) Waits() { w.what.Queued = true }

func (w witness) Granted(l *lease.Lease) {
	w.end(func(what *Acquired, now time.Time) {
		what.Outcome, what.Took, what.Waited = OutcomeOK, now.Sub(w.start), l.Began.Sub(w.start)
		what.Raised, what.Token, what.Until = l.Raised, l.Token, l.Until
	})
}

// waits tells that a Lock has waited for long.
func (t *notifier) waits(tries int, waited time.Duration, l queue.LongWait) {
	d, _ := l.Latest.(*lease.FailedAttempt)
	t.Waiting(Waiting{
		Acquiring: t.m.acquiring(tries), Waited: waited, Callers: l.Waiters, Ahead: l.Ahead,
		Err: t.m.error(notAcquired, d.Failure()),
	})
}

// extending tells that an extension or a renewal begins.
func (t *notifier) extending(ctx context.Context, l *lease.Lease,
	who by) (context.Context, *operation[Extended]) {
	b := Extending{Name: t.m.name, Key: t.m.key, Token: l.Token, Renewal: who == byHold}
	return begin(ctx, t, t.Extend, b, Extended{Extending: b}, t.overdue(l))
}

// confirmed returns what notes, under Mu, that a quorum has confirmed the lease in a round, and
// that until has moved from before. It is nil if nobody wants to know.
func confirmed(told *operation[Extended], l *lease.Lease) func(*quorum.Round, time.Time) {
	if told == nil {
		return nil
	}
	return func(r *quorum.Round, before time.Time) {
		told.end(func(what *Extended, now time.Time) {
			what.Outcome, what.Took, what.Until = OutcomeOK, now.Sub(told.start), l.Until
			what.Left = remaining(now, before)
			what.Healed = r.Outcomes().Count(quorum.Outcome.Gone)
		})
	}
}

// extended tells what is left to be told when an extension is over.
func (t *notifier) extended(told *operation[Extended], l *lease.Lease, who by, err error) {
	over(t, told, OperationExtend, l, who, err, func(what *Extended, now time.Time) {
		what.Outcome, what.Err, what.Took = outcomeOf(err), err, now.Sub(told.start)
		what.Left = remaining(now, l.Until)
	})
}

// remaining returns how far ahead until is, or 0 if it is not known.
func remaining(now, until time.Time) time.Duration {
	if until.IsZero() {
		return 0
	}
	return clock.Remaining(now, until)
}

// releasing tells that an Unlock begins.
func (t *notifier) releasing(ctx context.Context, l *lease.Lease,
	who by) (context.Context, *operation[Released]) {
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

// overdue returns how long ago until was, if that is an overrun and somebody wants to know, or 0.
func (t *notifier) overdue(l *lease.Lease) time.Duration {
	if t.Overrun == nil {
		return 0
	}
	return l.Overrun()
}

// beginFunc is told of a beginning. It returns a context for what has begun, and a function that is
// told of its end. Both may be nil.
type beginFunc[B, E any] = func(context.Context, B) (context.Context, func(E))

// both returns a function that calls first and second. Either may be nil, and is left out.
func both[T any](first, second func(T)) func(T) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(v T) { first(v); second(v) }
}

// nested returns a function that calls outer, and inner with outer's context. Ends are told in the
// reverse order. Either may be nil, and is left out.
func nested[B, E any](outer, inner beginFunc[B, E]) beginFunc[B, E] {
	switch {
	case outer == nil:
		return inner
	case inner == nil:
		return outer
	}
	return func(ctx context.Context, b B) (context.Context, func(E)) {
		ctx, last := outer(ctx, b)
		ctx, first := inner(ctx, b)
		return ctx, both(first, last)
	}
}

// panics recovers the panics of functions, and reports the first to [slog.Default].
type panics struct{ reported sync.Once }

// guard returns f without its panics. It returns nil for nil.
func guard[T any](p *panics, name string, f func(T)) func(T) {
	if f == nil {
		return nil
	}
	return func(v T) {
		defer p.recovered(name)
		f(v)
	}
}

// guardBegin returns f without its panics, and those of the functions that it returns. It returns
// nil for nil. If f returns no context, or panics, that is the one it was called with.
func guardBegin[B, E any](p *panics, name string, f beginFunc[B, E]) beginFunc[B, E] {
	if f == nil {
		return nil
	}
	nameOfEnd := "end of " + name
	return func(ctx context.Context, b B) (next context.Context, end func(E)) {
		next = ctx
		defer p.recovered(name)
		given, end := f(ctx, b)
		if given != nil {
			next = given
		}
		return next, guard(p, nameOfEnd, end)
	}
}

// recovered ends a panic. It is deferred.
func (p *panics) recovered(function string) {
	v := recover()
	if v == nil {
		return
	}
	p.reported.Do(func() {
		defer func() { _ = recover() }() // the logger may be what has panicked
		slog.Error("redlock: a function of Events has panicked; further panics are not reported",
			"function", function, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	})
}

// withValues returns ctx with the values of another context, which is usually made from it.
func withValues(ctx, values context.Context) context.Context {
	if values.Done() == ctx.Done() {
		return values
	}
	return valued{ctx, values}
}

// valued is a context with the values of another.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any { return v.values.Value(key) }
