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

// queued returns how many wait in the queue of each node for a key.
func queued(nodes sim.Nodes, key string) (all []int) {
	for _, n := range nodes {
		all = append(all, len(n.Queue(queueOf(key))))
	}
	return all
}

// Waiters whose machines are gone, with connections that the nodes take for alive, cost those who
// wait behind them the five seconds in which the living show themselves, and twice the three after
// which a waiter asks at the latest: once, however many have died, at the head or everywhere. In a
// long queue all of that is 10 ms for each waiter, if that is more, and the grace so much longer.
func TestTheSilentDeadCostTheOthersOnce(t *testing.T) {
	const expiry, hold = 8 * time.Second, 20 * time.Millisecond
	for _, dead := range []int{1, 4, 16, 64, 500} {
		for _, every := range []int{1, 2} { // all before the living, or every other one
			if dead*every > 500 {
				continue
			}
			t.Run(fmt.Sprintf("%d, %d", dead, every), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					nodes := sim.NewNodes(5)
					var gone atomic.Bool
					var all []*redlock.Redlock
					process := func(dies bool) *redlock.Mutex {
						pools := nodes.Pools(fmt.Sprint("p", len(all)))
						delays := network(rand.New(rand.NewPCG(1, uint64(len(all)))), nil)
						plan(pools, func(op sim.Op) sim.Fate {
							f := delays(op)
							f.Lost = dies && gone.Load()
							return f
						})
						rl := redlock.New(pools...).With(redlock.WithExpiry(expiry),
							redlock.WithTries(redlock.Unlimited))
						all = append(all, rl)
						return rl.NewMutex("x")
					}
					m := process(false)
					require.NoError(t, m.Lock())
					ctx, cancel := context.WithCancel(t.Context())
					var waiting, living sync.WaitGroup
					turns := 0
					for i := range dead {
						w := process(true)
						waiting.Go(func() { assert.Error(t, w.LockContext(ctx)) })
						time.Sleep(5 * time.Millisecond)
						if every == 1 && i < dead-1 {
							continue
						}
						l := process(false)
						living.Go(func() {
							assert.NoError(t, l.Lock())
							time.Sleep(hold)
							turns++ // the lock guards it
							_, err := l.Unlock()
							assert.NoError(t, err)
						})
						time.Sleep(5 * time.Millisecond)
					}
					time.Sleep(time.Second)
					gone.Store(true)
					released := time.Now()
					mustUnlock(t, m)
					living.Wait()
					took := time.Since(released) - time.Duration(turns)*(hold+2*time.Millisecond)
					t.Logf("%d turns, %v beside them", turns, took)
					// The roll is called when somebody asks, and so it is read.
					long := time.Duration(dead) * 10 * time.Millisecond
					assert.Less(t, took, 5*time.Second+long+2*max(3*time.Second, long))
					cancel()
					waiting.Wait()
					nodes.Close()
					for _, rl := range all {
						_ = rl.Close()
					}
				})
			})
		}
	}
}

// A waiter far behind asks less often than the living have to show themselves at the head. It is
// not taken for dead, although the roll is called twice between two of its questions.
func TestAWaiterFarBehindIsNotTakenForDead(t *testing.T) {
	const waiters = 700 // the last asks every seven seconds
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		var all []*redlock.Redlock
		process := func(expiry time.Duration) *redlock.Mutex {
			pools := nodes.Pools(fmt.Sprint("p", len(all)))
			plan(pools, network(rand.New(rand.NewPCG(1, uint64(len(all)))), nil))
			rl := redlock.New(pools...).With(redlock.WithRetryDelay(time.Second),
				redlock.WithTries(redlock.Unlimited), redlock.WithExpiry(expiry))
			all = append(all, rl)
			return rl.NewMutex("x")
		}
		// Two holders die one after the other. The last waiter asks shortly before the first is
		// found dead, and again after the second is.
		require.NoError(t, process(8700*time.Millisecond).Lock())
		dies := process(5500 * time.Millisecond)
		var tasks sync.WaitGroup
		tasks.Go(func() { assert.NoError(t, dies.Lock()) })
		var served, want []int // the lock guards them
		for i := range waiters {
			time.Sleep(2 * time.Millisecond)
			want = append(want, i)
			w := process(8 * time.Second)
			tasks.Go(func() {
				assert.NoError(t, w.Lock())
				if len(served) == 0 {
					time.Sleep(10 * time.Millisecond)
					assert.Equal(t, slices.Repeat([]int{waiters - 1}, 3), queued(nodes, "x"))
				}
				served = append(served, i)
				mustUnlock(t, w)
			})
		}
		tasks.Wait()
		assert.Equal(t, want, served)
		nodes.Close()
		for _, rl := range all {
			_ = rl.Close()
		}
	})
}

