package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/line"
	"github.com/redlock-go/redlock/internal/quorum"
)

// defeat is an attempt that did not win. What the nodes said and when does not change any more. It
// is its waiter's, who alone uses lease and own. Others of the line may ask for an explanation.
type defeat struct {
	err   error // why; nil: explain tells it from what follows
	final bool  // further attempts make no sense
	cut   bool  // the context ended it
	own   bool  // a node refused a key that was this attempt's own
	split bool  // several contenders were granted some nodes each
	stood bool  // it asked for a place in the queue

	m     *Mutex
	began time.Time       // the attempt
	met   quorum.Outcomes // what the nodes said until it was decided
	asked *quorum.Round   // where those say it that had not by then
	late  string          // why the votes of a quorum came too late, or ""
	lease *lease          // what has still to be given back, or nil
	// The release of what was granted; its replies tell of others' keys, too; or nil.
	back atomic.Pointer[quorum.Round]
	keys *line.Expiries // what its replies tell about keys
}

// minAfterword is the least time that a final attempt waits to learn more about why it failed.
const minAfterword = 5 * time.Millisecond

// giveBack releases what an attempt that did not win was granted, and completes its defeat. It
// leaves out the nodes in skip.
//
// The release tells more than the attempt. A client that sends SET NX again after a lost reply is
// refused by its own key. The release then deletes what seemed to be somebody else's, and the lock
// was free. Where the attempt was outvoted before a node had answered, perhaps by the errors of
// others, it tells that the lock is taken there, too. And SET NX does not look at what it finds:
// the release tells that it is no lock.
func (d *defeat) giveBack(ctx context.Context, skip func(node int) bool) {
	m, l := d.m, d.lease
	d.lease = nil
	refused := d.met.Count(quorum.Outcome.No) > 0
	d.back.Store(l.release(ctx, quorum.Spec{
		Command: m.wire.TakeBack(l.value, l.member, l.ticket), Need: m.core.blocking(), Skip: skip,
		Vote: func(node int, reply quorum.Reply) bool {
			d.learn(node, reply)
			met := d.met[node]
			return !reply.Yes() && (met.No() || met.Missing() && reply.Means != quorum.Gone)
		},
	}))
	if d.final && !d.cut && refused {
		d.own = d.refusedItself(ctx)
	}
}

// refusedItself waits for the release, and reports whether a node refused the attempt because of
// its own key, and no others rule a quorum out. It does not wait for a node that is silent for so
// much longer than the others: that does not tell any more.
func (d *defeat) refusedItself(ctx context.Context) (own bool) {
	took := d.m.core.now().Sub(d.began)
	soon, cancel := context.WithTimeout(ctx, max(clock.Times(took, 8), minAfterword))
	defer cancel()
	back := d.back.Load()
	foreign, _ := back.Wait(soon)
	if foreign {
		return false
	}
	// The errors of some have decided it. What the others say tells whether there was a quorum.
	select {
	case <-back.Over():
	case <-soon.Done():
	}
	for i, o := range back.Outcomes() {
		own = own || o.Yes() && d.met[i].No()
	}
	return own
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
	d.giveBack(ctx, func(node int) bool { return said[node].No() })
	return value
}

// blocking is how many refusals rule a quorum out.
func (c *core) blocking() int { return len(c.nodes) - c.quorum + 1 }

// count returns what each node has come to by now, and how many granted, refused, and failed.
func (d *defeat) count() (outcomes quorum.Outcomes, granted, refused, failed int) {
	outcomes, later := slices.Clone(d.met), d.asked.Outcomes()
	var back quorum.Outcomes
	if r := d.back.Load(); r != nil {
		back = r.Outcomes()
	}
	for i := range outcomes {
		released := quorum.Outcome{Err: quorum.ErrUnsent}
		if back != nil {
			released = back[i]
		}
		o := latest(outcomes[i], later[i], released)
		outcomes[i] = o
		switch {
		case o.Yes():
			granted++
		case o.No():
			refused++
		case d.failed(o, released):
			failed++
		}
	}
	return outcomes, granted, refused, failed
}

