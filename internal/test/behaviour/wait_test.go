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
	"github.com/redlock-go/redlock/pool"
)

// network is a plan with random delays, in which messages meet the given fate.
func network(r *rand.Rand, message func(f *sim.Fate)) sim.Plan {
	var mu sync.Mutex // guards r
	return func(op sim.Op) sim.Fate {
		mu.Lock()
		defer mu.Unlock()
		f := sim.Fate{
			Request: between(r, 50*time.Microsecond, 300*time.Microsecond),
			Reply:   between(r, 50*time.Microsecond, 300*time.Microsecond),
		}
		if op.Command == "message" && message != nil {
			message(&f)
		}
		return f
	}
}

// contention is some processes with some waiters each, for one lock.
type contention struct {
	processes, waiters int
	hold, last         time.Duration
	opts               []redlock.Option
	message            func(f *sim.Fate) // what becomes of announcements
	fate               sim.Plan          // of other commands, or nil for delays alone
	inside             *atomic.Int64     // who has the lock, if there are others
	mute               int               // nodes that nobody can subscribe to

	turns   []int // of each waiter
	longest time.Duration
}

// run lets everybody lock, hold and unlock again and again, and then, within a minute, once more.
func (c *contention) run(t *testing.T, nodes sim.Nodes, seed uint64) {
	t.Helper()
	start := time.Now()
	c.turns, c.longest = make([]int, c.processes*c.waiters), 0
	waits := make([]time.Duration, len(c.turns))
	var tasks sync.WaitGroup
	inside := c.inside
	if inside == nil {
		inside = &atomic.Int64{}
	}
	var all []*redlock.Redlock
	for p := range c.processes {
		pools := nodes.Pools(fmt.Sprint("p", p))
		delays := network(rand.New(rand.NewPCG(seed, uint64(p))), c.message)
		plan(pools, func(op sim.Op) sim.Fate {
			f := delays(op)
			if c.fate != nil {
				own := c.fate(op)
				f.Skip, f.Answer = own.Skip, own.Answer
			}
			return f
		})
		for i := range c.mute {
			pools[i] = lonely{pools[i]}
		}
		rl := redlock.New(pools...).With(redlock.WithTries(redlock.Unlimited)).With(c.opts...)
		all = append(all, rl)
		for w := range c.waiters {
			i := p*c.waiters + w
			tasks.Go(func() {
				m := rl.NewMutex("x")
				ctx, cancel := context.WithDeadline(t.Context(), start.Add(c.last+time.Minute))
				defer cancel()
				for once := true; once || time.Since(start) < c.last; once = false {
					asked := time.Now()
					if !assert.NoError(t, m.LockContext(ctx), "seed %d: everybody gets a turn",
						seed) {
						return
					}
					waits[i] = max(waits[i], time.Since(asked))
					assert.Equal(t, int64(1), inside.Add(1))
					time.Sleep(c.hold)
					inside.Add(-1)
					_, err := m.Unlock()
					assert.NoError(t, err)
					c.turns[i]++
				}
			})
		}
	}
	tasks.Wait()
	c.longest = slices.Max(waits)
	for _, rl := range all {
		require.NoError(t, rl.CloseContext(context.Background()))
	}
}

// lonely is a node that cannot be subscribed to.
type lonely struct{ pool.Pool }

func (lonely) Subscribe(context.Context, string) (pool.Subscription, error) {
	return nil, errors.New("NOPERM no permissions to access a channel")
}

func (c *contention) sum() (n int) {
	for _, turns := range c.turns {
		n += turns
	}
	return n
}

