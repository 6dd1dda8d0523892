package redlock_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// Most tests of the package are in internal/test/behaviour.

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bubble runs f in virtual time with n simulated nodes and a Redlock on them. When f has
// returned, nothing may be left: no command in a client's hands, no goroutine, no timer that
// would keep the bubble from ending.
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

// mustUnlock unlocks m, which holds its lock.
func mustUnlock(t *testing.T, m *redlock.Mutex) {
	t.Helper()
	ok, err := m.Unlock()
	require.NoError(t, err)
	assert.True(t, ok)
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

func TestCloseWaitsForCommandsUnderWayAndNotLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		nodes[0].Always(sim.Deaf(sim.Slow(300 * time.Millisecond)))
		rl := redlock.New(nodes.Pools("a")...)
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		start := time.Now()
		require.NoError(t, rl.Close())
		assert.Equal(t, 300*time.Millisecond, time.Since(start))
		require.ErrorIs(t, m.Lock(), redlock.ErrClosed)

		nodes[0].Always(sim.Deaf(sim.Hang()))
		_, err := m.Unlock()
		require.NoError(t, err, "a lock can be unlocked after Close")
		start = time.Now()
		require.NoError(t, rl.Close(), "nothing is held")
		assert.Equal(t, redlock.DefaultExpiry/20, time.Since(start),
			"the client may keep its commands")
		nodes.Close()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { assert.NoError(t, rl.Close()) })
		}
		both.Wait()
	})
}

// lesson L71: a method that happens to be called Now is no clock for the lock.
func TestAPoolThatTellsTheTimeIsNotTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &timetable{Link: sim.NewNodes(1)[0].Link("a")}
		m := redlock.New(p).NewMutex("x")
		require.NoError(t, m.Lock())
		assert.Equal(t, time.Now().Add(redlock.DefaultExpiry*99/100-2*time.Millisecond), m.Until())
		mustUnlock(t, m)
		assert.Zero(t, p.asked)
	})
}

// timetable has methods with names that are not its alone.
type timetable struct {
	*sim.Link
	asked int
}

func (p *timetable) Now() time.Time {
	p.asked++
	return time.Now().Add(time.Hour)
}

func (p *timetable) Jitter(time.Duration) time.Duration {
	p.asked++
	return 0
}
