package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// acquirer asks the nodes for one Lock. Package queue decides when it does.
type acquirer struct {
	m    *Mutex
	ctx  context.Context
	told *operation[Acquired] // for Events, or nil
	ends bool                 // its tries are limited
	bid  *lease               // what it has bid with, or nil
	won  *lease               // nil until the lock is granted
	open *grant.FailedAttempt // which may have left something on nodes, or nil
	met  grant.FailedAttempts // what its own attempts, and places in the queue, came to
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
		d := a.attempt(how, nil)
		if d == nil {
			return queue.Answer{Won: true}
		}
		a.open = d
		ended := a.ctx.Err() != nil
		if d.Own && left > 0 && !ended {
			continue
		}
		a.met.Note(d)
		if ended {
			return queue.Answer{Err: a.Stopped(how.Latest)}
		}
		answer := d.Answer()
		if d.Final || a.ends && lasts(d) && lasts(how.Latest) {
			answer.Err = a.m.attemptError(d)
		}
		return answer
	}
}

// lasts reports whether there is no quorum because of errors that do not mend themselves.
func lasts(r queue.Refusal) bool {
	d, _ := r.(*grant.FailedAttempt)
	if d == nil || d.Err != nil {
		return false
	}
	said := d.Why().Outcomes
	return said.Count(func(o quorum.Outcome) bool { return quorum.Lasts(o.Err) }) >=
		quorum.Blocking(len(said))
}

// attempt asks the nodes for the lock once, with a value of its own, and adopts the lease if it
// wins. Only a claim has a member.
func (a *acquirer) attempt(how queue.Attempt, member *wire.Member) *grant.FailedAttempt {
	attempted(a.told)
	l, wrong := newAttempt(a.m, notAcquired)
	if wrong != nil {
		return &grant.FailedAttempt{Final: true, Err: wrong}
	}
	d := l.Attempt(a.ctx, how, member)
	if d == nil {
		a.adopt(l)
	}
	return d
}

// adopt makes a lease that was granted the mutex's.
func (a *acquirer) adopt(l *lease) {
	a.won = l
	l.install(a.ctx, a.told)
}

// Claim implements [queue.Acquirer]. It claims with the bid's value, which some nodes may have,
// unless none has told so and the bid is old.
func (a *acquirer) Claim(member wire.Member, takenUp int) queue.Answer {
	bid := a.bid
	a.bid = nil
	if bid == nil || takenUp == 0 && !bid.IsFresh() {
		return a.claimAnew(member, bid)
	}
	attempted(a.told)
	began := a.m.core.now()
	if takenUp < a.m.core.quorum || !bid.InTime() {
		if d := bid.Attempt(a.ctx, queue.Attempt{}, &member); d != nil {
			a.met.Note(d)
			return d.Answer()
		}
	}
	bid.Began = began // what is told of the lock begins here; its validity began with the bid
	a.adopt(bid)
	return queue.Answer{Won: true}
}

// claimAnew claims with a new value. An older bid, if there is one, is taken back.
func (a *acquirer) claimAnew(member wire.Member, old *lease) (answer queue.Answer) {
	if old != nil {
		// Also if a function of the caller's panics.
		defer func() { old.Withdraw(a.ctx, !answer.Won) }()
	}
	d := a.attempt(queue.Attempt{}, &member)
	if d == nil {
		return queue.Answer{Won: true}
	}
	a.met.Note(d)
	return d.Answer()
}

// Bid implements [queue.Acquirer].
func (a *acquirer) Bid(member wire.Member, numbers []string) (life time.Duration) {
	if !a.m.nodes.Bids() || a.m.cfg.minHold > 0 {
		return 0
	}
	l, wrong := newAttempt(a.m, notAcquired)
	if wrong != nil {
		return 0 // the claim will say so
	}
	a.bid = l
	l.Bid(a.ctx, member, numbers)
	return a.m.nodes.BidLife()
}

