package behaviour_test

import (
	"context"
	"errors"
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

// processes are some clients of the same simulated nodes.
func processes(nodes sim.Nodes, n int, opts ...redlock.Option) []*redlock.Redlock {
	var all []*redlock.Redlock
	for p := range n {
		pools := nodes.Pools(fmt.Sprint("p", p))
		plan(pools, network(rand.New(rand.NewPCG(1, uint64(p))), nil))
		all = append(all, redlock.New(pools...).With(opts...))
	}
	return all
}

// DoAll holds each name once while fn runs, and nothing before and afterwards.
func TestDoAllHoldsAllNames(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		oops := errors.New("oops")
		err := rl.DoAll(t.Context(), []string{"b", "a", "b", "c"}, func(ctx context.Context) error {
			for _, name := range []string{"a", "b", "c"} {
				assert.Len(t, holders(nodes, name), 1)
				assert.ErrorIs(t, rl.NewMutex(name).LockContext(ctx), redlock.ErrSelf)
			}
			return oops
		})
		assert.Equal(t, oops, err)
		synctest.Wait()
		for _, name := range []string{"a", "b", "c"} {
			assert.Empty(t, holders(nodes, name))
		}
	})
}

// It locks in the order of the names, however they are given, and unlocks in the reverse order.
func TestDoAllKeepsOneOrder(t *testing.T) {
	var order []string
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		err := rl.DoAll(t.Context(), []string{"c", "a", "b"}, func(context.Context) error {
			order = append(order, "fn")
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, []string{"+a", "+b", "+c", "fn", "-c", "-b", "-a"}, order)
	}, redlock.WithEvents(&redlock.Events{
		Acquire: func(ctx context.Context, a redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			order = append(order, "+"+a.Name)
			return ctx, nil
		},
		Release: func(ctx context.Context, r redlock.Releasing) (context.Context,
			func(redlock.Released)) {
			order = append(order, "-"+r.Name)
			return ctx, nil
		},
	}))
}

// Sets that overlap, given in any order, are all served: no deadlock, no two at a time on a name.
func TestSetsOfNamesTakeTurns(t *testing.T) {
	counts(t)
	for _, n := range []int{2, 8} {
		synctest.Test(t, func(t *testing.T) {
			nodes := sim.NewNodes(3)
			rls := processes(nodes, n, redlock.WithTries(redlock.Unlimited))
			var inside [5]atomic.Int64
			turns := make([]int, n)
			ctx, stop := context.WithTimeout(t.Context(), larger(10*time.Second))
			defer stop()
			var tasks sync.WaitGroup
			for p, rl := range rls {
				r := rand.New(rand.NewPCG(2, uint64(p)))
				tasks.Go(func() {
					for ctx.Err() == nil {
						var names []string
						set := r.Perm(len(inside))[:1+r.IntN(3)]
						for _, i := range set {
							names = append(names, fmt.Sprint("account", i))
						}
						err := rl.DoAll(ctx, names, func(ctx context.Context) error {
							for _, i := range set {
								assert.Equal(t, int64(1), inside[i].Add(1))
							}
							time.Sleep(5 * time.Millisecond)
							for _, i := range set {
								inside[i].Add(-1)
							}
							turns[p]++
							return nil
						})
						if ctx.Err() == nil {
							assert.NoError(t, err)
						}
					}
				})
			}
			tasks.Wait()
			t.Logf("%d processes: turns %v", n, turns)
			assert.Greater(t, 2*slices.Min(turns), slices.Max(turns)/2, "each is served")
			assert.Positive(t, slices.Min(turns))
			for _, rl := range rls {
				require.NoError(t, rl.CloseContext(t.Context()))
			}
			nodes.Close()
		})
	}
}

