package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// lease is a lock granted to this mutex, or handed over to it.
type lease struct {
	value  string
	member string // of the queue on the nodes; "" if the lock was free
	ticket int64  // of the member
	token  uint64
	claim  quorum.Claim // what it has to do with the nodes

	// Mutex.mu guards these.
	until     time.Time     // zero: not known
	granted   time.Time     // start of the attempt that won
	lost      *Error        // the nodes proved, or a hold decided, that it is gone
	releasing bool          // an Unlock has begun: nothing writes the key any more
	released  bool          // an Unlock has succeeded, or found that there is nothing to release
	unlocking bool          // an Unlock is under way
	unlocked  chan struct{} // closed at its end; nil unless another Unlock waits for that
	hold      *hold         // keeps it extended, or nil
	raised    bool          // it took a second round to settle the token; not changed once granted
	ended     bool          // Events were told of its end
	overran   bool          // and of an operation that came too late
}

// newLease returns a lease of which nothing has been written to the nodes.
func (m *Mutex) newLease(value string) *lease {
	l := &lease{value: value}
	l.claim.Open(m.lanes, m.cfg.nodeTimeout, m.cfg.expiry)
	return l
}

// current returns the lease that Unlock, Extend and Valid speak of, or nil.
func (m *Mutex) current() *lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cur
}

// adopt makes l, which a quorum has just granted, the current lease. A hold that still keeps an
// older one has lost it: no quorum had that any more.
func (m *Mutex) adopt(ctx context.Context, l *lease, a *acquisition) {
	m.mu.Lock()
	old := m.cur
	m.cur = l
	if old == nil || !old.hold.live() {
		m.replaced(old)
		a.granted(l)
		m.mu.Unlock()
		return
	}
	tell := m.lose(old, m.fail("lost", ErrExpired, "granted to its own mutex anew"))
	a.granted(l)
	m.mu.Unlock()
	tell()
	m.release(ctx, old, quorum.Spec{})
}

// trusted reports whether the lease counts until until. The caller holds the mutex's mu.
func (l *lease) trusted() bool { return !l.releasing && l.lost == nil }

// ranOut reports whether the lease was in force until until, which has passed.
func (m *Mutex) ranOut(l *lease) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.lost == nil && clock.Remaining(m.core.now(), l.until) <= 0
}

// lose ends a lease that is gone, and the hold that keeps it. The caller holds mu, and calls tell
// after unlocking it, which tells the holder.
func (m *Mutex) lose(l *lease, why *Error) (tell func()) {
	h := l.hold
	if !h.live() {
		l.lost = why
		m.end(l, EndLost, why)
		return m.tellAll
	}
	why = h.loss(why)
	l.lost = why
	h.finish()
	m.end(l, EndLost, why)
	return func() {
		h.cancel(why)
		m.core.unregister(h)
		m.tellAll()
	}
}

// misuse is the error of a mutex with a mistake in the options.
func (m *Mutex) misuse(failed string, kinds ...error) *Error {
	return &Error{Name: m.name, failed: failed, kinds: kinds, reason: m.err.Error(),
		causes: []error{m.err}}
}

// notHeld is the error of an operation on a mutex that has no lease.
func (m *Mutex) notHeld(failed string) *Error {
	return m.fail(failed, ErrNotHeld, "not held")
}

// fail is the error of an operation on the lock.
func (m *Mutex) fail(failed string, kind error, reason string, causes ...error) *Error {
	return &Error{Name: m.name, failed: failed, kinds: []error{kind}, reason: reason,
		causes: causes}
}

