package redlock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// defeat is an attempt that did not win.
type defeat struct {
	err   error
	final bool             // further attempts make no sense
	own   bool             // a node refused a key that was this attempt's own
	split bool             // several contenders were granted some nodes each
	met   []quorum.Outcome // what the nodes said
	back  *quorum.Round    // the release of what was granted; its replies tell when others' keys expire
}

// everywhere is the first argument of an attempt that asks all nodes at once.
const everywhere = -1

// attempt asks the nodes for the lock once, with a value of its own: the node first before the others, where one is
// named, and only if that grants it. Contenders who know that the lock was free a moment ago ask the same node
// first, so that the losers trouble that one only, and do not split the vote.
//
// What the attempt was granted in vain is being released when it returns. If it is the final one, it does not call the lock
// taken before it has made sure that what it was refused was not its own.
func (m *Mutex) attempt(ctx context.Context, first int, final bool) (*lease, *defeat) {
	value, err := m.newValue()
	if err != nil {
		return nil, &defeat{final: true, err: &Error{
			Name: m.name, failed: "not acquired", kinds: []error{ErrFailed}, reason: err.Error(), causes: []error{err},
		}}
	}
	l := newLease(value, len(m.lanes))
	l.granted = m.core.now()
	l.until = l.granted.Add(m.cfg.expiry - m.cfg.drift())
	spec := quorum.Spec{
		Command: m.acquire(value), Kind: quorum.Write, Need: m.core.quorum, Budget: m.cfg.nodeTimeout, Marks: l.marks,
		// While one contender waits for the vote of a frozen node, the votes that it has are lost to the
		// others, and theirs to it: with a few of them, nobody ever gets a quorum.
		Hasty: !final,
	}

	var vanguard quorum.Outcome
	if first != everywhere {
		ask := spec
		ask.Need = 1
		ask.Skip = func(node int) bool { return node != first }
		r := quorum.Start(ctx, m.lanes, ask)
		granted, err := r.Wait(ctx)
		outcomes := r.Outcomes()
		vanguard = outcomes[first]
		if err != nil || !granted && vanguard.Err == nil {
			r.Abandon()
			return nil, m.giveBack(ctx, outcomes, l, err, false, false)
		}
		if granted {
			spec.Need--
		}
		spec.Skip = func(node int) bool { return node == first }
	}
	r := quorum.Start(ctx, m.lanes, spec)
	won, err := r.Wait(ctx)
	if won && !m.cfg.fencing && clock.Remaining(m.core.now(), m.deadline(l)) > 0 {
		return l, nil
	}
	outcomes := r.Outcomes()
	if first != everywhere {
		outcomes[first] = vanguard
	}
	if won && m.cfg.fencing {
		won, err = m.fence(ctx, outcomes, l)
	}
	if err == nil && won && clock.Remaining(m.core.now(), m.deadline(l)) > 0 {
		return l, nil
	}
	r.Abandon()
	return nil, m.giveBack(ctx, outcomes, l, err, won, final)
}

// attemptRounds is how many node timeouts an attempt may take: it asks one node first, then the others, and then may
// raise the token.
const attemptRounds = 3

// deadline is when the attempt for a lease must have won. With the restart guard that is not only until: each round keeps
// to its node timeout, but the process can stop between two of them, while a node that has voted restarts, is healed by the
// holder, and votes for that one. Healing waits for as long as an attempt may take, see acquireAgain. The node
// measures that, so a slow clock of ours is allowed for.
func (m *Mutex) deadline(l *lease) time.Time {
	limit := attemptRounds * float64(m.cfg.nodeTimeout) * (1 - m.cfg.driftFactor)
	if m.cfg.guarded && limit < float64(l.until.Sub(l.granted)) {
		return l.granted.Add(time.Duration(limit))
	}
	return l.until
}

// minAfterword is the least time that a final attempt waits to learn more about why it failed.
const minAfterword = 5 * time.Millisecond