// If one lock cannot be acquired, DoAll fails with its error, and releases those before it.
func TestDoAllThatFailsLeavesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		other := redlock.New(nodes.Pools("other")...)
		m := other.NewMutex("b")
		mustHold(t, m)
		err := rl.DoAll(t.Context(), []string{"a", "b", "c"}, func(context.Context) error {
			panic("called")
		}, redlock.WithTries(2))
		assert.Equal(t, "Failed Taken", matched(err))
		assert.ErrorContains(t, err, `"b" not acquired`)
		synctest.Wait()
		assert.Empty(t, holders(nodes, "a"))
		assert.Empty(t, holders(nodes, "c"))
		mustUnlock(t, m)
		require.NoError(t, other.Close())
	})
}

// ErrNotReleased says that the work was done, so a DoAll that did not call its function must not
// match it, even if an unlock failed.
func TestDoAllThatFailsIsNotDone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("b")
		mustHold(t, m)
		pools := nodes.Pools("other")
		for _, p := range pools {
			p.(*sim.Link).Plan(func(op sim.Op) (f sim.Fate) {
				if op.Command == "release" {
					f = sim.Fail(errors.New("READONLY"))
				}
				return f
			})
		}
		other := redlock.New(pools...)
		err := other.DoAll(t.Context(), []string{"a", "b"}, func(context.Context) error {
			panic("called")
		}, redlock.WithoutWaiting())
		assert.Equal(t, "Failed Taken", matched(err))
		assert.ErrorContains(t, err, `"b" not acquired`)
		assert.ErrorContains(t, err, `"a" not released`)
		mustUnlock(t, m)
		require.NoError(t, other.Close())
	})
}

// A DoAll that loses a lock while it waits for the next one was not cancelled by its caller.
func TestDoAllThatLosesALockWhileItWaits(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("b")
		mustHold(t, m)
		other := redlock.New(nodes.Pools("other")...)
		time.AfterFunc(time.Second, func() {
			for _, n := range nodes {
				n.Delete("a")
			}
		})
		do := func(ctx context.Context) error {
			return other.DoAll(ctx, []string{"a", "b"}, func(context.Context) error {
				panic("called")
			}, redlock.WithTries(redlock.Unlimited))
		}
		err := do(t.Context())
		assert.Equal(t, "Expired Failed Lost", matched(err))
		assert.ErrorContains(t, err, `"b" not acquired`)
		assert.ErrorContains(t, err, `"a" lost`)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		assert.Equal(t, "Canceled Failed Taken", matched(do(ctx)))
		mustUnlock(t, m)
		require.NoError(t, other.Close())
	})
}

// The context of fn is done when any of the locks is lost, and only Unlocks of that one fail.
func TestDoAllEndsWithTheFirstLoss(t *testing.T) {
	for _, lost := range []string{"a", "b", "c"} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			err := rl.DoAll(t.Context(), []string{"a", "b", "c"}, func(ctx context.Context) error {
				for _, n := range nodes {
					n.Delete(lost)
				}
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
				return nil
			})
			assert.Equal(t, "Expired Lost NotReleased", matched(err))
			assert.ErrorContains(t, err, fmt.Sprintf("%q", lost))
		})
	}
}

// Each name has a token, and there is none of all together.
func TestFencingTokenOf(t *testing.T) {
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		names := []string{"a", "b"}
		require.NoError(t, rl.DoAll(t.Context(), names, func(ctx context.Context) error {
			assert.Zero(t, redlock.FencingToken(ctx))
			a, b := redlock.FencingTokenOf(ctx, "a"), redlock.FencingTokenOf(ctx, "b")
			assert.Positive(t, a)
			assert.Positive(t, b)
			assert.NotEqual(t, a, b)
			assert.Zero(t, redlock.FencingTokenOf(ctx, "c"))
			return rl.Do(ctx, "c", func(ctx context.Context) error {
				assert.Equal(t, redlock.FencingTokenOf(ctx, "c"), redlock.FencingToken(ctx))
				assert.Equal(t, a, redlock.FencingTokenOf(ctx, "a"))
				return nil
			})
		}))
		assert.Zero(t, redlock.FencingTokenOf(t.Context(), "a"))
	}, redlock.WithFencing())
}

