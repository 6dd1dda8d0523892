package behaviour_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

func TestDoHoldsTheLockAsLongAsFnRuns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		var inside context.Context
		ctx := context.WithValue(t.Context(), ctxKey{}, "value")
		require.NoError(t, rl.Do(ctx, "x", func(ctx context.Context) error {
			inside = ctx
			assert.Equal(t, "value", ctx.Value(ctxKey{}))
			time.Sleep(time.Minute)
			require.NoError(t, ctx.Err())
			assert.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrTaken)
			return nil
		}))
		assert.ErrorIs(t, context.Cause(inside), redlock.ErrReleased)
		synctest.Wait()
		assert.Empty(t, holders(nodes, "x"))
	})
}

// lesson L36
func TestDoCallsFnOnlyIfItHoldsTheLock(t *testing.T) {
	dead, cancel := context.WithCancelCause(context.Background())
	cancel(errOops)
	for name, tt := range map[string]struct {
		prepare func(nodes sim.Nodes, rl *redlock.Redlock)
		ctx     context.Context
		opts    []redlock.Option
		want    error
	}{
		"taken": {want: redlock.ErrTaken, prepare: func(nodes sim.Nodes, _ *redlock.Redlock) {
			for _, n := range nodes[:2] {
				n.Set("x", "somebody else's", 0)
			}
		}},
		"no quorum": {want: redlock.ErrNoQuorum,
			prepare: func(nodes sim.Nodes, _ *redlock.Redlock) {
				nodes[0].Crash()
				nodes[1].Crash()
			}},
		"granted too late": {want: redlock.ErrExpired,
			opts: []redlock.Option{redlock.WithNodeTimeout(redlock.DefaultExpiry),
				redlock.WithTries(1)},
			prepare: func(nodes sim.Nodes, _ *redlock.Redlock) {
				all(nodes, sim.Fate{Reply: redlock.DefaultExpiry - 10*time.Millisecond})
			}},
		"dead context": {want: errOops, ctx: dead},
		"closed": {want: redlock.ErrClosed,
			prepare: func(_ sim.Nodes, rl *redlock.Redlock) { _ = rl.Close() }},
		"bad option": {want: redlock.ErrFailed, opts: []redlock.Option{redlock.WithTries(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				if tt.prepare != nil {
					tt.prepare(nodes, rl)
				}
				ctx := tt.ctx
				if ctx == nil {
					ctx = t.Context()
				}
				err := rl.Do(ctx, "x", func(context.Context) error {
					t.Error("called")
					return nil
				}, append([]redlock.Option{redlock.WithTries(2)}, tt.opts...)...)
				assert.ErrorIs(t, err, tt.want)
				assert.ErrorIs(t, err, redlock.ErrFailed)
			})
		})
	}
}

// lesson L36
func TestDoJoinsErrors(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		assert.Equal(t, errOops.Error(), rl.Do(t.Context(), "x",
			func(context.Context) error { return errOops }).Error())

		err := rl.Do(t.Context(), "x", func(context.Context) error {
			synctest.Wait()
			nodes[0].Flush()
			nodes[1].Flush()
			return errOops
		})
		assert.ErrorIs(t, err, errOops)
		assert.ErrorIs(t, err, redlock.ErrExpired)
	})
}

func TestDoSaysThatTheLockWasLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		err := rl.Do(t.Context(), "x", func(ctx context.Context) error {
			synctest.Wait()
			all(nodes, sim.Hang())
			cause := lossOf(t, ctx)
			all(nodes, sim.Fate{})
			assert.ErrorIs(t, cause, redlock.ErrNoQuorum)
			return nil // did not notice
		})
		assert.ErrorIs(t, err, redlock.ErrLost)
	})
}

func TestDoReleasesAlsoIfFnPanicsOrExits(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic(errOops) },
		"Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				over := make(chan any)
				var inside context.Context
				go func() {
					defer func() { over <- recover() }()
					_ = rl.Do(t.Context(), "x", func(ctx context.Context) error {
						inside = ctx
						synctest.Wait()
						leave()
						return nil
					})
				}()
				if name == "panic" {
					assert.Equal(t, errOops, <-over, "goes on to the caller")
				} else {
					assert.Nil(t, <-over)
				}
				assert.ErrorIs(t, context.Cause(inside), redlock.ErrReleased)
				synctest.Wait()
				assert.Empty(t, holders(nodes, "x"))
			})
		})
	}
}