// A waiter in the queue leaves silent nodes alone for four times as long as it has waited for them.
// When they answer again, it finds that out within four seconds, whatever its retry delay is.
func TestAWaiterInTheQueueLeavesSilentNodesAlone(t *testing.T) {
	for _, tt := range []struct {
		delay  time.Duration
		rounds int // for which a majority is silent
	}{
		{100 * time.Millisecond, 1}, {100 * time.Millisecond, 2}, {100 * time.Millisecond, 20},
		// After three rounds it leaves the queue, and waits for its retry delay.
		{10 * time.Minute, 1}, {10 * time.Minute, 2},
	} {
		t.Run(fmt.Sprintf("%v, %d", tt.delay, tt.rounds), func(t *testing.T) {
			waitThroughSilence(t, tt.delay, tt.rounds)
		})
	}
}

// waitThroughSilence lets a majority be silent to a waiter in the queue, for as long as some rounds
// take with the rests between them.
func waitThroughSilence(t *testing.T, delay time.Duration, rounds int) {
	const nodeTimeout = 400 * time.Millisecond
	opts := []redlock.Option{redlock.WithExpiry(time.Hour), redlock.WithNodeTimeout(nodeTimeout),
		redlock.WithTries(redlock.Unlimited), redlock.WithRetryDelay(delay)}
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		holder := rl.NewMutex("x")
		require.NoError(t, holder.Lock())
		other := redlock.New(nodes.Pools("b")...).With(opts...)
		var tasks sync.WaitGroup
		tasks.Go(func() { assert.NoError(t, other.NewMutex("x").Lock()) })
		const moment = 10 * time.Millisecond // in which a round may have begun
		time.Sleep(10*time.Second - moment)
		log := nodes.Record()
		time.Sleep(moment)
		frozen := time.Now()
		for _, n := range nodes[:3] {
			n.Freeze()
		}
		_, err := holder.Unlock()
		assert.Error(t, err)
		time.Sleep(time.Duration(rounds) * 5 * nodeTimeout)

		var asked []time.Time
		for _, e := range log.Events() {
			if e.Node == 4 && e.Command == "stand" {
				asked = append(asked, e.At)
			}
		}
		require.Greater(t, len(asked), rounds/2)
		assert.Less(t, time.Since(asked[len(asked)-1]), 3*time.Second+nodeTimeout)
		for i, at := range asked[1:] {
			if asked[i].Sub(frozen) > nodeTimeout { // it knows that they are silent
				assert.Greater(t, at.Sub(asked[i]), 5*nodeTimeout-10*time.Millisecond)
			}
		}

		for _, n := range nodes[:3] {
			n.Thaw()
		}
		start := time.Now()
		tasks.Wait()
		assert.Less(t, time.Since(start), 4*time.Second)
		require.NoError(t, other.CloseContext(t.Context()))
	}, opts...)
}

// While a majority is silent, a try takes a node timeout longer in the queue, as it does outside.
func TestTriesInTheQueueTakeLongerWhileNodesAreSilent(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		require.NoError(t, rl.NewMutex("x").Lock())
		other := redlock.New(nodes.Pools("b")...).With(redlock.WithExpiry(time.Hour),
			redlock.WithNodeTimeout(400*time.Millisecond))
		var silent time.Time
		time.AfterFunc(time.Second, func() {
			silent = time.Now()
			for _, n := range nodes[:3] {
				n.Freeze()
			}
		})
		assert.ErrorIs(t, other.NewMutex("x").Lock(), redlock.ErrNoQuorum)
		took := time.Since(silent)
		t.Log(took)
		assert.Greater(t, took, 11*time.Second)
		assert.Less(t, took, 21*time.Second)
		require.NoError(t, other.CloseContext(t.Context()))
	}, redlock.WithExpiry(time.Hour))
}