// Withdraw implements [queue.Acquirer].
func (a *acquirer) Withdraw(stays bool) {
	if a.bid != nil {
		a.bid.Withdraw(a.ctx, stays)
		a.bid = nil
	}
}

// GiveBack implements [queue.Acquirer].
func (a *acquirer) GiveBack() { a.open.GiveBack(a.ctx) }

// Settle implements [queue.Acquirer].
func (a *acquirer) Settle(stands bool) (value string) {
	value = a.open.Settle(a.ctx, stands)
	a.open = nil
	return value
}

// Waits implements [queue.Acquirer].
func (a *acquirer) Waits(r *quorum.Round, began time.Time, cut bool) queue.Refusal {
	d := grant.Stood(&a.m.nodes, r, began, cut)
	if !a.met.Note(d) {
		return nil
	}
	return d
}

// Stopped implements [queue.Acquirer]. The error tells what the latest attempt came to: of others
// of the local queue, if there is none of its own.
func (a *acquirer) Stopped(latest queue.Refusal) error {
	if a.ctx.Err() == nil {
		if a.m.core.holds.isClosed() {
			return closedError(a.m.name, notAcquired)
		}
		return nil
	}
	d := a.met.Latest()
	if d == nil {
		d, _ = latest.(*grant.FailedAttempt)
	}
	return ended(a.ctx, a.m.name, notAcquired, a.m.attemptError(d), ErrFailed)
}

// crowded is the error of a Lock for which too many callers wait already. It tells what its own
// attempt came to, if it has made one.
func (a *acquirer) crowded(answer queue.Answer) *Error {
	reason := fmt.Sprintf("%d callers of this process wait already", answer.Crowd)
	if answer.Crowd == 1 {
		reason = "1 caller of this process waits already"
	}
	e := newError(a.m.name, notAcquired, reason, ErrFailed, ErrTaken)
	d, _ := answer.Refusal.(*grant.FailedAttempt)
	e.after(a.m.attemptError(d))
	return e
}

// newAttempt returns a lease with a value of its own, which counts from now if the nodes grant it.
// Its error says what has failed.
func newAttempt(m *Mutex, failed string) (*lease, *Error) {
	value, err := m.cfg.newValue()
	if err != nil {
		return nil, newError(m.name, failed, err.Error(), ErrFailed).causedBy(err)
	}
	l := newLease(m, value)
	l.Began = m.core.now()
	l.until = l.Deadline()
	return l, nil
}

// newValue makes the value of one attempt.
func (c *config) newValue() (string, error) {
	if c.genValue == nil {
		return wire.NewValue(), nil
	}
	owner, err := c.genValue()
	if err != nil {
		return "", fmt.Errorf("the function of WithGenValueFunc: %w", err)
	}
	if strings.HasPrefix(owner, wire.Reservation) {
		return "", fmt.Errorf("the function of WithGenValueFunc: its result must not begin with %q",
			wire.Reservation)
	}
	return owner + ":" + wire.NewValue(), nil
}

// lockedAgain is why a lease ends whose mutex is granted the lock once more.
const lockedAgain = "gone on the nodes, and its own mutex was granted the lock again"

// install makes l, which a quorum has just granted, the current lease of its mutex. An older one is
// lost: no quorum had that any more.
func (l *lease) install(ctx context.Context, told *operation[Acquired]) {
	m := l.m
	m.mu.Lock()
	old := m.cur
	m.cur = l
	var after effects
	kept := old != nil && old.kept()
	switch {
	case kept:
		after = old.lose(EndLost, m.fail("lost", ErrExpired, lockedAgain))
	case old != nil:
		after = old.lose(EndReplaced, m.fail("ended", ErrExpired, lockedAgain))
	}
	granted(told, l)
	m.mu.Unlock()
	after.run()
	if kept {
		old.Release(ctx, quorum.Spec{})
	}
}

