package behaviour_test

import (
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

// lesson L34: a watchdog extends while others look.
func TestAMutexIsSafeForConcurrentUse(t *testing.T) {
	nodes := sim.NewNodes(3)
	rl := redlock.New(nodes.Pools("a")...).With(redlock.WithTries(1), redlock.WithFencing())
	m := rl.NewMutex("x")
	var all sync.WaitGroup
	for range 4 {
		for _, f := range []func(){
			func() { _ = m.Lock() },
			func() { _ = m.TryLock() },
			func() { _, _ = m.Unlock() },
			func() { _, _ = m.Extend() },
			func() { _, _ = m.Valid() },
			func() { _ = m.Until() },
			func() { _ = m.Value() },
			func() { _ = m.FencingToken() },
		} {
			all.Go(func() {
				for range 100 {
					f()
				}
			})
		}
	}
	all.Wait()
	_, _ = m.Unlock()
	require.NoError(t, rl.Close())
	assert.Empty(t, holders(nodes, "x"))
	assert.Zero(t, m.Until())
}

// lesson L10
func TestOneOfAHundredConcurrentLocksWins(t *testing.T) {
	for _, shared := range []bool{true, false} {
		var winners int64
		for round := 0; round < 10 || winners == 0 && round < 200; round++ {
			// In real time, a busy machine would make nodes seem silent.
			bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				log := nodes.Record()
				m := rl.NewMutex("x")
				var all sync.WaitGroup
				var won atomic.Int64
				for range 100 {
					all.Go(func() {
						m := m
						if !shared {
							m = rl.NewMutex("x")
						}
						if err := m.TryLock(); err == nil {
							won.Add(1)
						} else {
							assert.ErrorIs(t, err, redlock.ErrTaken)
						}
					})
				}
				all.Wait()
				synctest.Wait()
				assert.LessOrEqual(t, won.Load(), int64(1), "or none: a split vote")
				winners += won.Load()
				asked := map[string][5]int{}
				for _, e := range log.Events() {
					if e.Command == "set" {
						perNode := asked[e.Value]
						perNode[e.Node]++
						asked[e.Value] = perNode
					}
				}
				for _, perNode := range asked {
					for _, n := range perNode {
						assert.LessOrEqual(t, n, 1, "an attempt asks each node once")
					}
				}
			})
		}
		assert.Positive(t, winners, "not always a split vote")
	}
}

// lesson L16: with a constant generator, too, there is one holder at a time.
func TestAHundredContendersWithOneGeneratorExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		for i, n := range nodes {
			n.Always(sim.Slow(time.Duration(i+1) * 100 * time.Microsecond))
		}
		defer nodes.Close()
		var inside, entered atomic.Int64
		var all sync.WaitGroup
		var rls []*redlock.Redlock
		for range 10 {
			rl := redlock.New(nodes.Pools("a")...).With(
				redlock.WithGenValueFunc(func() (string, error) { return "constant", nil }),
				redlock.WithTries(redlock.Unlimited),
				redlock.WithRetryDelayFunc(redlock.UniformDelay(0, 50*time.Millisecond)))
			rls = append(rls, rl)
			for range 10 {
				all.Go(func() {
					m := rl.NewMutex("x")
					if !assert.NoError(t, m.LockContext(t.Context())) {
						return
					}
					assert.EqualValues(t, 1, inside.Add(1))
					entered.Add(1)
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					mustUnlock(t, m)
				})
			}
		}
		all.Wait()
		assert.EqualValues(t, 100, entered.Load())
		for _, rl := range rls {
			require.NoError(t, rl.Close())
		}
		assert.Empty(t, holders(nodes, "x"))
	})
}
