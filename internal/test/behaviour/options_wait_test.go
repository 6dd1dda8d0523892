package behaviour_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// occupy puts somebody else's key on all nodes.
func occupy(nodes sim.Nodes, ttl time.Duration) {
	for _, n := range nodes {
		n.Set("x", "somebody else's", ttl)
	}
}

// vacate deletes it, and announces nothing.
func vacate(nodes sim.Nodes) {
	for _, n := range nodes {
		n.Delete("x")
	}
}

// lesson L55: tries that are not made cost nothing, not even a call of the delay function,
// however many there are.
func TestTriesThatAreNeverMadeCostNothing(t *testing.T) {
	const lasts, delay = 200 * time.Millisecond, 20 * time.Millisecond
	for _, tries := range []int{1, 2, 32, 1e8, math.MaxInt, redlock.Unlimited} {
		for _, waiters := range []int{1, 2, 100, 1000} {
			t.Run(fmt.Sprintf("%d tries, %d waiters", tries, waiters), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					occupy(nodes, 0)
					var draws atomic.Int64
					rl = rl.With(redlock.WithTries(tries),
						redlock.WithRetryDelayFunc(func(int) time.Duration {
							draws.Add(1)
							return delay
						}))
					ctx, cancel := context.WithTimeout(t.Context(), lasts)
					defer cancel()
					start := time.Now()
					var all sync.WaitGroup
					for range waiters {
						all.Go(func() {
							err := rl.NewMutex("x").LockContext(ctx)
							assert.ErrorIs(t, err, redlock.ErrTaken)
							want := lasts
							if tries > 0 && tries < 10 {
								want = time.Duration(tries-1) * delay
							}
							assert.GreaterOrEqual(t, time.Since(start), want)
							assert.Less(t, time.Since(start), want+10*time.Millisecond)
						})
					}
					all.Wait()
					assert.LessOrEqual(t, draws.Load(), int64(waiters)*int64(lasts/delay+2))
				})
			})
		}
	}
}

// lesson L55: a last try that is due in the queue is made then, though its waiter comes to the
// head before.
func TestTheLastTryIsNotPutOffAtTheHead(t *testing.T) {
	const delay = 100 * time.Millisecond
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		occupy(nodes, 0)
		rl = rl.With(redlock.WithTries(2), redlock.WithRetryDelay(delay))
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				came := time.Now()
				assert.ErrorIs(t, rl.NewMutex("x").Lock(), redlock.ErrTaken)
				assert.Equal(t, delay, time.Since(came))
			})
			time.Sleep(30 * time.Millisecond)
		}
		all.Wait()
	})
}

// lesson L55: waiters in the queue wake together, and their delays do not add up for it.
func TestQueuedWaitersWakeTogether(t *testing.T) {
	const waiters, tries, delay = 20, 101, 23 * time.Millisecond
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		occupy(nodes, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			assert.ErrorIs(t, rl.NewMutex("x",
				redlock.WithTries(redlock.Unlimited)).LockContext(ctx), redlock.ErrTaken)
		})
		var mu sync.Mutex // guards woken
		woken := map[time.Time]bool{}
		opts := []redlock.Option{redlock.WithTries(tries),
			redlock.WithRetryDelayFunc(func(int) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				woken[time.Now()] = true
				return delay
			})}
		var queued sync.WaitGroup
		for range waiters {
			time.Sleep(time.Millisecond)
			queued.Go(func() {
				came := time.Now()
				assert.ErrorIs(t, rl.NewMutex("x", opts...).Lock(), redlock.ErrTaken)
				assert.Equal(t, (tries-1)*delay, time.Since(came))
			})
		}
		queued.Wait()
		assert.Less(t, len(woken), 300, "moments, of %d delays", waiters*tries)
		cancel()
		all.Wait()
	})
}

// lesson L55: Close ends the wait, too.
func TestCloseEndsAWaitOfAnyNumberOfTries(t *testing.T) {
	for _, tries := range []int{1e8, math.MaxInt, redlock.Unlimited} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			occupy(nodes, 0)
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					assert.ErrorIs(t, rl.NewMutex("x", redlock.WithTries(tries)).Lock(),
						redlock.ErrClosed)
				})
			}
			time.Sleep(time.Second)
			start := time.Now()
			require.NoError(t, rl.Close())
			all.Wait()
			assert.Less(t, time.Since(start), 10*time.Millisecond)
		})
	}
}

