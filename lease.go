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
	value string
	token uint64
	marks []quorum.Mark // what was written to the nodes; the lanes' business
	few   [5]quorum.Mark

	// Mutex.mu guards these.
	until     time.Time     // zero: not known, or not to be trusted
	granted   time.Time     // start of the attempt that won
	releasing bool          // Unlock has begun: nothing writes the key any more
	lost      error         // the nodes proved, or a hold decided, that it is gone
	unlocking bool          // an Unlock is under way
	unlocked  chan struct{} // closed at its end; nil unless another Unlock waits for that
	hold      *hold         // keeps it extended, or nil
}

// newLease returns a lease of which nothing has been written to the n nodes.
func newLease(value string, n int) *lease {
	l := &lease{value: value}
	if n > len(l.few) {
		l.marks = make([]quorum.Mark, n)
	} else {
		l.marks = l.few[:n]
	}
	return l
}

// current returns the lease that Extend and Valid speak of, or nil.
func (m *Mutex) current() *lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cur
}

// lose notes that the lock is gone, and lets a hold end at once. The caller holds the mutex's mu.
func (l *lease) lose(why error) {
	l.lost = why
	l.until = time.Time{}
	if h := l.hold; h != nil && !h.over {
		go h.tick() // when the caller has left mu
	}
}

// misuse is the error of a mutex with a mistake in the options.
func (m *Mutex) misuse(failed string, kinds ...error) *Error {
	return &Error{Name: m.name, failed: failed, kinds: kinds, reason: m.err.Error(), causes: []error{m.err}}
}

// ask puts a question about the lease to the nodes, which have the budget to answer. It returns the round if a quorum
// said that it still has the lock. The nodes' proof that it is gone ends the lease.
func (m *Mutex) ask(ctx context.Context, failed string, l *lease, question func(l *lease) quorum.Command, budget time.Duration) (*quorum.Round, error) {
	refuse := func(kind error, reason string, causes ...error) error {
		return &Error{Name: m.name, failed: failed, kinds: []error{kind}, reason: reason, causes: causes}
	}
	if m.err != nil {
		return nil, m.misuse(failed)
	}
	if l == nil {
		return nil, refuse(ErrNotHeld, "not held")
	}
	m.mu.Lock()
	if l.releasing {
		m.mu.Unlock()
		return nil, refuse(ErrNotHeld, "not held")
	}
	lost, until := l.lost, l.until
	m.mu.Unlock()
	if lost != nil {
		return nil, refuse(ErrExpired, lostBefore(lost), lost)
	}
	if left := clock.Remaining(m.core.now(), until); !until.IsZero() && left <= 0 {
		return nil, refuse(ErrExpired, fmt.Sprintf("expired %v ago", -left))
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, m.name, failed, nil)
	}

	r := quorum.Start(ctx, m.lanes, quorum.Spec{
		Command: question(l), Kind: quorum.Ask, Need: m.core.quorum, Budget: budget, Marks: l.marks,
	})
	has, err := r.Wait(ctx)
	if err != nil {
		r.Abandon()
		return nil, ended(ctx, m.name, failed, nil)
	}
	if has {
		return r, nil
	}
	m.mu.Lock()
	err = m.changed(failed, l) // by an Unlock, for instance, which leaves out what has not been sent
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	outcomes := r.Outcomes()
	yes, gone := 0, 0
	for _, o := range outcomes {
		switch {
		case o.Err == nil && o.Reply > 0:
			yes++
		case o.Err == nil:
			gone++
		}
	}
	n := len(m.lanes)
	e := &Error{Name: m.name, failed: failed, nodes: m.core.nodeErrors(outcomes, heldBy)}
	if gone <= n-m.core.quorum {
		e.kinds = []error{ErrNoQuorum}
		e.reason = fmt.Sprintf("no quorum: confirmed by %d of %d nodes, %d needed", yes, n, m.core.quorum)
		return nil, e
	}
	e.kinds = []error{ErrExpired}
	e.reason = fmt.Sprintf("lost: gone on %d of %d nodes", gone, n)
	m.mu.Lock()
	if !l.releasing {
		l.lose(e)
	}
	m.mu.Unlock()
	return nil, e
}

