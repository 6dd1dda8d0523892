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

// usable returns an error if there is no use in asking the nodes: the lease, or ctx, has ended.
func (l *lease) usable(ctx context.Context, failed string) error {
	m := l.m
	if m.err != nil {
		return m.misuse(failed)
	}
	m.mu.Lock()
	state, loss, until := l.state, l.loss, l.until
	m.mu.Unlock()
	left := clock.Remaining(m.core.now(), until)
	switch {
	case state > stateLost:
		return m.fail(failed, ErrNotHeld, "not held")
	case state == stateLost:
		return l.lostBefore(failed, loss)
	case !until.IsZero() && left <= 0:
		return m.fail(failed, ErrExpired, fmt.Sprintf("expired %v ago", clock.Brief(-left)))
	case ctx.Err() != nil:
		return ended(ctx, m.name, failed, nil)
	}
	return nil
}

// changed returns an error if the lease has ended while the nodes were asked. The caller holds mu.
func (l *lease) changed(failed string) error {
	switch {
	case l.state > stateLost:
		return l.m.fail(failed, ErrNotHeld, "released during the call")
	case l.state == stateLost:
		return l.m.fail(failed, ErrExpired, "lost during the call", pastLoss{l.loss})
	}
	return nil
}

// confirm asks the nodes a question about the lease, which they have the budget to answer. It
// returns nil if a quorum says that it still has the lock. If the nodes prove that the lock is
// gone, the lease is lost, and what is left of it is released. The question may have renewed the
// keys of half of the nodes, and nobody could have the lock while those live.
func (l *lease) confirm(ctx context.Context, failed string, question quorum.Command,
	budget time.Duration) (*quorum.Round, error) {
	m := l.m
	r := l.Ask(ctx, quorum.Spec{Command: question, Budget: budget, Waits: ctx.Done() == nil})
	has, err := r.Wait(ctx)
	if err != nil {
		r.Abandon()
		return r, ended(ctx, m.name, failed, nil)
	}
	if has {
		return r, nil
	}
	denial, proof := l.denial(failed, r)
	m.mu.Lock()
	// An Unlock, for instance, makes the pipelines leave out what has not been sent.
	if err := l.changed(failed); err != nil {
		m.mu.Unlock()
		return r, err
	}
	if !proof {
		m.mu.Unlock()
		return r, denial
	}
	after := l.lose(EndLost, denial)
	m.mu.Unlock()
	after.run()
	l.Release(ctx, quorum.Spec{})
	return r, denial
}

// denial returns the error of a question that no quorum has affirmed. It also returns whether the
// answers prove that the lock is gone.
func (l *lease) denial(failed string, r *quorum.Round) (e *Error, proof bool) {
	m, outcomes := l.m, r.Outcomes()
	yes, gone, n := outcomes.Count(quorum.Outcome.Yes), outcomes.Count(quorum.Outcome.No),
		len(outcomes)
	nodes := m.core.nodeErrors(outcomes, heldBy)
	if gone >= quorum.Blocking(n) {
		return newError(m.name, failed, fmt.Sprintf("lost: gone on %d of %d nodes", gone, n),
			ErrExpired).of(nodes), true
	}
	return newError(m.name, failed, fmt.Sprintf("no quorum: confirmed by %d of %d nodes, %d needed",
		yes, n, m.core.quorum), ErrNoQuorum).of(nodes), false
}

// heldBy returns the error of a node whose reply denies that the key is ours.
func heldBy(reply quorum.Reply) error {
	if reply.Means == quorum.Gone {
		return errNodeGone
	}
	return errNodeForeign
}

// lostBefore is the error of an operation on a lease that was lost before.
func (l *lease) lostBefore(failed string, loss *Error) *Error {
	return l.m.fail(failed, ErrExpired, "lost before: "+strings.TrimPrefix(loss.reason, "lost: "),
		pastLoss{loss})
}

