package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// errPanicked is the outcome of a Lock in which a function of the caller's has panicked.
var errPanicked = errors.New("redlock: the call has panicked, or its goroutine has ended")

// acquisition is one Lock of which Events are told. A nil one does nothing.
type acquisition struct {
	m     *Mutex
	done  func(Acquired)
	start time.Time
	what  Acquired
	told  bool
}

// tellLock is lock, and tells of it.
func (m *Mutex) tellLock(ctx context.Context, tries int) (*lease, error) {
	t := m.tell
	if t == nil {
		return m.lockOrSay(ctx, tries, nil)
	}
	var a *acquisition
	if t.Acquire != nil {
		begun := Acquiring{Name: m.name, Key: m.key, Tries: tries, Fencing: m.cfg.fencing}
		told, done := t.Acquire(ctx, begun)
		ctx = withValues(ctx, told)
		if done != nil {
			a = &acquisition{m: m, done: done, start: m.core.now(),
				what: Acquired{Acquiring: begun}}
		}
	}
	err := errPanicked
	defer func() {
		a.failed(err)
		t.failed("acquire", err)
		m.tellAll()
	}()
	l, err := m.lockOrSay(ctx, tries, a)
	return l, err
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

// granted notes that the lock was granted. The caller holds mu.
func (a *acquisition) granted(l *lease) {
	if a == nil {
		return
	}
	a.what.Waited = l.granted.Sub(a.start)
	a.what.Raised, a.what.Token, a.what.Until = l.raised, l.token, l.until
	a.over(nil)
}

// failed notes that the lock was not granted, unless it was.
func (a *acquisition) failed(err error) {
	if a == nil || a.told {
		return
	}
	a.what.Waited = a.m.core.now().Sub(a.start)
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.over(err)
}

// over notes the end. The caller holds mu.
func (a *acquisition) over(err error) {
	a.told = true
	a.what.Outcome, a.what.Err, a.what.Took = outcomeOf(err), err, a.m.core.now().Sub(a.start)
	a.m.tell.note(func() { a.done(a.what) })
}

// extension is one Extend or renewal of which Events are told. A nil one does nothing.
type extension struct {
	m     *Mutex
	done  func(Extended)
	start time.Time
	what  Extended
	told  bool
}

// tellExtend is extend, and tells of it. The lease may be nil.
func (m *Mutex) tellExtend(
	ctx context.Context, l *lease, budget time.Duration, renewal bool,
) (*quorum.Round, error) {
	t := m.tell
	if t == nil {
		return m.extend(ctx, l, budget, nil)
	}
	by := t.late(l)
	var x *extension
	if t.Extend != nil {
		begun := Extending{Name: m.name, Key: m.key, Token: l.fence(), Renewal: renewal}
		told, done := t.Extend(ctx, begun)
		ctx = withValues(ctx, told)
		if done != nil {
			x = &extension{m: m, done: done, start: m.core.now(), what: Extended{Extending: begun}}
		}
	}
	r, err := m.extend(ctx, l, budget, x)
	x.failed(l, err)
	t.overran(l, "extend", by, err)
	if !renewal || t.first(err) {
		t.failed("extend", err)
	}
	m.tellAll()
	return r, err
}

// confirmed notes that a quorum has confirmed the lock in round r, and that until has moved from
// before. The caller holds mu.
func (x *extension) confirmed(l *lease, r *quorum.Round, before time.Time) {
	if x == nil {
		return
	}
	x.told = true
	now := x.m.core.now()
	x.what.Outcome, x.what.Took, x.what.Until = OutcomeOK, now.Sub(x.start), l.until
	if !before.IsZero() {
		x.what.Left = clock.Remaining(now, before)
	}
	x.m.tell.note(func() {
		for _, o := range r.Outcomes() {
			if o.Err == nil && o.Means == quorum.Gone {
				x.what.Healed++
			}
		}
		x.done(x.what)
	})
}

// failed notes that the lock was not extended, unless it was.
func (x *extension) failed(l *lease, err error) {
	if x == nil || x.told {
		return
	}
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	now := x.m.core.now()
	x.what.Outcome, x.what.Err, x.what.Took = outcomeOf(err), err, now.Sub(x.start)
	if l != nil && !l.until.IsZero() {
		x.what.Left = clock.Remaining(now, l.until)
	}
	x.m.tell.note(func() { x.done(x.what) })
}

// release is one Unlock of which Events are told. A nil one does nothing.
type release struct {
	m     *Mutex
	done  func(Released)
	start time.Time
	what  Released
	told  bool
}

// tellUnlock is unlock, and tells of it. The lease may be nil.
func (m *Mutex) tellUnlock(
	ctx context.Context, l *lease, linger *quorum.Command, closing bool,
) error {
	t := m.tell
	if t == nil {
		return m.unlock(ctx, l, linger, nil)
	}
	var by time.Duration
	if !closing { // the work was over when Close began, or its owner was told
		by = t.late(l)
	}
	var u *release
	if t.Release != nil {
		begun := Releasing{Name: m.name, Key: m.key, Token: l.fence(), Closing: closing}
		told, done := t.Release(ctx, begun)
		ctx = told
		if done != nil {
			u = &release{m: m, done: done, start: m.core.now(), what: Released{Releasing: begun}}
		}
	}
	err := m.unlock(ctx, l, linger, u)
	if u != nil && !u.told {
		m.mu.Lock()
		u.over(err)
		m.mu.Unlock()
	}
	t.overran(l, "release", by, err)
	t.failed("release", err)
	m.tellAll()
	return err
}

// over notes the end. The caller holds mu.
func (u *release) over(err error) {
	if u == nil {
		return
	}
	u.told = true
	u.what.Outcome, u.what.Err, u.what.Took = outcomeOf(err), err, u.m.core.now().Sub(u.start)
	u.m.tell.note(func() { u.done(u.what) })
}