// lesson L56: sums of the longest delays do not overflow.
func TestTheLongestDelayIsWaitedFor(t *testing.T) {
	for _, tries := range []int{2, 3, 32, math.MaxInt, redlock.Unlimited} {
		for _, opts := range [][]redlock.Option{nil, {redlock.WithPolling()}} {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				rl = rl.With(redlock.WithExpiry(2*time.Hour), redlock.WithTries(tries),
					redlock.WithRetryDelay(math.MaxInt64)).With(opts...)
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				synctest.Wait()
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						w := rl.NewMutex("x")
						if assert.NoError(t, w.Lock()) {
							mustUnlock(t, w)
						}
					})
				}
				time.Sleep(time.Hour)
				released := time.Now()
				mustUnlock(t, m)
				all.Wait()
				assert.Less(t, time.Since(released), time.Second)
			})
		}
	}
}

// lesson L57: contenders for a lock on healthy nodes say that it is taken, with what is true of
// the nodes; and with a majority in trouble they say that.
func TestContendersSayWhatPreventsTheLock(t *testing.T) {
	const processes, patience = 8, 150 * time.Millisecond
	for name, tt := range map[string]struct {
		trouble func(*sim.Node)
		nodes   []int
		want    error
	}{
		"healthy":           {want: redlock.ErrTaken},
		"a minority down":   {(*sim.Node).Crash, []int{1, 4}, redlock.ErrTaken},
		"a majority down":   {(*sim.Node).Crash, []int{0, 1, 4}, redlock.ErrNoQuorum},
		"a majority frozen": {(*sim.Node).Freeze, []int{0, 1, 4}, redlock.ErrNoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(5)
				for _, i := range tt.nodes {
					tt.trouble(nodes[i])
				}
				start := time.Now()
				var mu sync.Mutex // guards what follows
				turns, failures := 0, 0
				var all sync.WaitGroup
				var redlocks []*redlock.Redlock
				for p := range processes {
					pools := nodes.Pools(fmt.Sprint(p))
					plan(pools, network(rand.New(rand.NewPCG(1, uint64(p))), nil))
					rl := redlock.New(pools...)
					redlocks = append(redlocks, rl)
					all.Go(func() {
						m := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited))
						for time.Since(start) < 20*time.Second {
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							err := m.LockContext(ctx)
							cancel()
							mu.Lock()
							if err == nil {
								turns++
							} else {
								failures++
								for _, other := range []error{redlock.ErrTaken,
									redlock.ErrNoQuorum} {
									assert.Equal(t, other == tt.want, errors.Is(err, other), err)
								}
								assert.ErrorIs(t, err, context.DeadlineExceeded)
								if tt.nodes == nil {
									assert.NotContains(t, err.Error(), "not sent",
										"nobody was asked")
								}
							}
							mu.Unlock()
							if err == nil {
								time.Sleep(30 * time.Millisecond)
								_, err := m.Unlock()
								assert.NoError(t, err)
							}
						}
					})
				}
				all.Wait()
				nodes.Close()
				t.Logf("%d turns, %d failures", turns, failures)
				assert.Greater(t, failures, 100)
				assert.Equal(t, tt.want == redlock.ErrTaken, turns > 0)
				for _, rl := range redlocks {
					require.NoError(t, rl.CloseContext(t.Context()))
				}
			})
		})
	}
}

