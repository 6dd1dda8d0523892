package lease

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Witness is told how an acquisition goes on.
type Witness interface {
	// Attempts is called before each attempt.
	Attempts()
	// Waits is called when the caller begins to wait, for the lock to be free or behind others.
	Waits()
	// Granted is called when the lock is granted, under Mu: it must not block.
	Granted(l *Lease)
}

// acquirer asks the nodes for one Lock. Package queue decides when it does.
type acquirer struct {
	lock *Lock
	ctx  context.Context
	to   Witness        // or nil
	ends bool           // its tries are limited
	bid  *Lease         // what it has bid with, or nil
	won  *Lease         // nil until the lock is granted
	open *FailedAttempt // which may have left something on nodes, or nil
	met  failedAttempts // what its own attempts, and places in the queue, came to
}

// Get makes attempts until one wins, tries of them have failed, or ctx is done. Any number of tries
// goes on for ever if it is below 1. A free lock is asked for directly. If it is taken, or others
// of this process wait for it, the caller joins their local queue. The witness may be nil.
func (k *Lock) Get(ctx context.Context, tries int, w Witness) (*Lease, *Failure) {
	if k.Misuse != nil {
		return nil, k.Misuse
	}
	a := acquirer{lock: k, ctx: ctx, to: w, ends: tries > 0}
	defer a.Settle(false)
	if tries == 1 {
		return a.result(a.Attempt(queue.Attempt{Final: true}).Err)
	}
	if k.Options.NoWait {
		return a.skip(tries)
	}
	request := queue.Request{
		Lock: &k.Lock, Owner: k.Options.Owner, Pipelines: k.Pipelines, Tries: tries,
		Delay: k.Options.Delay, MaxWaiters: k.Options.MaxWaiters,
	}
	waiter, answer := k.Process.Queues.Enter(ctx, &request, a.Attempt)
	switch {
	case answer.Crowd > 0:
		return nil, crowded(answer)
	case waiter == nil:
		return a.result(answer.Err)
	}
	if w != nil {
		w.Waits()
	}
	if k.OnLongWait != nil {
		began := k.now()
		waiter.Long = func(l queue.LongWait) { k.OnLongWait(tries, k.now().Sub(began), l) }
	}
	waiting := a // on the heap: one that does not wait saves 1 of 16 allocations
	a.open = nil
	return waiting.result(waiter.Wait(ctx, &waiting))
}

// result is what the acquisition has come to.
func (a *acquirer) result(err error) (*Lease, *Failure) {
	f, _ := err.(*Failure)
	return a.won, f
}

// Attempt implements [queue.Acquirer].
func (a *acquirer) Attempt(how queue.Attempt) queue.Answer {
	a.Settle(false)
	// An attempt that was refused by its own key is made anew. A pool that always refuses is no
	// reason to do that for ever.
	for left := 3; ; left-- {
		if err := a.Stopped(how.Latest); err != nil {
			return queue.Answer{Err: err}
		}
		d, wrong := a.attempt(how, nil)
		switch {
		case wrong != nil:
			return queue.Answer{Err: wrong}
		case d == nil:
			return queue.Answer{Won: true}
		}
		a.open = d
		ended := a.ctx.Err() != nil
		if d.own && left > 0 && !ended {
			continue
		}
		a.met.note(d)
		if ended {
			return queue.Answer{Err: a.Stopped(how.Latest)}
		}
		answer := d.answer()
		if d.final || a.ends && lasts(d) && lasts(how.Latest) {
			answer.Err = d.Failure()
		}
		return answer
	}
}

// attempt asks the nodes for the lock once, with a value of its own, and adopts the lease if it
// wins. Only a claim has a member. The failure is that of making the value.
func (a *acquirer) attempt(how queue.Attempt, member *wire.Member) (*FailedAttempt, *Failure) {
	a.counts()
	l, wrong := a.lock.try()
	if wrong != nil {
		return nil, wrong
	}
	d := l.attempt(a.ctx, how, member)
	if d == nil {
		a.adopt(l)
	}
	return d, nil
}

// counts counts an attempt.
func (a *acquirer) counts() {
	if a.to != nil {
		a.to.Attempts()
	}
}

// adopt makes a lease that a quorum has just granted the current one of its mutex. An older one is
// lost, because no quorum had that any more; a reader's is not, and is released.
func (a *acquirer) adopt(l *Lease) {
	a.won = l
	k := a.lock
	k.Mu.Lock()
	old := k.current
	k.current = l
	var after Effects
	left := false // whether nodes may still have the older one
	if old != nil {
		left = old.Kept() || k.Shared && old.State.Trusted()
		reason, why := EndReplaced, "its own mutex was granted the lock again"
		if !k.Shared {
			why = "gone on the nodes, and " + why
			if old.Kept() {
				reason = EndLost
			}
		}
		after = old.Lose(reason, failed(Expired, "%s", why))
	}
	if a.to != nil {
		a.to.Granted(l)
	}
	k.Mu.Unlock()
	after.Run()
	if left {
		old.Release(a.ctx, quorum.Spec{})
	}
}

// Claim implements [queue.Acquirer]. It claims with the bid's value, which some nodes may have,
// unless none has told so and the bid is old.
func (a *acquirer) Claim(member wire.Member, takenUp int) queue.Answer {
	bid := a.bid
	a.bid = nil
	if bid == nil || takenUp == 0 && !bid.isFresh() {
		return a.claimAnew(member, bid)
	}
	a.counts()
	began := a.lock.now()
	if takenUp < quorum.Majority(len(a.lock.Pipelines)) || bid.tooLate() != "" {
		if d := bid.attempt(a.ctx, queue.Attempt{}, &member); d != nil {
			a.met.note(d)
			return d.answer()
		}
	}
	bid.Began = began // what is told of the lock begins here; its validity began with the bid
	a.adopt(bid)
	return queue.Answer{Won: true}
}

