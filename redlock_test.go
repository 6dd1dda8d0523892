package redlock_test

import (
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
		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
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
