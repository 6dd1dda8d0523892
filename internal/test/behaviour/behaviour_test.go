// Package behaviour_test tries what package redlock promises, through its exported names.
package behaviour_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
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

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

var errOops = errors.New("oops")

var more = flag.Int("more", 1, "how many times as many and as long trials are")

// larger is a number or a length of trials, times what the flag says.
func larger[N int | uint64 | time.Duration](n N) N { return n * N(*more) }

// counts begins a test that counts what happens in minutes of virtual time, which takes long with
// the race detector. The gate leaves those out there.
func counts(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("counts for long")
	}
}

// beside runs as many shards of a test as there are processors, beside each other.
func beside(t *testing.T, f func(t *testing.T, shard, shards uint64)) {
	t.Run("shards", func(t *testing.T) {
		shards := uint64(runtime.GOMAXPROCS(0))
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				f(t, shard, shards)
			})
		}
	})
}

// bubble runs f in virtual time with n simulated nodes and a Redlock on them. When f has returned,
// nothing may be left that would keep the bubble from ending: no command in flight, no goroutine,
// no timer.
func bubble(t *testing.T, n int, f func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock),
	opts ...redlock.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(n)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...).With(opts...)
		f(t, nodes, rl)
		nodes.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		require.NoError(t, rl.CloseContext(ctx))
	})
}

// drift is what the documentation says it is.
func drift(expiry time.Duration, factor float64) time.Duration {
	d := part(expiry, factor) + 2*time.Millisecond
	if d < 0 { // it is longer than a duration can be
		return math.MaxInt64
	}
	return d
}

// part is the part of d that a factor from 0 to 1 makes.
func part(d time.Duration, factor float64) time.Duration {
	if p := float64(d) * factor; p < float64(d) {
		return time.Duration(p)
	}
	return d
}

// landed waits until all that is under way has arrived, and stays below every expiry in use.
func landed() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// holders counts the nodes that hold each value under key.
func holders(nodes sim.Nodes, key string) map[string]int {
	count := map[string]int{}
	for _, v := range nodes.Values(key) {
		if v != "" {
			count[v]++
		}
	}
	return count
}

// mustUnlock unlocks m, which holds its lock.
func mustUnlock(t *testing.T, m *redlock.Mutex) {
	t.Helper()
	ok, err := m.Unlock()
	require.NoError(t, err)
	assert.True(t, ok)
}

// refused checks the rule that the bool says the same as the error, and returns the error.
func refused(t *testing.T, ok bool, err error) error {
	t.Helper()
	assert.False(t, ok)
	require.Error(t, err)
	return err
}

// lesson L3
func TestNewNeedsNoNodeAndSendsNothing(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Crash()
		}
		m := rl.NewMutex("x")
		assert.Zero(t, nodes.Count(""))
		assert.ErrorIs(t, m.TryLock(), redlock.ErrNoQuorum)
		for _, n := range nodes {
			n.Restart(false)
		}
		assert.NoError(t, m.TryLock())
	})
}

func TestWithLeavesTheOriginalAlone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		long := rl.With(redlock.WithExpiry(time.Hour), redlock.WithKeyPrefix("p:"))
		longer := long.With(redlock.WithExpiry(2 * time.Hour))
		require.NoError(t, longer.NewMutex("x").Lock())
		require.NoError(t, long.NewMutex("y").Lock())
		require.NoError(t, long.NewMutex("z", redlock.WithKeyPrefix("")).Lock())
		require.NoError(t, rl.NewMutex("x").Lock())
		assert.Equal(t, 2*time.Hour, nodes[0].TTL("p:x"))
		assert.Equal(t, time.Hour, nodes[0].TTL("p:y"))
		assert.Equal(t, time.Hour, nodes[0].TTL("z"))
		assert.Equal(t, redlock.DefaultExpiry, nodes[0].TTL("x"))
	})
}

func TestAMutexHasItsNameWithoutThePrefix(t *testing.T) {
	bubble(t, 1, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		assert.Equal(t, "x", rl.NewMutex("x").Name())
	}, redlock.WithKeyPrefix("p:"))
}

// same is a pool that is told apart from others by its value.
type same struct{ id int }

func (same) SetNX(context.Context, string, string, time.Duration) (bool, error) { return true, nil }
func (same) Eval(context.Context, *pool.Script, []string, ...any) (any, error) {
	return int64(1),
		nil
}

// other is a pool that cannot be compared.
type other struct{ _ []int }

func (other) SetNX(context.Context, string, string, time.Duration) (bool, error) {
	return true,
		nil
}
func (other) Eval(context.Context, *pool.Script, []string, ...any) (any, error) {
	return int64(1),
		nil
}

// lesson L10: one pool given twice is refused. lesson L146: so are two pools of one server.
func TestPoolsThatCannotBeAQuorumAreRefused(t *testing.T) {
	a, b := sim.NewNodes(1)[0].Link("a"), sim.NewNodes(1)[0].Link("b")
	at := func(addr string) pool.Pool {
		return addressed{sim.NewNodes(1)[0].Link("c"), func() string { return addr }}
	}
	for text, pools := range map[string][]pool.Pool{
		"redlock: New(no pools): needs at least one pool":                {},
		"redlock: New(pool 1 is nil): needs pools that are not nil":      {a, nil},
		"redlock: New(pool 0 is nil): needs pools that are not nil":      {(*sim.Link)(nil), b},
		"redlock: New(pools 0 and 2 are the same): needs each node once": {a, b, a},
		"redlock: New(pools 1 and 3 have the address 10.0.0.1:6379): " +
			"needs each node once: a server counts once, whatever the database": {
			a, at("10.0.0.1:6379"), at("10.0.0.2:6379"), at("user:secret@10.0.0.1:6379"),
		},
		"redlock: New(pools 1 and 2 are the same): needs each node once": {same{1}, same{2},
			same{2}},
	} {
		t.Run(text, func(t *testing.T) {
			rl := redlock.New(pools...)
			for _, rl := range []*redlock.Redlock{rl, rl.With(redlock.WithTries(2))} {
				for _, m := range []*redlock.Mutex{rl.NewMutex("x"),
					rl.NewMutex("x", redlock.WithValue("v"))} {
					for name, err := range everyOperation(t, m) {
						var option *redlock.OptionError
						require.ErrorAs(t, err, &option, name)
						assert.EqualError(t, option, text)
						assert.Contains(t, err.Error(), text)
					}
				}
			}
			assert.NoError(t, rl.Close())
		})
	}
	assert.NoError(t, redlock.New(same{1}, same{2}, other{}, other{}).NewMutex("x").TryLock())
}

// everyOperation calls everything that speaks to nodes and returns the errors.
func everyOperation(t *testing.T, m *redlock.Mutex) map[string]error {
	t.Helper()
	errs := map[string]error{"Lock": m.Lock(), "TryLock": m.TryLock()}
	_, errs["Hold"] = m.Hold(t.Context())
	for name, call := range map[string]func() (bool, error){"Unlock": m.Unlock, "Extend": m.Extend,
		"Valid": m.Valid} {
		ok, err := call()
		errs[name] = refused(t, ok, err)
	}
	return errs
}
