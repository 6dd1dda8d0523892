package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// lesson L99: of more holds than are released at a time, a bounded number is.
func TestCloseUnlocksWhatIsHeld(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		const n, atATime, roundTrip = 600, 256, 20 * time.Millisecond
		var held []context.Context
		var mutexes []*redlock.Mutex
		for i := range n {
			mutexes = append(mutexes, rl.With(redlock.WithTries(1)).NewMutex(fmt.Sprint("x", i)))
			held = append(held, mustHold(t, mutexes[i]))
		}
		plain := rl.NewMutex("plain")
		require.NoError(t, plain.Lock())
		synctest.Wait()

		all(nodes, sim.Slow(roundTrip))
		start := time.Now()
		require.NoError(t, rl.Close())
		assert.Equal(t, (n+atATime-1)/atATime*roundTrip, time.Since(start))
		all(nodes, sim.Fate{})
		for i := range n {
			assert.ErrorIs(t, context.Cause(held[i]), redlock.ErrReleased)
			ok, err := mutexes[i].Unlock()
			assert.ErrorIs(t, refused(t, ok, err), redlock.ErrNotHeld)
		}
		assert.Equal(t, 3, keys(nodes), "a lock that is not held stays as it is")
		log := nodes.Record()
		time.Sleep(time.Second)
		assert.Empty(t, log.Events(), "nothing runs on")
		mustUnlock(t, plain)
		for _, err := range []error{plain.Lock(), plain.TryLock(),
			rl.Do(t.Context(), "y", func(context.Context) error { return nil })} {
			assert.ErrorIs(t, err, redlock.ErrClosed)
			assert.ErrorIs(t, err, redlock.ErrFailed)
		}
		held[0], _ = plain.Hold(t.Context())
		assert.Nil(t, held[0])
	})
}

func TestCloseWakesWaitersWhereverTheyAre(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"announcements": nil, "polling": {redlock.WithPolling()},
		"bounded": {redlock.WithTries(1000)},
	} {
		// Subscribing, or asleep.
		for _, after := range []time.Duration{time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("%s, after %v", name, after), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					all(nodes, sim.Slow(3*time.Millisecond))
					for _, n := range nodes {
						n.Set("x", "somebody else's", 0)
					}
					opts := append([]redlock.Option{redlock.WithTries(redlock.Unlimited),
						redlock.WithRetryDelay(time.Hour)}, opts...)
					var tasks sync.WaitGroup
					for range 5 {
						tasks.Go(func() {
							err := rl.NewMutex("x", opts...).Lock()
							assert.ErrorIs(t, err, redlock.ErrClosed)
							assert.ErrorIs(t, err, redlock.ErrFailed)
						})
					}
					time.Sleep(after)
					start := time.Now()
					require.NoError(t, rl.Close())
					tasks.Wait()
					assert.Less(t, time.Since(start), 20*time.Millisecond, name)
					for _, n := range nodes {
						assert.Zero(t, n.Subscriptions())
					}
				})
			})
		}
	}
}

// CloseContext returns when its context ends, whatever the nodes do, and says what it did not
// finish. Closing again goes on with it.
func TestCloseIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 600 // more than are released at a time
		nodes := sim.NewNodes(3)
		rl := redlock.New(nodes.Pools("a")...)
		var held []context.Context
		for i := range n {
			held = append(held, mustHold(t, rl.NewMutex(fmt.Sprint("x", i))))
		}
		all(nodes, sim.Fate{Lost: true, Deaf: true, Timeout: 2 * time.Second})
		for _, bound := range []time.Duration{10 * time.Millisecond, time.Second, 0} {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			start := time.Now()
			err := rl.CloseContext(ctx)
			assert.Equal(t, bound, time.Since(start))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, fmt.Sprintf("redlock: close: %d of %d locks not "+
				"released; context deadline exceeded", n, n))
			assert.Less(t, len(err.Error()), 10_000, "the rest are no different")
			cancel()
			for _, h := range held {
				assert.ErrorIs(t, context.Cause(h), redlock.ErrReleased, "all are told at once")
			}
		}
		assert.Equal(t, 3*n, keys(nodes))
		time.Sleep(3 * time.Second) // the clients have returned
		all(nodes, sim.Fate{})
		require.NotZero(t, keys(nodes), "not expired yet")
		require.NoError(t, rl.CloseContext(t.Context()))
		assert.Zero(t, keys(nodes))
		log := nodes.Record()
		require.NoError(t, rl.CloseContext(t.Context()))
		assert.Empty(t, log.Events(), "nothing is left to do")
		nodes.Close()
	})
}

