package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// try returns a lease with a value of its own, which counts from now if the nodes grant it.
func (k *Lock) try() (*Lease, *Failure) {
	value := wire.NewValue()
	if k.Options.GenValue != nil {
		owner, err := k.Options.GenValue()
		if err == nil && strings.HasPrefix(owner, wire.NoValue) {
			err = fmt.Errorf("its result must not begin with %q", wire.NoValue)
		}
		if err != nil {
			return nil, Because(fmt.Errorf("the function of WithGenValueFunc: %w", err))
		}
		value = owner + ":" + value
	}
	l := k.open(value)
	l.Began = k.now()
	l.Until = l.deadline()
	return l, nil
}

// deadline is the moment up to which the lock may be trusted if the attempt wins it.
func (l *Lease) deadline() time.Time { return l.Began.Add(l.lock.Validity()) }

// attempt asks the nodes for the lock once. It returns nil if they have granted it, in time. One
// who stays in the queue claims what they have reserved for it, and keeps its place if that fails:
// only a claim has a member.
//
// An attempt that does not win releases what it was granted before it returns. With how.Keep it
// leaves that to [FailedAttempt.settle], if no node has granted anything yet. A final attempt calls
// the lock taken only when it knows that the key which refused it was not its own.
func (l *Lease) attempt(ctx context.Context, how queue.Attempt,
	member *wire.Member) *FailedAttempt {
	// A contender that waits for the vote of a frozen node keeps its votes from the others. They
	// keep theirs from it. With a few of them, nobody ever gets a quorum.
	spec := quorum.Spec{Hasty: !how.Final}
	if member != nil {
		l.Member, l.Ticket = member.ID, member.Ticket
		spec.Command = l.lock.Claim(l.Value, member.ID)
	} else {
		spec.Command = l.lock.Acquire(l.Value)
	}
	decided := l.take(ctx, spec)
	if decided.won {
		return nil
	}
	l.Cease()
	d := &FailedAttempt{
		lock: l.lock, lease: l, began: l.Began, met: decided.said, asked: decided.round,
		late: decided.late, cut: decided.err != nil, final: how.Final || decided.err != nil,
		free: how.Free,
	}
	if d.free == nil {
		d.free = make(chan time.Time, 1)
	}
	if granted := d.asked.Outcomes().Count(quorum.Outcome.Yes); !how.Keep || d.cut || granted > 0 {
		d.settle(ctx, false)
	}
	return d
}

// bid tells the nodes in advance what the member claims, each with a number of its own, and does
// not wait. The validity counts from when the lease was made, just before.
func (l *Lease) bid(ctx context.Context, member wire.Member, numbers []string) {
	l.Member, l.Ticket = member.ID, member.Ticket
	l.Write(ctx, quorum.Spec{Command: l.lock.Bid(l.Value, member.ID, numbers)})
}

// withdraw takes a bid back, and does not wait. The member keeps its place in the queue if it
// stays.
func (l *Lease) withdraw(ctx context.Context, stays bool) {
	ticket := l.Ticket
	if !stays {
		ticket = 0
	}
	l.Release(ctx, quorum.Spec{Command: l.lock.TakeBack(l.Value, l.Member, ticket)})
}

// isFresh reports whether nodes may still take the bid up. If it is older, too much of its validity
// may be over for a claim.
func (l *Lease) isFresh() bool {
	return clock.Remaining(l.lock.now(), l.Began.Add(l.lock.BidLife())) > 0
}

// decision is what the nodes have decided on an attempt.
type decision struct {
	round *quorum.Round
	won   bool            // a quorum has granted the lock, in time
	late  string          // why the votes of a quorum came too late, or ""
	said  quorum.Outcomes // unless it has won: what each node said until it was decided
	err   error           // the context's, if that has ended the attempt
}

// take asks the nodes once by a command that may set the key, and settles the token.
func (l *Lease) take(ctx context.Context, s quorum.Spec) (d decision) {
	s.Waits = ctx.Done() == nil
	d.round = l.Write(ctx, s)
	d.won, d.err = d.round.Wait(ctx)
	if d.won && l.lock.Fencing {
		d.said = d.round.Outcomes()
		d.won, d.err = l.fence(ctx, d.said)
	}
	if d.won {
		d.late = l.tooLate()
		d.won = d.late == ""
	}
	if !d.won && d.said == nil {
		d.said = d.round.Outcomes()
	}
	return d
}

// tooLate says why a lock cannot be trusted although a quorum has granted it, or "": it was not
// granted before its deadline, and under the restart guard within [wire.AttemptRounds] node
// timeouts. Each round keeps to its node timeout, but the process can stop between two of them.
// Meanwhile a node that has voted for this attempt may restart without the key. If another client
// holds the lock, it heals the node, which then votes for that client too. A node refuses to be
// healed until it has been up for as long as an attempt may take, see [wire.Lock.Heal]. The node
// measures that time: limit allows for a slow clock here.
func (l *Lease) tooLate() string {
	k, now := l.lock, l.lock.now()
	limit := wire.AttemptRounds * float64(k.NodeTimeout) * (1 - k.DriftFactor)
	switch {
	case clock.Remaining(now, l.deadline()) <= 0:
		return fmt.Sprintf("granted by a quorum, but too late: nothing is left of the expiry of %v",
			k.Expiry)
	case k.Guard > 0 && limit < float64(k.Validity()) &&
		clock.Remaining(now, l.Began.Add(time.Duration(limit))) <= 0:
		return fmt.Sprintf("granted by a quorum, but too late: in more than %d node timeouts of "+
			"%v a node that forgot its vote may have been healed",
			wire.AttemptRounds, k.NodeTimeout)
	}
	return ""
}

// fence settles the token of what a quorum has granted: the largest counter among the granting
// nodes, and stored on a quorum of them. Then the next holder, whose quorum shares a node with this
// one, gets at least one more. Usually the nodes agree at once, because the client's proposal is
// greater than what they had. If it fails, outcomes tell where it did.
func (l *Lease) fence(ctx context.Context, outcomes quorum.Outcomes) (bool, error) {
	token := int64(0)
	for _, o := range outcomes {
		if o.Yes() {
			token = max(token, o.Number)
		}
	}
	l.Token = uint64(token)
	l.lock.Tokens.Saw(l.Token)
	agrees := func(o quorum.Outcome) bool { return o.Yes() && o.Number == token }
	if outcomes.Count(agrees) >= quorum.Majority(len(outcomes)) {
		return true, nil
	}
	l.Raised = true
	raise := l.Ask(ctx, quorum.Spec{
		Command: l.lock.Raise(l.Value, l.Token),
		Have:    func(node int) bool { return agrees(outcomes[node]) },
	})
	raised, err := raise.Wait(ctx)
	if !raised {
		for i, o := range raise.Outcomes() {
			if o.No() {
				o.Err = l.lock.Denied(o.Reply)
			}
			switch {
			case o.Err == nil || outcomes[i].Err != nil || agrees(outcomes[i]):
			case o.Missing():
				outcomes[i] = o
			default:
				outcomes[i] = quorum.Outcome{Err: fmt.Errorf("the fencing token was not stored: %w",
					o.Err)}
			}
		}
	}
	return raised, err
}
