package behaviour_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"
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

// A hundred of them take some minutes:
//
//	go test . -run TestAnEmptyRestart -trials 100 -v
var trials = flag.Int("trials", 3, "how often, with each client, a server is killed under a lock")

// outOfReach is a node that a client cannot talk to.
type outOfReach struct{ _ byte }

func (*outOfReach) SetNX(context.Context, string, string, time.Duration) (bool, error) {
	return false, errOops
}

func (*outOfReach) Eval(context.Context, *pool.Script, []string, ...any) (any, error) {
	return nil, errOops
}

// reaching returns a Redlock on all servers for a client that can talk only to some.
func reaching(t *testing.T, newPool func(testing.TB, string) pool.Pool, servers []*redistest.Server,
	some ...int) *redlock.Redlock {
	pools := make([]pool.Pool, len(servers))
	for i := range pools {
		pools[i] = &outOfReach{}
	}
	for _, i := range some {
		pools[i] = newPool(t, servers[i].Addr())
	}
	rl := redlock.New(pools...).With(patient)
	t.Cleanup(func() { mustClose(t, rl) })
	return rl
}

// A holds servers 0 to 2, and B reaches 2 to 4. Server 2 is killed and is back at once, empty:
// then B is granted the lock as well; but with the restart guard not before A's is over.
func TestAnEmptyRestartUnderALock(t *testing.T) {
	t.Parallel()
	names := []string{"plain", "{tag}:name", "a{tag}b"}
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 5)
			a, b := reaching(t, newPool, servers, 0, 1, 2), reaching(t, newPool, servers, 2, 3, 4)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()

			// trial returns A's lock, and B's, which it has been granted as soon as it could.
			trial := func(t *testing.T, i int, opts ...redlock.Option) (ma, mb *redlock.Mutex) {
				opts = append([]redlock.Option{redlock.WithFencing(),
					redlock.WithTries(redlock.Unlimited),
					redlock.WithRetryDelay(20 * time.Millisecond)}, opts...)
				name := names[i%len(names)]
				ma, mb = a.NewMutex(name, opts...), b.NewMutex(name, opts...)
				require.NoError(t, ma.LockContext(ctx))
				require.ErrorIs(t, mb.TryLock(), redlock.ErrFailed, "while server 2 remembers")
				servers[2].Restart()
				require.NoError(t, mb.LockContext(ctx))
				require.Greater(t, mb.FencingToken(), ma.FencingToken())
				return ma, mb
			}

			t.Run("without the guard", func(t *testing.T) {
				for i := range *trials {
					ma, mb := trial(t, i, redlock.WithExpiry(10*time.Second),
						redlock.WithNodeTimeout(time.Second))
					now := time.Now()
					require.True(t, now.Before(ma.Until()) && now.Before(mb.Until()), "two holders")
					_, _ = mb.Unlock()
					_, _ = ma.Unlock() // two nodes: no quorum
				}
			})
			t.Run("with the guard", func(t *testing.T) {
				var least time.Duration
				for i := range *trials {
					// Servers tell their uptime in whole seconds, and B has just waited for the
					// end of one: begin somewhere else within a second, where a guard that is too
					// short by a part of one would show.
					time.Sleep([]time.Duration{500, 250, 750, 0}[i%4] * time.Millisecond)
					ma, mb := trial(t, i, redlock.WithExpiry(time.Second),
						redlock.WithNodeTimeout(200*time.Millisecond),
						redlock.WithRestartGuard(time.Second))
					// The attempt that was granted the lock began so long after A's had to stop.
					later := mb.Until().Sub(ma.Until())
					require.Greater(t, later, time.Second-drift(time.Second, 0.01),
						"trial %d: two holders", i)
					if least == 0 || later < least {
						least = later
					}
					_, _ = mb.Unlock()
					_, _ = ma.Unlock()
				}
				t.Logf("%d trials: B's lock ended at least %v after A's", *trials, least)
			})
		})
	}
}

// What the guard says on a real server is how long it goes on refusing, in whole seconds, and the
// truth.
//
// lesson L97: the server may take its time. Only what an answer says of another is asserted.
func TestAGuardedServerSaysHowLongItRefuses(t *testing.T) {
	t.Parallel()
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, 1)[0]
			rl := reaching(t, newPool, []*redistest.Server{server}, 0)
			// The longest that the guard allows, for a busy machine.
			const expiry = 1500 * time.Millisecond
			m := rl.NewMutex("x", redlock.WithExpiry(expiry), redlock.WithNodeTimeout(expiry),
				redlock.WithRestartGuard(expiry))
			var over time.Time // by the first refusal
			refusals := 0
			eventually(t, "the guard to let the lock pass", func() bool {
				begun := time.Now()
				err := m.TryLock()
				if err == nil {
					return true
				}
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				var guard *redlock.GuardError
				if !errors.As(err, &guard) {
					return false // the machine is so busy that the server did not answer
				}
				refusals++
				if over.IsZero() {
					over = time.Now().Add(guard.Wait)
				}
				var node *redlock.NodeError
				require.ErrorAs(t, err, &node)
				assert.Equal(t, 0, node.Node)
				assert.ErrorContains(t, err, fmt.Sprintf("takes part again in %v", guard.Wait))
				assert.Greater(t, guard.Wait, time.Duration(0))
				assert.LessOrEqual(t, guard.Wait, 3*time.Second,
					"1.5 s counts as 2 s, and a second more")
				assert.True(t, begun.Before(over), "refused %v after the guard should have ended",
					begun.Sub(over))
				return false
			})
			assert.NotZero(t, refusals, "a server that has just been started")
			info, _ := server.Must("INFO", "server").(string)
			_, uptime, _ := strings.Cut(info, "uptime_in_seconds:")
			uptime, _, _ = strings.Cut(uptime, "\r\n")
			up, err := strconv.Atoi(uptime)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, up, 3, "seconds that the server has been up")
			assert.Zero(t, m.FencingToken())
			if _, err := m.Unlock(); err != nil {
				assert.ErrorIs(t, err, redlock.ErrExpired, "as on a busy machine")
			}
		})
	}
}

