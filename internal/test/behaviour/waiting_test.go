package behaviour_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// longWaits notes what is told of those who wait for long.
type longWaits struct {
	mu  sync.Mutex
	all []redlock.Waiting
}

func (l *longWaits) option() redlock.Option {
	return redlock.WithEvents(&redlock.Events{Waiting: func(w redlock.Waiting) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, w)
	}})
}

// take returns what was told, and forgets it.
func (l *longWaits) take() []redlock.Waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// within waits for the lock until a context of that duration ends.
func within(t *testing.T, m *redlock.Mutex, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return m.LockContext(ctx)
}

// Whoever waits for long is told why, ever more rarely. lesson L155
func TestALongWaitIsTold(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		var told longWaits
		holder, other := rl.NewMutex("x"), redlock.New(nodes.Pools("other")...)
		mustHold(t, holder)
		unlimited := redlock.WithTries(redlock.Unlimited)
		var tasks sync.WaitGroup
		tasks.Go(func() { assert.Error(t, within(t, other.NewMutex("x", unlimited), time.Minute)) })
		synctest.Wait()

		third := redlock.New(nodes.Pools("third")...).With(unlimited, told.option())
		m := third.NewMutex("x")
		tasks.Go(func() { assert.Error(t, within(t, m, 40*time.Second)) })
		time.Sleep(1900 * time.Millisecond)
		assert.Empty(t, told.take())
		time.Sleep(38 * time.Second)
		var waited []time.Duration
		for _, w := range told.take() {
			waited = append(waited, w.Waited.Round(time.Second))
			assert.Equal(t, "x", w.Name)
			assert.Equal(t, redlock.Unlimited, w.Tries)
			assert.Equal(t, 1, w.Callers)
			assert.Equal(t, 1, w.Ahead)
			assert.ErrorIs(t, w.Err, redlock.ErrTaken)
			assert.ErrorContains(t, w.Err, `redlock: "x" not acquired: taken on 3 of 3 nodes`)
		}
		assert.Equal(t, []time.Duration{2e9, 4e9, 8e9, 16e9, 32e9}, waited)
		tasks.Wait()
		mustUnlock(t, holder)
		require.NoError(t, m.Lock())
		time.Sleep(time.Minute)
		assert.Empty(t, told.take(), "nobody waits any more")
		assert.NoError(t, third.Close())
		assert.NoError(t, other.Close())
	})
}

// Many who wait for one lock are told of by the first, and no more often the longer they wait.
func TestACrowdThatWaitsIsToldOfRarely(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		var told longWaits
		rl = rl.With(redlock.WithTries(redlock.Unlimited), told.option())
		var tasks sync.WaitGroup
		for range 200 {
			tasks.Go(func() {
				m := rl.NewMutex("x")
				assert.NoError(t, m.Lock())
				time.Sleep(100 * time.Millisecond)
				mustUnlock(t, m)
			})
		}
		tasks.Wait()
		all := told.take()
		require.NotEmpty(t, all)
		assert.LessOrEqual(t, len(all), 5, "in 20 seconds")
		assert.InDelta(t, 180, all[0].Callers, 2)
	})
}

// Nodes that refuse are a reason to warn, and the log says what they say.
func TestALongWaitForTheNodesIsAWarning(t *testing.T) {
	lines := logged(t, slog.LevelWarn,
		func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for _, n := range nodes {
				n.Always(sim.Fail(errOops))
			}
			m := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited))
			assert.Error(t, within(t, m, 3*time.Second))
		})
	assert.Contains(t, strings.Join(lines, "\n"), `level=WARN `+
		`msg="redlock: still waiting for the lock" lock=x waited=2s callers=1 ahead=0 `+
		`err="redlock: \"x\" not acquired: no quorum: granted by 0 of 3 nodes`)

	lines = logged(t, slog.LevelInfo,
		func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			nodes[0].Set("x", "other", 0)
			nodes[1].Set("x", "other", 0)
			assert.ErrorIs(t, within(t, rl.NewMutex("x"), 3*time.Second), redlock.ErrTaken)
		})
	assert.Contains(t, strings.Join(lines, "\n"),
		`level=INFO msg="redlock: still waiting for the lock" lock=x waited=2s`)
}

// A function that the wait's end interrupts has ended when the call returns.
func TestALongWaitEndsWithItsLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		running := false
		rl = rl.With(redlock.WithEvents(&redlock.Events{Waiting: func(redlock.Waiting) {
			running = true
			time.Sleep(5 * time.Second) // it must not block: this one does
			running = false
		}}))
		holder := rl.NewMutex("x")
		mustHold(t, holder)
		assert.Error(t, within(t, rl.NewMutex("x"), 3*time.Second))
		assert.False(t, running)
		mustUnlock(t, holder)
	})
}

// A hold that nobody ends is told of, if somebody wants to know, ever more rarely. lesson L156
func TestALongHoldIsTold(t *testing.T) {
	use := func(after time.Duration) func(*testing.T, sim.Nodes, *redlock.Redlock) {
		return func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x", redlock.WithLongHold(after))
			mustHold(t, m)
			time.Sleep(time.Minute)
			mustUnlock(t, m)
			time.Sleep(time.Hour)
		}
	}
	lines := logged(t, slog.LevelWarn, use(10*time.Second))
	require.Len(t, lines, 3)
	for i, line := range lines {
		said, ok := strings.CutPrefix(line,
			`level=WARN msg="redlock: lock held for long" lock=x held=`)
		held, err := time.ParseDuration(said)
		require.True(t, ok && err == nil, line)
		due := 10 * time.Second << i
		assert.InDelta(t, due.Seconds(), held.Seconds(), due.Seconds()/5)
	}
	assert.Equal(t, []string{""}, logged(t, slog.LevelWarn, use(0)))
	assert.ErrorContains(t, redlock.New(sim.NewNodes(3).Pools("a")...).
		NewMutex("x", redlock.WithLongHold(-1)).Lock(), "WithLongHold(-1ns): must be at least 0")
}