// A waiter whose context ends leaves the queue of each node that answers within a node timeout, and
// that of a frozen one when it answers again. What is reserved for it goes to the next.
func TestAWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for frozen := range n/2 + 1 {
			t.Run(fmt.Sprintf("%d nodes, %d frozen", n, frozen), func(t *testing.T) {
				bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					m := rl.NewMutex("x", redlock.WithExpiry(time.Hour))
					mustHold(t, m)
					ctx, cancel := context.WithCancel(t.Context())
					var tasks sync.WaitGroup
					granted := make(chan time.Time, 1)
					wait := func(client string, ctx context.Context, ok bool) {
						other := redlock.New(nodes.Pools(client)...).With(
							redlock.WithExpiry(time.Hour),
							redlock.WithNodeTimeout(400*time.Millisecond),
							redlock.WithTries(redlock.Unlimited))
						tasks.Go(func() {
							w := other.NewMutex("x")
							err := w.LockContext(ctx)
							if ok {
								assert.NoError(t, err)
								granted <- time.Now()
								mustUnlock(t, w)
							} else {
								assert.ErrorIs(t, err, redlock.ErrTaken)
							}
							assert.NoError(t, other.CloseContext(t.Context()))
						})
						time.Sleep(time.Second)
					}
					wait("b", ctx, false)
					wait("c", t.Context(), true)
					assert.Equal(t, slices.Repeat([]int{2}, n), queued(nodes, "x"))
					for _, node := range nodes[:frozen] {
						node.Freeze()
					}
					cancel()
					time.Sleep(400 * time.Millisecond)
					synctest.Wait()
					assert.Equal(t, slices.Repeat([]int{1}, n-frozen), queued(nodes, "x")[frozen:])
					for _, node := range nodes[:frozen] {
						node.Thaw()
					}
					time.Sleep(time.Second)
					assert.Equal(t, slices.Repeat([]int{1}, n), queued(nodes, "x"))
					released := time.Now()
					mustUnlock(t, m)
					assert.Less(t, (<-granted).Sub(released), 10*time.Millisecond)
					tasks.Wait()
				})
			})
		}
	}
}

// A lock may be handed to a waiter that has left, while that is on its way to the nodes. A node
// that hears of it frees the lock or hands it on at once. If it is lost, the lock is free a node
// timeout after the release.
func TestNoLockIsKeptForAWaiterThatHasLeft(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for _, lost := range []bool{false, true} {
			for _, next := range []bool{false, true} {
				name := fmt.Sprintf("%d nodes, lost %t, another waits %t", n, lost, next)
				t.Run(name, func(t *testing.T) {
					bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
						theLockOfOneThatHasLeft(t, nodes, rl, lost, next)
					})
				})
			}
		}
	}
}

func theLockOfOneThatHasLeft(
	t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, lost, next bool,
) {
	const way, timeout = 50 * time.Millisecond, 400 * time.Millisecond
	m := rl.NewMutex("x")
	mustHold(t, m)
	leaves, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	granted := make(chan time.Time, 1)
	wait := func(client string, ctx context.Context) {
		pools := nodes.Pools(client)
		plan(pools, func(op sim.Op) sim.Fate {
			if op.Command == "release" && op.Member != "" && ctx.Err() != nil {
				return sim.Fate{Request: way, Lost: lost}
			}
			return sim.Fate{}
		})
		other := redlock.New(pools...)
		tasks.Go(func() {
			w := other.NewMutex("x", redlock.WithTries(redlock.Unlimited))
			if err := w.LockContext(ctx); ctx.Err() == nil {
				assert.NoError(t, err)
				granted <- time.Now()
				mustUnlock(t, w)
			}
			assert.NoError(t, other.CloseContext(t.Context()))
		})
		time.Sleep(time.Second)
	}
	wait("b", leaves)
	if next {
		wait("c", t.Context())
	}
	cancel()
	released := time.Now()
	mustUnlock(t, m)
	var free time.Time
	if next {
		free = <-granted
	} else {
		require.ErrorIs(t, m.TryLock(), redlock.ErrTaken)
		for m.TryLock() != nil {
			time.Sleep(time.Millisecond)
		}
		free = time.Now()
		mustUnlock(t, m)
	}
	took, most := free.Sub(released), way
	if lost {
		most = timeout
	}
	assert.LessOrEqual(t, took, most+5*time.Millisecond)
	tasks.Wait()
}

