package behaviour_test

import (
	"context"
	"fmt"
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
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// Readers have the lock together, a writer has it alone, and they wait for each other.
func TestWithSharedReadersTogetherWritersAlone(t *testing.T) {
	nodes := redistest.Start(t, 3)
	reader, other, writer := process(t, nodes), process(t, nodes), process(t, nodes)
	a := reader.NewMutex("x", redlock.WithShared())
	b := other.NewMutex("x", redlock.WithShared())
	w := writer.NewMutex("x")
	require.NoError(t, a.TryLock())
	require.NoError(t, b.TryLock())
	require.ErrorIs(t, w.TryLock(), redlock.ErrTaken)
	_, err := a.Extend()
	require.NoError(t, err)
	_, err = a.Unlock()
	require.NoError(t, err)
	require.ErrorIs(t, w.TryLock(), redlock.ErrTaken)
	_, err = b.Valid()
	require.NoError(t, err)

	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, w.Lock()) })
	lineUp(t, nodes, "x", 1)
	require.ErrorIs(t, a.TryLock(), redlock.ErrTaken, "a writer waits")
	_, err = b.Unlock()
	require.NoError(t, err)
	wg.Wait()
	require.ErrorIs(t, a.TryLock(), redlock.ErrTaken)
	wg.Go(func() { assert.NoError(t, a.Lock()) })
	wg.Go(func() { assert.NoError(t, b.Lock()) })
	lineUp(t, nodes, "x", 2)
	_, err = w.Unlock()
	require.NoError(t, err)
	start := time.Now()
	wg.Wait()
	t.Log(time.Since(start))
	for _, m := range []*redlock.Mutex{a, b} {
		_, err = m.Unlock()
		require.NoError(t, err)
	}
	require.NoError(t, w.TryLockContext(context.Background()))
}

// A writer that has told the nodes what it will claim asks them again in time to keep its place,
// also if it would give them longer to answer than those in the queue have.
func TestAWriterWithALongNodeTimeoutKeepsItsPlace(t *testing.T) {
	t.Parallel()
	nodes := redistest.Start(t, 3)
	var clients []*redlock.Redlock
	for range 3 {
		clients = append(clients, process(t, nodes, redlock.WithExpiry(2*time.Minute),
			redlock.WithTimeoutFactor(0.05)))
	}
	reader, writer := clients[0].NewMutex("x", redlock.WithShared()), clients[1].NewMutex("x")
	require.NoError(t, reader.TryLock())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, writer.Lock()) })
	lineUp(t, nodes, "x", 1)
	ctx, cancel := context.WithTimeout(t.Context(), wire.RollGrace+2*time.Second)
	defer cancel()
	err := clients[2].NewMutex("x", redlock.WithShared()).LockContext(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = reader.Unlock()
	require.NoError(t, err)
	wg.Wait()
}

// process returns a client of the nodes as another process has it.
func process(t *testing.T, nodes []*redistest.Server, opts ...redlock.Option) *redlock.Redlock {
	var pools []pool.Pool
	for _, n := range nodes {
		pools = append(pools, adapters["goredis"](t, n.Addr()))
	}
	rl := redlock.New(pools...).With(redlock.WithExpiry(time.Minute),
		redlock.WithTries(redlock.Unlimited)).With(opts...)
	t.Cleanup(func() { _ = rl.Close() })
	return rl
}

// lineUp waits until so many are in the queue of a quorum of nodes.
func lineUp(t *testing.T, nodes []*redistest.Server, key string, n int64) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " in the queue"), func() bool {
		has := 0
		for _, node := range nodes {
			if node.Must("ZCARD", wire.QueueKey(key)) == n {
				has++
			}
		}
		return has > len(nodes)/2
	})
}

