package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// teller tells Events what happens to one mutex.
//
// What happens is noted while the mutex's mu is held, and told without it by whoever comes first.
// So the order is that of the states, no function is called twice at a time, and one that uses the
// mutex does not wait for itself.
type teller struct {
	*Events
	m *Mutex

	// The mutex's mu guards these.
	untold  []func()
	telling bool // somebody is telling
	silent  bool // renewals fail for want of a quorum
}

// newTeller returns the teller of a mutex, or nil if nobody wants to be told.
func newTeller(m *Mutex) *teller {
	if m.cfg.events == nil {
		return nil
	}
	t := &teller{Events: m.cfg.events, m: m}
	if t.Node != nil || t.NodeState != nil {
		quorum.Watched(m.lanes, t.called)
	}
	return t
}

// note adds what tellAll tells. The caller holds the mutex's mu.
func (t *teller) note(event func()) { t.untold = append(t.untold, event) }

// tellAll tells what was noted. The caller does not hold mu.
func (m *Mutex) tellAll() {
	if m.tell == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tell
	for !t.telling && len(t.untold) > 0 {
		event := t.untold[0]
		t.untold = t.untold[1:]
		t.telling = true
		t.tell(event)
	}
}

// tell tells one thing. The caller holds mu, which is unlocked meanwhile.
func (t *teller) tell(event func()) {
	t.m.mu.Unlock()
	defer func() { // also if the event ends the goroutine
		t.m.mu.Lock()
		t.telling = false
	}()
	event()
}

// end notes that nobody relies on the lease any more, if that is news. The caller holds mu.
func (m *Mutex) end(l *lease, reason EndReason, cause error) {
	t := m.tell
	if t == nil || l == nil || l.ended || l.granted.IsZero() { // zero: the lock was handed over
		return
	}
	l.ended = true
	lost := reason == EndLost || reason == EndMargin || reason == EndMaxHold
	if t.End == nil && !(lost && t.Lost != nil) {
		return
	}
	now, h := m.core.now(), l.hold
	e := Ended{
		Name: m.name, Key: m.key, Token: l.token, Reason: reason,
		Held: now.Sub(l.granted), Overdue: past(now, l.until), Err: cause,
	}
	t.note(func() {
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

// replaced notes that a lease, which may be nil, has ended without anybody's notice, if that is
// news. The caller holds mu.
func (m *Mutex) replaced(l *lease) {
	if m.tell != nil && l != nil && !l.ended {
		m.end(l, EndReplaced, m.fail("ended", ErrExpired, "granted to its own mutex anew"))
	}
}

// past returns how long ago until was, or 0.
func past(now, until time.Time) time.Duration {
	if until.IsZero() {
		return 0
	}
	return max(-clock.Remaining(now, until), 0)
}

// fence returns the token of the lease, which may be nil.
func (l *lease) fence() uint64 {
	if l == nil {
		return 0
	}
	return l.token
}

// late returns how long ago until was, if somebody wants to know and has not been told, or 0. The
// lease may be nil.
func (t *teller) late(l *lease) time.Duration {
	if t.Overrun == nil || l == nil {
		return 0
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if l.overran || l.released {
		return 0
	}
	by := past(t.m.core.now(), l.until)
	l.overran = by > 0
	return by
}

// overran notes an operation that came too late, unless by is 0.
func (t *teller) overran(l *lease, operation string, by time.Duration, err error) {
	if by == 0 {
		return
	}
	o := Overrun{Name: t.m.name, Key: t.m.key, Token: l.token, Operation: operation, By: by,
		Err: err}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.note(func() { t.Overrun(o) })
}

// failed notes an operation that has failed for want of a quorum.
func (t *teller) failed(operation string, err error) {
	if err == nil || t.NoQuorum == nil || !errors.Is(err, ErrNoQuorum) {
		return
	}
	f := Failure{Name: t.m.name, Key: t.m.key, Operation: operation, Err: err}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.note(func() { t.NoQuorum(f) })
}

// first reports whether a renewal is the first in a row that has failed.
func (t *teller) first(err error) bool {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	before := t.silent
	t.silent = err != nil
	return !before
}

// called tells of a command that a client has returned from.
func (t *teller) called(n *quorum.Node, c *pool.Command, k quorum.Kind, began int64, err error) {
	if t.NodeState != nil {
		if turned, up := n.Turned(err); turned {
			t.NodeState(NodeState{Node: n.Index, Addr: t.m.core.addr(n.Index), Up: up, Err: err})
		}
	}
	if t.Node != nil {
		t.Node(NodeCall{
			Name: t.m.name, Key: t.m.key, Node: n.Index, Addr: t.m.core.addr(n.Index),
			Operation: operation(c, k), Took: time.Duration(clock.Ticks(time.Now()) - began),
			Err: err,
		})
	}
}

// operation is what a command is called. One that is decided late is not known, but there are few.
func operation(c *pool.Command, k quorum.Kind) string {
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