// ask puts a question about the lease to the nodes, which have the budget to answer. The error is
// nil if a quorum said that it still has the lock. The nodes' proof that it is gone ends the lease,
// and releases what is left of it: the question may have renewed the keys of half of the nodes, and
// nobody could have the lock for as long as those live. The round is nil if nobody was asked.
func (m *Mutex) ask(
	ctx context.Context, failed string, l *lease, question func(value string) quorum.Command,
	budget time.Duration,
) (*quorum.Round, error) {
	if err := m.askable(ctx, failed, l); err != nil {
		return nil, err
	}
	r := l.claim.Ask(ctx, quorum.Spec{Command: question(l.value), Budget: budget})
	has, err := r.Wait(ctx)
	if err != nil {
		r.Abandon()
		return r, ended(ctx, m.name, failed, nil)
	}
	if has {
		return r, nil
	}
	e, proof := m.unconfirmed(failed, r)
	m.mu.Lock()
	// By an Unlock, for instance, which leaves out what has not been sent.
	if err := m.changed(failed, l); err != nil {
		m.mu.Unlock()
		return r, err
	}
	if !proof {
		m.mu.Unlock()
		return r, e
	}
	tell := m.lose(l, e)
	m.mu.Unlock()
	tell()
	m.release(ctx, l, quorum.Spec{})
	return r, e
}

// askable says why the nodes need not be asked about a lease, which may be nil.
func (m *Mutex) askable(ctx context.Context, failed string, l *lease) error {
	if m.err != nil {
		return m.misuse(failed)
	}
	if l == nil {
		return m.notHeld(failed)
	}
	m.mu.Lock()
	releasing, lost, until := l.releasing, l.lost, l.until
	m.mu.Unlock()
	left := clock.Remaining(m.core.now(), until)
	switch {
	case releasing:
		return m.notHeld(failed)
	case lost != nil:
		return m.lostBefore(failed, lost)
	case !until.IsZero() && left <= 0:
		return m.fail(failed, ErrExpired, fmt.Sprintf("expired %v ago", clock.Brief(-left)))
	case ctx.Err() != nil:
		return ended(ctx, m.name, failed, nil)
	}
	return nil
}

// unconfirmed says what the nodes have answered to a question that no quorum affirmed, and whether
// that proves that the lock is gone.
func (m *Mutex) unconfirmed(failed string, r *quorum.Round) (e *Error, proof bool) {
	outcomes := r.Outcomes()
	yes, gone, n := outcomes.Count(quorum.Outcome.Yes), outcomes.Count(quorum.Outcome.No),
		len(m.lanes)
	e = &Error{Name: m.name, failed: failed, nodes: m.core.nodeErrors(outcomes, heldBy)}
	if gone > n-m.core.quorum {
		e.kinds = []error{ErrExpired}
		e.reason = fmt.Sprintf("lost: gone on %d of %d nodes", gone, n)
		return e, true
	}
	e.kinds = []error{ErrNoQuorum}
	e.reason = fmt.Sprintf("no quorum: confirmed by %d of %d nodes, %d needed",
		yes, n, m.core.quorum)
	return e, false
}

// lostBefore is the error of an operation on a lease that was lost before.
func (m *Mutex) lostBefore(failed string, lost *Error) *Error {
	return m.fail(failed, ErrExpired, "lost before: "+strings.TrimPrefix(lost.reason, "lost: "),
		lost)
}

// valid asks the nodes, and the clock once they have answered.
func (m *Mutex) valid(ctx context.Context, l *lease) error {
	const failed = "not valid"
	if _, err := m.ask(ctx, failed, l, m.wire.valid, m.cfg.nodeTimeout); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.changed(failed, l); err != nil {
		return err
	}
	if !l.until.IsZero() && clock.Remaining(m.core.now(), l.until) <= 0 {
		return m.fail(failed, ErrExpired, "expired during the call")
	}
	return nil
}

// changed says what became of the lease while the nodes were asked. The caller holds mu.
func (m *Mutex) changed(failed string, l *lease) error {
	switch {
	case l.releasing:
		return m.fail(failed, ErrNotHeld, "released during the call")
	case l.lost != nil:
		return m.fail(failed, ErrExpired, "lost during the call", l.lost)
	}
	return nil
}