// Readers of one process have one lock together: the nodes hear of one. Each has a context of its
// own. The last to return releases it.
func TestWithSharedDoJoinsALeaseOfItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...).With(redlock.WithShared(), redlock.WithFencing())
		defer rl.Close()
		other := redlock.New(nodes.Pools("b")...)
		defer other.Close()
		type key struct{}
		var all sync.WaitGroup
		tokens := make([]uint64, 50)
		for i := range tokens {
			all.Go(func() {
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, i))
				err := rl.Do(ctx, "x", func(ctx context.Context) error {
					assert.Equal(t, i, ctx.Value(key{}))
					tokens[i] = redlock.FencingToken(ctx)
					assert.ErrorIs(t, rl.Do(ctx, "x", noWork), redlock.ErrSelf)
					time.Sleep(time.Duration(1+i) * time.Millisecond)
					assert.NoError(t, ctx.Err())
					assert.ErrorIs(t, other.NewMutex("x").TryLock(), redlock.ErrTaken)
					if i == 0 {
						cancel()
						assert.ErrorIs(t, context.Cause(ctx), context.Canceled)
					}
					return nil
				})
				assert.NoError(t, err)
				cancel()
			})
		}
		all.Wait()
		for _, token := range tokens {
			assert.Equal(t, tokens[0], token)
		}
		assert.Equal(t, 3, nodes.Count("share"))
		assert.NoError(t, other.NewMutex("x").TryLock())
	})
}

// A reader that comes later than 20 ms after the grant asks for itself: a writer that waits is not
// kept waiting for readers that come again and again.
func TestWithSharedDoJoinsForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...)
		defer rl.Close()
		var all sync.WaitGroup
		over := make(chan struct{})
		for i := range 8 { // there is always one that reads
			work := time.Duration(3+i) * time.Millisecond
			all.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
					}
					assert.NoError(t, rl.Do(t.Context(), "x", func(context.Context) error {
						time.Sleep(work)
						return nil
					}, redlock.WithShared()))
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		other := redlock.New(nodes.Pools("b")...)
		defer other.Close()
		for range 20 {
			asked := time.Now()
			assert.NoError(t, other.Do(t.Context(), "x", noWork))
			assert.LessOrEqual(t, time.Since(asked), 35*time.Millisecond)
		}
		close(over)
		all.Wait()
	})
}

// noWork is the work of one who wants a lock for a moment.
func noWork(context.Context) error { return nil }

// All who have a lock together learn that it is lost, and why.
func TestWithSharedDoLosesALeaseForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...).With(redlock.WithShared())
		defer rl.Close()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				err := rl.Do(t.Context(), "x", func(ctx context.Context) error {
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
					return nil
				})
				assert.ErrorIs(t, err, redlock.ErrLost)
				assert.ErrorIs(t, err, redlock.ErrNotReleased)
			})
		}
		time.Sleep(time.Second)
		for _, n := range nodes {
			n.Flush()
		}
		all.Wait()
	})
}

// behindAWriter runs f in a bubble in which another process holds the lock of x exclusively. The
// locks of rl are shared.
func behindAWriter(t *testing.T, f func(t *testing.T, nodes sim.Nodes, rl, other *redlock.Redlock,
	w *redlock.Mutex)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		other := redlock.New(nodes.Pools("b")...)
		defer other.Close()
		w := other.NewMutex("x")
		require.NoError(t, w.Lock())
		rl := redlock.New(nodes.Pools("a")...).With(redlock.WithShared())
		defer rl.Close()
		f(t, nodes, rl, other, w)
	})
}

// A caller whose context ends leaves the others alone, and what they wait for.
func TestWithSharedDoGoesOnWithoutTheFirst(t *testing.T) {
	behindAWriter(t, func(t *testing.T, _ sim.Nodes, rl, _ *redlock.Redlock, w *redlock.Mutex) {
		first, cancel := context.WithCancel(t.Context())
		second, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, rl.Do(first, "x", noWork), context.Canceled) })
		time.Sleep(time.Millisecond)
		all.Go(func() { assert.ErrorIs(t, rl.Do(second, "x", noWork), context.Canceled) })
		all.Go(func() { assert.NoError(t, rl.Do(t.Context(), "x", noWork)) })
		time.Sleep(100 * time.Millisecond)
		stop()
		time.Sleep(100 * time.Millisecond)
		cancel()
		time.Sleep(100 * time.Millisecond)
		_, err := w.Unlock()
		require.NoError(t, err)
		all.Wait()
	})
}

