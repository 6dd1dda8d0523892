package behaviour_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// distant returns a client of that name. Its way to each node takes so long, the last of these to
// all others.
func distant(nodes sim.Nodes, name string, opts []redlock.Option, ways ...time.Duration,
) *redlock.Redlock {
	pools := nodes.Pools(name)
	for i := range pools {
		way := ways[min(i, len(ways)-1)]
		plan(pools[i:i+1], func(sim.Op) sim.Fate { return sim.Fate{Request: way, Reply: way} })
	}
	return redlock.New(pools...).With(append(opts, redlock.WithTries(redlock.Unlimited))...)
}

// pass locks with a client, and lets clients come one after the other who want the lock, too. Each
// holds it for so long; has is called before. It returns the times from Unlock to the next grant,
// and closes all clients.
func pass(
	t *testing.T, first *redlock.Redlock, clients []*redlock.Redlock, hold time.Duration,
	has func(m *redlock.Mutex, turn int),
) (gaps []time.Duration) {
	m := first.NewMutex("x")
	require.NoError(t, m.Lock())
	var all sync.WaitGroup
	var released time.Time
	for _, rl := range clients {
		all.Go(func() {
			m := rl.NewMutex("x")
			assert.NoError(t, m.Lock())
			gaps = append(gaps, time.Since(released))
			has(m, len(gaps))
			time.Sleep(hold)
			released = time.Now()
			mustUnlock(t, m)
			assert.NoError(t, rl.Close())
		})
		time.Sleep(time.Second)
	}
	time.Sleep(time.Second / 2) // so that nobody is about to ask again
	released = time.Now()
	mustUnlock(t, m)
	all.Wait()
	assert.NoError(t, first.Close())
	return gaps
}

// One that is the next while another has the lock has it one round trip after the release, without
// a command. Its validity counts from when it was told that it is the next. Where that is too long
// ago, and where a plain SET NX is not enough, it claims the lock: that is a round trip more.
func TestTheNextHasTheLockAtOnce(t *testing.T) {
	const way, expiry = 5 * time.Millisecond, 8 * time.Second
	for name, tt := range map[string]struct {
		hold    time.Duration
		opts    []redlock.Option
		bids    bool
		claimed bool
	}{
		"a short hold":            {hold: 100 * time.Millisecond, bids: true},
		"an eighth of the expiry": {hold: expiry/8 - 8*way, bids: true},
		"a longer hold":           {hold: expiry/8 + 4*way, bids: true, claimed: true},
		"fencing": {hold: 100 * time.Millisecond, claimed: true,
			opts: []redlock.Option{redlock.WithFencing()}},
		"a restart guard": {hold: 100 * time.Millisecond, claimed: true,
			opts: []redlock.Option{redlock.WithRestartGuard(time.Minute)}},
		"a minimum hold": {hold: 100 * time.Millisecond, claimed: true,
			opts: []redlock.Option{redlock.WithMinHold(time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 3, 5} {
				synctest.Test(t, func(t *testing.T) {
					nodes := sim.NewNodes(n)
					defer nodes.Close()
					opts := append(tt.opts, unhurried(expiry)...)
					client := func(name string) *redlock.Redlock {
						return distant(nodes, name, opts, way)
					}
					waiters := []*redlock.Redlock{client("b"), client("c")}
					trips := pass(t, client("a"), waiters, tt.hold,
						func(m *redlock.Mutex, turn int) {
							least := expiry - expiry/100 - 2*time.Millisecond - 2*way
							if turn == 2 && !tt.claimed {
								least -= tt.hold + 2*way
								assert.Less(t, time.Until(m.Until()), least+2*way)
							}
							assert.GreaterOrEqual(t, time.Until(m.Until()), least)
						})
					want, claims := []time.Duration{4 * way, 2 * way}, n
					if tt.claimed {
						want[1], claims = 4*way, 2*n
					}
					assert.Equal(t, want, trips)
					assert.Equal(t, claims, nodes.Count("claim"))
					assert.Equal(t, tt.bids, nodes.Count("bid") > 0)
					assert.Equal(t, make([]string, n), nodes.Values("x"))
				})
			}
		})
	}
}

// unhurried are options of waiters that do not ask again soon.
func unhurried(expiry time.Duration) []redlock.Option {
	return []redlock.Option{redlock.WithExpiry(expiry), redlock.WithNodeTimeout(expiry / 2),
		redlock.WithRetryDelay(expiry / 2)}
}