// pastLoss is why a lease was lost, as a cause of what failed later. That too few nodes answered
// then says nothing about later: ErrNoQuorum means that the lock is still held, or that Unlock may
// be called again.
type pastLoss struct{ loss *Error }

func (p pastLoss) Error() string { return p.loss.Error() }

// Is matches what the loss does, except for ErrNoQuorum.
func (p pastLoss) Is(target error) bool {
	return target != ErrNoQuorum && errors.Is(p.loss, target)
}

// As finds what is in the loss.
func (p pastLoss) As(target any) bool { return errors.As(p.loss, target) }

// asLoss is the cause of the held context of a lease that was lost.
func (e *Error) asLoss() *Error {
	return newError(e.Name, "lost", strings.TrimPrefix(e.reason, "lost: "), ErrLost).
		causedBy(e).of(e.nodes)
}

// valid asks the nodes, and the clock once they have answered.
func (l *lease) valid(ctx context.Context) error {
	const failed = "not valid"
	m := l.m
	defer m.tell.all()
	if err := l.usable(ctx, failed); err != nil {
		return err
	}
	if _, err := l.confirm(ctx, failed, m.nodes.Valid(l.Value), m.cfg.NodeTimeout); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := l.changed(failed); err != nil {
		return err
	}
	if !l.until.IsZero() && clock.Remaining(m.core.now(), l.until) <= 0 {
		return m.fail(failed, ErrExpired, "expired during the call")
	}
	return nil
}

// extend extends the lease for its owner.
func (l *lease) extend(ctx context.Context) error {
	ctx, told := l.m.tell.extending(ctx, l, byOwner)
	_, err := l.prolong(ctx, l.m.cfg.NodeTimeout, told)
	l.m.tell.extended(told, l, byOwner, err)
	return err
}

// prolong moves until if a quorum says within the budget that it still has the lock. The round is
// nil if nobody was asked. The caller tells that the extension is over.
func (l *lease) prolong(ctx context.Context, budget time.Duration,
	told *operation[Extended]) (*quorum.Round, error) {
	const failed = "not extended"
	m := l.m
	start := m.core.now()
	if err := l.usable(ctx, failed); err != nil {
		return nil, err
	}
	r, err := l.confirm(ctx, failed, m.nodes.Extend(l.Value), budget)
	if err != nil {
		return r, err
	}
	until := start.Add(m.cfg.Validity())
	m.mu.Lock()
	if err := l.changed(failed); err != nil {
		m.mu.Unlock()
		return r, err
	}
	now := m.core.now()
	if late := l.late(now, until); late != "" {
		e, kept := m.fail(failed, ErrExpired, late), l.kept()
		after := l.lose(EndLost, e)
		m.mu.Unlock()
		after.run()
		if kept {
			l.Release(ctx, quorum.Spec{})
		} // else a quorum has the lock, and perhaps another process that the value was handed to
		return r, e
	}
	before := l.until
	if until.After(before) { // else another extension has moved it further
		l.until = until
	}
	left := clock.Remaining(now, l.until)
	confirmed(told, l, r, before)
	m.mu.Unlock()
	if r.Tally().Yes < len(m.nodes.Pipelines) {
		l.Heal(ctx, r, left, l.trusted)
	}
	return r, nil
}

// late says why an extension to until does not count although a quorum has confirmed it by now. It
// returns "" if it counts. The caller holds mu.
func (l *lease) late(now, until time.Time) string {
	switch {
	case !l.until.IsZero() && clock.Remaining(now, l.until) <= 0:
		// Nodes that were asked before and after that moment do not show that nobody had the lock
		// in between. One's key may have expired, been somebody else's, and be written anew by a
		// SET of ours that arrives late. See docs/safety.md and the model.
		return "expired during the call"
	case l.until.IsZero() && clock.Remaining(now, until) <= 0:
		return fmt.Sprintf("confirmed by a quorum, but too late: nothing is left of the expiry "+
			"of %v", l.m.cfg.Expiry)
	}
	return ""
}
