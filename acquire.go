package redlock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/keys"
	"github.com/redlock-go/redlock/internal/line"
	"github.com/redlock-go/redlock/internal/quorum"
)

// attempt asks the nodes for the lock once, with a value of its own, and adopts the lease if it
// wins. One who stays in the queue claims what they have reserved for it, and keeps its place if
// that fails: only a claim has a member.
//
// An attempt that does not win releases what it was granted before it returns. With how.Keep it
// leaves that to the caller's settle, if no node has granted anything yet. A final attempt does not
// call the lock taken before it knows that the key which refused it was not its own.
func (a *asker) attempt(how line.Attempt, member *line.Member) *defeat {
	a.told.attempt()
	m, ctx := a.m, a.ctx
	l, wrong := newAttempt(m, notAcquired)
	if wrong != nil {
		return &defeat{final: true, err: wrong}
	}
	// A contender that waits for the vote of a frozen node keeps its votes from the others, and
	// they keep theirs from it. With a few of them, nobody ever gets a quorum.
	spec := quorum.Spec{Hasty: !how.Final}
	if member != nil {
		l.member, l.ticket = member.ID, member.Ticket
		spec.Command = m.wire.Claim(l.value, member.ID)
	} else {
		spec.Command = m.wire.Acquire(l.value)
	}

	r := l.claim.Write(ctx, spec)
	won, err := r.Wait(ctx)
	var said quorum.Outcomes
	if won && m.cfg.fencing {
		said = r.Outcomes()
		won, err = l.fence(ctx, said)
	}
	if won && l.inTime() {
		a.won = l
		l.adopt(ctx, a.told)
		return nil
	}
	if said == nil {
		said = r.Outcomes()
	}
	r.Abandon()
	d := &defeat{m: m, lease: l, began: l.granted, met: said, asked: r, cut: err != nil,
		final: how.Final || err != nil, keys: how.Keys}
	d.split = said.Count(quorum.Outcome.Yes) > 0 && said.Count(quorum.Outcome.No) > 0
	if won {
		d.late = l.tooLate()
	}
	if d.keys == nil {
		d.keys = line.NewExpiries(len(m.lanes))
	}
	if t := r.Tally(); !how.Keep || d.cut || t.Yes > 0 {
		d.giveBack(ctx, nil)
	}
	return d
}

// newAttempt returns a lease with a value of its own, which counts from now if the nodes grant it.
// Its error says what has failed.
func newAttempt(m *Mutex, failed string) (*lease, *Error) {
	value, err := m.cfg.newValue()
	if err != nil {
		return nil, newError(m.name, failed, err.Error(), ErrFailed).causedBy(err)
	}
	l := newLease(m, value)
	l.granted = m.core.now()
	l.until = l.granted.Add(m.cfg.expiry - m.cfg.drift())
	return l, nil
}

// attemptRounds is how many node timeouts an attempt may take: it asks for votes, then may raise
// the token, and the process may stop for a moment in between.
const attemptRounds = 3

// inTime reports whether the lease was won in time: before until, and under the restart guard
// within attemptRounds node timeouts. Each round keeps to its node timeout, but the process can
// stop between two of them. Meanwhile a node that has voted restarts, is healed by the holder,
// and votes for that one. Healing waits for as long as an attempt may take, see wire.Heal. The
// node measures that time: a slow clock of ours is allowed for.
func (l *lease) inTime() bool {
	cfg, end := l.m.cfg, l.until
	limit := attemptRounds * float64(cfg.nodeTimeout) * (1 - cfg.driftFactor)
	if cfg.guarded && limit < float64(l.until.Sub(l.granted)) {
		end = l.granted.Add(time.Duration(limit))
	}
	return clock.Remaining(l.m.core.now(), end) > 0
}

// tooLate says why a lease cannot be trusted although a quorum has granted it.
func (l *lease) tooLate() string {
	if clock.Remaining(l.m.core.now(), l.until) > 0 {
		return fmt.Sprintf("granted by a quorum, but too late: in more than %d node timeouts of "+
			"%v a node that forgot its vote may have been healed",
			attemptRounds, l.m.cfg.nodeTimeout)
	}
	return fmt.Sprintf("granted by a quorum, but too late: nothing is left of the expiry of %v",
		l.m.cfg.expiry)
}

