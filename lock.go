package redlock

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/queue"
)

// lock makes attempts until one wins, tries of them have failed, or ctx is done. Its error says
// whether the lock is this process's, if it has waited for that, and whose it is. If the mutex has
// no owner itself, that is not asked after a single try or the end of ctx, which many callers may
// come to at once.
func (m *Mutex) lock(ctx context.Context, tries int, told *acquisition) (*lease, error) {
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
// caller joins their line.
func (m *Mutex) enter(ctx context.Context, tries int, told *acquisition) (*lease, error) {
	if m.err != nil {
		return nil, m.misuse(notAcquired, ErrFailed)
	}
	if err := m.self(ctx); err != nil {
		return nil, err
	}
	a := asker{m: m, ctx: ctx, told: told, ends: tries != Unlimited}
	defer a.Settle(false)
	if tries == 1 {
		answer := a.Attempt(queue.Attempt{Final: true})
		return a.won, answer.Err
	}
	if m.cfg.noWait {
		return a.skip(tries)
	}
	request := queue.Request{
		Lock: &m.nodes.Lock, Lanes: m.nodes.Lanes, Tries: tries, Delay: m.cfg.delay,
		MaxWaiters: m.cfg.maxWaiters,
	}
	waiter, answer := m.core.queues.Enter(ctx, &request, a.Attempt)
	switch {
	case answer.Crowd > 0:
		return nil, a.crowded(answer)
	case waiter == nil:
		return a.won, answer.Err
	}
	told.queue()
	waiter.Long = m.waits(tries)
	waiting := a // on the heap: one that does not wait saves 1 of 16 allocations
	a.open = nil
	err := waiter.Wait(ctx, &waiting)
	return waiting.won, err
}

// DelayFunc returns how long to wait before the next attempt; tries, from 1, is how many have been
// made. It is called by many goroutines at once and must not keep state. A negative result counts
// as zero.
type DelayFunc func(tries int) time.Duration

// maxDelay leaves room for the one more that a bound included in a random choice takes.
const maxDelay = math.MaxInt64 - 1

// ConstantDelay always waits for d. Clients that compete with the same constant delay may
// split the vote again and again; prefer [UniformDelay].
func ConstantDelay(d time.Duration) DelayFunc {
	return func(int) time.Duration { return d }
}

// UniformDelay waits for a random time from shortest up to and including longest, both not
// negative. A negative time counts as 0; if longest is less than shortest, it always waits for
// shortest.
func UniformDelay(shortest, longest time.Duration) DelayFunc {
	shortest = min(max(shortest, 0), maxDelay)
	longest = min(max(longest, shortest), maxDelay)
	return func(int) time.Duration { return shortest + rand.N(longest-shortest+1) }
}

// ExponentialDelay waits for a random time ("full jitter") from 0 up to and including a bound. That
// is base after the first try, doubles with each further try, and never exceeds limit. With a base
// of 10 ms and a limit of 1 s it is 10, 20, 40, 80, 160, 320, 640, 1000, 1000, … ms. A base below
// one nanosecond counts as one; a limit below base as base.
func ExponentialDelay(base, limit time.Duration) DelayFunc {
	base = max(base, 1)
	limit = min(max(limit, base), maxDelay)
	return func(tries int) time.Duration {
		longest := base
		for try := 1; try < tries && longest < limit; try++ {
			longest = clock.Times(longest, 2)
		}
		return rand.N(min(longest, limit) + 1)
	}
}
