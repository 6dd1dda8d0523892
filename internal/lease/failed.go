package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
)

// FailedAttempt is an attempt that did not win, or a place in the queue. What the nodes said and
// when does not change any more. It is its waiter's, who alone uses own, unsettled, giveBack and
// settle. Others of the local queue may ask why.
type FailedAttempt struct {
	final bool // further attempts make no sense
	own   bool // a node refused a key that was this attempt's own
	cut   bool // the context ended it
	stood bool // it asked for a place in the queue
	// The waiter's attempt before that, or nil.
	tried *FailedAttempt

	lock  *Lock
	began time.Time       // the attempt
	met   quorum.Outcomes // what the nodes said until it was decided
	asked *quorum.Round   // where those say it that had not by then
	late  string          // why the votes of a quorum came too late, or ""
	lease *Lease          // what has still to be given back, or nil
	// The release of what was granted; its replies tell of others' keys, too; or nil. If it has
	// left out nodes that refused, there may be another one for these.
	back, rest atomic.Pointer[quorum.Round]

	mu   sync.Mutex     // guards ends
	ends []time.Time    // when nodes will have no key any more, of those that have told, in order
	free chan time.Time // when a quorum will, which the replies tell; room for one; or nil
}

// stood is the failed attempt of a waiter that asked for a place in the queue, in a round that
// began at a time. The context has cut the round short, or not.
func stood(k *Lock, r *quorum.Round, began time.Time, cut bool) *FailedAttempt {
	return &FailedAttempt{lock: k, began: began, met: r.Outcomes(), asked: r, cut: cut, stood: true}
}

// minAfterword is the least time that a final attempt waits to learn more about why it failed.
const minAfterword = 5 * time.Millisecond

// release starts the release, as the spec has it.
//
// It tells more than the attempt. A client that sends SET NX again after a lost reply is refused by
// its own key. The release then deletes what seemed to be somebody else's, and the lock was free.
// The attempt may have been outvoted before a node had answered, perhaps by the errors of others.
// The release then tells whether the lock is taken there, too. And SET NX does not look at what it
// finds: the release tells that it is no lock.
func (d *FailedAttempt) release(ctx context.Context, s quorum.Spec) *quorum.Round {
	l := d.lease
	s.Command, s.Need = d.lock.TakeBack(l.Value, l.Member, l.Ticket), quorum.Blocking(len(d.met))
	s.Vote = func(node int, reply quorum.Reply) bool {
		d.learn(node, reply)
		met := d.met[node]
		return !reply.Yes() && (met.No() || met.Missing() && reply.Means != quorum.Gone)
	}
	return l.Release(ctx, s)
}

// refusedItself waits for the release. It reports whether a node refused the attempt because of its
// own key, and no others rule a quorum out. It does not wait for a node that is silent for so much
// longer than the others: that does not tell any more.
func (d *FailedAttempt) refusedItself(ctx context.Context) (own bool) {
	took := d.lock.now().Sub(d.began)
	soon, cancel := context.WithTimeout(ctx, max(clock.Times(took, 8), minAfterword))
	defer cancel()
	back := d.back.Load()
	foreign, _ := back.Wait(soon)
	if foreign {
		return false
	}
	// The errors of some have decided it. What the others say tells whether there was a quorum.
	select {
	case <-back.Done():
	case <-soon.Done():
	}
	for i, o := range back.Outcomes() {
		own = own || o.Yes() && d.met[i].No()
	}
	return own
}

// unsettled reports whether a node may still grant the attempt, or may have done so.
func (d *FailedAttempt) unsettled() bool {
	return d != nil && d.lease != nil && d.back.Load() == nil
}

// giveBack releases what nodes may still grant, or may have granted. It leaves those that refuse,
// also if they do so later, to settle.
func (d *FailedAttempt) giveBack(ctx context.Context) {
	if d.unsettled() {
		d.back.Store(d.release(ctx, quorum.Spec{Trusts: true}))
	}
}

// settle releases what the attempt may still have left on the nodes. Before the waiter enrolls in
// the queue, it leaves out the nodes that refuse, and returns the value. Standing there releases
// what a client that sends commands twice was granted.
func (d *FailedAttempt) settle(ctx context.Context, enrolls bool) (value string) {
	switch {
	case d == nil || d.lease == nil:
		return ""
	case enrolls:
		d.giveBack(ctx)
		value = d.lease.Value
	case d.unsettled():
		d.back.Store(d.release(ctx, quorum.Spec{}))
		if d.final && !d.cut && d.met.Count(quorum.Outcome.No) > 0 {
			d.own = d.refusedItself(ctx)
		}
	default:
		said := d.back.Load().Outcomes()
		d.rest.Store(d.release(ctx, quorum.Spec{
			Skip: func(node int) bool { return said[node].Err == nil },
		}))
	}
	d.lease = nil
	return value
}

// errNotALock is the outcome of a node with other data under the lock's name.
var errNotALock = errors.New("WRONGTYPE: the key holds data of another type, not a lock")

// count returns what each node has come to by now, and how many granted, refused, and failed. A
// node that keeps the key for one in the queue has not granted it: what it has said to the attempt
// before that counts.
func (d *FailedAttempt) count() (outcomes quorum.Outcomes, granted, refused, failed int) {
	// The release is read first. A node that has answered it by then has answered the attempt, too.
	outcomes, released := slices.Clone(d.met), d.released()
	later := d.asked.Outcomes()
	var tried quorum.Outcomes
	if d.tried != nil {
		tried, _, _, _ = d.tried.count()
	}
	for i := range outcomes {
		o := latest(outcomes[i], later[i], released[i])
		if o.Yes() && tried != nil {
			o = tried[i]
		}
		outcomes[i] = o
		switch {
		case o.Yes():
			granted++
		case o.No():
			refused++
		case d.failed(o, released[i]):
			failed++
		}
	}
	return outcomes, granted, refused, failed
}