// extend moves until, if a quorum says within the budget that it still has the lock. The round is
// nil if nobody was asked.
func (m *Mutex) extend(
	ctx context.Context, l *lease, budget time.Duration, x *extension,
) (*quorum.Round, error) {
	const failed = "not extended"
	start := m.core.now()
	r, err := m.ask(ctx, failed, l, m.wire.extend, budget)
	if err != nil {
		return r, err
	}
	until := start.Add(m.cfg.expiry - m.cfg.drift())
	var late string
	m.mu.Lock()
	now := m.core.now()
	switch changed := m.changed(failed, l); {
	case changed != nil:
		m.mu.Unlock()
		return r, changed
	case !l.until.IsZero() && clock.Remaining(now, l.until) <= 0:
		// Votes of nodes that were asked before and after that moment do not show that nobody had
		// the lock in between: one's key may have expired, been somebody else's, and be written
		// anew by a late SET of ours. See docs/safety.md and the model.
		late = "expired during the call"
	case l.until.IsZero() && clock.Remaining(now, until) <= 0:
		late = fmt.Sprintf("confirmed by a quorum, but too late: nothing is left of the expiry "+
			"of %v",
			m.cfg.expiry)
	default:
		before := l.until
		if until.After(before) { // else another extension has moved it further
			l.until = until
		}
		left := clock.Remaining(now, l.until)
		x.confirmed(l, r, before)
		m.mu.Unlock()
		m.heal(ctx, l, r, left)
		return r, nil
	}
	e := m.fail(failed, ErrExpired, late)
	kept := l.hold.live()
	tell := m.lose(l, e)
	m.mu.Unlock()
	tell()
	if kept {
		m.release(ctx, l, quorum.Spec{})
	} // else a quorum has the lock, and perhaps another process that the value was handed to
	return r, e
}