// If the first of many who wait together goes away, the others go on together, and no writer that
// comes later passes them.
func TestWithSharedDoStaysTogetherWithoutTheFirst(t *testing.T) {
	behindAWriter(t, func(t *testing.T, nodes sim.Nodes, rl, other *redlock.Redlock,
		w *redlock.Mutex) {
		first, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, rl.Do(first, "x", noWork), context.Canceled) })
		time.Sleep(time.Millisecond)
		var reads atomic.Int64
		for range 30 {
			all.Go(func() {
				assert.NoError(t, rl.Do(t.Context(), "x", func(context.Context) error {
					reads.Add(1)
					time.Sleep(10 * time.Millisecond)
					return nil
				}))
			})
		}
		time.Sleep(100 * time.Millisecond)
		cancel()
		time.Sleep(100 * time.Millisecond)
		all.Go(func() {
			assert.NoError(t, other.Do(t.Context(), "x", func(context.Context) error {
				assert.EqualValues(t, 30, reads.Load(), "have read before the last writer")
				return nil
			}))
		})
		time.Sleep(100 * time.Millisecond)
		mustUnlock(t, w)
		all.Wait()
		assert.LessOrEqual(t, nodes.Count("share"), 9, "three attempts, two of them refused")
	})
}

// When Close releases a lock that callers have together, their contexts are done before.
func TestCloseEndsTheContextsOfReadersBeforeItReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(1)
		defer nodes.Close()
		pools := nodes.Pools("a")
		var mu sync.Mutex
		var readers []context.Context
		pools[0].(*sim.Link).Plan(func(op sim.Op) sim.Fate {
			mu.Lock()
			defer mu.Unlock()
			for _, ctx := range readers {
				if op.Command == "unshare" {
					assert.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
				}
			}
			return sim.Fate{}
		})
		rl := redlock.New(pools...).With(redlock.WithShared())
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				err := rl.Do(t.Context(), "x", func(ctx context.Context) error {
					mu.Lock()
					readers = append(readers, ctx)
					mu.Unlock()
					<-ctx.Done()
					return nil
				})
				if err != nil { // it was released while fn ran
					assert.ErrorIs(t, err, redlock.ErrReleased)
				}
			})
		}
		time.Sleep(time.Second)
		assert.NoError(t, rl.Close())
		all.Wait()
		assert.Equal(t, 1, nodes.Count("unshare"))
	})
}

// What only one who has a lock alone can do is refused at once.
func TestWithSharedRefuses(t *testing.T) {
	nodes := sim.NewNodes(3)
	defer nodes.Close()
	rl := redlock.New(nodes.Pools("a")...).With(redlock.WithShared())
	defer rl.Close()
	var wrong *redlock.OptionError
	m := rl.NewMutex("x")
	_, err := m.Handoff()
	require.ErrorAs(t, err, &wrong)
	_, err = m.Adopt(t.Context(), "…")
	require.ErrorAs(t, err, &wrong)
	_, err = rl.NewElection("x").Campaign(t.Context())
	require.ErrorAs(t, err, &wrong)
	require.ErrorAs(t, rl.NewMutex("x", redlock.WithValue("v")).TryLock(), &wrong)
	require.ErrorAs(t, rl.NewMutex("a}b").TryLock(), &wrong)
	assert.Equal(t, "WithShared", wrong.Option)
	require.NoError(t, rl.With().NewMutex("{a}b").TryLock())
	plain := redlock.New(nodes.Pools("b")...)
	defer plain.Close()
	require.ErrorAs(t, plain.NewMutex("x", redlock.WithValue("~redlock:shared")).TryLock(), &wrong)
	gen := func() (string, error) { return "~redlock:shared", nil }
	require.ErrorIs(t, plain.NewMutex("x", redlock.WithGenValueFunc(gen)).TryLock(),
		redlock.ErrFailed)
}

