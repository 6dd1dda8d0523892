package behaviour_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// impatient are processes whose contexts end soon. They want one lock again and again.
type impatient struct {
	processes     int
	context, hold time.Duration
	slower        time.Duration // so much slower than usual is the network each way, at most
	tries         bool          // they TryLock instead
	last          time.Duration
}

// run lets them do so, and returns how often they had the lock.
func (c impatient) run(t *testing.T) (grants int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		var tasks sync.WaitGroup
		var inside, granted atomic.Int64
		var all []*redlock.Redlock
		for p := range c.processes {
			pools := nodes.Pools(fmt.Sprint("p", p))
			r := rand.New(rand.NewPCG(1, uint64(p)))
			usual := network(r, nil)
			plan(pools, func(op sim.Op) sim.Fate {
				f := usual(op)
				f.Request += f.Request * c.slower / (300 * time.Microsecond)
				f.Reply += f.Reply * c.slower / (300 * time.Microsecond)
				return f
			})
			rl := redlock.New(pools...)
			all = append(all, rl)
			tasks.Go(func() {
				m := rl.NewMutex("x")
				lock := m.LockContext
				if c.tries {
					lock = m.TryLockContext
				}
				for end := time.Now().Add(c.last); time.Now().Before(end); {
					ctx, cancel := context.WithTimeout(t.Context(), c.context)
					err := lock(ctx)
					cancel()
					if err != nil {
						continue
					}
					granted.Add(1)
					assert.Equal(t, int64(1), inside.Add(1))
					time.Sleep(c.hold)
					inside.Add(-1)
					mustUnlock(t, m)
				}
			})
		}
		tasks.Wait()
		for _, rl := range all {
			require.NoError(t, rl.CloseContext(t.Context()))
		}
		nodes.Close()
		grants = int(granted.Load())
	})
	return grants
}

// slowProcess is a process that knows how far away the nodes are. What it sends when it is gone is
// lost.
func slowProcess(
	t *testing.T, nodes sim.Nodes, trip time.Duration, gone func() bool,
) *redlock.Redlock {
	t.Helper()
	pools := nodes.Pools("slow")
	plan(pools, func(sim.Op) sim.Fate {
		f := sim.Slow(trip)
		f.Lost = gone()
		return f
	})
	rl := redlock.New(pools...)
	for range 2 {
		m := rl.NewMutex("its own")
		mustHold(t, m)
		mustUnlock(t, m)
	}
	return rl
}

// lesson L113: processes whose contexts end soon, on nodes that are far away for that, have the
// lock as often as if they did not wait. The lock is not kept for those who are leaving.
func TestShortContextsKeepNoFreeLock(t *testing.T) {
	counts(t)
	const ms = time.Millisecond
	beside(t, func(t *testing.T, shard, shards uint64) {
		for i, d := range []time.Duration{5 * ms, 10 * ms, 20 * ms, 50 * ms, time.Second} {
			if uint64(i)%shards != shard {
				continue
			}
			for _, slower := range []time.Duration{0, min(d/5, 4*ms)} {
				c := impatient{processes: 16, context: d, slower: slower, hold: ms,
					last: larger(100 * ms)}
				if slower > 0 {
					c.last = larger(time.Second) // in which less happens
				}
				lock := c.run(t)
				c.tries = true
				try := c.run(t)
				t.Logf("contexts of %v, nodes up to %v farther away: %d grants, %d with TryLock",
					d, 2*slower, lock, try)
				assert.GreaterOrEqual(t, 2*lock, try)
			}
		}
	})
}

// lesson L113: a waiter stands in the queue while its turn can come before its context ends.
func TestAWaiterLeavesTheQueueInTime(t *testing.T) {
	const trip = 2 * time.Millisecond
	for _, left := range []time.Duration{3 * trip, 30 * trip, 500 * trip} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			other := slowProcess(t, nodes, trip, func() bool { return false })
			m := rl.NewMutex("x")
			mustHold(t, m)
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			start, stood := time.Now(), time.Duration(0)
			var tasks sync.WaitGroup
			tasks.Go(func() {
				assert.ErrorIs(t, other.NewMutex("x").LockContext(ctx), redlock.ErrTaken)
				assert.Equal(t, left, time.Since(start))
			})
			for ; ctx.Err() == nil; time.Sleep(trip / 10) {
				if slices.Max(queued(nodes, "x")) > 0 {
					stood = time.Since(start)
				}
			}
			tasks.Wait()
			mustUnlock(t, m)
			if left < 4*trip {
				assert.Zero(t, stood)
			} else {
				// When the nodes hear that it leaves. It may have to wait for their answers first.
				assert.Greater(t, stood, left-4*trip)
				assert.Less(t, stood, left-4*trip+2*trip)
			}
			require.NoError(t, other.CloseContext(t.Context()))
		})
	}
}

// lesson L115: a process that ends together with its context, and closes nothing, keeps nobody
// waiting. Nodes have not noticed yet that it is gone.
func TestAProcessThatEndsWithItsContextKeepsNoLock(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			const trip = 2 * time.Millisecond
			m := rl.NewMutex("x")
			mustHold(t, m)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			ends := slowProcess(t, nodes, trip, func() bool { return ctx.Err() != nil })
			next := slowProcess(t, nodes, trip, func() bool { return false })
			var tasks sync.WaitGroup
			tasks.Go(func() { assert.Error(t, ends.NewMutex("x").LockContext(ctx)) })
			time.Sleep(time.Second / 2)
			granted := make(chan time.Time, 1)
			tasks.Go(func() {
				w := next.NewMutex("x")
				mustHold(t, w)
				granted <- time.Now()
				mustUnlock(t, w)
			})
			<-ctx.Done()
			released := time.Now()
			mustUnlock(t, m)
			assert.LessOrEqual(t, (<-granted).Sub(released), 4*trip)
			tasks.Wait()
			require.NoError(t, next.CloseContext(t.Context()))
			_ = ends.CloseContext(t.Context())
		})
	}
}