// A node that is down or frozen does not make Close fail when every lock is released, nor take
// long: a node timeout, in which the node may answer yet.
//
// lesson L79
func TestCloseOfWhatIsReleasedReturnsNil(t *testing.T) {
	for name, tt := range map[string]struct {
		fate sim.Fate
		took time.Duration
	}{
		"refused": {sim.Fail(sim.ErrRefused), 0},
		"frozen": {sim.Fate{Lost: true, Timeout: time.Minute},
			redlock.DefaultExpiry / 20},
		"frozen, with a deaf client": {sim.Fate{Lost: true, Deaf: true, Timeout: time.Minute},
			redlock.DefaultExpiry / 20},
	} {
		for _, n := range []int{1, 100} {
			t.Run(fmt.Sprint(name, ", ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes := sim.NewNodes(3)
					rl := redlock.New(nodes.Pools("a")...)
					nodes[0].Always(tt.fate)
					for i := range n {
						m := rl.NewMutex(fmt.Sprint("x", i))
						require.NoError(t, m.Lock())
						mustUnlock(t, m)
						mustHold(t, rl.NewMutex(fmt.Sprint("y", i)))
					}
					start := time.Now()
					require.NoError(t, rl.Close())
					assert.LessOrEqual(t, time.Since(start), tt.took)
					time.Sleep(2 * time.Minute) // the clients return
					nodes.Close()
				})
			})
		}
	}
}

// Close says what it could not release, and closing again tries again.
func TestCloseReportsWhatCouldNotBeReleased(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		mustHold(t, rl.NewMutex("x"))
		nodes[0].Crash()
		nodes[1].Crash()
		for range 2 {
			err := rl.Close()
			assert.ErrorIs(t, err, redlock.ErrNoQuorum)
			assert.ErrorIs(t, err, sim.ErrRefused)
			assert.ErrorContains(t, err, "1 of 1 locks not released")
		}
		nodes[0].Restart(true)
		nodes[1].Restart(true)
		require.NoError(t, rl.Close())
		assert.Zero(t, keys(nodes))
	})
}

// The bound of Close grows with the number of holds, and with the longest of their node timeouts.
func TestCloseHasTheTimeItNeeds(t *testing.T) {
	for name, tt := range map[string]struct {
		holds   int
		answer  time.Duration
		timeout time.Duration // of the holds
	}{
		"many holds":              {3000, 20 * time.Millisecond, 40 * time.Millisecond},
		"a derived Redlock's own": {1, 200 * time.Millisecond, redlock.DefaultExpiry / 20},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				derived := rl.With(redlock.WithExpiry(redlock.DefaultExpiry),
					redlock.WithNodeTimeout(tt.timeout))
				for i := range tt.holds {
					mustHold(t, derived.NewMutex(fmt.Sprint("x", i)))
				}
				all(nodes, sim.Slow(tt.answer))
				require.NoError(t, rl.Close())
				assert.Zero(t, keys(nodes))
			}, redlock.WithExpiry(500*time.Millisecond),
				redlock.WithNodeTimeout(40*time.Millisecond))
		})
	}
}

// A Hold that is being granted when Close is called is released, or is among those that Close ends.
func TestCloseDuringHoldLeavesNothing(t *testing.T) {
	for at := range 12 {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			all(nodes, sim.Slow(10*time.Millisecond))
			var task sync.WaitGroup
			task.Go(func() {
				held, err := rl.NewMutex("x").Hold(t.Context())
				if err != nil {
					assert.ErrorIs(t, err, redlock.ErrClosed)
					return
				}
				<-held.Done()
				assert.ErrorIs(t, context.Cause(held), redlock.ErrReleased)
			})
			time.Sleep(time.Duration(at) * time.Millisecond)
			require.NoError(t, rl.Close())
			task.Wait()
			landed()
			assert.Zero(t, keys(nodes), "at %d ms", at)
		})
	}
}

func TestCloseAndUnlockAtOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		all(nodes, sim.Slow(10*time.Millisecond))
		var tasks sync.WaitGroup
		for i := range 20 {
			m := rl.NewMutex(fmt.Sprint("x", i))
			mustHold(t, m)
			tasks.Go(func() {
				if _, err := m.Unlock(); err != nil {
					assert.ErrorIs(t, err, redlock.ErrNotHeld)
				}
			})
		}
		assert.NoError(t, rl.Close())
		tasks.Wait()
		landed()
		assert.Zero(t, keys(nodes))
	})
}

// lesson L65: the mutex has been locked anew since, while its hold had not noticed that most
// nodes had lost the lock. Close releases what the hold has left, and not the plain lock, which
// stays as it is.
func TestCloseReleasesTheLeaseOfTheHold(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			held := mustHold(t, m)
			first := m.Value()
			for _, node := range nodes[n/2:] {
				node.Flush()
			}
			require.NoError(t, m.TryLock())
			assert.ErrorIs(t, context.Cause(held), redlock.ErrLost,
				"as soon as a quorum has shown that it had lost it")
			second := m.Value()
			synctest.Wait()
			require.NoError(t, rl.Close())
			assert.Equal(t, map[string]int{second: n - n/2}, holders(nodes, "x"))
			assert.NotEqual(t, first, second)
			assert.True(t, m.Until().After(time.Now()))
			mustUnlock(t, m)
			assert.Zero(t, keys(nodes))
		})
	}
}

// lesson L65: the lock is granted anew at the moment of Close, which has the hold of the one
// before in its hands.
func TestCloseDuringALockOfAHeldMutex(t *testing.T) {
	for at := range 8 {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			mustHold(t, m)
			first := m.Value()
			nodes[1].Flush()
			nodes[2].Flush()
			all(nodes, sim.Slow(4*time.Millisecond))
			var task sync.WaitGroup
			var err error
			task.Go(func() { err = m.TryLock() })
			time.Sleep(time.Duration(at) * time.Millisecond)
			_ = rl.Close() // says that the lock it should release was lost
			task.Wait()
			landed()
			assert.Zero(t, holders(nodes, "x")[first], "closed after %d ms", at)
			if err == nil {
				assert.Equal(t, 2, holders(nodes, "x")[m.Value()], "closed after %d ms", at)
				mustUnlock(t, m)
			}
			landed()
			assert.Zero(t, keys(nodes), "closed after %d ms", at)
		})
	}
}

// lesson L65: of two who unlock at once, and one who locks meanwhile, neither releases what is
// not theirs.
func TestAnUnlockThatWaitedReleasesNoOtherLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		for _, n := range nodes {
			n.Next("release", sim.Slow(10*time.Millisecond))
		}
		var tasks sync.WaitGroup
		for range 20 {
			tasks.Go(func() {
				if _, err := m.Unlock(); err != nil {
					assert.ErrorIs(t, err, redlock.ErrNotHeld)
				}
			})
		}
		synctest.Wait()
		tasks.Go(func() {
			time.Sleep(time.Millisecond)
			assert.NoError(t, m.LockContext(t.Context()))
		})
		tasks.Wait()
		synctest.Wait() // the third node is not waited for
		assert.Equal(t, map[string]int{m.Value(): 3}, holders(nodes, "x"))
		mustUnlock(t, m)
	}, redlock.WithExpiry(time.Minute))
}