// One that is the next and gives up leaves nothing, whenever that is: before it has bid, while that
// is on its way, or while it is granted the lock. The one behind it has its turn.
func TestANextThatGivesUpIsNotWaitedFor(t *testing.T) {
	const way, expiry, hold = 5 * time.Millisecond, 8 * time.Second, 30 * time.Millisecond
	won := 0
	for after := time.Duration(0); after < 60*time.Millisecond; after += 1500 * time.Microsecond {
		synctest.Test(t, func(t *testing.T) {
			nodes := sim.NewNodes(3)
			defer nodes.Close()
			first := distant(nodes, "first", unhurried(expiry), way)
			m := first.NewMutex("x")
			require.NoError(t, m.Lock())
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var mu sync.Mutex // guards last
			var last time.Time
			for i, name := range []string{"b", "c", "d"} {
				rl := distant(nodes, name, unhurried(expiry), way)
				all.Go(func() {
					m := rl.NewMutex("x")
					mine := t.Context()
					if name == "c" {
						mine = ctx
					}
					err := m.LockContext(mine)
					mu.Lock()
					last = time.Now()
					mu.Unlock()
					switch {
					case err == nil && name == "c":
						won++
						fallthrough
					case assert.Equal(t, name == "c", err != nil):
						time.Sleep(hold)
						if err == nil {
							mustUnlock(t, m)
						}
					}
					assert.NoError(t, rl.Close())
				})
				time.Sleep(time.Second / time.Duration(i+1))
			}
			released := time.Now()
			mustUnlock(t, m)
			time.Sleep(after)
			cancel()
			all.Wait()
			assert.Less(t, last.Sub(released), 3*(4*way+hold)+expiry/1000)
			assert.Equal(t, make([]string, 3), nodes.Values("x"))
			assert.Equal(t, []int{0, 0, 0}, queued(nodes, "x"))
			assert.NoError(t, first.Close())
		})
	}
	assert.NotZero(t, won, "it has the lock by then")
}

// Where nodes are not equally near, the next one waits for the others that have given it the lock.
// It does not take that back to ask once more.
func TestTheNextWaitsForNodesThatAreFurther(t *testing.T) {
	const hold = 10 * time.Millisecond
	const quickest = 20 * time.Millisecond // to the third node and back
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		defer nodes.Close()
		client := func(name string) *redlock.Redlock {
			return distant(nodes, name, unhurried(8*time.Second), ms, 5*ms, 10*ms, 15*ms, 20*ms)
		}
		gaps := pass(t, client("a"),
			[]*redlock.Redlock{client("b"), client("c"), client("d"), client("e")}, hold,
			func(*redlock.Mutex, int) {})
		assert.Equal(t, []time.Duration{quickest, quickest, quickest}, gaps[1:])
	})
}

// What is told of a lock that was bid for begins when it is granted, though its validity began with
// the bid.
func TestWhatIsToldOfABidBeginsWithTheLock(t *testing.T) {
	const way, expiry, hold = 5 * time.Millisecond, 8 * time.Second, 900 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		first := distant(nodes, "first", unhurried(expiry), way)
		m := first.NewMutex("x")
		require.NoError(t, m.Lock())
		var all sync.WaitGroup
		ends := make(chan time.Duration, 2)
		for _, name := range []string{"b", "c"} {
			rl := distant(nodes, name, append(unhurried(expiry), redlock.WithMaxHold(expiry),
				redlock.WithEvents(&redlock.Events{
					Acquire: func(ctx context.Context, _ redlock.Acquiring) (
						context.Context, func(redlock.Acquired)) {
						return ctx, func(a redlock.Acquired) {
							assert.Less(t, a.Took-a.Waited, 4*way, name)
						}
					},
					End: func(e redlock.Ended) { ends <- e.Held },
				})), way)
			all.Go(func() {
				held, err := rl.NewMutex("x").Hold(t.Context())
				assert.NoError(t, err)
				if name == "b" {
					time.Sleep(hold)
				} else {
					<-held.Done()
				}
				assert.NoError(t, rl.Close())
			})
			time.Sleep(time.Second)
		}
		mustUnlock(t, m)
		all.Wait()
		assert.InDelta(t, hold, <-ends, float64(2*way))
		assert.Equal(t, expiry, <-ends, "the most that it may be held")
		assert.Equal(t, 3, nodes.Count("claim"), "the second was granted without a claim")
		assert.NoError(t, first.Close())
	})
}

// An old bid that one node has taken up, and not told, is taken back also if the function that
// makes values panics at the claim.
func TestAPanicLeavesNoBid(t *testing.T) {
	const way, expiry = 5 * time.Millisecond, 8 * time.Second
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		first := distant(nodes, "first", unhurried(expiry), way)
		m := first.NewMutex("x")
		require.NoError(t, m.Lock())
		var all sync.WaitGroup
		b := distant(nodes, "b", unhurried(expiry), way)
		all.Go(func() {
			m := b.NewMutex("x")
			assert.NoError(t, m.Lock())
			time.Sleep(expiry/8 - expiry/800 - 3*way) // to the last moment of the bid
			mustUnlock(t, m)
		})
		time.Sleep(time.Second)
		pools := nodes.Pools("c")
		plan(pools, func(op sim.Op) sim.Fate {
			return sim.Fate{
				Request: way, Reply: way,
				Lost:      op.Command == "bid" && op.Node > 0,
				ReplyLost: op.Command == "message" && len(op.Value) > 20, // the number of a bid
			}
		})
		c := redlock.New(pools...).With(append(unhurried(expiry), redlock.WithTries(3))...)
		values := 0
		all.Go(func() {
			m := c.NewMutex("x", redlock.WithGenValueFunc(func() (string, error) {
				if values++; values > 2 {
					assert.Contains(t, nodes.Values("x")[0], "v:", "the bid was taken up")
					panic("no value")
				}
				return "v", nil
			}))
			assert.Panics(t, func() { _ = m.Lock() })
		})
		time.Sleep(time.Second)
		mustUnlock(t, m)
		all.Wait()
		time.Sleep(expiry / 10)
		assert.Equal(t, 3, values, "for an attempt, a bid and a claim")
		assert.Empty(t, nodes.Values("x")[0])
		time.Sleep(expiry / 2) // the node timeout, in which the others do not answer
		assert.Equal(t, make([]string, 3), nodes.Values("x"))
		for _, rl := range []*redlock.Redlock{first, b, c} {
			assert.NoError(t, rl.Close())
		}
	})
}

