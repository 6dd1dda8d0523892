package redlock

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/redlock-go/redlock/internal/line"
	"github.com/redlock-go/redlock/internal/quorum"
)

// asker asks the nodes for one Lock. Package line decides when it does.
type asker struct {
	m    *Mutex
	ctx  context.Context
	told *acquisition // for Events, or nil
	won  *lease       // nil until the lock is granted
	open *defeat      // that has still something to give back, or nil
	last *defeat      // what its own latest attempt, or place in the queue, came to
	// The one before; while the nodes have not had the time to say anything, the first of those.
	prior *defeat
}

// lock makes attempts until one wins, tries of them have failed, or ctx is done.
//
// A free lock is asked for directly. One who finds it taken, or finds others of this process
// waiting, joins their line.
func (m *Mutex) lock(ctx context.Context, tries int, told *acquisition) (*lease, error) {
	if m.err != nil {
		return nil, m.misuse(notAcquired, ErrFailed)
	}
	if err := m.self(ctx); err != nil {
		return nil, err
	}
	a := asker{m: m, ctx: ctx, told: told}
	defer a.Settle(false)
	if tries == 1 {
		answer := a.Attempt(line.Attempt{Final: true})
		return a.won, answer.Err
	}
	wish := line.Wish{
		Key: m.key, Lanes: m.lanes, Tries: tries, Delay: m.cfg.delay,
		NodeTimeout: m.cfg.nodeTimeout, Expiry: m.cfg.expiry, Queue: m.cfg.announce,
		MaxWaiters: m.cfg.maxWaiters,
	}
	waiter, answer := m.core.lines.Enter(ctx, &wish, func(how line.Attempt) line.Answer {
		return a.Attempt(how)
	})
	switch {
	case answer.Crowd > 0:
		return nil, a.crowded(answer)
	case waiter == nil:
		return a.won, answer.Err
	}
	told.queue()
	waiting := a // which is an allocation: one that does not wait needs none
	a.open = nil
	err := waiter.Wait(ctx, &waiting)
	return waiting.won, err
}

// crowded is the error of a Lock for which too many callers wait already. It tells what its own
// attempt came to, if it has made one.
func (a *asker) crowded(answer line.Answer) *Error {
	reason := fmt.Sprintf("%d callers of this process wait already", answer.Crowd)
	if answer.Crowd == 1 {
		reason = "1 caller of this process waits already"
	}
	e := newError(a.m.name, notAcquired, reason, ErrFailed, ErrTaken)
	if d, ok := answer.Refusal.(*defeat); ok {
		e.after(d.explain())
	}
	return e
}

// Attempt implements [line.Asker].
func (a *asker) Attempt(how line.Attempt) line.Answer {
	a.Settle(false)
	// An attempt that was refused by its own key is made anew. A pool that always refuses is no
	// reason to do that for ever.
	for left := 3; ; left-- {
		if err := a.Stopped(how.Latest); err != nil {
			return line.Answer{Err: err}
		}
		d := a.attempt(how, nil)
		switch {
		case d == nil:
			return line.Answer{Won: true}
		case d.lease != nil:
			a.open = d
		}
		ended := a.ctx.Err() != nil
		if d.own && left > 0 && !ended {
			continue
		}
		a.note(d)
		if ended {
			return line.Answer{Err: a.Stopped(how.Latest)}
		}
		return d.answer()
	}
}

// Claim implements [line.Asker].
func (a *asker) Claim(member line.Member) bool {
	d := a.attempt(line.Attempt{}, &member)
	if d != nil {
		a.note(d)
	}
	return d == nil
}

// attempt makes one attempt, and adopts the lease if it wins.
func (a *asker) attempt(how line.Attempt, member *line.Member) *defeat {
	a.told.attempt()
	l, d := a.m.attempt(a.ctx, how, member)
	if d == nil {
		l.adopt(a.ctx, a.told)
		a.won = l
	}
	return d
}

// Unsettled implements [line.Asker].
func (a *asker) Unsettled() bool { return a.open != nil }

// Settle implements [line.Asker].
func (a *asker) Settle(stands bool) (value string) {
	value = a.open.settle(a.ctx, stands)
	a.open = nil
	return value
}

// Stand implements [line.Asker].
func (a *asker) Stand(member line.Member) quorum.Command {
	return a.m.wire.Stand(member, line.QueueTTL)
}

// Leave implements [line.Asker].
func (a *asker) Leave(member line.Member) quorum.Command { return a.m.wire.Leave(member) }

// Waits implements [line.Asker].
func (a *asker) Waits(r *quorum.Round, began time.Time, cut bool) line.Refusal {
	d := &defeat{m: a.m, began: began, met: r.Outcomes(), asked: r, cut: cut, stood: true}
	if !a.note(d) {
		return nil
	}
	return d
}

// note notes what an attempt came to. It reports whether that says anything: one that the context
// has cut short does so only if the nodes are in trouble.
func (a *asker) note(d *defeat) (says bool) {
	if d.cut && !d.troubled() {
		return false
	}
	if a.prior == nil || a.last.settled() {
		a.prior = a.last
	}
	a.last = d
	return true
}

// Stopped implements [line.Asker]. The error tells what the latest attempt came to: of others in
// the line, if there is none of its own.
func (a *asker) Stopped(latest line.Refusal) error {
	if a.ctx.Err() == nil {
		if a.m.core.isClosed() {
			return closedError(a.m.name)
		}
		return nil
	}
	d := a.last
	switch {
	case d == nil:
		d, _ = latest.(*defeat)
	case a.prior != nil && !d.settled():
		d = a.prior
	}
	var last error
	if d != nil {
		last = d.explain()
	}
	return ended(a.ctx, a.m.name, notAcquired, last, ErrFailed)
}

// DelayFunc returns how long to wait before the next attempt; tries, from 1, is how many have been
// made. It is called by many goroutines at once and must not keep state. What it returns
// below zero counts as zero.
type DelayFunc func(tries int) time.Duration

// maxDelay leaves room for the one more that a bound included in a random choice takes.
const maxDelay = math.MaxInt64 - 1

// ConstantDelay always waits for d. Clients that compete with the same constant delay may
// split the vote again and again; prefer [UniformDelay].
func ConstantDelay(d time.Duration) DelayFunc {
	return func(int) time.Duration { return d }
}

// UniformDelay waits for a random time from shortest up to and including longest, both not
// negative. A negative time counts as 0; if longest is less than shortest, it always waits for shortest.
func UniformDelay(shortest, longest time.Duration) DelayFunc {
	shortest = min(max(shortest, 0), maxDelay)
	longest = min(max(longest, shortest), maxDelay)
	return func(int) time.Duration { return shortest + rand.N(longest-shortest+1) }
}

// ExponentialDelay waits for a random time ("full jitter") from 0 up to and including base after
// the first try, 2 base after the second, 4 base after the third, and so on, but never longer than limit:
// with a base of 10 ms and a limit of 1 s, up to 10, 20, 40, 80, 160, 320, 640, 1000, 1000, … ms.
// A base below one nanosecond counts as one; a limit below base as base.
func ExponentialDelay(base, limit time.Duration) DelayFunc {
	base = max(base, 1)
	limit = min(max(limit, base), maxDelay)
	return func(tries int) time.Duration {
		longest := base
		for try := 1; try < tries; try++ {
			if longest > limit/2 {
				longest = limit
				break
			}
			longest *= 2
		}
		return rand.N(min(longest, limit) + 1)
	}
}