// The lock is released though the context that it was acquired with has ended.
func TestDoReleasesWithADeadContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		require.NoError(t, rl.Do(ctx, "x", func(held context.Context) error {
			cancel(why)
			assert.Equal(t, why, context.Cause(held))
			return nil
		}))
		synctest.Wait()
		assert.Empty(t, holders(nodes, "x"))
	})
}

// After fn has succeeded, an error says that the lock was not released: it is no failed work.
// Before fn ran, and where fn itself fails, it says something else. lesson L154
func TestDoTellsWorkThatWasDoneFromWorkThatFailed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		ran := false
		err := rl.Do(t.Context(), "x", func(context.Context) error {
			ran = true
			for _, n := range nodes[1:] {
				n.Always(sim.FailAfter(errOops))
			}
			return nil
		})
		assert.True(t, ran)
		assert.ErrorIs(t, err, redlock.ErrNotReleased)
		assert.ErrorIs(t, err, redlock.ErrNoQuorum)
		assert.NotErrorIs(t, err, redlock.ErrFailed)

		err = rl.Do(t.Context(), "y", func(context.Context) error {
			t.Error("called without the lock")
			return nil
		}, redlock.WithTries(1))
		assert.ErrorIs(t, err, redlock.ErrFailed)
		assert.NotErrorIs(t, err, redlock.ErrNotReleased)

		for _, n := range nodes {
			n.Always(sim.Fate{})
		}
		err = rl.Do(t.Context(), "z", func(context.Context) error { return errOops })
		assert.Equal(t, errOops, err)
	})
}

// Close gives the lock back under fn, which has been told by its context. Do says so, and not
// that there was nothing to unlock.
func TestDoSaysThatCloseReleasedTheLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		err := rl.Do(t.Context(), "x", func(ctx context.Context) error {
			require.NoError(t, rl.Close())
			assert.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
			return errOops
		})
		assert.ErrorIs(t, err, errOops)
		assert.ErrorIs(t, err, redlock.ErrReleased)
		assert.NotErrorIs(t, err, redlock.ErrNotHeld)
	})
}

// Where fn returns and Close comes at the same moment, either of them releases.
func TestDoAndCloseAtOnce(t *testing.T) {
	outcomes := map[bool]int{}
	for range 300 {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			all(nodes, sim.Slow(10*time.Millisecond))
			var task sync.WaitGroup
			task.Go(func() {
				time.Sleep(time.Second)
				assert.NoError(t, rl.Close())
			})
			start := time.Now()
			err := rl.Do(t.Context(), "x", func(context.Context) error {
				time.Sleep(time.Until(start.Add(time.Second)))
				return nil
			})
			outcomes[err == nil]++
			if err != nil {
				assert.ErrorIs(t, err, redlock.ErrReleased)
				assert.NotErrorIs(t, err, redlock.ErrNotHeld)
			}
			task.Wait()
			landed()
			assert.Zero(t, keys(nodes))
		})
	}
	t.Log(outcomes)
}

// observed is a pool that tells when the library looks at the clock.
type observed struct {
	*sim.Link
	look func()
}

func (o observed) Clock() clock.Own {
	return clock.Own{Now: func() time.Time {
		o.look()
		return time.Now()
	}}
}

// lesson L36: Close comes whenever the library looks at the clock, once at each time. After it,
// fn is not called.
func TestDoDoesNotCallFnAfterClose(t *testing.T) {
	called := false
	for at := 1; !called; at++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := sim.NewNodes(3)
			pools := nodes.Pools("a")
			var rl *redlock.Redlock
			looks := 0
			pools[0] = observed{nodes[0].Link("a"), func() {
				if looks++; looks == at && !called {
					_ = rl.Close()
				}
			}}
			rl = redlock.New(pools...)
			err := rl.Do(t.Context(), "x", func(context.Context) error {
				assert.Less(t, looks, at)
				called = true
				return nil
			})
			if !called {
				assert.ErrorIs(t, err, redlock.ErrClosed, "closed at look %d", at)
				assert.ErrorIs(t, err, redlock.ErrFailed)
			}
			require.NoError(t, rl.Close())
			landed()
			assert.Zero(t, keys(nodes))
			nodes.Close()
		})
		require.Less(t, at, 100)
	}
}
