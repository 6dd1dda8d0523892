package behaviour_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// lingers is how long keys live on that are left taken for so much longer.
func lingers(left time.Duration) time.Duration {
	return left + drift(left, redlock.DefaultDriftFactor)
}

// wantLingering requires that so many nodes have the lock, each for what is left until end, and for
// the drift of what was left when it was told.
func wantLingering(t *testing.T, nodes sim.Nodes, name string, count int, end time.Time) {
	t.Helper()
	synctest.Wait()
	got := 0
	for i, n := range nodes {
		if n.TTL(name) == 0 {
			continue
		}
		got++
		left := time.Until(end)
		assert.GreaterOrEqual(t, n.TTL(name), left, "node %d", i)
		assert.LessOrEqual(t, n.TTL(name), left+lingers(time.Minute)-time.Minute, "node %d", i)
	}
	assert.Equal(t, count, got, "nodes that have the lock")
}

func TestMinHoldLeavesTheLockTaken(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 7} {
		for _, d := range []time.Duration{
			50 * time.Millisecond, 5 * time.Second, time.Minute, 24 * time.Hour,
		} {
			for name, worked := range map[string]time.Duration{
				"at once": 0, "half of it": d / 2, "the last millisecond": d - time.Millisecond,
			} {
				t.Run(fmt.Sprintf("%d nodes, %v, %s", n, d, name), func(t *testing.T) {
					bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
						start := time.Now()
						m := rl.NewMutex("x", redlock.WithMinHold(d),
							redlock.WithExpiry(max(d+d/2, time.Second)))
						require.NoError(t, m.Lock())
						synctest.Wait()
						time.Sleep(worked)
						mustUnlock(t, m)
						synctest.Wait()
						for i, node := range nodes {
							assert.InDelta(t, lingers(d-worked), node.TTL("x"),
								float64(time.Millisecond), "node %d", i)
						}
						assert.Empty(t, m.Value())
						other := rl.NewMutex("x")
						time.Sleep(time.Until(start.Add(d)))
						assert.ErrorIs(t, other.TryLock(), redlock.ErrTaken, "when it is just over")
						time.Sleep(lingers(d-worked) - (d - worked) + time.Millisecond)
						require.NoError(t, other.TryLock(), "after the drift")
						mustUnlock(t, other)
						synctest.Wait()
						assert.Empty(t, holders(nodes, "x"))
					})
				})
			}
		}
	}
}

// A renewal that is under way during Unlock does not make the lock linger for longer.
func TestARenewalDoesNotProlongTheMinHold(t *testing.T) {
	const minHold, late = 30 * time.Second, time.Second
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x", redlock.WithMinHold(minHold))
		start := time.Now()
		_, err := m.Hold(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		for _, node := range nodes {
			node.Next("extend", sim.Fate{Request: late})
		}
		time.Sleep(20 * time.Second) // a third of the validity, and a bit
		mustUnlock(t, m)
		time.Sleep(late)
		wantLingering(t, nodes, "x", 3, start.Add(minHold))
	}, redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(2*time.Second))
}

// A hold that is renewed for longer than the expiry lingers, too.
func TestAHoldLingers(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		start := time.Now()
		m := rl.NewMutex("x", redlock.WithMinHold(time.Minute))
		mustHold(t, m)
		time.Sleep(50 * time.Second)
		mustUnlock(t, m)
		wantLingering(t, nodes, "x", 5, start.Add(time.Minute))
	})
}

func TestUnlockAfterTheMinHoldReleases(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x", redlock.WithMinHold(time.Minute))
		mustHold(t, m)
		time.Sleep(time.Minute)
		mustUnlock(t, m)
		synctest.Wait()
		assert.Empty(t, holders(nodes, "x"))
		assert.NoError(t, rl.NewMutex("x").TryLock())
	})
}

