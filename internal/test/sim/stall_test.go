package sim_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// bothKinds runs f with clients that wait for each command, and with clients that start them.
// Round trips take up to a millisecond.
func bothKinds(t *testing.T, n int, f func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock)) {
	for _, starts := range []bool{false, true} {
		t.Run(fmt.Sprintf("starts=%v", starts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(n)
				d, calls := dice(n), atomic.Int64{}
				pools := nodes.Pools("a")
				for i, p := range pools {
					l := p.(*sim.Link)
					l.Plan(func(sim.Op) sim.Fate {
						c := calls.Add(1)
						return sim.Fate{
							Request: d.between(0, time.Millisecond/2, "request", c),
							Reply:   d.between(0, time.Millisecond/2, "reply", c),
						}
					})
					if starts {
						pools[i] = pool.Pool(sim.Starting{Link: l})
					}
				}
				rl := redlock.New(pools...)
				f(t, nodes, rl)
				assert.NoError(t, rl.Close())
				nodes.Close()
			})
		})
	}
}

// lesson L58: a hiccup of all nodes that is shorter than the node timeout fails no TryLock and no
// Unlock, however many are under way.
func TestAHiccupFailsNobody(t *testing.T) {
	const nodeTimeout, hiccup = 400 * time.Millisecond, 150 * time.Millisecond
	for _, callers := range []int{10, 150, 750 * *times} {
		bothKinds(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			rl = rl.With(redlock.WithNodeTimeout(nodeTimeout))
			at := func(i int) time.Duration {
				return time.Duration(i) * hiccup * 2 / time.Duration(callers)
			}
			held := make([]*redlock.Mutex, callers)
			var all sync.WaitGroup
			for i := range held {
				held[i] = rl.NewMutex(fmt.Sprint("held", i))
				all.Go(func() { assert.NoError(t, held[i].TryLock()) })
			}
			all.Wait()
			time.Sleep(time.Second) // no straggler is left

			start := time.Now()
			time.AfterFunc(hiccup/3, func() {
				for _, n := range nodes {
					n.Freeze()
				}
			})
			time.AfterFunc(hiccup/3+hiccup, func() {
				for _, n := range nodes {
					n.Thaw()
				}
			})
			var locks, unlocks atomic.Int64
			for i := range callers {
				all.Go(func() {
					time.Sleep(time.Until(start.Add(at(i))))
					if rl.NewMutex(fmt.Sprint("free", i)).TryLock() != nil {
						locks.Add(1)
					}
				})
				all.Go(func() {
					time.Sleep(time.Until(start.Add(at(i))))
					if _, err := held[i].Unlock(); err != nil {
						unlocks.Add(1)
					}
				})
			}
			all.Wait()
			assert.Zero(t, locks.Load(), "TryLocks of %d", callers)
			assert.Zero(t, unlocks.Load(), "Unlocks of %d", callers)
		})
	}
}

// lesson L97: a node that stalls, for less or more than a node timeout, keeps no key of those who
// lock and unlock meanwhile. The keys would live for a minute.
func TestAStallLeavesNoKey(t *testing.T) {
	for _, callers := range []int{1, 20, 100} {
		for _, stall := range []time.Duration{300 * time.Millisecond, time.Second,
			10 * time.Second} {
			bothKinds(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				rl = rl.With(redlock.WithExpiry(time.Minute),
					redlock.WithNodeTimeout(400*time.Millisecond))
				// In the longest stall each caller locks 50 times, and more with -times.
				pause := max(20*time.Millisecond, stall/100/time.Duration(*times))
				start := time.Now()
				nodes[1].Freeze()
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						m := rl.NewMutex(fmt.Sprint("k", i))
						for time.Since(start) < stall {
							assert.NoError(t, m.TryLock())
							time.Sleep(pause)
							_, err := m.Unlock()
							assert.NoError(t, err)
							time.Sleep(pause)
						}
					})
				}
				all.Wait()
				nodes[1].Thaw()
				time.Sleep(2 * time.Second)
				for i := range callers {
					assert.Empty(t, nodes[1].Value(fmt.Sprint("k", i)), "%d callers, a stall of %v",
						callers, stall)
				}
			})
		}
	}
}