// lock makes attempts until one wins, tries of them have failed, or ctx is done. Its error says
// whether the lock is this process's, if it has waited for that, and whose it is. If the mutex has
// no owner itself, that is not asked after a single try or the end of ctx, which many callers may
// come to at once.
func (m *Mutex) lock(ctx context.Context, tries int, told *operation[Acquired]) (*lease, error) {
	l, err := m.enter(ctx, tries, told)
	if err != nil && tries != 1 {
		m.sayNeighbour(err)
	}
	if err != nil && (m.cfg.owned || tries != 1 && ctx.Err() == nil) {
		m.sayOwner(ctx, err)
	}
	return l, err
}

// enter asks for a free lock directly. If it is taken, or others of this process wait for it, the
// caller joins their local queue.
func (m *Mutex) enter(ctx context.Context, tries int, told *operation[Acquired]) (*lease, error) {
	if m.err != nil {
		return nil, m.misuse(notAcquired, ErrFailed)
	}
	if err := m.self(ctx); err != nil {
		return nil, err
	}
	a := acquirer{m: m, ctx: ctx, told: told, ends: tries != Unlimited}
	defer a.Settle(false)
	if tries == 1 {
		answer := a.Attempt(queue.Attempt{Final: true})
		return a.won, answer.Err
	}
	if m.cfg.noWait {
		return a.skip(tries)
	}
	request := queue.Request{
		Lock: &m.nodes.Lock, Pipelines: m.nodes.Pipelines, Tries: tries, Delay: m.cfg.delay,
		MaxWaiters: m.cfg.maxWaiters,
	}
	waiter, answer := m.core.queues.Enter(ctx, &request, a.Attempt)
	switch {
	case answer.Crowd > 0:
		return nil, a.crowded(answer)
	case waiter == nil:
		return a.won, answer.Err
	}
	told.note(func(what *Acquired) { what.Queued = true })
	waiter.Long = m.waits(tries)
	waiting := a // on the heap: one that does not wait saves 1 of 16 allocations
	a.open = nil
	err := waiter.Wait(ctx, &waiting)
	return waiting.won, err
}

// WithoutWaiting makes Lock, Hold and Do fail with [ErrTaken] as soon as they know that somebody
// has the lock, instead of waiting for its release. After a retry delay they try again only while
// nobody is known to have it: several callers have asked at the same moment, and each got some of
// the nodes, or too few nodes answered. It is for work that the holder does for all, such as a job
// that runs once in a period. With [WithMinHold] they give up when that time has passed since they
// began, so that none of them outlasts it. Before it fails, it asks the nodes that refused once
// more. No effect on elections. Default: off, they wait.
func WithoutWaiting() Option {
	return option(func(c *config) { c.noWait = true })
}

// skip asks until a try wins, somebody is known to have the lock, or the tries or the minimum hold
// are used up. It does not wait for who has the lock.
func (a *acquirer) skip(tries int) (*lease, error) {
	began := a.m.core.now()
	for try := 1; ; try++ {
		answer := a.Attempt(queue.Attempt{Final: try == tries})
		if answer.Won || answer.Err != nil {
			return a.won, answer.Err
		}
		refusal := a.m.attemptError(a.met.Latest())
		delay := max(a.m.cfg.delay(try), 0)
		end := a.m.core.now().Add(delay).Sub(began)
		if a.hasHolder(refusal) || a.m.cfg.minHold > 0 && end >= a.m.cfg.minHold {
			return nil, refusal
		}
		if !a.m.core.pause(a.ctx, delay) {
			return nil, a.Stopped(nil)
		}
	}
}

// hasHolder asks the nodes that refused an attempt whether a quorum of them has one value. Without
// that, several callers may have refused each other.
func (a *acquirer) hasHolder(refusal error) bool {
	var e *Error
	if !errors.As(refusal, &e) {
		return false
	}
	refused := e.refused(a.m.core.nodes)
	if len(refused) < a.m.core.quorum {
		return false
	}
	c := wire.TakeCensus(a.ctx, refused, a.m.cfg.NodeTimeout, a.m.key)
	return c.Votes >= a.m.core.quorum
}
