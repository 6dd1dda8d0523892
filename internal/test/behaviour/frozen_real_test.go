package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// lesson L41: with default client options and one server frozen (SIGSTOP), locks go on as if
// nothing had happened: the client's own timeouts are of seconds, or for ever.
//
// lesson L97, L99: no operation may fail while the other servers answer, not even in one try of
// ten.
func TestOneFrozenServer(t *testing.T) {
	redistest.Require(t)
	for client, newPool := range adapters {
		for _, n := range []int{3, 5} {
			t.Run(fmt.Sprintf("%s/one of %d", client, n),
				func(t *testing.T) { testOneFrozen(t, newPool, n) })
		}
	}
}

func testOneFrozen(t *testing.T, newPool func(testing.TB, string) pool.Pool, n int) {
	rounds := larger(50)
	const nodeTimeout = 400 * time.Millisecond
	// The expiry deletes no key here.
	opts := []redlock.Option{redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(nodeTimeout)}
	servers := redistest.Start(t, n)
	pools := make([]pool.Pool, n)
	for i, s := range servers {
		pools[i] = newPool(t, s.Addr())
	}
	rl := redlock.New(pools...).With(opts...)
	names := 0
	var begun []time.Time // of cycles
	cycle := func() (time.Duration, error) {
		start := time.Now()
		begun = append(begun, start)
		names++
		m := rl.NewMutex(fmt.Sprint("k", names))
		lockErr := m.Lock()
		_, extendErr := m.Extend()
		_, unlockErr := m.Unlock()
		return time.Since(start), errors.Join(lockErr, extendErr, unlockErr)
	}
	measure := func() (median, p99 time.Duration, err error) {
		took := make([]time.Duration, rounds)
		for i := range took {
			var failed error
			took[i], failed = cycle()
			err = errors.Join(err, failed)
		}
		slices.Sort(took)
		return took[rounds/2], took[rounds*99/100], err
	}
	_, err := cycle() // connections, scripts
	require.NoError(t, err)
	last := servers[n-1]
	pulse := redistest.TakePulse(t, servers[:n-1]...)
	for try := 1; ; try++ {
		pulse.Worst()
		healthy, _, err := measure()
		before := runtime.NumGoroutine()
		last.Freeze()
		frozen := time.Now()
		median, p99, failed := measure()
		// A command that waits on the frozen server has a goroutine. There are 64 of them at
		// most, unless more are sent in the quarter of a node timeout that it takes to see that
		// the server is silent.
		time.Sleep(time.Until(frozen.Add(nodeTimeout / 4)))
		goroutines := 0
		for range 4 {
			goroutines = max(goroutines, runtime.NumGoroutine()-before)
			_, _, again := measure()
			failed = errors.Join(failed, again)
		}
		early := 1 // cycles that saw no silence yet
		for _, b := range begun {
			if since := b.Sub(frozen); since >= 0 && since < nodeTimeout/4 {
				early++
			}
		}
		stall := pulse.Worst()
		bound := 64 + 2*3*early
		t.Logf("lock, extend, unlock: median %v healthy, %v with one frozen, p99 %v; %d "+
			"goroutines more, %d at most; pulse %v; %v",
			healthy, median, p99, goroutines, bound, stall, failed)
		for i, s := range servers[:n-1] {
			eventually(t, fmt.Sprintf("no key on healthy server %d", i),
				func() bool { return keysLeft(s) == 0 })
		}
		last.Thaw()
		mustClose(t, rl) // everything returns once the server goes on
		rl = redlock.New(pools...).With(opts...)
		// Where the healthy servers answer a ping in time, they answer a lock in time.
		if stall < nodeTimeout/4 {
			require.NoError(t, errors.Join(err, failed),
				"the latest of the healthy servers' answers to a ping was %v late", stall)
			require.Less(t, p99, nodeTimeout+stall+20*time.Millisecond,
				"no call takes longer than the node timeout")
			require.LessOrEqual(t, goroutines, bound)
			// Other work on the machine can only make the comparison look worse: one good one is
			// enough.
			if median <= 2*healthy {
				return
			}
		}
		if try == 10 {
			redistest.SkipBusy(t, "the healthy servers answered a ping %v late; median %v "+
				"healthy, %v with one frozen", stall, healthy, median)
		}
	}
}

