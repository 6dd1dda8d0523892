package behaviour_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// moments are the times, since the start, at which something happens between a client and its
// nodes.
type moments struct {
	start time.Time
	mu    sync.Mutex
	at    []time.Duration
}

func (m *moments) now() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Since(m.start))
}

// watched is a pool whose calls and returns are moments.
type watched struct {
	*sim.Link
	m *moments
}

func (w watched) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	w.m.now()
	defer w.m.now()
	return w.Link.SetNX(ctx, key, value, expiry)
}

func (w watched) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any,
	error) {
	w.m.now()
	defer w.m.now()
	return w.Link.Eval(ctx, s, keys, args...)
}

func (w watched) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	w.m.now()
	defer w.m.now()
	return w.Link.Subscribe(ctx, channel)
}

// lesson L12, L20: however a Lock is cut short, it returns at once, with an error or with the
// lock, and when what was under way has landed, no key is left on a node that answers.
func TestLockCanBeCancelledAtEveryStep(t *testing.T) {
	const ms = time.Millisecond
	slow := func(nodes sim.Nodes) {
		for i, n := range nodes {
			n.Always(sim.Fate{Request: time.Duration(i+1) * ms, Reply: time.Duration(2*i+2) * ms})
		}
	}
	for name, tt := range map[string]struct {
		prepare func(nodes sim.Nodes)
		opts    []redlock.Option
		silent  int // nodes, at the end of the list, that never answer
	}{
		"all answer": {prepare: slow},
		"taken, then free": {prepare: func(nodes sim.Nodes) {
			slow(nodes)
			for _, n := range nodes {
				n.Set("x", "somebody else's", 300*ms)
			}
		}},
		"taken, no announcements": {prepare: func(nodes sim.Nodes) {
			slow(nodes)
			for _, n := range nodes[:3] {
				n.Set("x", "somebody else's", 300*ms)
			}
		}, opts: []redlock.Option{redlock.WithPolling()}},
		"final try, refused by its own key": {prepare: func(nodes sim.Nodes) {
			slow(nodes)
			for _, n := range nodes {
				n.Next("set", sim.Fate{Request: 3 * ms, Reply: 3 * ms, ReplyLost: true,
					Again: 5 * ms})
			}
		}, opts: []redlock.Option{redlock.WithTries(1)}},
		"late requests": {prepare: func(nodes sim.Nodes) {
			slow(nodes)
			for _, n := range nodes {
				n.Next("set", sim.Fate{Request: 120 * ms})
			}
		}},
		"late requests, deaf client": {prepare: func(nodes sim.Nodes) {
			slow(nodes)
			for _, n := range nodes[1:] {
				n.Next("set", sim.Fate{Request: 350 * ms, Reply: 5 * ms, Deaf: true})
			}
		}},
		"two of five hang": {prepare: func(nodes sim.Nodes) {
			slow(nodes)
			nodes[3].Always(sim.Hang())
			nodes[4].Always(sim.Deaf(sim.Hang()))
		}, silent: 2},
		"fencing, counters disagree": {prepare: func(nodes sim.Nodes) {
			slow(nodes)
			for i, n := range nodes[:4] {
				n.Set(fenceOf("x"), "900719925474000"+string(rune('0'+i)), 0)
			}
		}, opts: []redlock.Option{redlock.WithFencing()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := append([]redlock.Option{
				redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(100 * ms),
				redlock.WithRetryDelay(40 * ms), redlock.WithTries(20),
			}, tt.opts...)
			// play runs it once, cancelled at that time, and returns the moments and how long it
			// took.
			play := func(t *testing.T, at time.Duration) (m *moments, took time.Duration,
				held bool) {
				synctest.Test(t, func(t *testing.T) {
					nodes := sim.NewNodes(5)
					defer nodes.Close()
					tt.prepare(nodes)
					m = &moments{start: time.Now()}
					var pools []pool.Pool
					for _, n := range nodes {
						pools = append(pools, watched{n.Link("a"), m})
					}
					rl := redlock.New(pools...).With(opts...)
					mutex := rl.NewMutex("x")
					cause := errors.New("the caller's reason")
					ctx, cancel := context.WithCancelCause(t.Context())
					stop := time.AfterFunc(at, func() { cancel(cause) })
					err := mutex.LockContext(ctx)
					took = time.Since(m.start)
					stop.Stop()
					held = err == nil
					landed()
					if held {
						assert.GreaterOrEqual(t, holders(nodes, "x")[mutex.Value()], 3)
						mustUnlock(t, mutex)
						landed()
					} else {
						assert.ErrorIs(t, err, context.Canceled)
						assert.ErrorIs(t, err, cause)
						assert.ErrorIs(t, err, redlock.ErrFailed)
						assert.LessOrEqual(t, took, at+10*ms, "returns at once")
						assert.Empty(t, mutex.Value())
						assert.Zero(t, mutex.Until())
						assert.Zero(t, mutex.FencingToken())
					}
					answering := nodes[:5-tt.silent]
					assert.Empty(t, holders(answering, "x"), "cancelled at %v", at)
					nodes.Close()
					require.NoError(t, rl.Close())
				})
				return m, took, held
			}
			m, whole, held := play(t, time.Hour)
			require.True(t, held)
			var sweep []time.Duration
			for at := time.Duration(0); at <= whole; at += whole / 50 {
				sweep = append(sweep, at)
			}
			for _, at := range m.at {
				if at <= whole {
					sweep = append(sweep, max(at-1, 0), at, at+1)
				}
			}
			slices.Sort(sweep)
			sweep = slices.Compact(sweep)
			cancelled := 0
			for _, at := range sweep {
				if _, _, held := play(t, at); !held {
					cancelled++
				}
			}
			assert.Greater(t, cancelled, 8)
			t.Logf("cancelled at %d of %d moments within %v", cancelled, len(sweep), whole)
		})
	}
}

// lesson L12: the context that ended is no reason not to release.
func TestUnlockWorksWithADeadContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Always(sim.Slow(10 * time.Millisecond))
		}
		ctx, cancel := context.WithCancel(t.Context())
		m := rl.NewMutex("x")
		require.NoError(t, m.LockContext(ctx))
		cancel()
		ok, err := m.UnlockContext(ctx)
		require.NoError(t, err)
		assert.True(t, ok)
		landed()
		assert.Empty(t, holders(nodes, "x"))
	}, redlock.WithExpiry(time.Minute))
}

func TestACancelledExtendLeavesTheLockAsItWas(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		until := m.Until()
		for _, n := range nodes {
			n.Always(sim.Hang())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := m.ExtendContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, until, m.Until())
		for _, n := range nodes {
			n.Always(sim.Fate{})
		}
		_, err = m.Extend()
		require.NoError(t, err)
		assert.Equal(t, until.Add(2*time.Second), m.Until().Add(time.Second))
		mustUnlock(t, m)
	}, redlock.WithExpiry(time.Minute))
}