func TestDoLingersAlsoIfTheFunctionFails(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		start := time.Now()
		err := rl.Do(t.Context(), "x", func(context.Context) error { return errOops },
			redlock.WithMinHold(time.Minute))
		assert.Equal(t, errOops, err)
		wantLingering(t, nodes, "x", 3, start.Add(time.Minute))
	})
}

// A lock that is lost does not linger, nor one that Close releases, nor one that was handed over:
// when it was granted is not known.
func TestWhatDoesNotLinger(t *testing.T) {
	const d = time.Hour
	for name, release := range map[string]func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock){
		"lost": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x", redlock.WithMinHold(d))
			held := mustHold(t, m)
			for _, n := range nodes[:3] {
				n.Delete("x")
			}
			_ = lossOf(t, held)
			synctest.Wait() // the last renewal has reached all nodes
			extended := nodes.Count("extend")
			ok, err := m.Unlock()
			assert.ErrorIs(t, refused(t, ok, err), redlock.ErrExpired)
			synctest.Wait()
			assert.Equal(t, extended, nodes.Count("extend"),
				"nothing lingers, also not on a minority")
		},
		"gone": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x", redlock.WithMinHold(d))
			mustHold(t, m)
			for _, n := range nodes[:3] {
				n.Delete("x")
			}
			ok, err := m.Unlock()
			assert.ErrorIs(t, refused(t, ok, err), redlock.ErrExpired)
		},
		"somebody else's": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x", redlock.WithMinHold(d))
			mustHold(t, m)
			for _, n := range nodes[:3] {
				n.Set("x", "other", time.Second)
			}
			ok, err := m.Unlock()
			assert.ErrorIs(t, refused(t, ok, err), redlock.ErrExpired)
			synctest.Wait()
			assert.Equal(t, map[string]int{"other": 3}, holders(nodes, "x"))
			time.Sleep(time.Second)
		},
		"Close": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			mustHold(t, rl.NewMutex("x", redlock.WithMinHold(d)))
			require.NoError(t, rl.Close())
		},
		"handed over": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			require.NoError(t, m.Lock())
			synctest.Wait()
			heir := rl.NewMutex("x", redlock.WithMinHold(d), redlock.WithValue(m.Value()))
			_, err := heir.Extend()
			require.NoError(t, err)
			mustUnlock(t, heir)
		},
		"never locked": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x", redlock.WithMinHold(d))
			ok, err := m.Unlock()
			assert.ErrorIs(t, refused(t, ok, err), redlock.ErrNotHeld)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				release(t, nodes, rl)
				synctest.Wait()
				assert.Empty(t, holders(nodes, "x"))
			})
		})
	}
}

// The key lingers on as many nodes as possible: on one that granted it late, and on one that was
// healed.
func TestStragglersAndHealedNodesLinger(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[4].Next("set", sim.Slow(100*time.Millisecond))
		start := time.Now()
		m := rl.NewMutex("x", redlock.WithMinHold(time.Minute))
		require.NoError(t, m.Lock())
		nodes[0].Delete("x")
		_, err := m.Extend()
		require.NoError(t, err)
		synctest.Wait() // node 0 has the key again, node 4 has not answered yet
		mustUnlock(t, m)
		time.Sleep(time.Second)
		wantLingering(t, nodes, "x", 5, start.Add(time.Minute))
	})
}

// Unlock again after too few nodes have answered lingers for what is left by then, and releases
// when nothing is.
func TestUnlockAgainLingersForWhatIsLeft(t *testing.T) {
	for name, later := range map[string]time.Duration{
		"before the end": 20 * time.Second, "after it": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				start := time.Now()
				m := rl.NewMutex("x", redlock.WithMinHold(time.Minute),
					redlock.WithExpiry(2*time.Minute))
				require.NoError(t, m.Lock())
				synctest.Wait()
				for _, n := range nodes[1:4] {
					n.Always(sim.Fail(errOops))
				}
				ok, err := m.Unlock()
				assert.ErrorIs(t, refused(t, ok, err), redlock.ErrNoQuorum)
				time.Sleep(later)
				for _, n := range nodes[1:4] {
					n.Always(sim.Fate{})
				}
				mustUnlock(t, m)
				synctest.Wait()
				if later < time.Minute {
					wantLingering(t, nodes, "x", 5, start.Add(time.Minute))
					return
				}
				for i, n := range nodes[1:4] {
					assert.Empty(t, n.Value("x"), "node %d", i+1)
				}
			})
		})
	}
}