// Mistakes are told before anything is sent.
func TestMistakesWithSeveralNames(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		fn := func(context.Context) error { panic("called") }
		one := func(context.Context, string) error { panic("called") }
		for name, do := range map[string]func() error{
			"no names": func() error { return rl.DoAll(t.Context(), nil, fn) },
			"too many": func() error { return rl.DoAll(t.Context(), redlock.Slots("x", 65), fn) },
			"an empty name": func() error {
				return rl.DoAll(t.Context(), []string{"a", ""}, fn)
			},
			"no function": func() error { return rl.DoAll(t.Context(), []string{"a"}, nil) },
			"an option":   func() error { return rl.DoAll(t.Context(), []string{"a"}, fn, nil) },
			"any of none": func() error { return rl.DoAny(t.Context(), nil, one) },
			"no slots": func() error {
				return rl.DoAny(t.Context(), redlock.Slots("x", 0), one)
			},
			"any, nothing": func() error { return rl.DoAny(t.Context(), []string{"a"}, nil) },
			"any, empty":   func() error { return rl.DoAny(t.Context(), []string{"a", ""}, one) },
			"lock any": func() error {
				_, err := rl.LockAny(t.Context(), nil)
				return err
			},
			"hold any": func() error {
				_, _, err := rl.HoldAny(t.Context(), nil)
				return err
			},
		} {
			var wrong *redlock.OptionError
			assert.ErrorAs(t, do(), &wrong, name)
		}
		assert.Zero(t, nodes.Count(""))
	})
}

func TestSlots(t *testing.T) {
	assert.Equal(t, []string{"x#0", "x#1", "x#2"}, redlock.Slots("x", 3))
	assert.Empty(t, redlock.Slots("x", 0))
	assert.Empty(t, redlock.Slots("x", -1))
}

// Never more than k at a time, whoever comes; each has a slot of its own, all are used, and
// everybody has turns.
func TestSlotsAreASemaphore(t *testing.T) {
	for _, tt := range []struct {
		slots, processes int
		last             time.Duration
	}{
		{1, 4, 2 * time.Second}, {2, 8, 2 * time.Second}, {5, 20, 2 * time.Second},
		{50, 60, 400 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d of %d", tt.slots, tt.processes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const hold = 20 * time.Millisecond
				nodes := sim.NewNodes(3)
				rls := processes(nodes, tt.processes, redlock.WithTries(redlock.Unlimited))
				var mu sync.Mutex // guards what follows
				inside, used := map[string]bool{}, map[string]bool{}
				turns := make([]int, tt.processes)
				last := larger(tt.last)
				ctx, stop := context.WithTimeout(t.Context(), last)
				defer stop()
				var tasks sync.WaitGroup
				for p, rl := range rls {
					tasks.Go(func() {
						for ctx.Err() == nil {
							_ = rl.DoAny(ctx, redlock.Slots("x", tt.slots),
								func(ctx context.Context, slot string) error {
									mu.Lock()
									assert.False(t, inside[slot], slot)
									inside[slot], used[slot] = true, true
									assert.LessOrEqual(t, len(inside), tt.slots)
									turns[p]++
									mu.Unlock()
									time.Sleep(hold)
									mu.Lock()
									delete(inside, slot)
									mu.Unlock()
									return nil
								})
						}
					})
				}
				tasks.Wait()
				sum := 0
				for _, n := range turns {
					sum += n
				}
				t.Logf("%.0f %% of the time, %d to %d turns",
					100*float64(sum)*float64(hold)/float64(last)/float64(tt.slots),
					slices.Min(turns), slices.Max(turns))
				assert.Len(t, used, tt.slots)
				assert.Positive(t, slices.Min(turns))
				for _, rl := range rls {
					require.NoError(t, rl.CloseContext(t.Context()))
				}
				nodes.Close()
			})
		})
	}
}