// lesson L51, L54: waiting costs no more commands an acquisition than an uncontended one with a
// few losers, whatever the number of waiters, and turns are spread evenly.
func TestContentionIsCheapAndFair(t *testing.T) {
	for _, waiters := range []int{4, 16} {
		synctest.Test(t, func(t *testing.T) {
			nodes := sim.NewNodes(5)
			c := contention{processes: 4, waiters: waiters, hold: 10 * time.Millisecond,
				last: time.Duration(waiters) * time.Second / 2}
			c.run(t, nodes, 1)
			turns := c.sum()
			// Two commands a node and its announcement.
			each := float64(nodes.Count("")+turns*5) / float64(turns)
			t.Logf("%d waiters: %d turns, %d to %d each, %.1f commands a turn, longest wait %v",
				4*waiters, turns, slices.Min(c.turns), slices.Max(c.turns), each, c.longest)
			assert.LessOrEqual(t, each, 10*5.0)
			assert.GreaterOrEqual(t, float64(slices.Min(c.turns))/float64(slices.Max(c.turns)), 0.5)
			assert.LessOrEqual(t, c.longest, 2*time.Duration(4*waiters)*(c.hold+time.Millisecond))
			assert.GreaterOrEqual(t, float64(turns), 0.85*float64(c.last/(c.hold+time.Millisecond)))
			nodes.Close()
		})
	}
}

// lesson L50: nothing rests on announcements. With all of them lost everybody gets a turn.
func TestEverybodyGetsATurnWithoutAnyAnnouncement(t *testing.T) {
	var mu sync.Mutex // guards longest
	var longest time.Duration
	beside(t, func(t *testing.T, shard, shards uint64) {
		for seed := shard; seed < larger(uint64(300)); seed += shards {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(3 + 2*int(seed%2))
				c := contention{processes: 2 + int(seed%3), waiters: 1 + int(seed/3%2),
					hold:    5 * time.Millisecond,
					message: func(f *sim.Fate) { f.ReplyLost = true }}
				c.run(t, nodes, seed)
				assert.Equal(t, c.processes*c.waiters, c.sum())
				mu.Lock()
				longest = max(longest, c.longest)
				mu.Unlock()
				nodes.Close()
			})
		}
	})
	t.Logf("longest wait %v", longest)
	// All come at once, and each turn frees the lock for an unlucky one's delay at most once
	// before somebody takes it.
	assert.Less(t, longest, 8*(redlock.DefaultMaxRetryDelay+10*time.Millisecond))
}

// The bound that the comment of line states, with nodes that crash and come back, votes that
// split, holders that die and waiters that give up, and without announcements.
func TestNobodyWaitsLongerThanTheBound(t *testing.T) {
	const hold, expiry = 5 * time.Millisecond, time.Second
	var mu sync.Mutex   // guards longest
	var longest float64 // part of the bound
	for seed := range larger(uint64(100)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 4))
			nodes := sim.NewNodes(5)
			processes, waiters := 2+r.IntN(3), 1+r.IntN(3)
			const nodeTimeout, delay = expiry / 20, 100 * time.Millisecond
			dead := r.IntN(3)
			bound := time.Duration(processes*waiters)*(hold+delay+2*nodeTimeout) +
				time.Duration(dead+1)*expiry
			lasts := between(r, 0, time.Second)
			trouble := time.AfterFunc(between(r, 0, 100*time.Millisecond), func() {
				nodes[0].Crash()
				nodes[1].Freeze()
				time.AfterFunc(lasts, func() { nodes[0].Restart(true); nodes[1].Thaw() })
			})
			var tasks sync.WaitGroup
			var all []*redlock.Redlock
			for p := range processes {
				pools := nodes.Pools(fmt.Sprint("p", p))
				plan(pools, network(rand.New(rand.NewPCG(seed, uint64(10+p))),
					func(f *sim.Fate) { f.ReplyLost = true }))
				rl := redlock.New(pools...).With(redlock.WithTries(redlock.Unlimited),
					redlock.WithExpiry(expiry),
					redlock.WithRetryDelayFunc(redlock.UniformDelay(delay/5, delay)))
				all = append(all, rl)
				for w := range waiters {
					dies, gives, patience := w == 0 && p < dead, r.IntN(5) == 0,
						between(r, 0, time.Second)
					ctx, cancel := context.WithTimeout(context.Background(), bound)
					if gives {
						ctx, cancel = context.WithTimeout(context.Background(), patience)
					}
					tasks.Go(func() {
						defer cancel()
						asked := time.Now()
						m := rl.NewMutex("x")
						if err := m.LockContext(ctx); err != nil {
							assert.True(t, gives, "seed %d: %v", seed, err)
							return
						}
						mu.Lock()
						longest = max(longest, float64(time.Since(asked))/float64(bound))
						mu.Unlock()
						if !dies {
							time.Sleep(hold)
							_, _ = m.Unlock()
						}
					})
				}
			}
			tasks.Wait()
			trouble.Stop()
			time.Sleep(2 * expiry)
			nodes.Close()
			for _, rl := range all {
				require.NoError(t, rl.CloseContext(context.Background()))
			}
		})
	}
	t.Logf("longest wait: %.2f of the bound", longest)
}