// A node that was silent is told when it answers, and then only of what is left: the lock does not
// last longer because it was told late.
func TestAnOwedLingerDoesNotBeginAnew(t *testing.T) {
	for name, later := range map[string]time.Duration{
		"before the end": 20 * time.Second, "after it": 61 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				start := time.Now()
				m := rl.NewMutex("x", redlock.WithMinHold(time.Minute),
					redlock.WithExpiry(2*time.Minute))
				require.NoError(t, m.Lock())
				synctest.Wait()
				nodes[2].Crash()
				mustUnlock(t, m)
				time.Sleep(later)
				nodes[2].Restart(true)
				time.Sleep(10 * time.Second) // it is asked once in a node timeout
				if later < time.Minute {
					wantLingering(t, nodes, "x", 3, start.Add(time.Minute))
				} else {
					assert.Empty(t, holders(nodes, "x"))
				}
			})
		})
	}
}

// Who waits for the lock gets it when that is over, also in the process that left it so.
func TestWaitersGetTheLockAfterTheMinHold(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		const d = 3 * time.Second
		rl = rl.With(redlock.WithTries(redlock.Unlimited), redlock.WithMinHold(d))
		others := redlock.New(nodes.Pools("b")...).With(
			redlock.WithTries(redlock.Unlimited), redlock.WithMinHold(d))
		defer others.Close()
		var last atomic.Int64
		start, over := time.Now(), make(chan struct{})
		for i := range 6 {
			own := rl
			if i%2 == 1 {
				own = others
			}
			go func() {
				m := own.NewMutex("x")
				assert.NoError(t, m.Lock())
				granted := time.Since(start)
				before := time.Duration(last.Swap(int64(granted)))
				if before > 0 {
					assert.GreaterOrEqual(t, granted-before, d, "after the one before")
					assert.Less(t, granted-before,
						lingers(d)+redlock.DefaultMaxRetryDelay+10*time.Millisecond)
				}
				time.Sleep(time.Millisecond)
				mustUnlock(t, m)
				over <- struct{}{}
			}()
		}
		for range 6 {
			<-over
		}
	})
}

func TestMinHoldIsChecked(t *testing.T) {
	const minute = time.Minute
	type options = []redlock.Option
	for text, opts := range map[string]options{
		"WithMinHold(-1ns): must be at least 0": {redlock.WithMinHold(-1)},
		"WithFenceTTL(30s): must be at least the minimum hold of 1m0s": {
			redlock.WithMinHold(minute), redlock.WithFenceTTL(minute / 2)},
		"WithRestartGuard(1m0s): must be at least the minimum hold of 1m0s and its drift: " +
			"1m0.602s": {
			redlock.WithMinHold(minute), redlock.WithRestartGuard(minute)},
	} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			err := rl.NewMutex("x", opts...).Lock()
			require.Error(t, err)
			assert.True(t, strings.HasSuffix(err.Error(), text), "%v", err)
			assert.Zero(t, nodes.Count(""))
		})
	}
	for _, opts := range []options{
		{redlock.WithMinHold(0), redlock.WithRestartGuard(redlock.DefaultExpiry)},
		{redlock.WithMinHold(minute), redlock.WithRestartGuard(lingers(minute))},
		{redlock.WithMinHold(48 * time.Hour), redlock.WithFencing()},
		{redlock.WithMinHold(1<<63 - 1)},
	} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x", opts...)
			require.NoError(t, m.Lock())
			mustUnlock(t, m)
		})
	}
}