// adopt makes l, which a quorum has just granted, the current lease of its mutex. An older one is
// lost: no quorum had that any more.
func (l *lease) adopt(ctx context.Context, told *acquisition) {
	m := l.m
	m.mu.Lock()
	old := m.cur
	m.cur = l
	var after aftermath
	kept := old != nil && old.kept()
	switch {
	case kept:
		after = old.lose(EndLost, m.fail("lost", ErrExpired, "granted to its own mutex anew"))
	case old != nil:
		after = old.lose(EndReplaced, m.fail("ended", ErrExpired, "granted to its own mutex anew"))
	}
	told.granted(l)
	m.mu.Unlock()
	after.run()
	if kept {
		old.release(ctx, quorum.Spec{})
	}
}

// valueBytes is how many random bytes a value has.
const valueBytes = 16

// newValue makes the value of one attempt. No two attempts may share one, or the late
// release of the first could delete the key of the second.
func (c *config) newValue() (string, error) {
	var bits [valueBytes]byte
	rand.Read(bits[:]) // never fails
	var text [24]byte
	base64.StdEncoding.Encode(text[:], bits[:])
	if c.genValue == nil {
		return string(text[:]), nil
	}
	owner, err := c.genValue()
	if err != nil {
		return "", fmt.Errorf("the function of WithGenValueFunc: %w", err)
	}
	if strings.HasPrefix(owner, keys.Reservation) {
		return "", fmt.Errorf("the function of WithGenValueFunc: its result must not begin with %q",
			keys.Reservation)
	}
	return owner + ":" + string(text[:]), nil
}

// fence settles the token of the lease, which a quorum has granted: the largest counter among the
// granting nodes, and stored on a quorum of them. Then the next holder, whose quorum shares a
// node with this one, gets at least one more. Usually the nodes agree at once, because the
// client's proposal is greater than what they had. If it fails, outcomes tell where it did.
func (l *lease) fence(ctx context.Context, outcomes quorum.Outcomes) (bool, error) {
	token := int64(0)
	for _, o := range outcomes {
		if o.Yes() {
			token = max(token, o.Number)
		}
	}
	l.token = uint64(token)
	l.m.core.tokens.saw(l.token)
	agrees := func(o quorum.Outcome) bool { return o.Yes() && o.Number == token }
	if outcomes.Count(agrees) >= l.m.core.quorum {
		return true, nil
	}
	l.raised = true
	raise := l.claim.Ask(ctx, quorum.Spec{
		Command: l.m.wire.Raise(l.value, l.token),
		Have:    func(node int) bool { return agrees(outcomes[node]) },
	})
	raised, err := raise.Wait(ctx)
	if !raised {
		for i, o := range raise.Outcomes() {
			if o.No() {
				o.Err = heldBy(o.Reply)
			}
			if o.Err != nil && outcomes[i].Err == nil && !agrees(outcomes[i]) {
				outcomes[i] = quorum.Outcome{Err: fmt.Errorf("the fencing token was not stored: %w",
					o.Err)}
			}
		}
	}
	return raised, err
}

// tokens remembers the greatest fencing token that a process has seen.
type tokens struct {
	now  func() time.Time
	last atomic.Uint64
}

// tokenMemory is how far ahead of the clock a token may be to be remembered for the next
// proposals, which are about other names, too: a counter that somebody has moved to its end must
// not take those with it.
const tokenMemory = 24 * time.Hour

// saw notes a token.
func (t *tokens) saw(token uint64) {
	if int64(token) >= t.now().Add(tokenMemory).UnixMicro() {
		return
	}
	for last := t.last.Load(); token > last; last = t.last.Load() {
		if t.last.CompareAndSwap(last, token) {
			return
		}
	}
}

// proposal is the least token a client would like: greater than any it has seen, and after a
// node has lost its counters still greater than those, as long as clocks are roughly right.
func (t *tokens) proposal() uint64 {
	return max(t.last.Load()+1, uint64(max(t.now().UnixMicro(), 1)))
}