// A message twice, or late, or from nobody, is worth an attempt and no more.
func TestStrangeAnnouncementsDoNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, message := range map[string]func(*sim.Fate){
			"late":      func(f *sim.Fate) { f.Reply += 30 * time.Millisecond },
			"reordered": func(f *sim.Fate) { f.Reply += rand.N(30 * time.Millisecond) },
			"some lost": func(f *sim.Fate) { f.ReplyLost = rand.N(2) == 0 },
		} {
			nodes := sim.NewNodes(5)
			c := contention{processes: 3, waiters: 3, hold: 10 * time.Millisecond,
				last: 10 * time.Second, message: message}
			c.run(t, nodes, 7)
			each := float64(nodes.Count("")) / float64(c.sum())
			t.Logf("%s: %d turns, %.1f commands a turn, longest wait %v", name, c.sum(), each,
				c.longest)
			assert.LessOrEqual(t, each, 10*5.0, name)
			assert.Less(t, c.longest, 9*(redlock.DefaultMaxRetryDelay+c.hold), name)
			nodes.Close()
		}
	})
}

// poor hides all of a pool but what every pool has.
type poor struct{ pool.Pool }

func TestPoolsThatCannotSubscribeDegradeToTheDelay(t *testing.T) {
	for _, able := range []int{0, 2, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			const delay = 100 * time.Millisecond
			nodes := sim.NewNodes(5)
			pools := nodes.Pools("b")
			for i := range pools[able:] {
				pools[able+i] = poor{pools[able+i]}
			}
			a, b := redlock.New(nodes.Pools("a")...),
				redlock.New(pools...).With(redlock.WithRetryDelay(delay))
			m := a.NewMutex("x")
			require.NoError(t, m.Lock())
			synctest.Wait()
			var granted time.Time
			var task sync.WaitGroup
			task.Go(func() { assert.NoError(t, b.NewMutex("x").Lock()); granted = time.Now() })
			time.Sleep(delay*3/2 + time.Millisecond)
			mustUnlock(t, m)
			released := time.Now()
			task.Wait()
			if able >= 3 {
				assert.Less(t, granted.Sub(released), 2*time.Millisecond)
			} else {
				assert.LessOrEqual(t, granted.Sub(released), delay)
				assert.Greater(t, granted.Sub(released), 2*time.Millisecond)
			}
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		})
	}
}

func TestWaiterIsWokenByTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		a := redlock.New(nodes.Pools("a")...)
		b := redlock.New(nodes.Pools("b")...).With(redlock.WithRetryDelay(time.Hour),
			redlock.WithTries(redlock.Unlimited), redlock.WithNodeTimeout(6*time.Minute))
		m := a.NewMutex("x", redlock.WithExpiry(2*time.Hour))
		require.NoError(t, m.Lock())
		synctest.Wait() // until all five nodes have it
		const waiters = 1000
		var tasks sync.WaitGroup
		for range waiters {
			tasks.Go(func() {
				w := b.NewMutex("x", redlock.WithExpiry(2*time.Hour))
				assert.NoError(t, w.Lock())
				mustUnlock(t, w)
			})
		}
		time.Sleep(time.Second)
		// Each asked once before it joined the line, or joined it at once; the first stands in
		// the queue after subscribing.
		before := nodes.Count("")
		assert.LessOrEqual(t, nodes.Count("subscribe"), 5)

		// While nothing is announced, a thousand waiters cost what one does: it keeps its place.
		time.Sleep(50 * time.Minute)
		assert.LessOrEqual(t, nodes.Count("")-before, 5*int(50*time.Minute/(3*time.Second)))
		before = nodes.Count("")

		mustUnlock(t, m)
		released := time.Now()
		tasks.Wait()
		assert.Less(t, time.Since(released), waiters*2*time.Millisecond)
		synctest.Wait()
		assert.LessOrEqual(t, nodes.Count("")-before, 5+waiters*3*5,
			"commands a turn do not grow with the number of waiters")
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