// The guard keeps others out, and lets the holder heal a server once it has been up for three
// node timeouts.
//
// lesson L97: an extension needs both of the other servers, and so waits until both have the key.
func TestAHolderHealsAGuardedServer(t *testing.T) {
	t.Parallel()
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 3)
			rl := reaching(t, newPool, servers, 0, 1, 2)
			const expiry, nodeTimeout = time.Minute, time.Second
			m := rl.NewMutex("{x}", redlock.WithFencing(), redlock.WithExpiry(expiry))
			require.NoError(t, m.Lock())
			for i, s := range servers {
				eventually(t, fmt.Sprintf("the key on server %d", i),
					func() bool { return s.Must("GET", "{x}") == m.Value() })
			}
			taker := rl.NewMutex("{x}", redlock.WithValue(m.Value()), redlock.WithExpiry(expiry),
				redlock.WithNodeTimeout(nodeTimeout),
				redlock.WithRestartGuard(time.Hour), redlock.WithFencing())
			down := time.Now()
			servers[2].Restart()
			eventually(t, "a healed server", func() bool {
				if _, err := taker.Extend(); err != nil {
					require.ErrorIs(t, err, redlock.ErrNodeTimeout, "as on a busy machine")
				}
				return servers[2].Must("GET", "{x}") == m.Value()
			})
			assert.Greater(t, time.Since(down), 3*nodeTimeout)
			err := rl.NewMutex("{y}", redlock.WithRestartGuard(time.Hour)).TryLock()
			var guard *redlock.GuardError
			require.ErrorAs(t, err, &guard, "nobody else")
			mustUnlock(t, m)
		})
	}
}

// stopping is the context of a process that can be stopped where a round begins.
type stopping struct {
	context.Context
	stop func()
}

func (s stopping) Done() <-chan struct{} {
	s.stop()
	return s.Context.Done()
}

// With the guard an attempt has three node timeouts, a little less for its clock, because healing
// waits for those.
func TestAGuardedAttemptMustNotTakeTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3 * 400 * time.Millisecond * 99 / 100
		for _, tt := range []struct {
			takes time.Duration
			late  bool
			opts  []redlock.Option
		}{
			{limit - 1, false, []redlock.Option{redlock.WithRestartGuard(8 * time.Second)}},
			{limit, true, []redlock.Option{redlock.WithRestartGuard(8 * time.Second)}},
			{limit, false, nil},
			{limit, false, []redlock.Option{redlock.WithRestartGuard(8 * time.Second),
				redlock.WithDriftFactor(0)}},
		} {
			m := redlock.New(sim.NewNodes(3).Pools("a")...).NewMutex("x", tt.opts...)
			once := false
			err := m.TryLockContext(stopping{t.Context(), func() {
				if !once {
					once = true
					time.Sleep(tt.takes)
				}
			}})
			if !tt.late {
				require.NoError(t, err)
				mustUnlock(t, m)
				continue
			}
			require.ErrorIs(t, err, redlock.ErrFailed)
			require.ErrorIs(t, err, redlock.ErrExpired)
			assert.ErrorContains(t, err, "granted by a quorum, but too late: in more than 3 node "+
				"timeouts of 400ms")
		}
	})
}

// lesson L96: once a server has been up for long enough, its vote is taken at once. Until then it
// refuses by the guard, and never says that the lock is taken, which it is not.
func TestAGuardedServerIsNeverTakenForAHolder(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			rl := redlock.New(newPool(t, redistest.Start(t, 1)[0].Addr()))
			m := rl.NewMutex("x", redlock.WithExpiry(time.Second),
				redlock.WithNodeTimeout(time.Second), redlock.WithRestartGuard(time.Second))
			eventually(t, "a server that has been up for long enough", func() bool {
				err := m.TryLock()
				require.NotErrorIs(t, err, redlock.ErrTaken)
				return err == nil
			})
			_, _ = m.Unlock()
			mustClose(t, rl)
		})
	}
}

// lesson L66: whatever time a node names, it refuses for no less.
func TestARefusalByTheGuardForVeryLong(t *testing.T) {
	for reply, want := range map[int64]time.Duration{
		-1: time.Second, -9_223_372_036: 9_223_372_036 * time.Second,
		-9_223_372_037: math.MaxInt64, math.MinInt64 + 1: math.MaxInt64,
		math.MinInt64: math.MaxInt64,
	} {
		synctest.Test(t, func(t *testing.T) {
			rl := redlock.New(&stubborn{reply: reply})
			err := rl.NewMutex("x", redlock.WithRestartGuard(time.Minute)).TryLock()
			var guard *redlock.GuardError
			require.ErrorAs(t, err, &guard, "%d", reply)
			assert.Equal(t, want, guard.Wait, "%d", reply)
			mustClose(t, rl)
		})
	}
}