// A minority of nodes where a user may not queue, or that do not know the commands, is no reason
// for anybody to wait longer. If they are a majority, everybody polls, in no order, and gets a fair
// share: a process that has just had the lock leaves it to the others now and then.
func TestNodesWithoutAQueueStopNobody(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for without := range n + 1 {
			t.Run(fmt.Sprintf("%d of %d", without, n), func(t *testing.T) {
				t.Parallel()
				queue := without <= n/2 && without < n
				last := 20 * time.Second // so that luck evens out
				if queue {
					last = larger(last / 8)
				}
				for try := 1; ; try++ {
					c := withoutAQueue(t, n, without, last)
					least := float64(slices.Min(c.turns)) / float64(slices.Max(c.turns))
					t.Logf("%d turns, fewest/most %.2f, longest wait %v", c.sum(), least, c.longest)
					if queue {
						assert.Less(t, c.longest, 8*2*(c.hold+time.Millisecond))
						assert.GreaterOrEqual(t, least, 0.9)
						return
					}
					assert.Greater(t, c.sum(), 1600, "of 3,500 where they queue")
					if least >= 0.2 && c.longest < 10*time.Second {
						return
					}
					// Who polls has bad luck once in 300 times, but not again and again.
					require.Less(t, try, 3, "a process starves")
				}
			})
		}
	}
}

// withoutAQueue has four processes contend for a time on n nodes, some of which have no queue.
func withoutAQueue(t *testing.T, n, without int, last time.Duration) *contention {
	c := &contention{processes: 4, waiters: 2, hold: 5 * time.Millisecond, last: last,
		fate: func(op sim.Op) sim.Fate {
			if op.Command == "stand" && op.Node < without {
				return sim.Fail(errors.New("NOPERM no permissions to run 'zadd'"))
			}
			return sim.Fate{}
		}}
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(n)
		c.run(t, nodes, 1)
		nodes.Close()
	})
	return c
}

// A client that knows no queue, such as Redsync's, and those who queue exclude each other. It is
// not served while others queue, and is when they have gone. Beside those who poll like it, it gets
// a fair share.
func TestAClientThatPollsBesideTheQueue(t *testing.T) {
	counts(t)
	for name, opts := range map[string][]redlock.Option{
		"queue": nil, "poll": {redlock.WithPolling()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(5)
				last := larger(30 * time.Second) // so that luck evens out
				if opts == nil {
					last /= 2
				}
				var inside atomic.Int64
				var alone atomic.Bool
				var tasks sync.WaitGroup
				early, late := 0, 0
				poll := redlock.New(nodes.Pools("polls")...)
				start := time.Now()
				tasks.Go(func() {
					for time.Since(start) < last*3/2 {
						m := poll.NewMutex("x")
						for m.TryLock() != nil {
							time.Sleep(50*time.Millisecond + rand.N(200*time.Millisecond))
						}
						assert.Equal(t, int64(1), inside.Add(1))
						time.Sleep(5 * time.Millisecond)
						inside.Add(-1)
						if alone.Load() {
							late++
						} else {
							early++
						}
						mustUnlock(t, m)
						time.Sleep(rand.N(20 * time.Millisecond)) // or it would always be the first
					}
				})
				time.Sleep(time.Second)
				c := contention{processes: 4, waiters: 1, hold: 5 * time.Millisecond,
					last: last, inside: &inside, opts: opts}
				c.run(t, nodes, 1)
				alone.Store(true)
				tasks.Wait()
				t.Logf("%d turns of four processes beside %d of the client, then %d", c.sum(),
					early, late)
				if opts == nil {
					assert.Greater(t, float64(c.sum()), 6000*last.Minutes())
				} else {
					assert.Greater(t, float64(c.sum()), 4000*last.Minutes())
					assert.Greater(t, float64(early), 100*last.Minutes()) // 190 to 380
				}
				assert.Greater(t, float64(late), 500*last.Minutes())
				require.NoError(t, poll.CloseContext(context.Background()))
				nodes.Close()
			})
		})
	}
}

// What a lock costs that nobody else wants: two commands a node, also while others are known to
// have queued for it before.
func TestALockThatNobodyElseWantsCostsTwoCommands(t *testing.T) {
	for _, n := range []int{1, 3, 5, 7} {
		bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for range 100 {
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				synctest.Wait()
				mustUnlock(t, m)
				synctest.Wait()
			}
			assert.Equal(t, 100*n, nodes.Count("set"))
			assert.Equal(t, 100*n, nodes.Count("release"))
			assert.Equal(t, 200*n, nodes.Count(""))
		})
	}
}