// lesson L57, L162: the same on real nodes. With a majority down a client may need its time to find
// out.
func TestContendersSayWhatPreventsTheLockOnNodes(t *testing.T) {
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, 5)
			var redlocks []*redlock.Redlock
			for range 8 {
				var pools []pool.Pool
				for _, n := range nodes {
					pools = append(pools, newPool(t, n.Addr()))
				}
				redlocks = append(redlocks, redlock.New(pools...))
			}
			// contend locks and unlocks for a while and returns what went wrong. Each holds the
			// lock for as long as the others wait.
			contend := func(tries int, patience time.Duration,
				opts ...redlock.Option) (errs []error) {
				var mu sync.Mutex // guards errs
				var all sync.WaitGroup
				for _, rl := range redlocks {
					all.Go(func() {
						m := rl.NewMutex("x", append(opts, redlock.WithTries(redlock.Unlimited))...)
						for range tries {
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							err := m.LockContext(ctx)
							cancel()
							if err == nil {
								time.Sleep(patience)
								_, _ = m.Unlock()
								continue
							}
							mu.Lock()
							errs = append(errs, err)
							mu.Unlock()
						}
					})
				}
				all.Wait()
				return errs
			}
			errs := contend(4, 150*time.Millisecond, patient)
			refused := 0
			for _, err := range errs {
				assert.NotErrorIs(t, err, redlock.ErrNoQuorum)
				if errors.Is(err, redlock.ErrTaken) {
					refused++ // else the first connections took all of its time
				}
			}
			assert.Positive(t, refused, "not all eight can hold it while each waits")
			for _, n := range nodes[:3] {
				n.Kill()
			}
			eventually(t, "who contends says that there is no quorum", func() bool {
				errs := contend(2, 300*time.Millisecond) // a busy machine may take longer
				assert.Len(t, errs, 16)
				return !slices.ContainsFunc(errs, func(err error) bool {
					return !errors.Is(err, redlock.ErrNoQuorum)
				})
			})
			for _, rl := range redlocks {
				mustClose(t, rl)
			}
		})
	}
}

// lesson L57: what a vote that was split, or cut short, is called. There was no quorum only if
// too few nodes answered.
func TestWhatAVoteIsCalled(t *testing.T) {
	grant, refuse, fail, hang := sim.Fate{}, sim.Refuse(), sim.Fail(errOops), sim.Hang()
	for name, tt := range map[string]struct {
		fates []sim.Fate
		lasts time.Duration // of the context of a Lock; 0 for a TryLock
		want  error
		text  string
	}{
		"taken": {[]sim.Fate{refuse, refuse, refuse, refuse, refuse}, 0,
			redlock.ErrTaken, "not acquired: taken on "},
		"split, one silent": {[]sim.Fate{grant, grant, refuse, refuse, hang}, 0,
			redlock.ErrTaken, "taken on 2 of 5 nodes, granted by 2, 3 needed"},
		"split, one failed": {[]sim.Fate{grant, grant, refuse, refuse, fail}, 0,
			redlock.ErrTaken, "taken on 2 of 5 nodes, granted by 2, 3 needed"},
		"one refused, a minority down": {[]sim.Fate{fail, fail, refuse, grant, grant}, 0,
			redlock.ErrTaken, "taken on 1 of 5 nodes, granted by "},
		"one refused, a majority down": {[]sim.Fate{fail, fail, fail, refuse, grant}, 0,
			redlock.ErrNoQuorum, "no quorum: granted by"},
		"a majority down": {[]sim.Fate{fail, fail, fail, grant, grant}, 0,
			redlock.ErrNoQuorum, "no quorum: granted by"},
		"half of four taken": {[]sim.Fate{grant, grant, refuse, refuse}, 0,
			redlock.ErrTaken, "taken on 2 of 4 nodes"},
		"half of four down": {[]sim.Fate{grant, grant, fail, fail}, 0,
			redlock.ErrNoQuorum, "no quorum: granted by "},
		// An attempt that is not the last waits for no silent nodes once it was refused somewhere.
		"not waited for": {[]sim.Fate{grant, refuse, hang, hang, hang},
			50 * time.Millisecond, redlock.ErrTaken,
			"taken on 1 of 5 nodes, granted by 1, 3 needed"},
		"silent for long": {[]sim.Fate{grant, refuse, hang, hang, hang},
			150 * time.Millisecond, redlock.ErrNoQuorum,
			"no quorum: granted by 1 of 5 nodes, taken on 1, 3 needed"},
		"a silent minority": {[]sim.Fate{refuse, refuse, grant, hang, hang},
			150 * time.Millisecond, redlock.ErrTaken,
			"taken on 2 of 5 nodes, granted by 1, 3 needed"},
		"cut short at once": {[]sim.Fate{grant, grant, hang, hang, hang},
			50 * time.Millisecond, nil, "not acquired: context deadline exceeded"},
		"cut short by a silence": {[]sim.Fate{grant, grant, hang, hang, hang},
			150 * time.Millisecond, redlock.ErrNoQuorum,
			"no quorum: granted by 2 of 5 nodes, taken on 0, 3 needed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, len(tt.fates), func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for i, f := range tt.fates {
					if f.Answer != nil && f.Answer.Err == nil { // refuses whatever it is asked
						nodes[i].Set("x", "somebody else's", 0)
						continue
					}
					nodes[i].Always(f)
				}
				m := rl.NewMutex("x", redlock.WithRetryDelay(time.Hour))
				var err error
				if tt.lasts == 0 {
					err = m.TryLock()
				} else {
					ctx, cancel := context.WithTimeout(t.Context(), tt.lasts)
					defer cancel()
					err = m.LockContext(ctx)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
				for _, kind := range []error{redlock.ErrTaken, redlock.ErrNoQuorum} {
					assert.Equal(t, kind == tt.want, errors.Is(err, kind), err)
				}
				assert.ErrorContains(t, err, tt.text)
			})
		})
	}
}