// Inspect tells who shares a lock, and nobody's value.
func TestInspectOfASharedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...).With(redlock.WithShared())
		defer rl.Close()
		a := rl.NewMutex("x", redlock.WithOwner("ada"), redlock.WithExpiry(time.Second))
		b := rl.NewMutex("x", redlock.WithOwner("grace"), redlock.WithExpiry(2*time.Second))
		require.NoError(t, a.Lock())
		require.NoError(t, b.Lock())
		time.Sleep(time.Millisecond)
		in, err := rl.Inspect(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, redlock.VerdictShared, in.Verdict)
		assert.Equal(t, 1999*time.Millisecond, in.TTL)
		grace := redlock.Reader{Owner: "grace", Votes: 3, TTL: 1999 * time.Millisecond}
		assert.Equal(t, []redlock.Reader{
			{Owner: "ada", Votes: 3, TTL: 999 * time.Millisecond}, grace}, in.Readers)
		for _, secret := range []string{a.Value(), b.Value()} {
			assert.NotContains(t, in.String(), secret[len(secret)-18:])
			for _, n := range in.Nodes {
				assert.True(t, n.Shared)
				assert.NotContains(t, n.Value, secret)
			}
		}
		assert.Contains(t, in.String(), `lock "x": shared by 2 on 3 of 3 nodes`)
		time.Sleep(time.Second)
		in, err = rl.Inspect(t.Context(), "x")
		require.NoError(t, err)
		grace.TTL -= time.Second
		assert.Equal(t, []redlock.Reader{grace}, in.Readers)
	})
}

// Readers with one name are told in the order in which their leases end.
func TestInspectSortsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...).With(redlock.WithShared(), redlock.WithOwner("ada"))
		defer rl.Close()
		var want, got []time.Duration
		for i := range 6 {
			want = append(want, time.Duration(i+1)*time.Second)
			require.NoError(t, rl.NewMutex("x", redlock.WithExpiry(want[i])).Lock())
		}
		synctest.Wait() // for the nodes that Lock did not need: votes sort before leases
		in, err := rl.Inspect(t.Context(), "x")
		require.NoError(t, err)
		for _, r := range in.Readers {
			got = append(got, r.TTL)
		}
		assert.Equal(t, want, got)
	})
}

// Readers who say who they are have each a lock of their own, also in one process.
func TestWithSharedReadersWithOwnersAreToldApart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		var all sync.WaitGroup
		for _, owner := range []string{"ada", "grace"} {
			all.Go(func() {
				assert.NoError(t, rl.Do(t.Context(), "x", func(context.Context) error {
					time.Sleep(time.Second)
					return nil
				}, redlock.WithOwner(owner)))
			})
		}
		time.Sleep(time.Second / 2)
		in, err := rl.Inspect(t.Context(), "x")
		require.NoError(t, err)
		var owners []string
		for _, r := range in.Readers {
			owners = append(owners, r.Owner)
		}
		assert.ElementsMatch(t, []string{"ada", "grace"}, owners)
		all.Wait()
	}, redlock.WithShared())
}

// A reader's tokens lie between those of the writers before and after it.
func TestWithSharedTokens(t *testing.T) {
	nodes := redistest.Start(t, 3)
	for _, opts := range [][]redlock.Option{{redlock.WithFencing()},
		{redlock.WithFencing(), redlock.WithFencePerName()}} {
		rl := process(t, nodes, opts...)
		last := uint64(0)
		for i := range 20 {
			var all []*redlock.Mutex
			greatest := last
			for range 1 + i%3 {
				m := rl.NewMutex("tokens", redlock.WithShared())
				if i%3 == 0 {
					m = rl.NewMutex("tokens")
				}
				require.NoError(t, m.Lock())
				assert.Greater(t, m.FencingToken(), last)
				_, err := m.Extend()
				require.NoError(t, err)
				greatest = max(greatest, m.FencingToken())
				all = append(all, m)
			}
			for _, m := range all {
				_, err := m.Unlock()
				require.NoError(t, err)
			}
			last = greatest
		}
	}
}

// A server that is full lets nobody in, and readers go on.
func TestWithSharedOnFullServers(t *testing.T) {
	t.Parallel()
	nodes := redistest.Start(t, 3)
	rl := process(t, nodes)
	m := rl.NewMutex("x", redlock.WithShared())
	require.NoError(t, m.Lock())
	for _, n := range nodes {
		n.Must("CONFIG", "SET", "maxmemory", "1")
	}
	_, err := m.Extend()
	require.NoError(t, err)
	err = rl.NewMutex("x", redlock.WithShared()).TryLock()
	require.ErrorContains(t, err, "OOM")
	_, err = m.Unlock()
	require.NoError(t, err)
	err = rl.NewMutex("y", redlock.WithShared()).TryLock()
	require.ErrorContains(t, err, "OOM")
	for _, n := range nodes {
		n.Must("CONFIG", "SET", "maxmemory", "0")
		eventually(t, "nothing is left", func() bool { return n.Must("DBSIZE") == int64(0) })
	}
}

