package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// Unlock releases the lease when its turn comes. If it lingers, the lock stays taken for what is
// left of the minimum hold, unless the lease was lost. It calls released, if that is not nil, with
// what it returns, under Mu.
func (l *Lease) Unlock(ctx context.Context, lingers bool, released func(*Failure)) *Failure {
	k := l.lock
	if k.Misuse != nil {
		return k.Misuse
	}
	spec := quorum.Spec{Waits: true}
	k.Mu.Lock()
	for l.State == StateReleasing { // by another Unlock, which is bounded by its node timeout
		if k.unlocked == nil {
			k.unlocked = sync.NewCond(&k.Mu)
		}
		k.unlocked.Wait()
	}
	from := l.State
	after := l.releasing(EndReleased)
	if lingers && l.Loss == nil {
		spec.Command = l.linger()
	}
	k.Mu.Unlock()
	if from == StateReleased {
		return failed(NotHeld, "not held")
	}
	after.Run()

	if from == StateLost || from == StateUnreleased { // it may have been released on some nodes
		spec.Have = l.ReleasedOn
	}
	r, won := l.send(ctx, spec)

	k.Mu.Lock()
	var f *Failure
	switch {
	case l.Loss != nil:
		f = l.releasedLost(r)
	case !won:
		f = l.unreleased(r)
	}
	l.endUnlock(f != nil && f.Kind&NoQuorum != 0)
	if released != nil {
		released(f)
	}
	gone := f != nil && f.Kind == Expired && spec.Command.For != nil
	k.Mu.Unlock()
	if gone {
		l.Release(ctx, quorum.Spec{}) // where it lingers, nobody could have it
	}
	return f
}

// endUnlock ends the Unlock under way, and lets the next one begin. It is unfinished if too few
// nodes answered; then Unlock may be called again. The caller holds Mu.
func (l *Lease) endUnlock(unfinished bool) {
	if l.lock.unlocked != nil {
		l.lock.unlocked.Broadcast()
	}
	if unfinished {
		l.Change(StateUnreleased, "", nil)
		return
	}
	l.Change(StateReleased, "", nil)
	if l.lock.current == l {
		l.lock.current = nil
	}
}

// send releases the lease on the nodes, and tells the waiters of this process. It reports whether a
// quorum has done it.
func (l *Lease) send(ctx context.Context, s quorum.Spec) (r *quorum.Round, won bool) {
	k, queues := l.lock, l.lock.Process.Queues
	deletes := s.Command.For == nil // instead of a linger
	r = l.Release(ctx, s)
	won, _ = r.Wait(context.Background())
	announced := k.Queues() || l.Member != ""
	if deletes && (won || announced) && !r.Heard(quorum.Shared) {
		// If only a few nodes have handed the key on, the one who queues there has just arrived.
		// The others know it in a moment.
		queues.Released(k.Key(), announced, r.Heard(quorum.HandedOn))
	}
	return r, won
}

// unreleased returns why a round has not released the lease, or nil if all rounds together have.
// The caller holds Mu.
func (l *Lease) unreleased(r *quorum.Round) *Failure {
	outcomes, deleted, gone := r.Outcomes(), 0, 0
	for i, o := range outcomes {
		switch {
		case l.ReleasedOn(i):
			outcomes[i] = quorum.Outcome{Reply: quorum.Reply{Means: quorum.Done}}
			deleted++
		case o.Err == nil, errors.Is(o.Err, quorum.ErrUnsent):
			gone++
		}
	}
	if deleted >= quorum.Majority(len(outcomes)) {
		return nil
	}
	f := verdict(outcomes, deleted, gone, "deleted on", "gone on %d of %d nodes")
	// Before until, a key that is gone proves nothing by itself. But nil would say that the lock
	// was never lost, and of a node that lost its data that may be wrong.
	switch left := clock.Remaining(l.lock.now(), l.Until); {
	case f.Kind == NoQuorum, l.Until.IsZero():
	case left <= 0:
		f.Reason = fmt.Sprintf("expired %v ago: %s", clock.Brief(-left), f.Reason)
	default:
		f.Reason += fmt.Sprintf(" %v before its end: they have lost it, or a release"+
			" whose answer was lost has deleted it", clock.Brief(left))
	}
	return f
}

// releasedLost is the failure of a release after a loss. Only what the nodes say in this round is
// reason to try again, not what the loss came from. The caller holds Mu.
func (l *Lease) releasedLost(r *quorum.Round) *Failure {
	f, outcomes := lostBefore(l.Loss), r.Outcomes()
	silent := outcomes.Count(func(o quorum.Outcome) bool {
		return o.Err != nil && !o.Missing() && !errors.Is(o.Err, quorum.ErrUnsent)
	})
	if silent < quorum.Blocking(len(outcomes)) {
		return f
	}
	f.Kind |= NoQuorum
	f.More = fmt.Sprintf("; no quorum: the release failed on %d of %d nodes", silent, len(outcomes))
	return f.of(outcomes)
}

// Release sends the deletion of the key to every node that may have it, and returns the round. The
// spec may say otherwise; by default, a quorum of deletions makes it a success.
func (l *Lease) Release(ctx context.Context, s quorum.Spec) *quorum.Round {
	if s.Command.Command == nil {
		s.Command = l.lock.Release(l.Value, l.Member)
	}
	return l.WriteSet.Release(ctx, s)
}

// linger returns what is sent to a node instead of the deletion while the minimum hold lies ahead,
// and no command otherwise.
//
// How much is left is asked for each node when its turn comes. A pending release may be sent
// again much later, and must not begin anew. The monotonic clock alone counts: after a wall clock
// was set back, the lock must not linger for longer than the minimum hold.
func (l *Lease) linger() quorum.Command {
	minHold := l.lock.Options.MinHold
	end := l.Began.Add(minHold)
	if minHold <= 0 || l.Began.IsZero() || end.Sub(l.lock.now()) <= 0 { // zero: it was handed over
		return quorum.Command{}
	}
	c := l.lock.Release(l.Value, l.Member) // whose Read knows what Linger replies, too
	c.For = func(int) *pool.Command {
		if left := end.Sub(l.lock.now()); left > 0 {
			return l.lock.Linger(l.Value, left).Command
		}
		return c.Command
	}
	return c
}