// lesson L59: a waiter looks again when the keys of a dead holder have expired on a quorum of
// nodes, whichever nodes told it that before or after the attempt was decided, long before its
// retry delay is over.
func TestTheLockOfADeadHolderIsGrantedWhenItExpires(t *testing.T) {
	const left, delay = 100 * time.Millisecond, 700 * time.Millisecond
	trials := 0
	for n := 1; n <= 7; n++ {
		for seed := range larger(uint64(50)) {
			trials++
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				nodes := sim.NewNodes(n)
				pools := nodes.Pools("a")
				plan(pools, network(r, nil))
				rl := redlock.New(pools...)
				// The dead held it on a quorum at least.
				for _, i := range r.Perm(n)[:n/2+1+r.IntN(n-n/2)] {
					nodes[i].Set("x", "the dead's", left)
				}
				opts := []redlock.Option{redlock.WithRetryDelay(delay), redlock.WithTries(2)}
				if r.IntN(2) == 0 {
					opts = append(opts, redlock.WithPolling())
				}
				start := time.Now()
				m := rl.NewMutex("x", opts...)
				require.NoError(t, m.Lock())
				assert.GreaterOrEqual(t, time.Since(start), left)
				assert.Less(t, time.Since(start), left+30*time.Millisecond, "n = %d, seed %d", n,
					seed)
				mustUnlock(t, m)
				nodes.Close()
				require.NoError(t, rl.CloseContext(t.Context()))
			})
		}
	}
	t.Logf("%d trials", trials)
}

// lesson L59: the head's knowledge is its successor's, and a lock that is taken again is waited
// for again.
func TestTheNextHeadKnowsWhenTheKeysExpire(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		occupy(nodes, time.Second)
		rl = rl.With(redlock.WithRetryDelay(time.Hour), redlock.WithTries(redlock.Unlimited))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, rl.NewMutex("x").LockContext(ctx), context.Canceled) })
		time.Sleep(time.Millisecond)
		start := time.Now()
		all.Go(func() { assert.NoError(t, rl.NewMutex("x").Lock()) })
		time.Sleep(500 * time.Millisecond)
		cancel()
		all.Wait()
		assert.Less(t, time.Since(start), time.Second+30*time.Millisecond)
	})
}

// lesson L59: what a node told before the last attempt is out of date once that has asked it
// anew. A node that is silent since then may have a key. Waiters that took it for free asked
// again at once, and split one vote after another.
func TestANodeThatIsSilentIsNotTakenForFree(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 6, 7} {
		bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			occupy(nodes, time.Second)
			var all sync.WaitGroup
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			all.Go(func() {
				opts := []redlock.Option{redlock.WithRetryDelay(time.Hour),
					redlock.WithPolling()}
				assert.ErrorIs(t, rl.NewMutex("x", opts...).LockContext(ctx), redlock.ErrTaken)
			})
			time.Sleep(time.Second / 2)
			silent := (n - 1) / 2 // as many as a quorum can do without
			for _, node := range nodes[:silent] {
				node.Crash()
			}
			nodes[silent].Set("x", "somebody else's", time.Hour)
			all.Wait()
			assert.Equal(t, 2, nodes[n-1].Count("set"),
				"at once, and when the keys had expired on a quorum")
		})
	}
}

// deaths is how often a dead holder's lock is waited for.
var deaths = flag.Int("deaths", 1, "how often, with each client and number of servers, a lock is "+
	"waited for whose holder is dead")