// lesson L118: the default node timeout is two seconds at most, however long a lock lives.
func TestUnlockBesideStoppedServersIsSoonOver(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	for client, newPool := range adapters {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", client, n), func(t *testing.T) {
				t.Parallel()
				servers := redistest.Start(t, n)
				pools := make([]pool.Pool, n)
				for i, s := range servers {
					pools[i] = newPool(t, s.Addr())
				}
				rl := redlock.New(pools...).With(redlock.WithExpiry(6 * time.Hour))
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				for _, s := range servers {
					s.Freeze()
				}
				start := time.Now()
				_, err := m.Unlock()
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.Less(t, time.Since(start), 3*time.Second)
				for _, s := range servers {
					s.Thaw()
				}
				mustClose(t, rl)
			})
		}
	}
}

// lesson L42: whatever is wrong with one server of three, locks work.
func TestOneServerOutOfReach(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	listen := func(t *testing.T, serve func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				serve(c)
			}
		}()
		return l.Addr().String()
	}
	servers := redistest.Start(t, 2)
	for kind, addr := range map[string]func(t *testing.T) string{
		"refused":      func(*testing.T) string { return redistest.Refused },
		"no such host": func(*testing.T) string { return "not..a..name:6379" },
		"reset": func(t *testing.T) string {
			return listen(t, func(c net.Conn) {
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			})
		},
		"garbage": func(t *testing.T) string {
			return listen(t, func(c net.Conn) {
				_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				_ = c.Close()
			})
		},
		"silence": func(t *testing.T) string {
			return listen(t, func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) })
		},
	} {
		for client, newPool := range adapters {
			t.Run(client+"/"+kind, func(t *testing.T) {
				t.Parallel()
				pools := []pool.Pool{newPool(t, addr(t))}
				for _, s := range servers {
					pools = append(pools, newPool(t, s.Addr()))
				}
				rl := redlock.New(pools...).With(patient)
				m := rl.NewMutex(client + "/" + kind)
				for range 3 {
					require.NoError(t, m.Lock())
					_, err := m.Extend()
					require.NoError(t, err)
					_, err = m.Unlock()
					require.NoError(t, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				// A silent server keeps its commands until the client gives up.
				_ = rl.CloseContext(ctx)
			})
		}
	}
}

// lesson L40: every command keeps to one hash slot, whatever the name, and so do announcements,
// which reach who waits.
func TestClusterEnabledServers(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	servers := redistest.Start(t, 3, redistest.Args("--cluster-enabled", "yes",
		"--cluster-node-timeout", "500"))
	for _, s := range servers {
		s.Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	}
	for _, s := range servers {
		clusterReady(t, s)
	}
	for client, newPool := range adapters {
		pools := make([]pool.Pool, 3)
		for i, s := range servers {
			pools[i] = newPool(t, s.Addr())
		}
		rl, second := redlock.New(pools...).With(patient, redlock.WithFencePerName()),
			redlock.New(pools...).With(redlock.WithFencePerName())
		for _, name := range []string{"plain", "with:{tag}:inside", "{all}", "{unclosed",
			"two {a} and {b}"} {
			t.Run(client+"/"+name, func(t *testing.T) {
				m := rl.NewMutex(name, redlock.WithFencing(), redlock.WithExpiry(time.Second),
					redlock.WithNodeTimeout(time.Second),
					redlock.WithRestartGuard(time.Second), redlock.WithTries(redlock.Unlimited))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				held, err := m.Hold(ctx)
				require.NoError(t, err)
				require.NoError(t, held.Err())
				assert.NotZero(t, m.FencingToken())
				for i, s := range servers { // a slower server's key is being set
					eventually(t, fmt.Sprintf("the key on server %d", i),
						func() bool { return s.Must("GET", name) == m.Value() })
				}
				servers[0].Must("DEL", name)
				_, err = m.Extend()
				require.NoError(t, err)
				eventually(t, "a healed key",
					func() bool { return servers[0].Must("EXISTS", name) == int64(1) })
				_, err = m.Valid()
				require.NoError(t, err)
				_, err = m.Unlock()
				require.NoError(t, err)

				m = rl.NewMutex(name, redlock.WithFencing(), redlock.WithExpiry(time.Minute))
				require.NoError(t, m.LockContext(ctx))
				waiter := second.NewMutex(name, redlock.WithFencing(),
					redlock.WithTries(redlock.Unlimited), redlock.WithRetryDelay(time.Hour))
				granted := make(chan error, 1)
				go func() { granted <- waiter.LockContext(ctx) }()
				for _, s := range servers {
					eventually(t, "a place in the queue", func() bool {
						value, _ := s.Must("GET", name).(string)
						return s.Must("EXISTS", queueOf(name)) == int64(1) ||
							strings.HasPrefix(value, "~")
					})
				}
				mustUnlock(t, m)
				require.NoError(t, <-granted, "woken by the announcement")
				mustUnlock(t, waiter)
			})
		}
		mustClose(t, rl, second)
	}
}

// keysLeft returns how many keys a server has, without the greatest ticket of queues: those expire.
func keysLeft(s *redistest.Server) int {
	return len(slices.DeleteFunc(s.Must("KEYS", "*").([]any), func(key any) bool {
		return strings.HasSuffix(key.(string), ":ticket")
	}))
}

// queueOf is the key of a lock's queue, or "" if it has none.
func queueOf(name string) string {
	switch {
	case strings.Contains(name, "}") && hashed(name) == name:
		return ""
	case strings.Contains(name, "}"):
		return name + ":redlock:tag:queue"
	case strings.Contains(name, "{"):
		return "{" + name + "}:redlock:queue"
	}
	return name + ":{" + name + "}:redlock:queue"
}

// lesson L73: a majority of servers is frozen, or killed, while locks are held on them. Each loss
// names these servers and what was wrong with them, and no other.
func TestTheCauseOfALossOnRealServers(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	for client, newPool := range adapters {
		if client == "goredis" {
			// Which says at once that a server is not there.
			newPool = func(t testing.TB, addr string) pool.Pool {
				c := goredislib.NewClient(&goredislib.Options{Addr: addr, DialerRetries: 1})
				t.Cleanup(func() { _ = c.Close() })
				return goredis.NewPool(c)
			}
		}
		for name, fault := range map[string]struct {
			begin, end func(*redistest.Server)
			says       string
		}{
			"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw, silence},
			"refused": {(*redistest.Server).Kill, func(*redistest.Server) {},
				"connection refused|EOF|connection reset"},
		} {
			t.Run(client+"/"+name, func(t *testing.T) {
				t.Parallel()
				const holds, expiry = 20, 8 * time.Second
				servers := redistest.Start(t, 3)
				pools := make([]pool.Pool, len(servers))
				for i, s := range servers {
					pools[i] = newPool(t, s.Addr())
				}
				rl := redlock.New(pools...).With(redlock.WithExpiry(expiry), patient)
				var locks []*redlock.Mutex
				var held []context.Context
				for i := range holds {
					m := rl.NewMutex(fmt.Sprint("k", i))
					ctx, err := m.Hold(t.Context())
					require.NoError(t, err)
					locks, held = append(locks, m), append(held, ctx)
				}
				// A renewal that the fault cuts is not the last that has all its time.
				for _, m := range locks {
					_, err := m.Extend()
					require.NoError(t, err)
				}
				for _, s := range servers[1:] {
					fault.begin(s)
				}
				for _, ctx := range held {
					cause := lossOf(t, ctx)
					for node, says := range named(t, cause) {
						assert.Contains(t, []int{1, 2}, node, cause)
						assert.True(t, mentions(says, fault.says), cause)
					}
					assert.Len(t, named(t, cause), 2, cause)
				}
				for _, s := range servers[1:] {
					fault.end(s)
				}
				mustClose(t, rl)
			})
		}
	}
}
