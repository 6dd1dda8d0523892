// Package interop lets Redsync and redlock contend for the same names on real Redis. It is
// what allows a deployment to move from the one to the other replica by replica.
package interop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	redigolib "github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/redigo"
)

// mutex is what both libraries' Mutex can do.
type mutex interface {
	Lock() error
	TryLock() error
	Unlock() (bool, error)
	Extend() (bool, error)
	Name() string
	Value() string
	Until() time.Time
}

var (
	_ mutex = (*redsync.Mutex)(nil)
	_ mutex = (*redlock.Mutex)(nil)
)

// A library makes mutexes on one set of nodes.
type library struct {
	name string
	// mutex returns a mutex that is tried until it is got.
	mutex func(name string, expiry time.Duration) mutex
	// resume returns a mutex that takes over value from another owner.
	resume func(name, value string) mutex
	// taken reports whether err says that somebody else has the lock.
	taken func(error) bool
}

// plenty is more tries than any test here needs.
const plenty = 100_000

// retryDelay is short, so that both libraries ask often, and random, so that they do
// not ask at the same time for ever.
func retryDelay(int) time.Duration {
	return time.Millisecond + rand.N(4*time.Millisecond)
}

func useRedsync(pools []redsyncredis.Pool) library {
	rs := redsync.New(pools...)
	return library{
		name: "redsync",
		mutex: func(name string, expiry time.Duration) mutex {
			return rs.NewMutex(name, redsync.WithExpiry(expiry), redsync.WithTimeoutFactor(0.25),
				redsync.WithTries(plenty), redsync.WithRetryDelayFunc(retryDelay))
		},
		resume: func(name, value string) mutex {
			return rs.NewMutex(name,
				redsync.WithValue(value))
		},
		taken: func(err error) bool {
			var taken *redsync.ErrTaken
			return errors.As(err, &taken)
		},
	}
}

func useRedlock(t *testing.T, pools []pool.Pool, opts ...redlock.Option) library {
	rl := redlock.New(pools...).With(opts...)
	t.Cleanup(func() { _ = rl.Close() })
	return library{
		name: "redlock",
		mutex: func(name string, expiry time.Duration) mutex {
			return rl.NewMutex(name, redlock.WithExpiry(expiry), redlock.WithTimeoutFactor(0.25),
				redlock.WithTries(plenty), redlock.WithRetryDelayFunc(retryDelay))
		},
		resume: func(name, value string) mutex {
			return rl.NewMutex(name,
				redlock.WithValue(value))
		},
		taken: func(err error) bool { return errors.Is(err, redlock.ErrTaken) },
	}
}

// libraries returns Redsync and redlock on the same five real nodes, through the named
// client, each with connections of its own.
func libraries(t *testing.T, client string) (rs, rl library, nodes []*redistest.Server) {
	nodes = redistest.Start(t, 5)
	var rsPools []redsyncredis.Pool
	var rlPools []pool.Pool
	for _, node := range nodes {
		switch client {
		case "go-redis":
			rsPools = append(rsPools, redsyncgoredis.NewPool(goRedis(t, node.Addr())))
			rlPools = append(rlPools, goredis.NewPool(goRedis(t, node.Addr())))
		case "redigo":
			rsPools = append(rsPools, redsyncredigo.NewPool(redigoPool(t, node.Addr())))
			rlPools = append(rlPools, redigo.NewPool(redigoPool(t, node.Addr())))
		}
	}
	return useRedsync(rsPools), useRedlock(t, rlPools), nodes
}