// lesson L59: on real nodes. Only the bound of the retry delay is certain on a busy machine. With
// more deaths than one, 95 of 100 are granted within 30 ms of the keys' end.
func TestTheLockOfADeadHolderIsGrantedWhenItExpiresOnNodes(t *testing.T) {
	const most = 7
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, most)
			if _, ok := nodes[0].(*redistest.Mini); ok {
				t.Skip("the clocks of embedded nodes fall behind on a busy machine")
			}
			pools := make([]pool.Pool, most)
			for i, node := range nodes {
				pools[i] = newPool(t, node.Addr())
			}
			for n := 1; n <= most; n++ {
				rl := redlock.New(pools[:n]...).With(redlock.WithTimeoutFactor(0.5))
				waitForTheDead(t, nodes[:n], rl)
				mustClose(t, rl)
			}
		})
	}
}

// waitForTheDead lets a lock's holder die, and another wait for it, several times.
func waitForTheDead(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
	const left, late = 100 * time.Millisecond, 30 * time.Millisecond
	name := fmt.Sprint("x", len(nodes))
	m := rl.NewMutex(name, redlock.WithRetryDelay(time.Minute))
	inTime, worst := 0, time.Duration(0)
	for range *deaths {
		for _, node := range nodes {
			node.Must("SET", name, "the dead's", "PX", "100")
		}
		start := time.Now()
		require.NoError(t, m.Lock())
		took := time.Since(start)
		require.Less(t, took, 30*time.Second)
		mustUnlock(t, m)
		worst = max(worst, took)
		if took <= left+late {
			inTime++
		}
	}
	t.Logf("%d nodes: %d of %d within %v, the longest %v", len(nodes), inTime, *deaths,
		left+late, worst)
	if *deaths > 1 { // else a busy machine is no reason to fail
		assert.GreaterOrEqual(t, inTime, *deaths*95/100)
	}
}

// flapping is a node whose Pub/Sub connection is lost and made again all the time.
type flapping struct {
	*sim.Link
	every time.Duration
}

func (f flapping) Subscribe(context.Context, string) (pool.Subscription, error) {
	s := &flaps{messages: make(chan string, 1), tick: time.NewTicker(f.every),
		done: make(chan struct{})}
	go func() {
		for {
			select {
			case <-s.tick.C:
				select {
				case s.messages <- "":
				default:
				}
			case <-s.done:
				return
			}
		}
	}()
	return s, nil
}

type flaps struct {
	messages chan string
	tick     *time.Ticker
	done     chan struct{}
}

func (s *flaps) Messages() <-chan string { return s.messages }

func (s *flaps) Close() error {
	s.tick.Stop()
	close(s.done)
	return nil
}

// lesson L60: a connection that is lost again and again costs no more than an attempt for each
// retry delay, and prolongs no wait.
func TestAFlappingConnectionCostsLittle(t *testing.T) {
	const delay = 100 * time.Millisecond
	for tries, lasts := range map[int]time.Duration{3: 2 * delay, 31: 30 * delay,
		redlock.Unlimited: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			nodes := sim.NewNodes(3)
			occupy(nodes, 0)
			pools := nodes.Pools("a")
			pools[0] = flapping{pools[0].(*sim.Link), time.Millisecond}
			rl := redlock.New(pools...)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			err := rl.NewMutex("x", redlock.WithTries(tries),
				redlock.WithRetryDelay(delay)).LockContext(ctx)
			assert.ErrorIs(t, err, redlock.ErrTaken)
			// A timer that may be due at once is set a nanosecond ahead.
			assert.InDelta(t, lasts, time.Since(start), float64(time.Microsecond))
			synctest.Wait()
			due := int(lasts/delay) + 1
			assert.LessOrEqual(t, nodes[0].Count("set"), 2*due)
			nodes.Close()
			require.NoError(t, rl.CloseContext(t.Context()))
		})
	}
}

// lesson L60: an empty message is worth an attempt, though: the release may be what was missed.
func TestAMissedReleaseIsMadeUpFor(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		occupy(nodes, 0)
		var all sync.WaitGroup
		all.Go(func() {
			assert.NoError(t,
				rl.NewMutex("x", redlock.WithRetryDelay(10*time.Minute)).Lock())
		})
		time.Sleep(15 * time.Minute) // so that it is not due
		vacate(nodes)
		start := time.Now()
		nodes[0].Crash()
		nodes[0].Restart(true)
		all.Wait()
		assert.Less(t, time.Since(start), time.Second)
	})
}