// A function of the caller's that panics while its waiter's turn has come leaves no place behind.
func TestAPanicLeavesNoPlaceInTheQueue(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		other := redlock.New(nodes.Pools("b")...)
		values := 0
		w := other.NewMutex("x", redlock.WithGenValueFunc(func() (string, error) {
			if values++; values > 1 {
				panic("no value")
			}
			return "v", nil
		}))
		var task sync.WaitGroup
		task.Go(func() { assert.Panics(t, func() { _ = w.Lock() }) })
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, slices.Repeat([]int{1}, 5), queued(nodes, "x"))
		mustUnlock(t, m)
		task.Wait()
		synctest.Wait()
		assert.Equal(t, make([]int, 5), queued(nodes, "x"))
		require.NoError(t, m.TryLock(), "nor is it reserved")
		mustUnlock(t, m)
		require.NoError(t, other.CloseContext(t.Context()))
	})
}

// A process that knows that others queue does not ask before it stands there. When it can hear
// nobody any more, it asks at once, and tells what prevents the lock.
func TestAProcessInACrowdAsksWhenItHearsNobody(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			require.NoError(t, m.Lock())
			synctest.Wait()
			other := redlock.New(nodes.Pools("b")...)
			var task sync.WaitGroup
			task.Go(func() {
				w := other.NewMutex("x")
				assert.NoError(t, w.Lock())
				synctest.Wait()
				mustUnlock(t, w)
			})
			time.Sleep(20 * time.Millisecond)
			mustUnlock(t, m) // hands it on
			task.Wait()
			for _, node := range nodes[:n/2+1] {
				node.Crash()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			err := m.LockContext(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, redlock.ErrNoQuorum)
			for _, node := range nodes[:n/2+1] {
				node.Restart(true)
			}
			require.NoError(t, other.CloseContext(t.Context()))
		}, redlock.WithRetryDelay(time.Second))
	}
}

// One node says that it is the waiter's turn after the others have answered that it is not. All
// messages are lost. The waiter does not sleep until it would ask again anyway.
func TestATurnThatIsToldLateIsNotSleptThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		pools := nodes.Pools("a")
		rl := redlock.New(pools...).With(redlock.WithRetryDelay(time.Hour),
			redlock.WithExpiry(48*time.Hour))
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		var granted time.Time
		var waiter sync.WaitGroup
		waiter.Go(func() {
			w := rl.NewMutex("x")
			assert.NoError(t, w.Lock())
			granted = time.Now()
			mustUnlock(t, w)
		})
		const every = 3 * time.Second // the waiter asks
		time.Sleep(10*every - time.Millisecond/2)
		plan(pools, func(op sim.Op) sim.Fate {
			switch {
			case op.Command == "message":
				return sim.Fate{ReplyLost: true}
			case op.Command == "stand" && op.Node == 2:
				return sim.Fate{Request: 2 * time.Millisecond}
			case op.Command == "release" && op.Node < 2:
				return sim.Fate{Request: time.Millisecond}
			}
			return sim.Fate{}
		})
		released := time.Now()
		mustUnlock(t, m)
		waiter.Wait()
		assert.Less(t, granted.Sub(released), 50*time.Millisecond)
		nodes.Close()
		require.NoError(t, rl.CloseContext(t.Context()))
	})
}

// lesson L106: where the lock is taken, nodes that fail cost nobody its place in the queue, as long
// as the others are a quorum. These waiters never ask again by themselves.
func TestFailingNodesCostNoPlaceInTheQueue(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes[3:] {
			n.Set(fenceOf("x"), "something else", 0)
		}
		opts := []redlock.Option{redlock.WithFencing(), redlock.WithRetryDelay(time.Hour),
			redlock.WithExpiry(time.Hour), redlock.WithNodeTimeout(time.Second)}
		holder := rl.NewMutex("x", opts...)
		require.NoError(t, holder.Lock())
		synctest.Wait()
		var all sync.WaitGroup
		var served []int
		var last time.Time
		for i := range 4 {
			other := redlock.New(nodes.Pools(fmt.Sprint("waiter ", i))...)
			m := other.NewMutex("x", opts...)
			all.Go(func() {
				assert.NoError(t, m.Lock())
				served, last = append(served, i), time.Now() // the lock guards them
				_, err := m.Unlock()
				assert.NoError(t, err)
				mustClose(t, other)
			})
			time.Sleep(time.Second)
			assert.Equal(t, i+1, queued(nodes, "x")[0])
		}
		began := time.Now()
		mustUnlock(t, holder)
		all.Wait()
		assert.Equal(t, []int{0, 1, 2, 3}, served)
		assert.Less(t, last.Sub(began), time.Second)
	})
}
