package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// usable returns a failure if there is no use in asking the nodes: the lease, or ctx, has ended.
func (l *Lease) usable(ctx context.Context) *Failure {
	if l.lock.Misuse != nil {
		return l.lock.Misuse
	}
	now := l.Look()
	if now.State > StateLost {
		return failed(NotHeld, "not held")
	}
	if f := now.past(l.lock.now()); f != nil {
		return f
	}
	if ctx.Err() != nil {
		return Interrupted(ctx, nil)
	}
	return nil
}

// changed returns a failure if the lease has ended while the nodes were asked. The caller holds Mu.
func (l *Lease) changed() *Failure {
	switch {
	case l.State > StateLost:
		return failed(NotHeld, "released during the call")
	case l.State == StateLost:
		return &Failure{Kind: Expired, Reason: "lost during the call", Before: l.Loss}
	}
	return nil
}

// confirm asks the nodes a question about the lease, which they have the budget to answer. It
// returns no failure if a quorum says that it still has the lock. If the nodes prove that the lock
// is gone, the lease is lost, and what is left of it is released. The question may have renewed the
// keys of half of the nodes, and nobody could have the lock while those live.
func (l *Lease) confirm(ctx context.Context, question quorum.Command,
	budget time.Duration) (*quorum.Round, *Failure) {
	r := l.Ask(ctx, quorum.Spec{Command: question, Budget: budget, Waits: ctx.Done() == nil})
	has, err := r.Wait(ctx)
	if err != nil {
		return r, Interrupted(ctx, nil)
	}
	if has {
		return r, nil
	}
	why := denial(r)
	l.lock.Mu.Lock()
	// An Unlock, for instance, makes the pipelines leave out what has not been sent.
	f := l.changed()
	if f != nil || why.Kind != Expired {
		l.lock.Mu.Unlock()
		if f == nil {
			f = why
		}
		return r, f
	}
	after := l.Lose(EndLost, why)
	l.lock.Mu.Unlock()
	after.Run()
	l.Release(ctx, quorum.Spec{})
	return r, why
}

// NotInTime is why a lease was not extended in time, of which last is the renewal that failed last,
// or nil.
func NotInTime(last *quorum.Round) *Failure {
	const reason = "not extended in time"
	if last == nil {
		return &Failure{Reason: reason}
	}
	// Nodes that have answered since the round was decided did their part.
	f := denial(last).loss(false)
	f.Reason = reason + ": " + f.Reason
	return f
}

// denial is why no quorum has affirmed a question: it is Expired if the answers prove that the lock
// is gone.
func denial(r *quorum.Round) *Failure {
	said := r.Outcomes()
	return verdict(said, said.Count(quorum.Outcome.Yes), said.Count(quorum.Outcome.No),
		"confirmed by", lostFor+"gone on %d of %d nodes")
}

// Valid asks the nodes whether they have the lease, and the clock once they have answered.
func (l *Lease) Valid(ctx context.Context) *Failure {
	k := l.lock
	if f := l.usable(ctx); f != nil {
		return f
	}
	if _, f := l.confirm(ctx, k.Lock.Valid(l.Value), k.NodeTimeout); f != nil {
		return f
	}
	k.Mu.Lock()
	defer k.Mu.Unlock()
	if f := l.changed(); f != nil {
		return f
	}
	if !l.Until.IsZero() && clock.Remaining(k.now(), l.Until) <= 0 {
		return failed(Expired, "expired during the call")
	}
	return nil
}

// Extend moves until if a quorum says within the budget that it still has the lock. Then it calls
// extended, if that is not nil, with until as it was before, under Mu. The round is nil if nobody
// was asked. The lease may be in any state; the caller does not hold Mu.
func (l *Lease) Extend(ctx context.Context, budget time.Duration,
	extended func(r *quorum.Round, before time.Time)) (*quorum.Round, *Failure) {
	k := l.lock
	start := k.now()
	if f := l.usable(ctx); f != nil {
		return nil, f
	}
	r, f := l.confirm(ctx, k.Lock.Extend(l.Value), budget)
	if f != nil {
		return r, f
	}
	until := start.Add(k.Validity())
	k.Mu.Lock()
	if f := l.changed(); f != nil {
		k.Mu.Unlock()
		return r, f
	}
	// Nodes that were asked before and after the old until do not show that nobody had the lock in
	// between. One's key may have expired, been somebody else's, and be written anew by a SET of
	// ours that arrives late. See docs/safety.md and the model.
	now, limit, why := k.now(), l.Until, "expired during the call"
	if limit.IsZero() { // not known
		limit, why = until, fmt.Sprintf("confirmed by a quorum, but too late: nothing is left of "+
			"the expiry of %v", k.Expiry)
	}
	if clock.Remaining(now, limit) <= 0 {
		late, kept := failed(Expired, "%s", why), l.Kept()
		after := l.Lose(EndLost, late)
		k.Mu.Unlock()
		after.Run()
		if kept {
			l.Release(ctx, quorum.Spec{})
		} // else a quorum has the lock, and perhaps another process that the value was handed to
		return r, late
	}
	before := l.Until
	if until.After(before) { // else another extension has moved it further
		l.Until = until
	}
	left := clock.Remaining(now, l.Until)
	if extended != nil {
		extended(r, before)
	}
	k.Mu.Unlock()
	if r.Outcomes().Count(quorum.Outcome.Yes) < len(k.Pipelines) {
		l.heal(ctx, r, left)
	}
	return r, nil
}

// heal sets the key again on the nodes that said in round r that they do not have it. It may,
// because a quorum has confirmed the lock in that round, and nobody counts what it writes: a healed
// node votes in the next round. So much is left until the deadline. When the turn of a node comes,
// the lease must still be trusted.
//
// Heal does not wait. A write that is not answered is given up before the next renewal, and keeps
// no node from voting there.
func (l *Lease) heal(ctx context.Context, r *quorum.Round, left time.Duration) {
	outcomes, heal := r.Outcomes(), l.lock.Heal(l.Value, l.Token)
	heal.For = func(node int) *pool.Command {
		// A slower node's answer has come by now: the pipeline makes this wait for it. If the lock
		// is over only from here on, the release waits behind this write.
		if r.Outcomes()[node].Gone() && l.Look().State.Trusted() {
			return heal.Command
		}
		return nil
	}
	l.Write(ctx, quorum.Spec{
		Command: heal,
		Budget:  max(min(l.lock.NodeTimeout, left/4), 1),
		Skip:    func(node int) bool { return outcomes[node].Err == nil && !outcomes[node].Gone() },
	})
}
