package redlock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// defeat is an attempt that did not win. What the nodes said and when does not change any more.
type defeat struct {
	err   error // why; nil if that is to be found out from what follows, see explain
	final bool  // further attempts make no sense
	cut   bool  // the context ended it
	own   bool  // a node refused a key that was this attempt's own
	split bool  // several contenders were granted some nodes each
	stood bool  // it asked for a place in the queue

	m     *Mutex
	began time.Time        // the attempt
	met   []quorum.Outcome // what the nodes said until it was decided
	asked *quorum.Round    // where those say it that had not by then
	late  string           // why the votes of a quorum came too late, or ""
	lease *lease           // what has still to be given back, or nil
	// The release of what was granted; its replies tell of others' keys, too; or nil.
	back *quorum.Round
	keys *expiries // what its replies tell about keys
}

// attempt asks the nodes for the lock once, with a value of its own. One who stays in the queue
// claims what they have reserved for it, and keeps its place if that fails.
//
// An attempt that does not win releases what it was granted before it returns. If keep is set and
// nothing was granted yet, the defeat still has the lease, and the caller settles that. The keys
// learn when the nodes will have none any more; nil makes new ones. A final attempt does not call
// the lock taken before it knows that the key which refused it was not its own.
func (m *Mutex) attempt(ctx context.Context, final, keep bool, keys *expiries, s *stay) (*lease,
	*defeat) {
	value, err := m.newValue()
	if err != nil {
		return nil, &defeat{final: true, err: &Error{
			Name: m.name, failed: "not acquired", kinds: []error{ErrFailed}, reason: err.Error(),
			causes: []error{err},
		}}
	}
	l := newLease(value, len(m.lanes))
	l.granted = m.core.now()
	l.until = l.granted.Add(m.cfg.expiry - m.cfg.drift())
	acquire := m.acquire
	if s != nil {
		l.member, l.ticket = s.member, s.ticket
		acquire = func(string) quorum.Command { return m.claim(l) }
	}
	spec := quorum.Spec{
		Command: acquire(value), Kind: quorum.Write, Need: m.core.quorum, Budget: m.cfg.nodeTimeout,
		Marks: l.marks,
		// While one contender waits for the vote of a frozen node, the votes that it has are lost
		// to the others, and theirs to it: with a few of them, nobody ever gets a quorum.
		Hasty: !final,
	}

	r := quorum.Start(ctx, m.lanes, spec)
	won, err := r.Wait(ctx)
	if won && !m.cfg.fencing && clock.Remaining(m.core.now(), m.deadline(l)) > 0 {
		return l, nil
	}
	outcomes := r.Outcomes()
	if won && m.cfg.fencing {
		won, err = m.fence(ctx, outcomes, l)
	}
	if err == nil && won && clock.Remaining(m.core.now(), m.deadline(l)) > 0 {
		return l, nil
	}
	r.Abandon()
	d := &defeat{met: outcomes, asked: r, cut: err != nil, final: final, keys: keys}
	if won {
		d.late = m.tooLate(l)
	}
	if d.keys == nil {
		d.keys = newExpiries(len(m.lanes))
	}
	d.m, d.began, d.lease = m, l.granted, l
	if t := r.Tally(); !keep || d.cut || t.Yes > 0 {
		d.giveBack(ctx, nil)
	}
	return nil, d
}

// tooLate says why a lease cannot be trusted although a quorum has granted it.
func (m *Mutex) tooLate(l *lease) string {
	if clock.Remaining(m.core.now(), l.until) > 0 {
		return fmt.Sprintf("granted by a quorum, but too late: in more than %d node timeouts of "+
			"%v a node that forgot its vote may have been healed",
			attemptRounds, m.cfg.nodeTimeout)
	}
	return fmt.Sprintf("granted by a quorum, but too late: nothing is left of the expiry of %v",
		m.cfg.expiry)
}