// After Close nothing is sent but what the caller asks for: a release that fails is not sent
// again, whether its Unlock comes after Close or the client returns from it only then.
func TestNothingIsSentByItselfAfterClose(t *testing.T) {
	for name, fate := range map[string]sim.Fate{
		"silent":                    sim.Hang(),
		"refusing":                  sim.Fail(errors.New("no")),
		"kept by the client":        {Lost: true, Deaf: true, Timeout: 5 * time.Second},
		"answered late":             sim.Deaf(sim.Slow(5 * time.Second)),
		"granted and answered late": sim.Deaf(sim.Fate{Reply: 5 * time.Second}),
	} {
		for _, order := range []string{"Unlock, Close", "Close, Unlock", "TryLock, Close"} {
			t.Run(name+", "+order, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes := sim.NewNodes(3)
					defer nodes.Close()
					pools := nodes.Pools("a")
					rl := redlock.New(pools...)
					m := rl.NewMutex("x")
					require.NoError(t, m.Lock())
					var sent atomic.Int64
					for _, p := range pools {
						p.(*sim.Link).Plan(func(sim.Op) sim.Fate { sent.Add(1); return fate })
					}
					for call := range strings.SplitSeq(order, ", ") {
						switch call {
						case "Unlock":
							_, _ = m.Unlock()
						case "TryLock":
							_ = rl.NewMutex("y").TryLock()
						case "Close":
							_ = rl.Close()
						}
					}
					synctest.Wait() // nodes that nobody waited for are asked, too
					before := sent.Load()
					time.Sleep(time.Hour)
					assert.Zero(t, sent.Load()-before)
				})
			})
		}
	}
}

// lesson L79: some holds run out before Close comes to them. Their contexts have ended before
// that, and nothing is held.
func TestCloseOfHoldsThatRunOutMeanwhile(t *testing.T) {
	const holds, expiry = 1000, 200 * time.Millisecond // 256 of them are released at a time
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for i := range holds {
			mustHold(t, rl.NewMutex(fmt.Sprint("x", i)))
		}
		all(nodes, sim.Slow(90*time.Millisecond))
		require.NoError(t, rl.Close())
		landed()
		assert.Zero(t, keys(nodes))
	}, redlock.WithExpiry(expiry), redlock.WithTimeoutFactor(1))
}

// A lock that is gone before until may have been somebody else's while it was held. Close says
// so, of that lock, and that it left none.
func TestCloseSaysThatALockIsGone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		mustHold(t, rl.NewMutex("x"))
		mustHold(t, rl.NewMutex("y"))
		nodes[0].Delete("x")
		nodes[1].Delete("x")
		err := rl.Close()
		require.ErrorIs(t, err, redlock.ErrExpired)
		assert.ErrorContains(t, err, `redlock: "x" not released: gone on 2 of 3 nodes`)
		assert.NotContains(t, err.Error(), "close")
		synctest.Wait()
		assert.Zero(t, keys(nodes))
		require.NoError(t, rl.Close(), "nothing is left to do")
	})
}

// A node executes a SET after the release that takes it back. CloseContext waits for the release
// that follows. Close waits for one node timeout, which may be too short for it: then the key stays
// until it expires.
func TestCloseContextWaitsForTheReleaseThatFollowsALateSet(t *testing.T) {
	const nodeTimeout = 400 * time.Millisecond
	for name, tt := range map[string]struct {
		close func(ctx context.Context, rl *redlock.Redlock) error
		most  time.Duration
		left  bool
	}{
		"Close": {func(_ context.Context, rl *redlock.Redlock) error {
			return rl.Close()
		}, nodeTimeout, true},
		"CloseContext": {func(ctx context.Context, rl *redlock.Redlock) error {
			return rl.CloseContext(ctx)
		}, 2*nodeTimeout + nodeTimeout/10, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				nodes[2].Next("set", sim.Fate{Request: nodeTimeout + nodeTimeout/4})
				mustUnlock(t, locked(t, rl))
				start := time.Now()
				require.NoError(t, tt.close(t.Context(), rl))
				assert.LessOrEqual(t, time.Since(start), tt.most)
				time.Sleep(time.Until(start.Add(time.Second)))
				assert.Equal(t, tt.left, nodes[2].Value("x") != "")
				time.Sleep(redlock.DefaultExpiry)
				assert.Empty(t, nodes[2].Value("x"))
			})
		})
	}
}