// released returns what the releases have come to by now.
func (d *FailedAttempt) released() quorum.Outcomes {
	all := make(quorum.Outcomes, len(d.met))
	for i := range all {
		all[i].Err = quorum.ErrUnsent
	}
	for _, r := range []*quorum.Round{d.back.Load(), d.rest.Load()} {
		if r == nil {
			continue
		}
		for i, o := range r.Outcomes() {
			if !errors.Is(o.Err, quorum.ErrUnsent) {
				all[i] = o
			}
		}
	}
	return all
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
// error, or is silent, also to the release. Nobody may have waited for the node, because others had
// refused or the context ended. Such a node fails only when it has had a quarter of the node
// timeout.
func (d *FailedAttempt) failed(o, released quorum.Outcome) bool {
	hadTime := d.final && !d.cut || d.lock.now().Sub(d.began) >= d.lock.NodeTimeout/4
	return !o.Missing() || released.Err != nil && hadTime
}

// troubled reports whether so many nodes have failed that there is no quorum without them.
func (d *FailedAttempt) troubled() bool {
	_, _, _, failed := d.count()
	return len(d.met)-failed < quorum.Majority(len(d.met))
}

// settled reports whether the nodes that have not said anything yet make no difference to why the
// attempt did not win.
func (d *FailedAttempt) settled() bool {
	_, granted, refused, _ := d.count()
	n := len(d.met)
	return refused >= quorum.Blocking(n) || granted+refused >= quorum.Majority(n) || d.troubled()
}

// Failure says why the attempt did not win, as far as the nodes have told by now. It is nil if
// there is no attempt.
func (d *FailedAttempt) Failure() *Failure {
	if d == nil {
		return nil
	}
	outcomes, granted, refused, bad := d.count()
	n, more := len(outcomes), ""
	q := quorum.Majority(n)
	switch {
	case d.late != "":
		return failed(Expired, "%s", d.late).of(outcomes)
	case refused >= quorum.Blocking(n):
	case (refused > 0 || d.stood) && n-bad >= q:
		more = fmt.Sprintf(", granted by %d, %d needed", granted, q)
	default:
		return failed(NoQuorum, "no quorum: granted by %d of %d nodes, taken on %d, %d needed",
			granted, n, refused, q).of(outcomes)
	}
	f := failed(Taken, "taken on %d of %d nodes", refused, n).of(outcomes)
	f.More = more
	return f
}

// answer is what the local queue is told of the failed attempt, without the error of a final one.
func (d *FailedAttempt) answer() queue.Answer { return queue.Answer{Refusal: d} }

// Answered implements [queue.Refusal].
func (d *FailedAttempt) Answered() bool { return !d.troubled() }

// Failing implements [queue.Refusal].
func (d *FailedAttempt) Failing() bool {
	f := d.Failure()
	return f.Kind == NoQuorum && f.Outcomes.Count(func(o quorum.Outcome) bool {
		return o.Err != nil && !o.Missing() && !errors.Is(o.Err, quorum.ErrTimeout) &&
			!errors.Is(o.Err, quorum.ErrUnsent)
	}) > 0
}

// Free implements [queue.Refusal].
func (d *FailedAttempt) Free() chan time.Time { return d.free }

// lasts reports whether there is no quorum because of errors that do not mend themselves.
func lasts(r queue.Refusal) bool {
	d, _ := r.(*FailedAttempt)
	if d == nil {
		return false
	}
	said, _, _, _ := d.count()
	return said.Count(func(o quorum.Outcome) bool { return quorum.Lasts(o.Err) }) >=
		quorum.Blocking(len(said))
}

// learn notes what a node said to the release: when it has no key any more. A node that answered
// the attempt with an error may have no key and grant nothing even so.
func (d *FailedAttempt) learn(node int, reply quorum.Reply) {
	end := time.Now()
	switch err := d.met[node].Err; {
	case reply.Means == quorum.NoLock, reply.Left == quorum.Forever:
		return
	case reply.Means == quorum.Foreign:
		end = end.Add(clock.Add(reply.Left, time.Millisecond))
	case err != nil && err != quorum.ErrUnanswered && !errors.Is(err, quorum.ErrTimeout):
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i, _ := slices.BinarySearchFunc(d.ends, end, time.Time.Compare)
	d.ends = slices.Insert(d.ends, i, end)
	if q := quorum.Majority(len(d.met)); len(d.ends) >= q {
		select {
		case <-d.free: // which has not been heard
		default:
		}
		select {
		case d.free <- d.ends[q-1]:
		default: // another attempt has just told
		}
	}
}

// failedAttempts are what one waiter's attempts, and places in the queue, have come to. The zero
// value has none.
type failedAttempts struct {
	last, tried *FailedAttempt // the latest one, and the latest attempt
	// The one before that. While the nodes have no time to say anything, it stays the one before
	// the first such attempt.
	prior *FailedAttempt
}

// note notes a failed attempt. It reports whether that says anything: one that the context has cut
// short does so only if the nodes are in trouble.
func (ds *failedAttempts) note(d *FailedAttempt) (says bool) {
	if d.cut && !d.troubled() {
		return false
	}
	if ds.prior == nil || ds.last.settled() {
		ds.prior = ds.last
	}
	ds.last = d
	if d.stood {
		d.tried = ds.tried
	} else {
		ds.tried = d
	}
	return true
}

// newest is the latest one that the nodes have had the time to say something in, if there is one,
// or nil.
func (ds *failedAttempts) newest() *FailedAttempt {
	if ds.prior != nil && !ds.last.settled() {
		return ds.prior
	}
	return ds.last
}