// latest is what a node has come to. The attempt or its release may have told meanwhile what was
// not known when the attempt was decided. The attempt comes first: a node answers it before the
// release.
func latest(met, later, released quorum.Outcome) quorum.Outcome {
	o := met
	if met.Missing() && !errors.Is(later.Err, quorum.ErrUnsent) {
		o = later
	}
	if o.Err == nil && o.Means == quorum.Standing { // the key is not reserved for the waiter
		o.Means = quorum.Foreign
	}
	silent := o.Missing()
	switch {
	case silent && released.Err != nil && !released.Missing() &&
		!errors.Is(released.Err, quorum.ErrUnsent):
		o.Err = released.Err
	case released.Err != nil || o.Err != nil && !silent:
	case released.Means == quorum.NoLock && (silent || o.No()):
		o.Err = errNotALock
	case silent && released.Means != quorum.Gone:
		o = released
	}
	return o
}

// failed reports whether a node has failed that neither granted nor refused: it answered with an
// error, or is silent. A node that nobody waited for, because others had refused or the context
// ended, fails only when it has had a quarter of the node timeout.
func (d *defeat) failed(o, released quorum.Outcome) bool {
	switch {
	case !o.Missing():
		return true
	case released.Err == nil: // it is there
		return false
	case d.final && !d.cut:
		return true
	}
	return d.m.core.now().Sub(d.began) >= d.m.cfg.nodeTimeout/4
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
	return refused >= d.m.core.blocking() || granted+refused >= d.m.core.quorum || d.troubled()
}

// explain says why the attempt did not win, as far as the nodes have told by now.
func (d *defeat) explain() error {
	if d.err != nil {
		return d.err
	}
	outcomes, granted, refused, failed := d.count()
	n, q, kind, reason, more := len(outcomes), d.m.core.quorum, ErrTaken, d.late, ""
	switch {
	case d.late != "":
		kind = ErrExpired
	case refused >= d.m.core.blocking():
		reason = fmt.Sprintf("taken on %d of %d nodes", refused, n)
	case (refused > 0 || d.stood) && n-failed >= q:
		reason = fmt.Sprintf("taken on %d of %d nodes", refused, n)
		more = fmt.Sprintf(", granted by %d, %d needed", granted, q)
	default:
		kind = ErrNoQuorum
		reason = fmt.Sprintf("no quorum: granted by %d of %d nodes, taken on %d, %d needed",
			granted, n, refused, q)
	}
	taken := func(quorum.Reply) error { return errNodeTaken }
	return newError(d.m.name, notAcquired, reason, ErrFailed, kind).adding(more).
		of(d.m.core.nodeErrors(outcomes, taken))
}

// answer is what the line is told of the defeat.
func (d *defeat) answer() line.Answer {
	a := line.Answer{Keys: d.keys}
	if d.asked != nil {
		a.Refusal = d
	}
	if d.final {
		a.Err = d.explain()
	}
	return a
}

// Split implements [line.Refusal].
func (d *defeat) Split() bool { return d.split }

// Taken implements [line.Refusal].
func (d *defeat) Taken() bool {
	_, _, refused, _ := d.count()
	return refused > 0
}

// Answered implements [line.Refusal].
func (d *defeat) Answered() bool { return !d.troubled() }

// learn notes what a node said to the release: when it has no key any more. A node that answered
// the attempt with an error may have no key and grant nothing even so.
func (d *defeat) learn(node int, reply quorum.Reply) {
	free := time.Now()
	switch err := d.met[node].Err; {
	case reply.Means == quorum.NoLock, reply.Left == quorum.Forever:
		return
	case reply.Means == quorum.Foreign:
		free = free.Add(clock.Add(reply.Left, time.Millisecond))
	case err != nil && err != quorum.ErrUnanswered && !errors.Is(err, quorum.ErrTimeout):
		return
	}
	d.keys.Note(node, free)
}