// lesson L61: whatever the options of those before it, a waiter's own hold for it. One whose node
// timeout is too short costs it a node timeout if it is the first in the nodes' queue, as one of
// another process would.
func TestEachWaitersOwnOptionsHold(t *testing.T) {
	poller := []redlock.Option{redlock.WithPolling(),
		redlock.WithRetryDelay(10 * time.Minute)}
	hasty := []redlock.Option{redlock.WithNodeTimeout(3 * time.Millisecond),
		redlock.WithRetryDelay(10 * time.Minute)}
	patientPoller := []redlock.Option{redlock.WithPolling(),
		redlock.WithRetryDelay(100 * time.Millisecond)}
	for name, tt := range map[string]struct {
		first, second []redlock.Option
		leaves        bool          // the first, before the lock is released
		announced     bool          // the release
		within        time.Duration // the second has the lock
	}{
		"a default behind a poller": {first: poller, announced: true,
			within: 50 * time.Millisecond},
		"a default behind a poller, silence": {first: poller,
			within: 2*redlock.DefaultMaxRetryDelay + 50*time.Millisecond},
		"a poller behind a poller": {first: poller, second: patientPoller,
			within: 250 * time.Millisecond},
		"behind one who cannot reach nodes": {first: hasty,
			second: []redlock.Option{redlock.WithRetryDelay(10 * time.Minute)}, announced: true,
			within: redlock.DefaultExpiry/20 + 50*time.Millisecond},
		"after one who cannot reach nodes": {first: hasty,
			second: []redlock.Option{redlock.WithRetryDelay(10 * time.Minute)}, leaves: true,
			announced: true, within: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(3)
				for _, n := range nodes {
					n.Always(sim.Slow(5 * time.Millisecond))
				}
				other, rl := redlock.New(nodes.Pools("other")...),
					redlock.New(nodes.Pools("a")...).With(redlock.WithTries(redlock.Unlimited))
				m := other.NewMutex("x", redlock.WithExpiry(time.Hour))
				require.NoError(t, m.Lock())
				time.Sleep(time.Second)
				var all sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				all.Go(func() {
					first := rl.NewMutex("x", append(tt.first, redlock.WithExpiry(time.Minute))...)
					if first.LockContext(ctx) == nil {
						mustUnlock(t, first)
					}
				})
				time.Sleep(100 * time.Millisecond)
				var got time.Time
				all.Go(func() {
					second := rl.NewMutex("x",
						append([]redlock.Option{redlock.WithTries(redlock.Unlimited)},
							tt.second...)...)
					assert.NoError(t, second.Lock())
					got = time.Now()
					cancel()
					mustUnlock(t, second)
				})
				time.Sleep(time.Second)
				if tt.leaves {
					cancel()
					time.Sleep(100 * time.Millisecond)
				}
				released := time.Now()
				if tt.announced {
					mustUnlock(t, m)
				} else {
					vacate(nodes)
				}
				all.Wait()
				assert.LessOrEqual(t, got.Sub(released), tt.within)
				nodes.Close()
				for _, rl := range []*redlock.Redlock{rl, other} {
					require.NoError(t, rl.CloseContext(t.Context()))
				}
			})
		})
	}
}

// lesson L64: a function of the caller's that panics, or ends its goroutine, leaves nothing
// behind that later waiters meet.
func TestAPanicOfTheValueFuncLeavesTheNameAsItWas(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("oops") },
		"Goexit": runtime.Goexit} {
		for _, queued := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " queued=", queued), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					rl = rl.With(redlock.WithRetryDelay(time.Hour), redlock.WithPolling(),
						redlock.WithTries(redlock.Unlimited))
					if queued {
						occupy(nodes, time.Minute)
					}
					var all sync.WaitGroup
					calls := 0
					all.Go(func() {
						defer func() { _ = recover() }()
						_ = rl.NewMutex("x", redlock.WithGenValueFunc(func() (string, error) {
							if calls++; calls > 1 || !queued {
								end()
							}
							return "", nil
						})).Lock()
					})
					time.Sleep(time.Second)
					if queued { // behind the one that is about to panic
						all.Go(func() { assert.NoError(t, rl.NewMutex("x").Lock()) })
						start := time.Now()
						all.Wait()
						assert.LessOrEqual(t, time.Since(start), time.Minute)
						return
					}
					all.Wait()
					start := time.Now()
					m := rl.NewMutex("x")
					require.NoError(t, m.Lock())
					assert.Zero(t, time.Since(start))
					mustUnlock(t, m)
				})
			})
		}
	}
}