// attemptRounds is how many node timeouts an attempt may take: it asks for votes, then may raise
// the token, and the process may stop for a moment in between.
const attemptRounds = 3

// deadline is when the attempt for a lease must have won. With the restart guard that is not only
// until: each round keeps to its node timeout, but the process can stop between two of them,
// while a node that has voted restarts, is healed by the holder, and votes for that one. Healing
// waits for as long as an attempt may take, see acquireAgain. The node measures that, so a slow
// clock of ours is allowed for.
func (m *Mutex) deadline(l *lease) time.Time {
	limit := attemptRounds * float64(m.cfg.nodeTimeout) * (1 - m.cfg.driftFactor)
	if m.cfg.guarded && limit < float64(l.until.Sub(l.granted)) {
		return l.granted.Add(time.Duration(limit))
	}
	return l.until
}

// minAfterword is the least time that a final attempt waits to learn more about why it failed.
const minAfterword = 5 * time.Millisecond

// giveBack releases what an attempt that did not win was granted, and completes its defeat. It
// skips those nodes.
func (d *defeat) giveBack(ctx context.Context, skip func(node int) bool) {
	m, l, n := d.m, d.lease, len(d.m.lanes)
	d.lease = nil
	final := d.final
	d.final = final || d.cut
	// The release tells more than the attempt. A client that sends SET NX again after a lost
	// reply is refused by its own key: then the release deletes what was thought to be somebody
	// else's, and the lock was free. And where the attempt was outvoted before a node had
	// answered, perhaps by the errors of others, it tells that the lock is taken there, too. And
	// SET NX does not look at what it finds: the release tells that it is no lock.
	granted, refused := 0, 0
	was, silent := make([]bool, n), make([]bool, n) // taken, not answered yet
	for i, o := range d.met {
		was[i] = o.Err == nil && o.Reply <= 0
		silent[i] = o.Err == quorum.ErrUnanswered
		if was[i] {
			refused++
		} else if o.Err == nil {
			granted++
		}
	}
	d.split = granted > 0 && refused > 0
	d.back = m.release(ctx, l, quorum.Spec{
		Command: m.takeBack(l), Need: m.blocking(), Skip: skip,
		Vote: func(node int, reply int64) bool {
			d.reply(node, reply)
			return reply < 0 && silent[node] || reply <= 0 && was[node]
		},
	})
	if final && !d.cut && refused > 0 {
		// A node that is silent for so much longer than the others does not tell any more.
		soon, cancel := context.WithTimeout(ctx,
			max(clock.Times(m.core.now().Sub(l.granted), 8), minAfterword))
		defer cancel()
		foreign, _ := d.back.Wait(soon)
		// The errors of some have decided it; what the others say tells whether there was a quorum.
		if !foreign {
			select {
			case <-d.back.Over():
			case <-soon.Done():
			}
		}
		for i, o := range d.back.Outcomes() {
			if o.Err == nil && o.Reply > 0 && was[i] {
				d.own = !foreign
			}
		}
	}
}

// settle releases what the defeat may still have on the nodes. Before the waiter stands in the
// queue, it leaves out the nodes that refused, and returns the value. Standing there releases what
// a client that sends commands twice was granted.
func (d *defeat) settle(ctx context.Context, stands bool) (value string) {
	if d == nil || d.lease == nil {
		return ""
	}
	if !stands {
		d.giveBack(ctx, nil)
		return ""
	}
	value = d.lease.value
	said := d.asked.Outcomes()
	d.giveBack(ctx, func(node int) bool { return said[node].Err == nil && said[node].Reply <= 0 })
	return value
}

// blocking is how many refusals rule a quorum out.
func (m *Mutex) blocking() int { return len(m.lanes) - m.core.quorum + 1 }