// lesson L51: while the lock is held for long, each process asks once per delay.
func TestWaitingIsNoBusyLoop(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"announcements": nil, "polling": {redlock.WithPolling()},
	} {
		bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			mustHold(t, m) // extended for ever: its expiry is always near
			other := redlock.New(nodes.Pools("b")...).With(
				redlock.WithRetryDelay(100*time.Millisecond),
				redlock.WithTries(redlock.Unlimited)).With(opts...)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
			defer cancel()
			before := nodes.Count("")
			var tasks sync.WaitGroup
			for range 8 {
				tasks.Go(func() {
					err := other.NewMutex("x").LockContext(ctx)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.ErrorIs(t, err, redlock.ErrTaken, "says what it waited for")
				})
			}
			tasks.Wait()
			extensions := nodes.Count("extend")
			asked := nodes.Count("") - before - extensions
			assert.LessOrEqual(t, asked, (100*10+8+2)*2*5+5, name)
			each := 2 * 3 // a quorum of refusals is enough, and each attempt is released
			if opts == nil {
				each = 3 // one that stands asks once
			}
			assert.GreaterOrEqual(t, asked, 900*each, name)
			require.NoError(t, other.Close())
			mustUnlock(t, m)
		})
	}
}

// The holder's process ends and releases nothing: the next is granted the lock within the expiry
// and one delay.
func TestTheLockOfADeadHolderIsGrantedWithinExpiryAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 3))
			nodes := sim.NewNodes(5)
			pools := nodes.Pools("dead")
			var dead atomic.Bool
			plan(pools, func(sim.Op) sim.Fate { return sim.Fate{Lost: dead.Load()} })
			victim := redlock.New(pools...)
			m := victim.NewMutex("x")
			_, err := m.Hold(t.Context())
			require.NoError(t, err)
			rl := redlock.New(nodes.Pools("next")...)
			granted := make(chan time.Time, 1)
			time.Sleep(between(r, 0, 10*time.Second))
			go func() {
				n := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited))
				assert.NoError(t, n.Lock())
				granted <- time.Now()
				mustUnlock(t, n)
			}()
			time.Sleep(between(r, 0, 10*time.Second))
			dead.Store(true)
			died := time.Now()
			assert.LessOrEqual(t, (<-granted).Sub(died),
				redlock.DefaultExpiry+redlock.DefaultMaxRetryDelay)
			synctest.Wait()
			nodes.Close()
			_, _ = m.Unlock()
			_ = victim.Close()
			_ = rl.Close()
		}
	})
}

// lesson L47: whoever of those in the line gives up, does so at once, and the others keep their
// order.
func TestGivingUpAnywhereInTheLine(t *testing.T) {
	const waiters = 5
	for _, opts := range [][]redlock.Option{nil, {redlock.WithPolling()}} {
		for quitter := range waiters {
			bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				synctest.Wait()
				var order []int
				var tasks sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				for i := range waiters {
					tasks.Go(func() {
						mine := t.Context()
						if i == quitter {
							mine = ctx
						}
						w := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited))
						err := w.LockContext(mine)
						if i == quitter {
							assert.ErrorIs(t, err, context.Canceled)
							return
						}
						assert.NoError(t, err)
						order = append(order, i) // the lock guards it
						mustUnlock(t, w)
					})
					time.Sleep(time.Millisecond)
				}
				cancel()
				synctest.Wait()
				time.Sleep(time.Second)
				mustUnlock(t, m)
				tasks.Wait()
				assert.Len(t, order, waiters-1)
				assert.True(t, slices.IsSorted(order), "%v", order)
			}, opts...)
		}
	}
}