// A user who may not touch the keys of bids takes turns without them.
func TestUsersWithoutBidsTakeTurns(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	servers := redistest.Start(t, 3)
	for _, s := range servers {
		s.Must("ACL", "SETUSER", "app", "on", ">pw", "+@all", "resetkeys", "~x",
			"~x:{x}:redlock:queue", "~x:{x}:redlock:ticket", "~x:{x}:redlock:roll",
			"resetchannels", "&redlock:turn:*")
	}
	var all sync.WaitGroup
	began := time.Now()
	for range 4 {
		var pools []pool.Pool
		for _, s := range servers {
			pools = append(pools, adapters["goredis"](t, "app:pw@"+s.Addr()))
		}
		rl := redlock.New(pools...).With(redlock.WithTries(redlock.Unlimited),
			redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(2*time.Second))
		all.Go(func() {
			m := rl.NewMutex("x")
			for range 5 {
				assert.NoError(t, m.Lock())
				time.Sleep(5 * time.Millisecond)
				_, err := m.Unlock()
				assert.NoError(t, err)
			}
			assert.NoError(t, rl.Close())
		})
	}
	all.Wait()
	assert.Less(t, time.Since(began), 50*time.Second, "nothing was left to expire")
}

// A node's word for a bid is worth nothing on another node: one who may listen on a waiter's
// channel and send there, but not touch the lock's keys, gives it no lock.
func TestABidThatIsRepeatedOnAnotherNodeIsNotHeard(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	servers := redistest.Start(t, 3)
	client := func() *redlock.Redlock {
		var pools []pool.Pool
		for _, s := range servers {
			pools = append(pools, adapters["goredis"](t, s.Addr()))
		}
		return redlock.New(pools...).With(append(unhurried(time.Minute),
			redlock.WithTries(redlock.Unlimited))...)
	}
	holder, waiter := client(), client()
	holds := holder.NewMutex("x")
	require.NoError(t, holds.Lock())
	for _, s := range servers {
		eventually(t, "all nodes have the lock", func() bool {
			return s.Must("EXISTS", "x") == int64(1)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	granted := make(chan error, 1)
	go func() { granted <- waiter.NewMutex("x").LockContext(ctx) }()
	member := ""
	for _, s := range servers {
		eventually(t, "the waiter is in the queue", func() bool {
			q := s.Must("ZRANGE", "x:{x}:redlock:queue", "0", "-1").([]any)
			if len(q) == 1 {
				member = q[0].(string)
			}
			return len(q) == 1
		})
	}
	channel, number := member[:39], member[39:]
	for _, s := range servers {
		eventually(t, "it has bid", func() bool {
			// It is the next, and bids as soon as it listens there and all nodes have it in
			// the queue.
			servers[0].Must("PUBLISH", channel, number+"+")
			return s.Must("EXISTS", "x:{x}:redlock:bid") == int64(1)
		})
	}
	ears := servers[0].Dial()
	defer ears.Close()
	_, err := ears.Do("SUBSCRIBE", channel)
	require.NoError(t, err)
	// The first node has lost the key, has given it to another waiter, and takes it back.
	servers[0].Must("SET", "x", "other")
	assert.Equal(t, int64(2), servers[0].Must("EVAL", scripts.Release.Source, "2", "x",
		"x:{x}:redlock:queue", "other", "1000", "redlock:turn:ABCDEFGHIJKLMNOPQRSTUVWXYZ1"))
	said, err := ears.Receive()
	require.NoError(t, err)
	message := said.([]any)[2].(string)
	require.True(t, strings.HasPrefix(message, "x "), message)
	for _, s := range servers[1:] {
		assert.Equal(t, int64(1), s.Must("PUBLISH", channel, message))
	}
	select {
	case err := <-granted:
		in, _ := holder.Inspect(t.Context(), "x")
		t.Errorf("the waiter has the lock, too: %v\n%s", err, in)
	case <-time.After(500 * time.Millisecond):
	}
	cancel()
	if !t.Failed() {
		assert.ErrorIs(t, <-granted, context.Canceled)
	}
	mustUnlock(t, holds)
	assert.NoError(t, waiter.Close())
	assert.NoError(t, holder.Close())
}