// lesson L66: a key that expires in more than 292 years is as good as one that never does.
func TestKeysThatExpireInCenturies(t *testing.T) {
	for _, ms := range []int64{9_223_372_036_854, 9_223_372_036_855, 1 << 53, 1 << 62,
		math.MaxInt64 - 2} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			occupy(nodes, 0)
			for _, n := range nodes {
				for range 5 {
					n.Next("release", sim.Reply(-2-ms))
				}
			}
			start := time.Now()
			require.ErrorIs(t, rl.NewMutex("x", redlock.WithTries(5),
				redlock.WithRetryDelay(time.Second)).Lock(), redlock.ErrTaken)
			assert.Equal(t, 4*time.Second, time.Since(start))
		})
		in, err := redlock.New(centuries{ms: ms}).Inspect(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, redlock.VerdictHeld, in.Verdict)
		assert.Greater(t, in.TTL, time.Duration(math.MaxInt64-int64(time.Second)))
	}
}

// centuries is a node whose keys expire late.
type centuries struct {
	pool.Pool
	ms int64
}

func (c centuries) Eval(context.Context, *pool.Script, []string, ...any) (any, error) {
	return []any{"value", c.ms}, nil
}

// lesson L96: a head whose context ends as a release wakes it, or while it leaves the lock to
// others, lets its successor ask.
func TestAHeadThatIsCancelledAsItIsWokenPassesThatOn(t *testing.T) {
	for _, opts := range [][]redlock.Option{nil, {redlock.WithPolling()}} {
		cancelled := 0
		for at := time.Duration(0); at < 4*time.Millisecond; at += 20 * time.Microsecond {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(3)
				for _, n := range nodes {
					n.Always(sim.Slow(500 * time.Microsecond))
				}
				rl := redlock.New(nodes.Pools("a")...).With(redlock.WithExpiry(24*time.Hour),
					redlock.WithNodeTimeout(time.Second),
					redlock.WithRetryDelay(time.Hour),
					redlock.WithTries(redlock.Unlimited)).With(opts...)
				for _, n := range nodes { // others may want the lock
					listen(t, n, "*")
				}
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				mustUnlock(t, m)
				require.NoError(t, m.Lock())
				time.Sleep(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() {
					head := rl.NewMutex("x")
					if head.LockContext(ctx) != nil {
						cancelled++
						return
					}
					mustUnlock(t, head)
				})
				time.Sleep(time.Second)
				var got time.Time
				all.Go(func() {
					next := rl.NewMutex("x")
					assert.NoError(t, next.Lock())
					got = time.Now()
					mustUnlock(t, next)
				})
				time.Sleep(time.Second)
				released := time.Now()
				time.AfterFunc(at, cancel)
				mustUnlock(t, m)
				all.Wait()
				assert.Less(t, got.Sub(released), time.Second, "cancelled at %v", at)
				nodes.Close()
				require.NoError(t, rl.CloseContext(t.Context()))
			})
		}
		assert.Greater(t, cancelled, 10)
	}
}

// lesson L100: the last try of a waiter in the queue is a real one.
func TestTheLastTryInTheQueueCanWin(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		occupy(nodes, 0)
		rl = rl.With(redlock.WithPolling())
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			err := rl.NewMutex("x", redlock.WithRetryDelay(time.Hour),
				redlock.WithTries(redlock.Unlimited)).LockContext(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
		time.Sleep(time.Second)
		vacate(nodes)
		start := time.Now()
		m := rl.NewMutex("x", redlock.WithRetryDelay(time.Second), redlock.WithTries(2))
		require.NoError(t, m.Lock())
		assert.Equal(t, time.Second, time.Since(start))
		cancel()
		all.Wait()
		mustUnlock(t, m)
	})
}