// heal gives the key again to the nodes that said in round r that they do not have it. It does so
// only because a quorum has confirmed the lock in that round, and nobody counts what it writes: a
// healed node has its vote in the next round. It does not wait. A write that is not answered is
// given up before the next renewal, and keeps no node's vote from that.
func (m *Mutex) heal(ctx context.Context, l *lease, r *quorum.Round, left time.Duration) {
	if t := r.Tally(); t.Yes == len(m.lanes) {
		return
	}
	outcomes := r.Outcomes()
	gone := func(o quorum.Outcome) bool { return o.Err == nil && o.Means == quorum.Gone }
	due := func(node int) bool {
		// A slower node's answer has come by now: the lane makes this wait for it.
		if !gone(r.Outcomes()[node]) {
			return false
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		// If it is over only from here on, the release waits on the lane for this write.
		return l.trusted()
	}
	l.claim.Write(ctx, quorum.Spec{
		Command: m.wire.heal(l.value, l.token).When(due),
		Budget:  max(min(m.cfg.nodeTimeout, left/4), 1),
		Skip:    func(node int) bool { return outcomes[node].Err == nil && !gone(outcomes[node]) },
	})
}

// release sends the deletion of l's key to every node that may have it, and returns the
// round. The spec may set what makes it a success; by default, a quorum of deletions.
func (m *Mutex) release(ctx context.Context, l *lease, s quorum.Spec) *quorum.Round {
	if s.Command.Command == nil && s.Command.Decide == nil {
		s.Command = m.wire.release(l.value, l.member)
	}
	return l.claim.Undo(ctx, s)
}

// unlock releases a lease, which may be nil. Instead of the deletion, linger is sent if
// it is not nil, unless the lease is lost.
func (m *Mutex) unlock(ctx context.Context, l *lease, linger *quorum.Command, u *release) error {
	const failed = "not released"
	if m.err != nil {
		return m.misuse(failed)
	}
	if l == nil {
		return m.notHeld(failed)
	}
	m.mu.Lock()
	for l.unlocking {
		if l.unlocked == nil {
			l.unlocked = make(chan struct{})
		}
		other := l.unlocked
		m.mu.Unlock()
		<-other // bounded by its node timeout
		m.mu.Lock()
	}
	if l.released {
		m.mu.Unlock()
		return m.notHeld(failed)
	}
	again := !l.trusted() // it may have been released on some nodes
	m.end(l, EndReleased, ErrReleased)
	l.releasing, l.unlocking = true, true
	if l.lost != nil {
		linger = nil
	}
	h := l.hold
	m.mu.Unlock()

	if h != nil {
		h.end(ErrReleased)
	}
	m.tellAll()
	if linger == nil {
		m.core.lines.releasing(m.key, time.Now())
	}
	spec := quorum.Spec{}
	if linger != nil {
		spec.Command = *linger
	}
	if again {
		spec.Have = l.claim.Undone
	}
	r := m.release(ctx, l, spec)
	won, _ := r.Wait(context.Background())
	announced := m.cfg.announce || l.member != ""
	if linger == nil && (won || announced) {
		// If only a few nodes have handed the key on, the one who queues there has just arrived,
		// and is known to the others in a moment.
		m.core.lines.released(m.key, announced, announced && r.Heard(quorum.HandedOn), time.Now())
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	l.unlocking = false
	if l.unlocked != nil {
		close(l.unlocked)
		l.unlocked = nil
	}
	var err error
	switch {
	case l.lost != nil:
		err = m.lostBefore(failed, l.lost)
	case !won:
		if e := m.unreleased(failed, l, r); e != nil {
			err = e
		}
		if linger != nil && errors.Is(err, ErrExpired) {
			m.release(ctx, l, quorum.Spec{}) // where it lingers, nobody could have it
		}
	}
	if l.released = !errors.Is(err, ErrNoQuorum); l.released && m.cur == l {
		m.cur = nil
	}
	u.over(err)
	return err
}

// unreleased says why a round has not released the lease, or nil if all rounds together have. The
// caller holds mu.
func (m *Mutex) unreleased(failed string, l *lease, r *quorum.Round) *Error {
	outcomes := r.Outcomes()
	deleted, gone := 0, 0
	for i, o := range outcomes {
		switch {
		case l.claim.Undone(i):
			outcomes[i] = quorum.Outcome{Reply: quorum.Reply{Means: quorum.Done}}
			deleted++
		case o.Err == nil, errors.Is(o.Err, quorum.ErrUnsent):
			gone++
		}
	}
	n := len(m.lanes)
	if deleted >= m.core.quorum {
		return nil
	}
	e := &Error{Name: m.name, failed: failed, nodes: m.core.nodeErrors(outcomes, heldBy)}
	if gone <= n-m.core.quorum {
		e.kinds = []error{ErrNoQuorum}
		e.reason = fmt.Sprintf("no quorum: deleted on %d of %d nodes, %d needed",
			deleted, n, m.core.quorum)
		return e
	}
	// Before until, a key that is gone proves nothing by itself. But nil would say that the lock
	// was never lost, and of a node that lost its data that may be wrong.
	e.kinds = []error{ErrExpired}
	e.reason = fmt.Sprintf("gone on %d of %d nodes", gone, n)
	switch left := clock.Remaining(m.core.now(), l.until); {
	case l.until.IsZero():
	case left <= 0:
		e.reason = fmt.Sprintf("expired %v ago: %s", clock.Brief(-left), e.reason)
	default:
		e.reason += fmt.Sprintf(" %v before its end: they have lost it, or a release"+
			" whose answer was lost has deleted it", clock.Brief(left))
	}
	return e
}

// heldBy says what a reply means that denies that the key is ours.
func heldBy(reply quorum.Reply) error {
	if reply.Means == quorum.Gone {
		return errNodeGone
	}
	return errNodeForeign
}