func goRedis(t *testing.T, addr string) *goredislib.Client {
	client := goredislib.NewClient(&goredislib.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func redigoPool(t *testing.T, addr string) *redigolib.Pool {
	p := &redigolib.Pool{MaxIdle: 8, Dial: func() (redigolib.Conn,
		error) {
		return redigolib.Dial("tcp", addr)
	}}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// onBothClients runs f with each client library.
func onBothClients(t *testing.T, f func(t *testing.T, rs, rl library, nodes []*redistest.Server)) {
	for _, client := range []string{"go-redis", "redigo"} {
		t.Run(client, func(t *testing.T) {
			rs, rl, nodes := libraries(t, client)
			f(t, rs, rl, nodes)
		})
	}
}

// inBothRoles runs f with each library as the holder of a lock that the other wants.
func inBothRoles(t *testing.T, f func(t *testing.T, holder, other library,
	nodes []*redistest.Server)) {
	onBothClients(t, func(t *testing.T, rs, rl library, nodes []*redistest.Server) {
		for _, pair := range [][2]library{{rs, rl}, {rl, rs}} {
			t.Run(pair[0].name+" holds", func(t *testing.T) { f(t, pair[0], pair[1], nodes) })
		}
	})
}

// A counter that is read and written back one higher inside the lock loses a turn when two are
// inside. The workers come in pairs, one of each library, that take turns with each other but
// contend with the other pairs; so neither library can have all its turns before the other.
func TestSharedCounterIsExact(t *testing.T) {
	const pairs, turns = 4, 12 // turns of each worker
	onBothClients(t, func(t *testing.T, rs, rl library, _ []*redistest.Server) {
		var (
			counter, inside atomic.Int64
			last            atomic.Value // the library that had the lock last
			changes         atomic.Int64 // of last
			wg              sync.WaitGroup
		)
		last.Store("")
		turn := func(lib library) error {
			m := lib.mutex("counter", 8*time.Second)
			if err := m.Lock(); err != nil {
				return err
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%s: %d inside", lib.name, n)
			}
			if last.Swap(lib.name) != lib.name {
				changes.Add(1)
			}
			seen := counter.Load()
			time.Sleep(time.Millisecond) // the work, long enough to be interrupted
			counter.Store(seen + 1)
			inside.Add(-1)
			if ok, err := m.Unlock(); !ok || err != nil {
				return fmt.Errorf("unlock: %v, %w", ok, err)
			}
			return nil
		}
		worker := func(lib library, mine <-chan struct{}, theirs chan<- struct{}) {
			defer close(theirs)
			for i := range turns {
				if _, ok := <-mine; !ok {
					return // the partner has failed
				}
				if err := turn(lib); err != nil {
					t.Errorf("%s, turn %d: %v", lib.name, i, err)
					return
				}
				theirs <- struct{}{}
			}
		}
		for i := range pairs {
			first, second := make(chan struct{}, 1), make(chan struct{}, 1)
			one, other := rs, rl
			if i%2 == 0 {
				one, other = rl, rs
			}
			first <- struct{}{}
			wg.Go(func() { worker(one, first, second) })
			wg.Go(func() { worker(other, second, first) })
		}
		wg.Wait()
		require.EqualValues(t, 2*pairs*turns, counter.Load())
		require.GreaterOrEqual(t, changes.Load(), int64(2*turns),
			"turns of one library followed each other within a pair")
		t.Logf("the lock went from one library to the other %d times", changes.Load()-1)
	})
}

func TestHeldByOneIsRefusedByTheOther(t *testing.T) {
	inBothRoles(t, func(t *testing.T, holder, other library, _ []*redistest.Server) {
		a, b := holder.mutex("held", 8*time.Second), other.mutex("held", 8*time.Second)
		require.NoError(t, a.TryLock())

		err := b.TryLock()
		require.Error(t, err)
		require.True(t, other.taken(err), "%s: %v", other.name, err)

		// The attempt that was refused took nothing away from the holder.
		ok, err := a.Extend()
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, other.taken(b.TryLock()))

		ok, err = a.Unlock()
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, b.TryLock())
		_, err = b.Unlock()
		require.NoError(t, err)
	})
}

// Readers share a lock among each other, and with nobody of Redsync, nor with one who has it alone.
func TestReadersAndRedsyncExcludeEachOther(t *testing.T) {
	nodes := redistest.Start(t, 3)
	pools := func() (all []pool.Pool) {
		for _, node := range nodes {
			all = append(all, goredis.NewPool(goRedis(t, node.Addr())))
		}
		return all
	}
	var rsPools []redsyncredis.Pool
	for _, node := range nodes {
		rsPools = append(rsPools, redsyncgoredis.NewPool(goRedis(t, node.Addr())))
	}
	rs := useRedsync(rsPools).mutex("x", time.Second)
	reader := func() mutex {
		return useRedlock(t, pools(), redlock.WithShared()).mutex("x", time.Second)
	}
	a, b := reader(), reader()
	require.NoError(t, rs.Lock())
	require.Error(t, a.TryLock())
	_, err := rs.Unlock()
	require.NoError(t, err)
	require.NoError(t, a.TryLock())
	require.NoError(t, b.TryLock())
	require.Error(t, rs.TryLock())
	for _, m := range []mutex{a, b} {
		_, err = m.Unlock()
		require.NoError(t, err)
	}

	var all sync.WaitGroup
	var inside, alone, together atomic.Int64
	begun := time.Now()
	work := func(m mutex, shared bool, turns *atomic.Int64) {
		all.Go(func() {
			for time.Since(begun) < 3*time.Second {
				if m.Lock() != nil {
					continue
				}
				weight := int64(1)
				if !shared {
					weight = 1000
				}
				if now := inside.Add(weight); now > 1000 || !shared && now != 1000 {
					t.Errorf("%d inside", now)
				}
				time.Sleep(rand.N(3 * time.Millisecond))
				inside.Add(-weight)
				turns.Add(1)
				_, _ = m.Unlock()
				time.Sleep(rand.N(5 * time.Millisecond))
			}
		})
	}
	for range 3 {
		work(reader(), true, &together)
	}
	work(rs, false, &alone)
	work(useRedlock(t, pools()).mutex("x", time.Second), false, &alone)
	all.Wait()
	t.Logf("%d turns of readers, %d of others", together.Load(), alone.Load())
	require.Positive(t, together.Load())
	require.Positive(t, alone.Load())
}

// A value that is not the holder's releases and extends nothing, whichever library asks.
func TestOnlyTheOwnersValueReleases(t *testing.T) {
	inBothRoles(t, func(t *testing.T, holder, other library, nodes []*redistest.Server) {
		a := holder.mutex("owned", 8*time.Second)
		require.NoError(t, a.TryLock())

		for _, value := range []string{"stranger", a.Value()[:8], a.Value() + "x"} {
			b := other.resume("owned", value)
			ok, err := b.Extend()
			require.False(t, ok, value)
			require.Error(t, err, value)
			ok, err = b.Unlock()
			require.False(t, ok, value)
			require.Error(t, err, value)
		}
		holds(t, nodes, "owned", a.Value())
		_, err := a.Unlock()
		require.NoError(t, err)
		holds(t, nodes, "owned", nil)
	})
}

// The value is all that a lock's owner has to hand over.
func TestOwnershipIsHandedOverByValue(t *testing.T) {
	inBothRoles(t, func(t *testing.T, holder, other library, nodes []*redistest.Server) {
		a := holder.mutex("handed", 8*time.Second)
		require.NoError(t, a.TryLock())
		holds(t, nodes, "handed", a.Value()) // also where the SET was under way still

		b := other.resume("handed", a.Value())
		ok, err := b.Extend()
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, b.Until().After(time.Now()))
		ok, err = b.Unlock()
		require.NoError(t, err)
		require.True(t, ok)
		holds(t, nodes, "handed", nil)
	})
}