// lesson L78: how long a Lock with the default options waits, as its comment says.
func TestHowLongALockWaitsByDefault(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare         func(sim.Nodes)
		usually, atMost time.Duration
		want            error
	}{
		"taken": {func(nodes sim.Nodes) { occupy(nodes, 0) }, 5 * time.Second,
			31 * redlock.DefaultMaxRetryDelay, redlock.ErrTaken},
		"majority down": {func(nodes sim.Nodes) { nodes[0].Crash(); nodes[1].Crash() },
			5 * time.Second, 31 * redlock.DefaultMaxRetryDelay, redlock.ErrNoQuorum},
		"majority silent": {func(nodes sim.Nodes) { all(nodes[:2], sim.Hang()) },
			18 * time.Second, 21 * time.Second, redlock.ErrNoQuorum},
		"taken, minority silent": {func(nodes sim.Nodes) {
			occupy(nodes,
				0)
			nodes[1].Always(sim.Hang())
		},
			5 * time.Second, 31*redlock.DefaultMaxRetryDelay + time.Second, redlock.ErrTaken},
	} {
		t.Run(name, func(t *testing.T) {
			const trials = 50
			var sum time.Duration // of those who wait alone
			var line atomic.Int64 // of those who wait with others
			for range trials {
				for _, waiters := range []int{1, 3} {
					synctest.Test(t, func(t *testing.T) {
						nodes := sim.NewNodes(3)
						tt.prepare(nodes)
						rl := redlock.New(nodes.Pools("a")...)
						var all sync.WaitGroup
						for range waiters {
							all.Go(func() {
								start := time.Now()
								assert.ErrorIs(t, rl.NewMutex("x").Lock(), tt.want)
								assert.LessOrEqual(t, time.Since(start), tt.atMost)
								if waiters == 1 {
									sum += time.Since(start)
								} else {
									line.Add(int64(time.Since(start)))
								}
							})
							time.Sleep(time.Millisecond)
						}
						all.Wait()
						nodes.Close()
						require.NoError(t, rl.CloseContext(t.Context()))
					})
				}
			}
			t.Logf("%v on average", sum/trials)
			assert.Greater(t, float64(line.Load())/(3*trials), 0.65*float64(tt.usually),
				"nobody is served worse in the line")
			assert.InDelta(t, tt.usually.Seconds(), (sum / trials).Seconds(), 0.8)
		})
	}
}

// lesson L59: a node that says again and again that its key is about to expire is no reason for a
// busy loop.
func TestKeysThatAreAlwaysAboutToExpireCostLittle(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		occupy(nodes, 0)
		for _, n := range nodes {
			for range 1000 {
				n.Next("release", sim.Reply(int64(-2)))
			}
		}
		const tries, delay = 11, 100 * time.Millisecond
		start := time.Now()
		require.ErrorIs(t, rl.NewMutex("x", redlock.WithTries(tries),
			redlock.WithRetryDelay(delay)).Lock(), redlock.ErrTaken)
		assert.Equal(t, (tries-1)*delay, time.Since(start))
		assert.LessOrEqual(t, nodes[0].Count("set"), 4*tries+1)
	})
}

// lesson L59: the refusal of the node asked first tells when to look again.
func TestTheFirstNodeTellsWhenTheKeysExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		for _, n := range nodes {
			n.Always(sim.Slow(4 * time.Millisecond))
		}
		pools := nodes.Pools("a")
		// Announcements are late.
		plan(pools, func(sim.Op) sim.Fate { return sim.Fate{Reply: 5 * time.Millisecond} })
		other, rl := redlock.New(nodes.Pools("other")...), redlock.New(pools...)
		m := other.NewMutex("x")
		require.NoError(t, m.Lock())
		time.Sleep(100 * time.Millisecond)
		var all sync.WaitGroup
		all.Go(func() {
			assert.NoError(t,
				rl.NewMutex("x", redlock.WithRetryDelay(time.Hour)).Lock())
		})
		time.Sleep(time.Second)
		mustUnlock(t, m)
		occupy(nodes, 300*time.Millisecond) // before anybody else can ask
		start := time.Now()
		all.Wait()
		assert.Less(t, time.Since(start), 350*time.Millisecond)
		nodes.Close()
		for _, rl := range []*redlock.Redlock{rl, other} {
			require.NoError(t, rl.CloseContext(t.Context()))
		}
	})
}

// Who joined the line because somebody was asking is told if that came to nothing.
func TestAnAttemptThatIsCutShortLeavesNobodyAsleep(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Always(sim.Slow(10 * time.Millisecond))
		}
		rl = rl.With(redlock.WithPolling(), redlock.WithRetryDelay(time.Hour),
			redlock.WithExpiry(24*time.Hour), redlock.WithNodeTimeout(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() { assert.Error(t, rl.NewMutex("x").LockContext(ctx)) })
		time.Sleep(time.Millisecond)
		start := time.Now()
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		assert.Less(t, time.Since(start), time.Second)
		mustUnlock(t, m)
		all.Wait()
	})
}