// giveBack releases what an attempt was granted in vain, and says why it did not win: ended by the context's error, or
// granted too late, or outvoted.
func (m *Mutex) giveBack(ctx context.Context, outcomes []quorum.Outcome, l *lease, ended error, late, final bool) *defeat {
	n := len(m.lanes)
	granted, refused := 0, 0
	for _, o := range outcomes {
		switch {
		case o.Err != nil:
		case o.Reply > 0:
			granted++
		default:
			refused++
		}
	}
	d := &defeat{final: ended != nil, split: granted > 0 && refused > 0, met: outcomes}
	blocking := n - m.core.quorum + 1 // refusals that rule a quorum out

	// The release tells more than the attempt. A client that sends SET NX again after a lost reply is refused
	// by its own key: then the release deletes what was thought to be somebody else's, and the lock was
	// free. And where the attempt was outvoted before a node had answered, perhaps by the errors of others,
	// it tells that the lock is taken there, too. And SET NX does not look at what it finds: the release tells
	// that it is no lock.
	was, silent := make([]bool, n), make([]bool, n) // taken, not answered yet
	for i, o := range outcomes {
		was[i] = o.Err == nil && o.Reply <= 0
		silent[i] = o.Err == quorum.ErrUnanswered
	}
	d.back = m.release(ctx, l, quorum.Spec{
		Command: m.takeBack(l.value), Need: blocking,
		Vote: func(node int, reply int64) bool { return reply < 0 && silent[node] || reply <= 0 && was[node] },
	})
	if ended != nil {
		return d
	}
	if refused > 0 && final {
		// A node that is silent for so much longer than the others does not tell any more.
		soon, cancel := context.WithTimeout(ctx, max(8*m.core.now().Sub(l.granted), minAfterword))
		defer cancel()
		foreign, _ := d.back.Wait(soon)
		for i, o := range d.back.Outcomes() {
			switch {
			case o.Err != nil:
			case o.Reply == notALock && (was[i] || silent[i]):
				if was[i] {
					refused--
				}
				outcomes[i] = quorum.Outcome{Err: errNotALock}
			case was[i] && o.Reply > 0:
				d.own = !foreign
			case silent[i] && o.Reply < 0:
				outcomes[i] = quorum.Outcome{}
				refused++
			}
		}
	}

	e := &Error{Name: m.name, failed: "not acquired", nodes: m.core.nodeErrors(outcomes, func(int64) error { return errNodeTaken })}
	switch {
	case late:
		e.kinds = []error{ErrFailed, ErrExpired}
		e.reason = fmt.Sprintf("granted by a quorum, but too late: nothing is left of the expiry of %v", m.cfg.expiry)
		if clock.Remaining(m.core.now(), l.until) > 0 {
			e.reason = fmt.Sprintf("granted by a quorum, but too late: in more than %d node timeouts of %v a node that forgot its vote may have been healed",
				attemptRounds, m.cfg.nodeTimeout)
		}
	case refused >= blocking:
		e.kinds = []error{ErrFailed, ErrTaken}
		e.reason = fmt.Sprintf("taken on %d of %d nodes", refused, n)
	default:
		e.kinds = []error{ErrFailed, ErrNoQuorum}
		e.reason = fmt.Sprintf("no quorum: granted by %d of %d nodes, taken on %d, %d needed", granted, n, refused, m.core.quorum)
	}
	d.err = e
	return d
}

// freeIn returns how long it takes until the keys that an attempt met have expired on a quorum of nodes, as far as
// the nodes have told. A node that answered with an error may have no key and grant nothing all the same.
func (d *defeat) freeIn(needed int) (time.Duration, bool) {
	var left []time.Duration
	for i, o := range d.back.Outcomes() {
		switch {
		case d.met[i].Err != nil || o.Err != nil || o.Reply == -1 || o.Reply == notALock:
		case o.Reply >= 0:
			left = append(left, 0)
		default:
			left = append(left, time.Duration(-2-o.Reply)*time.Millisecond)
		}
	}
	if len(left) < needed {
		return 0, false
	}
	slices.Sort(left)
	return left[needed-1] + time.Millisecond, true
}

// newValue makes the value of one attempt. No two attempts may share one, or the late
// release of the first could delete the key of the second.
func (m *Mutex) newValue() (string, error) {
	var bits [16]byte
	rand.Read(bits[:]) // never fails
	var text [24]byte
	base64.StdEncoding.Encode(text[:], bits[:])
	if m.cfg.genValue == nil {
		return string(text[:]), nil
	}
	owner, err := m.cfg.genValue()
	if err != nil {
		return "", fmt.Errorf("the function of WithGenValueFunc: %w", err)
	}
	return owner + ":" + string(text[:]), nil
}

// fence settles the token of a lease that a quorum has granted: the largest counter among the
// granting nodes, and stored on a quorum of them. Then the next holder, whose quorum shares
// a node with this one, gets at least one more. The nodes mostly agree at once, because the client's
// proposal is greater than what they had. If it fails, outcomes tell where it did.
func (m *Mutex) fence(ctx context.Context, outcomes []quorum.Outcome, l *lease) (bool, error) {
	token, agree := int64(0), 0
	for _, o := range outcomes {
		switch {
		case o.Err != nil || o.Reply < token || o.Reply == 0:
		case o.Reply > token:
			token, agree = o.Reply, 1
		default:
			agree++
		}
	}
	l.token = uint64(token)
	if token < m.core.now().Add(tokenMemory).UnixMicro() {
		m.core.sawToken(l.token)
	}
	if agree >= m.core.quorum {
		return true, nil
	}
	raise := quorum.Start(ctx, m.lanes, quorum.Spec{
		Command: m.raise(l), Kind: quorum.Ask, Need: m.core.quorum - agree, Budget: m.cfg.nodeTimeout, Marks: l.marks,
		Skip: func(node int) bool { return outcomes[node].Err == nil && outcomes[node].Reply == token },
	})
	raised, err := raise.Wait(ctx)
	if !raised {
		for i, o := range raise.Outcomes() {
			if o.Err == nil && o.Reply <= 0 {
				o.Err = heldBy(o.Reply)
			}
			if o.Err != nil && outcomes[i].Err == nil && outcomes[i].Reply != token {
				outcomes[i] = quorum.Outcome{Err: fmt.Errorf("the fencing token was not stored: %w", o.Err)}
			}
		}
	}
	return raised, err
}

// tokenMemory is how far ahead of the clock a token may be to be remembered for the next proposals, which are about other
// names, too: a counter that somebody has moved to its end must not take those with it.
const tokenMemory = 24 * time.Hour

// sawToken remembers the greatest token seen.
func (c *core) sawToken(token uint64) {
	for last := c.lastToken.Load(); token > last; last = c.lastToken.Load() {
		if c.lastToken.CompareAndSwap(last, token) {
			return
		}
	}
}

// proposal is the least token a client would like: greater than any it has seen, and after a
// node has lost its counters still greater than those, as long as clocks are roughly right.
func (c *core) proposal() uint64 {
	return max(c.lastToken.Load()+1, uint64(max(c.now().UnixMicro(), 1)))
}