// count returns what each node has come to by now, and how many granted, refused, and failed:
// those answered with an error, or are silent. A node that nobody waited for, because others had
// refused or the context ended, fails only when it has had a quarter of the node timeout. The
// attempt or its release may have told meanwhile what was not known when it was decided. The
// attempt comes first: a node answers it before the release.
func (d *defeat) count() (outcomes []quorum.Outcome, granted, refused, failed int) {
	outcomes = slices.Clone(d.met)
	later := d.asked.Outcomes()
	var backs []quorum.Outcome
	if d.back != nil {
		backs = d.back.Outcomes()
	}
	for i := range outcomes {
		o, back := &outcomes[i], quorum.Outcome{Err: quorum.ErrUnsent}
		if backs != nil {
			back = backs[i]
		}
		silent := o.Err == quorum.ErrUnanswered
		if silent && !errors.Is(later[i].Err, quorum.ErrUnsent) {
			*o = later[i]
			if d.stood {
				o.Reply %= 2
			}
			silent = o.Err == quorum.ErrUnanswered
		}
		switch {
		case silent && back.Err != nil && back.Err != quorum.ErrUnanswered &&
			!errors.Is(back.Err, quorum.ErrUnsent):
			o.Err = back.Err
		case back.Err != nil || o.Err != nil && !silent:
		case back.Reply == notALock && (silent || o.Reply <= 0):
			o.Err = errNotALock
		case silent && back.Reply < 0:
			*o = quorum.Outcome{}
		case silent && back.Reply > 0:
			*o = quorum.Outcome{Reply: 1}
		}
		switch {
		case o.Err == nil && o.Reply > 0:
			granted++
		case o.Err == nil:
			refused++
		case o.Err == quorum.ErrUnanswered && back.Err == nil: // it is there
		case o.Err == quorum.ErrUnanswered && (d.cut || !d.final):
			if d.m.core.now().Sub(d.began) >= d.m.cfg.nodeTimeout/4 {
				failed++
			}
		default:
			failed++
		}
	}
	return outcomes, granted, refused, failed
}

// troubled reports whether so many nodes have failed that there is no quorum without them.
func (d *defeat) troubled() bool {
	_, _, _, failed := d.count()
	return len(d.met)-failed < d.m.core.quorum
}

// settled reports whether the nodes that have not said anything yet make no difference to why the
// attempt did not win.
func (d *defeat) settled() bool {
	if d.err != nil {
		return true
	}
	_, granted, refused, _ := d.count()
	return refused >= d.m.blocking() || granted+refused >= d.m.core.quorum || d.troubled()
}

// explain says why the attempt did not win, as far as the nodes have told by now.
func (d *defeat) explain() error {
	if d.err != nil {
		return d.err
	}
	m := d.m
	outcomes, granted, refused, failed := d.count()
	n := len(outcomes)
	e := &Error{Name: m.name, failed: "not acquired"}
	switch {
	case d.late != "":
		e.kinds = []error{ErrFailed, ErrExpired}
		e.reason = d.late
	case refused >= m.blocking():
		e.kinds = []error{ErrFailed, ErrTaken}
		e.reason = fmt.Sprintf("taken on %d of %d nodes", refused, n)
	case (refused > 0 || d.stood) && n-failed >= m.core.quorum:
		e.kinds = []error{ErrFailed, ErrTaken}
		e.reason = fmt.Sprintf("taken on %d of %d nodes", refused, n)
		e.more = fmt.Sprintf(", granted by %d, %d needed", granted, m.core.quorum)
	default:
		e.kinds = []error{ErrFailed, ErrNoQuorum}
		e.reason = fmt.Sprintf("no quorum: granted by %d of %d nodes, taken on %d, %d needed",
			granted, n, refused, m.core.quorum)
	}
	e.nodes = m.core.nodeErrors(outcomes, func(int64) error { return errNodeTaken })
	return e
}

