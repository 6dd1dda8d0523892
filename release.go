package redlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/quorum"
)

// unlock releases the lease, and tells Events. Within its minimum hold the lock stays taken, unless
// Close releases it.
func (l *lease) unlock(ctx context.Context, who by) error {
	var linger *quorum.Command // instead of the deletion
	if who == byOwner {
		linger = l.Linger(l.m.cfg.minHold)
	}
	ctx, told := l.m.tell.unlocking(ctx, l, who)
	err := l.undo(ctx, linger, told)
	l.m.tell.unlocked(told, l, who, err)
	return err
}

// undo releases the lease when its turn comes. The linger does not apply to a lost lease. The
// caller tells that the Unlock is over.
func (l *lease) undo(ctx context.Context, linger *quorum.Command, told *operation[Released]) error {
	m := l.m
	if m.err != nil {
		return m.misuse(notReleased)
	}
	m.mu.Lock()
	l.awaitUnlock()
	from := l.state
	after := l.releasing(EndReleased)
	if l.loss != nil {
		linger = nil
	}
	m.mu.Unlock()
	if from == stateReleased {
		return m.fail(notReleased, ErrNotHeld, "not held")
	}
	after.run()

	spec := quorum.Spec{Waits: true}
	if linger != nil {
		spec.Command = *linger
	}
	if from == stateLost || from == stateUnreleased { // it may have been released on some nodes
		spec.Have = l.ReleasedOn
	}
	r, won := l.send(ctx, spec)

	m.mu.Lock()
	var err error
	if !won {
		err = l.unreleased(r)
	}
	lingers := linger != nil && errors.Is(err, ErrExpired)
	if l.loss != nil {
		err, lingers = l.releasedLost(r), false
	}
	l.endUnlock(errors.Is(err, ErrNoQuorum))
	told.end(outcome(told, err))
	m.mu.Unlock()
	if lingers {
		l.Release(ctx, quorum.Spec{}) // where it lingers, nobody could have it
	}
	return err
}

// awaitUnlock waits until no other Unlock is under way. The caller holds mu, which awaitUnlock
// unlocks meanwhile.
func (l *lease) awaitUnlock() {
	for l.state == stateReleasing {
		if l.unlocked == nil {
			l.unlocked = make(chan struct{})
		}
		other := l.unlocked
		l.m.mu.Unlock()
		<-other // bounded by its node timeout
		l.m.mu.Lock()
	}
}

// endUnlock ends the Unlock under way, and lets the next one begin. It is unfinished if too few
// nodes answered; then Unlock may be called again. The caller holds mu.
func (l *lease) endUnlock(unfinished bool) {
	if l.unlocked != nil {
		close(l.unlocked)
		l.unlocked = nil
	}
	if unfinished {
		l.change(stateUnreleased, "", nil)
		return
	}
	l.change(stateReleased, "", nil)
	if l.m.cur == l {
		l.m.cur = nil
	}
}

// send releases the lease on the nodes, and tells the waiters of this process. It reports whether a
// quorum has done it.
func (l *lease) send(ctx context.Context, s quorum.Spec) (r *quorum.Round, won bool) {
	m, queues := l.m, l.m.core.queues
	deletes := s.Command.Decide == nil // instead of a linger
	if deletes {
		queues.Releasing(m.key)
	}
	r = l.Release(ctx, s)
	won, _ = r.Wait(context.Background())
	announced := m.nodes.Queues() || l.Member != ""
	if deletes && (won || announced) {
		// If only a few nodes have handed the key on, the one who queues there has just arrived.
		// The others know it in a moment.
		queues.Released(m.key, announced, announced && r.Heard(quorum.HandedOn))
	}
	return r, won
}

// unreleased returns why a round has not released the lease, or nil if all rounds together have.
// The caller holds mu.
func (l *lease) unreleased(r *quorum.Round) error {
	m := l.m
	outcomes, deleted, gone := l.Released(r)
	n := len(outcomes)
	if deleted >= m.core.quorum {
		return nil
	}
	nodes := m.core.nodeErrors(outcomes, heldBy)
	if gone < quorum.Blocking(n) {
		reason := fmt.Sprintf("no quorum: deleted on %d of %d nodes, %d needed",
			deleted, n, m.core.quorum)
		return newError(m.name, notReleased, reason, ErrNoQuorum).of(nodes)
	}
	// Before until, a key that is gone proves nothing by itself. But nil would say that the lock
	// was never lost, and of a node that lost its data that may be wrong.
	reason := fmt.Sprintf("gone on %d of %d nodes", gone, n)
	switch left := clock.Remaining(m.core.now(), l.until); {
	case l.until.IsZero():
	case left <= 0:
		reason = fmt.Sprintf("expired %v ago: %s", clock.Brief(-left), reason)
	default:
		reason += fmt.Sprintf(" %v before its end: they have lost it, or a release"+
			" whose answer was lost has deleted it", clock.Brief(left))
	}
	return newError(m.name, notReleased, reason, ErrExpired).of(nodes)
}

// releasedLost is the error of a release after a loss. Only what the nodes say in this round is
// reason to try again, not what the loss came from. The caller holds mu.
func (l *lease) releasedLost(r *quorum.Round) *Error {
	e, outcomes := l.lostBefore(notReleased, l.loss), r.Outcomes()
	silent := outcomes.Count(func(o quorum.Outcome) bool {
		return o.Err != nil && !o.Missing() && !errors.Is(o.Err, quorum.ErrUnsent)
	})
	if silent < quorum.Blocking(len(outcomes)) {
		return e
	}
	e.kinds = append(e.kinds, ErrNoQuorum)
	now := fmt.Sprintf("; no quorum: the release failed on %d of %d nodes", silent, len(outcomes))
	return e.adding(now + " (" + errtext.List(l.m.core.nodeErrors(outcomes, heldBy).Errors) + ")")
}