// A reader that extends its lock sets it again on a server that has lost it.
func TestWithSharedHealsServers(t *testing.T) {
	nodes := redistest.Start(t, 3)
	m := process(t, nodes).NewMutex("x", redlock.WithShared())
	require.NoError(t, m.Lock())
	nodes[0].Must("FLUSHALL")
	_, err := m.Extend()
	require.NoError(t, err)
	eventually(t, "the key and the seat", func() bool {
		return nodes[0].Must("DBSIZE") == int64(2) && nodes[1].Must("DBSIZE") == int64(2)
	})
	assert.Equal(t, nodes[1].Must("GET", "x"), nodes[0].Must("GET", "x"))
	mustUnlock(t, m)
}

// The seat of a reader stays for the minimum hold, and no longer.
func TestWithSharedMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...)
		defer rl.Close()
		m := rl.NewMutex("x", redlock.WithShared(), redlock.WithMinHold(time.Second))
		require.NoError(t, m.Lock())
		_, err := m.Unlock()
		require.NoError(t, err)
		w := rl.NewMutex("x")
		require.ErrorIs(t, w.TryLock(), redlock.ErrTaken)
		require.NoError(t, rl.Do(t.Context(), "x", noWork, redlock.WithShared()))
		time.Sleep(900 * time.Millisecond)
		require.ErrorIs(t, w.TryLock(), redlock.ErrTaken)
		time.Sleep(120 * time.Millisecond)
		require.NoError(t, w.TryLock())
	})
}

// A mutex has one lease at a time. A reader's is granted beside the one that it has: that ends, and
// nothing of it stays on the nodes.
func TestWithSharedALockedMutexIsGrantedAnother(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m, writer := rl.NewMutex("x", redlock.WithShared()), rl.NewMutex("x")
		require.NoError(t, m.Lock())
		require.NoError(t, m.TryLock())
		mustUnlock(t, m)
		require.NoError(t, writer.TryLock())
		mustUnlock(t, writer)

		first := mustHold(t, m)
		second := mustHold(t, m)
		assert.ErrorContains(t, context.Cause(first),
			"ended: its own mutex was granted the lock again")
		require.NoError(t, second.Err())
		mustUnlock(t, m)
		require.NoError(t, writer.TryLock())
		mustUnlock(t, writer)
		sent := nodes.Count("unshare")
		require.NoError(t, m.Lock())
		assert.Equal(t, sent, nodes.Count("unshare"), "nothing is left to release")
		mustUnlock(t, m)
	})
}

// Who comes after the machine was suspended does not join a lock that has expired meanwhile.
func TestWithSharedDoDoesNotJoinWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(1)
		defer nodes.Close()
		p := &suspended{Link: nodes[0].Link("a")}
		rl := redlock.New(p).With(redlock.WithShared())
		other := redlock.New(nodes.Pools("b")...)
		var all sync.WaitGroup
		all.Go(func() {
			_ = rl.Do(t.Context(), "x", func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		})
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		p.ahead = redlock.DefaultExpiry
		nodes[0].Flush()
		writer := other.NewMutex("x")
		require.NoError(t, writer.TryLock())
		err := rl.Do(t.Context(), "x", func(context.Context) error { panic("called") })
		require.ErrorIs(t, err, redlock.ErrTaken)
		mustUnlock(t, writer)
		all.Wait()
		require.NoError(t, rl.Close())
		require.NoError(t, other.Close())
	})
}

// One of many who have a lock together is free to ask for it anew when its Do has returned.
func TestWithSharedDoThatHasReturnedIsNotSelf(t *testing.T) {
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		var all sync.WaitGroup
		all.Go(func() {
			assert.NoError(t, rl.Do(t.Context(), "x", func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			}, redlock.WithShared()))
		})
		time.Sleep(5 * time.Millisecond)
		var mine context.Context
		require.NoError(t, rl.Do(t.Context(), "x", func(ctx context.Context) error {
			mine = context.WithoutCancel(ctx)
			require.ErrorIs(t, rl.Do(ctx, "x", noWork), redlock.ErrSelf)
			return nil
		}, redlock.WithShared()))
		require.NoError(t, rl.Do(mine, "x", noWork))
		all.Wait()
	})
}