// claimAnew claims with a new value. An older bid, if there is one, is taken back.
func (a *acquirer) claimAnew(member wire.Member, old *Lease) (answer queue.Answer) {
	if old != nil {
		// Also if a function of the caller's panics.
		defer func() { old.withdraw(a.ctx, !answer.Won) }()
	}
	d, wrong := a.attempt(queue.Attempt{}, &member)
	switch {
	case wrong != nil:
		return queue.Answer{Err: wrong}
	case d == nil:
		return queue.Answer{Won: true}
	}
	a.met.note(d)
	return d.answer()
}

// Bid implements [queue.Acquirer].
func (a *acquirer) Bid(member wire.Member, numbers []string) (life time.Duration) {
	if !a.lock.Bids() || a.lock.Options.MinHold > 0 {
		return 0
	}
	l, wrong := a.lock.try()
	if wrong != nil {
		return 0 // the claim will say so
	}
	a.bid = l
	l.bid(a.ctx, member, numbers)
	return a.lock.BidLife()
}

// Withdraw implements [queue.Acquirer].
func (a *acquirer) Withdraw(stays bool) {
	if a.bid != nil {
		a.bid.withdraw(a.ctx, stays)
		a.bid = nil
	}
}

// GiveBack implements [queue.Acquirer].
func (a *acquirer) GiveBack() { a.open.giveBack(a.ctx) }

// Settle implements [queue.Acquirer].
func (a *acquirer) Settle(enrolls bool) (value string) {
	value = a.open.settle(a.ctx, enrolls)
	a.open = nil
	return value
}

// Waits implements [queue.Acquirer].
func (a *acquirer) Waits(r *quorum.Round, began time.Time, cut bool) queue.Refusal {
	d := stood(a.lock, r, began, cut)
	if !a.met.note(d) {
		return nil
	}
	return d
}

// Stopped implements [queue.Acquirer]. The error tells what the latest attempt came to: of others
// of the local queue, if there is none of its own.
func (a *acquirer) Stopped(latest queue.Refusal) error {
	if a.ctx.Err() == nil {
		if a.lock.Process.Open.Err() != nil {
			return ErrClosed
		}
		return nil
	}
	d := a.met.newest()
	if d == nil {
		d, _ = latest.(*FailedAttempt)
	}
	return Interrupted(a.ctx, d.Failure())
}

// crowded is the failure of a Lock for which too many callers wait already. It tells what its own
// attempt came to, if it has made one.
func crowded(answer queue.Answer) *Failure {
	f := failed(Taken, "%d callers of this process wait already", answer.Crowd)
	if answer.Crowd == 1 {
		f.Reason = "1 caller of this process waits already"
	}
	d, _ := answer.Refusal.(*FailedAttempt)
	f.Last = d.Failure()
	return f
}

// skip asks until a try wins, somebody is known to have the lock, or the tries or the minimum hold
// are used up. It does not wait for who has the lock.
func (a *acquirer) skip(tries int) (*Lease, *Failure) {
	k := a.lock
	began := k.now()
	for try := 1; ; try++ {
		answer := a.Attempt(queue.Attempt{Final: try == tries})
		if answer.Won || answer.Err != nil {
			return a.result(answer.Err)
		}
		refusal := a.met.newest().Failure()
		delay := max(k.Options.Delay(try), 0)
		end := k.now().Add(delay).Sub(began)
		if k.hasHolder(a.ctx, refusal) || k.Options.MinHold > 0 && end >= k.Options.MinHold {
			return nil, refusal
		}
		if !k.Process.Pause(a.ctx, delay) {
			return a.result(a.Stopped(nil))
		}
	}
}

// refused returns the nodes that said that the lock is taken.
func (k *Lock) refused(f *Failure) (nodes []*quorum.Node) {
	for i, o := range f.Outcomes {
		if o.No() {
			nodes = append(nodes, k.Process.Nodes[i])
		}
	}
	return nodes
}

// hasHolder asks the nodes that refused an attempt whether a quorum of them has one value. Without
// that, several callers may have refused each other.
func (k *Lock) hasHolder(ctx context.Context, f *Failure) bool {
	refused, q := k.refused(f), quorum.Majority(len(k.Pipelines))
	return len(refused) >= q && wire.TakeCensus(ctx, refused, k.NodeTimeout, k.Key()).Votes >= q
}

// longestOwner is how many bytes of an owner's text an error shows. Somebody else has written it.
const longestOwner = 64

// Owner asks the nodes that refused an attempt whose the lock is. It is "" if they do not tell, or
// if they disagree and none of them has a quorum.
func (k *Lock) Owner(ctx context.Context, f *Failure) string {
	refused := k.refused(f)
	if len(refused) == 0 {
		return ""
	}
	budget := k.NodeTimeout
	if ctx.Err() != nil {
		ctx, budget = context.WithoutCancel(ctx), min(minAfterword, budget)
	}
	c := wire.TakeCensus(ctx, refused, budget, k.Key())
	told := len(refused) - c.Silent - c.Free - c.Reserved
	if c.Votes == told || c.Votes >= quorum.Majority(len(k.Pipelines)) {
		return errtext.CutTo(wire.OwnerOf(c.Value), longestOwner)
	}
	return ""
}
