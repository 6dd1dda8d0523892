// Package grant is what the nodes have of one acquisition of a lock: what an attempt asks them for,
// and what of that is healed, kept for a while, or released.
//
// It asks, and decides by votes. Who has the lock, until when, and what errors say is the business
// of package redlock. Each step is a file: grant.go makes the attempt, failed.go has why it did not
// win, and keep.go what becomes of a grant. The renewals of all grants take turns in renew.go.
package grant

import (
	"context"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Lock is what all grants of one mutex have in common.
type Lock struct {
	wire.Lock                   // what is said to the nodes
	Pipelines []quorum.Pipeline // to them
	Now       func() time.Time
	// Denied is what a reply says that denies a key to be ours.
	Denied func(quorum.Reply) error
}

// Grant is one acquisition. It is safe for concurrent use once the lock is granted, and is not
// copied.
type Grant struct {
	Value  string
	Member string    // of the queue on the nodes; "" if the lock was free
	Ticket int64     // of the member
	Began  time.Time // the attempt; zero if the lock was handed over
	Token  uint64    // for fencing
	Raised bool      // it took a second round to settle the token

	quorum.WriteSet
	lock *Lock
}

// Open makes the zero Grant one with that value. Nothing of it has been written to the nodes.
func (g *Grant) Open(l *Lock, value string) {
	g.Value, g.lock = value, l
	g.WriteSet.Open(l.Pipelines, l.NodeTimeout, l.Expiry)
}

// Deadline is the moment up to which the lock may be trusted if the attempt wins it.
func (g *Grant) Deadline() time.Time { return g.Began.Add(g.lock.Validity()) }

// Attempt asks the nodes for the lock once. It returns nil if they have granted it, in time. One
// who stays in the queue claims what they have reserved for it, and keeps its place if that fails:
// only a claim has a member.
//
// An attempt that does not win releases what it was granted before it returns. With how.Keep it
// leaves that to [FailedAttempt.Settle], if no node has granted anything yet. A final attempt calls
// the lock taken only when it knows that the key which refused it was not its own.
func (g *Grant) Attempt(ctx context.Context, how queue.Attempt,
	member *wire.Member) *FailedAttempt {
	// A contender that waits for the vote of a frozen node keeps its votes from the others. They
	// keep theirs from it. With a few of them, nobody ever gets a quorum.
	spec := quorum.Spec{Hasty: !how.Final}
	if member != nil {
		g.Member, g.Ticket = member.ID, member.Ticket
		spec.Command = g.lock.Claim(g.Value, member.ID)
	} else {
		spec.Command = g.lock.Acquire(g.Value)
	}
	decided := g.Take(ctx, spec)
	if decided.Won {
		return nil
	}
	decided.Round.Abandon()
	d := &FailedAttempt{
		lock: g.lock, grant: g, began: g.Began, met: decided.Said, asked: decided.Round,
		late: decided.Late, cut: decided.Err != nil, Final: how.Final || decided.Err != nil,
		keys: how.Keys,
	}
	if d.keys == nil {
		d.keys = queue.NewExpiry()
	}
	if t := d.asked.Tally(); !how.Keep || d.cut || t.Yes > 0 {
		d.Settle(ctx, false)
	}
	return d
}

// Bid tells the nodes in advance what the member claims, each with a number of its own, and does
// not wait. The validity counts from here.
func (g *Grant) Bid(ctx context.Context, member wire.Member, numbers []string) {
	g.Member, g.Ticket = member.ID, member.Ticket
	g.Write(ctx, quorum.Spec{Command: g.lock.Bid(g.Value, member.ID, numbers)})
}

// Withdraw takes a bid back, and does not wait. The member keeps its place in the queue if it
// stays.
func (g *Grant) Withdraw(ctx context.Context, stays bool) {
	ticket := g.Ticket
	if !stays {
		ticket = 0
	}
	g.Release(ctx, quorum.Spec{Command: g.lock.TakeBack(g.Value, g.Member, ticket)})
}

// IsFresh reports whether nodes may still take the bid up. If it is older, too much of its validity
// may be over for a claim.
func (g *Grant) IsFresh() bool {
	return clock.Remaining(g.lock.Now(), g.Began.Add(g.lock.BidLife())) > 0
}

// Decision is what the nodes have decided on an attempt.
type Decision struct {
	Round *quorum.Round
	Won   bool            // a quorum has granted the lock, in time
	Late  string          // why the votes of a quorum came too late, or ""
	Said  quorum.Outcomes // unless it has won: what each node said until it was decided
	Err   error           // the context's, if that has ended the attempt
}

// Take asks the nodes once by a command that may set the key, and settles the token.
func (g *Grant) Take(ctx context.Context, s quorum.Spec) (d Decision) {
	s.Waits = ctx.Done() == nil
	d.Round = g.Write(ctx, s)
	d.Won, d.Err = d.Round.Wait(ctx)
	if d.Won && g.lock.Fencing {
		d.Said = d.Round.Outcomes()
		d.Won, d.Err = g.fence(ctx, d.Said)
	}
	if d.Won && !g.InTime() {
		d.Won, d.Late = false, g.tooLate()
	}
	if !d.Won && d.Said == nil {
		d.Said = d.Round.Outcomes()
	}
	return d
}

// InTime reports whether the lock was granted in time: before its deadline, and under the restart
// guard within [wire.AttemptRounds] node timeouts. Each round keeps to its node timeout, but the
// process can stop between two of them. Meanwhile a node that has voted for this attempt may
// restart without the key. If another client holds the lock, it heals the node, which then votes
// for that client too. A node refuses to be healed until it has been up for as long as an attempt
// may take, see [wire.Lock.Heal]. The node measures that time: limit allows for a slow clock here.
func (g *Grant) InTime() bool {
	l, end := g.lock, g.Deadline()
	limit := wire.AttemptRounds * float64(l.NodeTimeout) * (1 - l.DriftFactor)
	if l.Guard > 0 && limit < float64(l.Validity()) {
		end = g.Began.Add(time.Duration(limit))
	}
	return clock.Remaining(l.Now(), end) > 0
}

// tooLate says why a lock cannot be trusted although a quorum has granted it.
func (g *Grant) tooLate() string {
	if clock.Remaining(g.lock.Now(), g.Deadline()) > 0 {
		return fmt.Sprintf("granted by a quorum, but too late: in more than %d node timeouts of "+
			"%v a node that forgot its vote may have been healed",
			wire.AttemptRounds, g.lock.NodeTimeout)
	}
	return fmt.Sprintf("granted by a quorum, but too late: nothing is left of the expiry of %v",
		g.lock.Expiry)
}

// fence settles the token of what a quorum has granted: the largest counter among the granting
// nodes, and stored on a quorum of them. Then the next holder, whose quorum shares a node with this
// one, gets at least one more. Usually the nodes agree at once, because the client's proposal is
// greater than what they had. If it fails, outcomes tell where it did.
func (g *Grant) fence(ctx context.Context, outcomes quorum.Outcomes) (bool, error) {
	token := int64(0)
	for _, o := range outcomes {
		if o.Yes() {
			token = max(token, o.Number)
		}
	}
	g.Token = uint64(token)
	g.lock.Tokens.Saw(g.Token)
	agrees := func(o quorum.Outcome) bool { return o.Yes() && o.Number == token }
	if outcomes.Count(agrees) >= quorum.Majority(len(outcomes)) {
		return true, nil
	}
	g.Raised = true
	raise := g.Ask(ctx, quorum.Spec{
		Command: g.lock.Raise(g.Value, g.Token),
		Have:    func(node int) bool { return agrees(outcomes[node]) },
	})
	raised, err := raise.Wait(ctx)
	if !raised {
		for i, o := range raise.Outcomes() {
			if o.No() {
				o.Err = g.lock.Denied(o.Reply)
			}
			if o.Err != nil && outcomes[i].Err == nil && !agrees(outcomes[i]) {
				outcomes[i] = quorum.Outcome{Err: fmt.Errorf("the fencing token was not stored: %w",
					o.Err)}
			}
		}
	}
	return raised, err
}