// valid asks the nodes, and the clock once they have answered.
func (m *Mutex) valid(ctx context.Context, l *lease) error {
	const failed = "not valid"
	if _, err := m.ask(ctx, failed, l, m.askValid, m.cfg.nodeTimeout); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.changed(failed, l); err != nil {
		return err
	}
	if !l.until.IsZero() && clock.Remaining(m.core.now(), l.until) <= 0 {
		return &Error{Name: m.name, failed: failed, kinds: []error{ErrExpired}, reason: "expired during the call"}
	}
	return nil
}

// changed says what became of the lease while the nodes were asked. The caller holds mu.
func (m *Mutex) changed(failed string, l *lease) error {
	switch {
	case l.releasing:
		return &Error{Name: m.name, failed: failed, kinds: []error{ErrNotHeld}, reason: "released during the call"}
	case l.lost != nil:
		return &Error{Name: m.name, failed: failed, kinds: []error{ErrExpired}, reason: "lost during the call", causes: []error{l.lost}}
	}
	return nil
}

// extend moves until, if a quorum says within the budget that it still has the lock.
func (m *Mutex) extend(ctx context.Context, l *lease, budget time.Duration) error {
	const failed = "not extended"
	start := m.core.now()
	r, err := m.ask(ctx, failed, l, m.askExtend, budget)
	if err != nil {
		return err
	}
	until := start.Add(m.cfg.expiry - m.cfg.drift())
	m.mu.Lock()
	err = m.changed(failed, l)
	now := m.core.now()
	switch {
	case err != nil:
	case !l.until.IsZero() && clock.Remaining(now, l.until) <= 0:
		// Votes of nodes that were asked before and after that moment do not show that nobody had the
		// lock in between: one's key may have expired, been somebody else's, and be written anew by
		// a late SET of ours. See docs/safety.md and the model.
		err = &Error{Name: m.name, failed: failed, kinds: []error{ErrExpired}, reason: "expired during the call"}
		l.lose(err)
	case l.until.IsZero() && clock.Remaining(now, until) <= 0:
		err = &Error{Name: m.name, failed: failed, kinds: []error{ErrExpired},
			reason: fmt.Sprintf("confirmed by a quorum, but too late: nothing is left of the expiry of %v", m.cfg.expiry)}
		l.lose(err)
	case until.After(l.until): // else another extension has moved it further
		l.until = until
	}
	m.mu.Unlock()
	if err == nil {
		m.heal(ctx, l, r)
	}
	return err
}

// heal gives the key again to the nodes that said in round r that they do not have it. It does so only because a quorum
// has confirmed the lock in that round, and nobody counts what it writes: a
// healed node has its vote in the next round. It does not wait.
func (m *Mutex) heal(ctx context.Context, l *lease, r *quorum.Round) {
	if t := r.Tally(); t.Yes == len(m.lanes) {
		return
	}
	outcomes := r.Outcomes()
	acquire := m.acquireAgain(l)
	quorum.Start(ctx, m.lanes, quorum.Spec{
		Kind: quorum.Write, Need: m.core.quorum, Budget: m.cfg.nodeTimeout, Marks: l.marks,
		Skip: func(node int) bool { return outcomes[node].Err == nil && outcomes[node].Reply != 0 },
		Op: func(ctx context.Context, n *quorum.Node) (int64, error) {
			// A slower node's answer has come by now: the lane makes this wait for it.
			if o := r.Outcomes()[n.Index]; o.Err != nil || o.Reply != 0 {
				return 0, quorum.ErrUnsent
			}
			m.mu.Lock()
			over := l.releasing || l.lost != nil
			m.mu.Unlock()
			if over {
				// If it is over only from here on, the release waits on the lane for this write.
				return 0, quorum.ErrUnsent
			}
			return acquire.Run(ctx, n)
		},
	})
}

// releaseAll is for a release whose outcome nobody asks for.
var releaseAll = quorum.Spec{}