// A head whose nodes do not answer, or that waits for long, keeps nobody else beyond their own
// tries, and TryLock asks the nodes whoever waits.
func TestTheHeadOfTheLineBlocksNobody(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		mustHold(t, m)
		ctx, cancel := context.WithCancel(t.Context())
		var head sync.WaitGroup
		head.Go(func() {
			err := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited),
				redlock.WithRetryDelay(time.Hour)).LockContext(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
		time.Sleep(time.Second)

		start := time.Now()
		require.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrTaken)
		assert.Less(t, time.Since(start), 50*time.Millisecond)

		start = time.Now()
		require.ErrorIs(t, rl.NewMutex("x", redlock.WithTries(5),
			redlock.WithRetryDelay(100*time.Millisecond)).Lock(), redlock.ErrTaken)
		assert.Equal(t, 400*time.Millisecond, time.Since(start).Round(50*time.Millisecond),
			"five tries, four delays")

		cancel() // before the release, which would have the head ask again
		head.Wait()
		synctest.Wait() // the nodes know that the head has left
		mustUnlock(t, m)
		require.NoError(t, rl.NewMutex("x").TryLock())
	})
}

// lesson L52: bounded tries say that there is no quorum when they are used up; unlimited ones
// when the context ends, also for those who only queued.
func TestWaitersSayThatThereIsNoQuorum(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes[:3] {
			n.Crash()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var tasks sync.WaitGroup
		for i := range 6 {
			tasks.Go(func() {
				tries := redlock.Unlimited
				if i%2 == 0 {
					tries = 10
				}
				err := rl.NewMutex("x", redlock.WithTries(tries)).LockContext(ctx)
				assert.ErrorIs(t, err, redlock.ErrNoQuorum)
				assert.ErrorIs(t, err, redlock.ErrFailed)
				if tries == redlock.Unlimited {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
			})
			time.Sleep(time.Millisecond)
		}
		tasks.Wait()
	})
}

// lesson L53: what an options value or a delay function was used for before makes no difference.
func TestOptionsHaveNoState(t *testing.T) {
	opts := []redlock.Option{redlock.WithTries(3),
		redlock.WithRetryDelayFunc(redlock.ExponentialDelay(time.Millisecond, 4*time.Millisecond))}
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		rl = rl.With(redlock.WithPolling())
		var tasks sync.WaitGroup
		for _, n := range nodes {
			for i := range 100 {
				n.Set(fmt.Sprint("x", i), "somebody else's", 0)
			}
		}
		for i := range 100 {
			tasks.Go(func() {
				for range 10 {
					assert.ErrorIs(t, rl.NewMutex(fmt.Sprint("x", i), opts...).Lock(),
						redlock.ErrTaken)
				}
			})
		}
		tasks.Wait()
		synctest.Wait()
		// The third node is not asked any more if the others refuse at once.
		assert.GreaterOrEqual(t, nodes.Count("set"), 100*10*3*2, "three tries each, every time")
		assert.LessOrEqual(t, nodes.Count("set"), 100*10*3*3)
	})
}

// One release that nobody heard is no reason to leave a lock that nobody else wants to others for
// ever.
func TestAnUnheardReleaseSlowsNobodyDownForLong(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		var waiter sync.WaitGroup
		waiter.Go(func() {
			w := rl.NewMutex("x")
			assert.NoError(t, w.Lock())
			mustUnlock(t, w)
		})
		time.Sleep(time.Second)
		for _, n := range nodes {
			n.Next("release", sim.Fate{Answer: &sim.Answer{Value: int64(1)}})
		}
		mustUnlock(t, m)
		waiter.Wait()
		last := larger(20 * time.Second)
		for start := time.Now(); time.Since(start) < last; time.Sleep(time.Millisecond) {
			asked := time.Now()
			require.NoError(t, m.Lock())
			if since := asked.Sub(start); since > 15*time.Second {
				require.Less(t, time.Since(asked), 5*time.Millisecond, "after %v", since)
			}
			time.Sleep(time.Millisecond)
			mustUnlock(t, m)
		}
	})
}