// A slot that is freed is found, though another is waited for; and the error of those who have
// waited in vain says how many names there were.
func TestLockAnyWaitsForAnyOfThem(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		var taken []*redlock.Mutex
		for range 3 {
			m, err := rl.LockAny(t.Context(), redlock.Slots("x", 3))
			require.NoError(t, err)
			taken = append(taken, m)
		}
		_, err := rl.LockAny(t.Context(), redlock.Slots("x", 3), redlock.WithTries(3))
		assert.Equal(t, "Failed Taken", matched(err))
		assert.ErrorContains(t, err, "not acquired, the last of 3 names: taken on ")
		start := time.Now()
		_, err = rl.LockAny(t.Context(), redlock.Slots("x", 3), redlock.WithoutWaiting())
		assert.Equal(t, "Failed Taken", matched(err))
		assert.Less(t, time.Since(start), 10*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = rl.LockAny(ctx, redlock.Slots("x", 3), redlock.WithTries(redlock.Unlimited))
		assert.Equal(t, "DeadlineExceeded Failed Taken", matched(err))
		for _, m := range taken {
			var waiting sync.WaitGroup
			start := time.Now()
			waiting.Go(func() {
				got, err := rl.LockAny(t.Context(), redlock.Slots("x", 3))
				if assert.NoError(t, err) {
					assert.Equal(t, m.Name(), got.Name())
					mustUnlock(t, got)
				}
			})
			time.Sleep(time.Second)
			mustUnlock(t, m)
			waiting.Wait()
			assert.Less(t, time.Since(start), 2*time.Second)
			require.NoError(t, m.Lock())
		}
		for _, m := range taken {
			mustUnlock(t, m)
		}
	})
}

// A caller that goes away in the very moment in which LockAny goes on to the next name learns of
// its own reason.
func TestLockAnyTellsWhyItsCallerWentAway(t *testing.T) {
	const delay = 100 * time.Millisecond
	for range 30 {
		bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			mustHold(t, m)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(delay, func() { cancel(errOops) })
			_, err := rl.LockAny(ctx, []string{"x"}, redlock.WithRetryDelay(delay))
			assert.ErrorIs(t, err, errOops)
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, redlock.ErrTaken)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			mustUnlock(t, m)
		})
	}
}

// Nodes in trouble are asked once a round, and not once a name.
func TestLockAnySparesNodesInTrouble(t *testing.T) {
	asked := 0
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		all(nodes, sim.Fail(errOops))
		_, err := rl.LockAny(t.Context(), redlock.Slots("x", 50), redlock.WithTries(1))
		assert.Equal(t, "Failed NoQuorum oops", matched(err))
		assert.Equal(t, 1, asked)
		all(nodes, sim.Fate{})
	}, redlock.WithEvents(&redlock.Events{
		Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			asked++
			return ctx, nil
		},
	}))
}

// A round without a place in which to wait takes as long as others: a caller that there is no room
// for does not ask the nodes again and again.
func TestLockAnyWithoutAPlaceToWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		mustHold(t, m)
		var waiter sync.WaitGroup
		waiter.Go(func() {
			_, err := rl.LockAny(t.Context(), []string{"x"})
			assert.ErrorIs(t, err, redlock.ErrTaken)
		})
		time.Sleep(time.Second)
		start := time.Now()
		_, err := rl.LockAny(t.Context(), []string{"x"}, redlock.WithMaxWaiters(1),
			redlock.WithTries(10), redlock.WithRetryDelay(100*time.Millisecond))
		assert.ErrorIs(t, err, redlock.ErrTaken)
		assert.GreaterOrEqual(t, time.Since(start), 900*time.Millisecond)
		waiter.Wait()
		mustUnlock(t, m)
	})
}