// release sends the deletion of l's key to every node that may have it, and returns the
// round. The spec may set what makes it a success; by default, a quorum of deletions.
func (m *Mutex) release(ctx context.Context, l *lease, s quorum.Spec) *quorum.Round {
	s.Kind, s.Budget, s.Marks = quorum.Undo, m.cfg.nodeTimeout, l.marks
	if s.Command.Command == nil {
		s.Command = m.deletion(l.value)
	}
	if s.Need == 0 {
		s.Need = m.core.quorum
	}
	return quorum.Start(ctx, m.lanes, s)
}

// unlock releases the current lease.
func (m *Mutex) unlock(ctx context.Context) error {
	const failed = "not released"
	if m.err != nil {
		return m.misuse(failed)
	}
	var l *lease
	for {
		m.mu.Lock()
		l = m.cur
		if l == nil {
			m.mu.Unlock()
			return &Error{Name: m.name, failed: failed, kinds: []error{ErrNotHeld}, reason: "not held"}
		}
		if !l.unlocking {
			break
		}
		if l.unlocked == nil {
			l.unlocked = make(chan struct{})
		}
		other := l.unlocked
		m.mu.Unlock()
		<-other // bounded by its node timeout
	}
	again := l.releasing || l.lost != nil // it may have been released on some nodes
	l.releasing = true
	l.until = time.Time{}
	l.unlocking = true
	h := l.hold
	m.mu.Unlock()

	if h != nil {
		h.end(ErrReleased)
	}
	m.core.lines.releasing(m.key, l.value)
	spec := quorum.Spec{Need: m.core.quorum}
	if again {
		spec.Need -= m.deleted(l)
		spec.Skip = func(node int) bool { return m.lanes[node].Undone(&l.marks[node]) }
	}
	r := m.release(ctx, l, spec)
	won, _ := r.Wait(context.Background())
	if won {
		m.core.lines.released(m.key, l.value, int(r.Greatest()-1), time.Now())
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	l.unlocking = false
	if l.unlocked != nil {
		close(l.unlocked)
		l.unlocked = nil
	}
	if l.lost != nil {
		m.drop(l)
		return &Error{Name: m.name, failed: failed, kinds: []error{ErrExpired}, reason: lostBefore(l.lost), causes: []error{l.lost}}
	}
	if won {
		m.drop(l)
		return nil
	}
	outcomes := r.Outcomes()
	deleted, gone := 0, 0
	for i, o := range outcomes {
		switch {
		case m.lanes[i].Undone(&l.marks[i]):
			outcomes[i] = quorum.Outcome{Reply: 1}
			deleted++
		case o.Err == nil, errors.Is(o.Err, quorum.ErrUnsent):
			gone++
		}
	}
	if deleted >= m.core.quorum {
		m.drop(l)
		return nil
	}
	e := &Error{Name: m.name, failed: failed, nodes: m.core.nodeErrors(outcomes, heldBy)}
	if gone > len(m.lanes)-m.core.quorum {
		m.drop(l)
		e.kinds = []error{ErrExpired}
		e.reason = fmt.Sprintf("expired: gone on %d of %d nodes", gone, len(m.lanes))
		return e
	}
	e.kinds = []error{ErrNoQuorum}
	e.reason = fmt.Sprintf("no quorum: deleted on %d of %d nodes, %d needed", deleted, len(m.lanes), m.core.quorum)
	return e
}

// lostBefore says why a lock was lost.
func lostBefore(lost error) string {
	var e *Error
	if !errors.As(lost, &e) {
		return "lost before"
	}
	return "lost before: " + strings.TrimPrefix(e.reason, "lost: ")
}

// deleted returns on how many nodes the lease's key has been deleted.
func (m *Mutex) deleted(l *lease) int {
	n := 0
	for i := range m.lanes {
		if m.lanes[i].Undone(&l.marks[i]) {
			n++
		}
	}
	return n
}

// drop forgets the lease if it is still the current one. The caller holds mu.
func (m *Mutex) drop(l *lease) {
	if m.cur == l {
		m.cur = nil
	}
}

// heldBy says what a reply means that denies that the key is ours.
func heldBy(reply int64) error {
	if reply < 0 {
		return errNodeForeign
	}
	return errNodeGone
}