// A holder that neither extends nor unlocks keeps the other out as long as its Until says, and no
// longer than its expiry.
func TestExpiryIsRespected(t *testing.T) {
	const expiry = time.Second
	inBothRoles(t, func(t *testing.T, holder, other library, _ []*redistest.Server) {
		a, b := holder.mutex("expiring", expiry), other.mutex("expiring", 8*time.Second)
		require.NoError(t, a.TryLock())
		began := time.Now()
		require.NoError(t, b.Lock())
		require.True(t, time.Now().After(a.Until()), "%s got the lock while %s had it", other.name,
			holder.name)
		require.Less(t, time.Since(began), expiry+2*time.Second, "the lock outlived its expiry")

		// The first holder finds out, and does no harm.
		ok, err := a.Extend()
		require.False(t, ok)
		require.Error(t, err)
		ok, err = a.Unlock()
		require.False(t, ok)
		require.Error(t, err)
		ok, err = b.Unlock()
		require.NoError(t, err)
		require.True(t, ok)
	})
}

// Both libraries write the same thing: a string of 128 random bits in base64, with an expiry in
// milliseconds.
func TestKeysLookTheSame(t *testing.T) {
	onBothClients(t, func(t *testing.T, rs, rl library, nodes []*redistest.Server) {
		for _, lib := range []library{rs, rl} {
			m := lib.mutex("look", 5*time.Second)
			require.NoError(t, m.TryLock(), lib.name)
			require.Len(t, m.Value(), 24, lib.name)
			holds(t, nodes, m.Name(), m.Value())
			for i, node := range nodes {
				at := fmt.Sprintf("%s, node %d", lib.name, i)
				ttl, _ := node.Must("PTTL", m.Name()).(int64)
				require.Greater(t, ttl, int64(0), at)
				require.LessOrEqual(t, ttl, int64(5000), at)
			}
			_, err := m.Unlock()
			require.NoError(t, err, lib.name)
			holds(t, nodes, m.Name(), nil)
		}
	})
}

// holds waits until every node has value (nil: nothing) at key. redlock returns when a quorum
// has decided; the other nodes follow.
func holds(t *testing.T, nodes []*redistest.Server, key string, value any) {
	t.Helper()
	for i, node := range nodes {
		require.Eventually(t, func() bool { return node.Must("GET", key) == value },
			5*time.Second, time.Millisecond, "node %d does not come to hold %v", i, value)
	}
}