// reply notes what a node said to the release: when it has no key any more. A node that answered
// the attempt with an error may have no key and grant nothing even so.
func (d *defeat) reply(node int, reply int64) {
	free := time.Now()
	switch err := d.met[node].Err; {
	case reply == -1 || reply == notALock: // it never expires
		return
	case reply < 0:
		free = free.Add(clock.Add(clock.Milliseconds(-2-reply), time.Millisecond))
	case err != nil && err != quorum.ErrUnanswered && !errors.Is(err, quorum.ErrTimeout):
		return
	}
	d.keys.note(node, free)
}

// fresh is within what time two replies about the same key may have overtaken each other.
const fresh = 10 * time.Millisecond

// expiries is when the nodes will have no key any more, as far as they have told. It is safe for
// concurrent use.
type expiries struct {
	told chan struct{} // something is new; has room for one

	mu    sync.Mutex  // guards what follows
	free  []time.Time // zero: not known
	noted []time.Time // when
}

func newExpiries(nodes int) *expiries {
	return &expiries{told: make(chan struct{}, 1), free: make([]time.Time, nodes),
		noted: make([]time.Time, nodes)}
}

// note notes when a node will have no key any more. Two replies that come together may have
// overtaken each other: then the earlier time counts.
func (e *expiries) note(node int, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Sub(e.noted[node]) < fresh && !e.free[node].IsZero() && e.free[node].Before(at) {
		return
	}
	e.free[node], e.noted[node] = at, now
	select {
	case e.told <- struct{}{}:
	default:
	}
}

// forget drops the times up to now, when an attempt begins or has won. It asks those nodes anew,
// and one that is silent since then may have a key.
func (e *expiries) forget(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, t := range e.free {
		if !t.After(now) {
			e.free[i] = time.Time{}
		}
	}
}

// on returns when so many nodes will have no key any more, if so many have told.
func (e *expiries) on(nodes int) (at time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := make([]time.Time, 0, len(e.free))
	for _, t := range e.free {
		if !t.IsZero() {
			known = append(known, t)
		}
	}
	if len(known) < nodes {
		return time.Time{}, false
	}
	slices.SortFunc(known, time.Time.Compare)
	return known[nodes-1], true
}

// valueBytes is how many random bytes a value has.
const valueBytes = 16

// newValue makes the value of one attempt. No two attempts may share one, or the late
// release of the first could delete the key of the second.
func (m *Mutex) newValue() (string, error) {
	var bits [valueBytes]byte
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
	if strings.HasPrefix(owner, reservation) {
		return "", fmt.Errorf("the function of WithGenValueFunc: its result must not begin with %q",
			reservation)
	}
	return owner + ":" + string(text[:]), nil
}

// fence settles the token of a lease that a quorum has granted: the largest counter among the
// granting nodes, and stored on a quorum of them. Then the next holder, whose quorum shares a
// node with this one, gets at least one more. Usually the nodes agree at once, because the
// client's proposal is greater than what they had. If it fails, outcomes tell where it did.
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
	l.raised = true
	raise := quorum.Start(ctx, m.lanes, quorum.Spec{
		Command: m.raise(l), Kind: quorum.Ask, Need: m.core.quorum - agree,
		Budget: m.cfg.nodeTimeout, Marks: l.marks,
		Skip: func(node int) bool {
			return outcomes[node].Err == nil &&
				outcomes[node].Reply == token
		},
	})
	raised, err := raise.Wait(ctx)
	if !raised {
		for i, o := range raise.Outcomes() {
			if o.Err == nil && o.Reply <= 0 {
				o.Err = heldBy(o.Reply)
			}
			if o.Err != nil && outcomes[i].Err == nil && outcomes[i].Reply != token {
				outcomes[i] = quorum.Outcome{Err: fmt.Errorf("the fencing token was not stored: %w",
					o.Err)}
			}
		}
	}
	return raised, err
}

// tokenMemory is how far ahead of the clock a token may be to be remembered for the next
// proposals, which are about other names, too: a counter that somebody has moved to its end must
// not take those with it.
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