// What waiting does not change ends LockAny at once, whatever the tries.
func TestLockAnyDoesNotWaitInVain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		calls := 0
		_, err := rl.LockAny(t.Context(), []string{"a", "b"},
			redlock.WithGenValueFunc(func() (string, error) {
				calls++
				return "", errOops
			}))
		assert.Equal(t, "Failed oops", matched(err))
		assert.Equal(t, 1, calls)

		start := time.Now()
		require.NoError(t, rl.DoAll(t.Context(), []string{"a", "b"},
			func(ctx context.Context) error {
				_, err := rl.LockAny(ctx, []string{"a", "b"})
				assert.ErrorIs(t, err, redlock.ErrSelf)
				m, err := rl.LockAny(ctx, []string{"a", "b", "c"}, redlock.WithTries(1))
				require.NoError(t, err)
				assert.Equal(t, "c", m.Name())
				mustUnlock(t, m)
				mustHold(t, m) // as somebody else does
				_, err = rl.LockAny(ctx, []string{"a", "b", "c"}, redlock.WithTries(1))
				assert.NotErrorIs(t, err, redlock.ErrSelf)
				mustUnlock(t, m)
				return nil
			}))
		assert.Less(t, time.Since(start), 100*time.Millisecond)
	})
}

// The nodes are asked whose the lock is once, for the error that is returned.
func TestLockAnyAsksOnceWhoHasTheLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		slots := redlock.Slots("x", 30)
		var taken []*redlock.Mutex
		for _, name := range slots {
			taken = append(taken, rl.NewMutex(name, redlock.WithOwner("pod-7")))
			mustHold(t, taken[len(taken)-1])
		}
		rl = rl.With(redlock.WithOwner("pod-8"), redlock.WithExpiry(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for what, lock := range map[string]func() error{
			"one round": func() error {
				_, err := rl.LockAny(t.Context(), slots, redlock.WithTries(1))
				return err
			},
			"some rounds": func() error {
				_, err := rl.LockAny(t.Context(), slots, redlock.WithTries(5))
				return err
			},
			"until the context ends": func() error {
				_, err := rl.LockAny(ctx, slots, redlock.WithTries(redlock.Unlimited))
				return err
			},
		} {
			asked, err := nodes.Count("inspect"), lock()
			assert.Equal(t, "pod-7", ownerIn(t, err), what)
			// Those nodes that have refused by then: a quorum, or all.
			assert.Contains(t, []int{2, 3}, nodes.Count("inspect")-asked, what)
			synctest.Wait()
		}
		m, err := rl.LockAny(t.Context(), []string{"y"})
		require.NoError(t, err)
		assert.Equal(t, "pod-8", ownerIn(t, m.TryLock()), "a mutex like any other")
		for _, m := range append(taken, m) {
			mustUnlock(t, m)
		}
	})
}

// HoldAny keeps one of the locks until it is unlocked, and its context ends then.
func TestHoldAny(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		held, m, err := rl.HoldAny(t.Context(), redlock.Slots("x", 2))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.NoError(t, held.Err())
		assert.Len(t, holders(nodes, m.Name()), 1)
		_, other, err := rl.HoldAny(held, redlock.Slots("x", 2))
		require.NoError(t, err)
		assert.NotEqual(t, m.Name(), other.Name())
		none, nobody, err := rl.HoldAny(t.Context(), redlock.Slots("x", 2), redlock.WithTries(1))
		assert.Equal(t, "Failed Taken", matched(err))
		assert.Nil(t, none)
		assert.Nil(t, nobody)
		mustUnlock(t, other)
		mustUnlock(t, m)
		assert.ErrorIs(t, context.Cause(held), redlock.ErrReleased)
	})
}

// The hold of DoAny outlasts the wait for it, and is renewed.
func TestDoAnyHolds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		first, err := rl.LockAny(t.Context(), []string{"x"})
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _, _ = first.Unlock() })
		require.NoError(t, rl.DoAny(t.Context(), []string{"x"},
			func(ctx context.Context, name string) error {
				assert.Equal(t, "x", name)
				time.Sleep(time.Minute)
				assert.NoError(t, ctx.Err())
				assert.ErrorIs(t, rl.DoAny(ctx, []string{"x"}, nothing), redlock.ErrSelf)
				return nil
			}))
		synctest.Wait()
		assert.Empty(t, holders(nodes, "x"))
	})
}

func nothing(context.Context, string) error { return nil }
