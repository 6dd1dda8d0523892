package behaviour_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// derivations make a context from a held one, which still says that the caller has the lock, and
// return what ends it.
var derivations = map[string]func(held context.Context, inner *redlock.Mutex) (context.Context,
	func()){
	"itself": func(held context.Context, _ *redlock.Mutex) (context.Context, func()) {
		return held, func() {}
	},
	"with a value": func(held context.Context, _ *redlock.Mutex) (context.Context, func()) {
		return context.WithValue(held, ctxKey{}, "value"), func() {}
	},
	"with a timeout": func(held context.Context, _ *redlock.Mutex) (context.Context, func()) {
		ctx, cancel := context.WithTimeout(held, time.Hour)
		return ctx, cancel
	},
	"without its end": func(held context.Context, _ *redlock.Mutex) (context.Context, func()) {
		return context.WithoutCancel(held), func() {}
	},
	"of a lock within it": func(held context.Context, inner *redlock.Mutex) (context.Context,
		func()) {
		ctx, err := inner.Hold(held)
		if err != nil {
			panic(err)
		}
		return ctx, func() { _, _ = inner.Unlock() }
	},
	"of a lock within it that is over": func(held context.Context,
		inner *redlock.Mutex) (context.Context, func()) {
		ctx, err := inner.Hold(held)
		if err != nil {
			panic(err)
		}
		_, _ = inner.Unlock()
		return context.WithoutCancel(ctx), func() {}
	},
}

// acquisitions are the calls that acquire a lock.
func acquisitions(ctx context.Context, m *redlock.Mutex,
	rl *redlock.Redlock) map[string]func() error {
	return map[string]func() error{
		"LockContext":    func() error { return m.LockContext(ctx) },
		"TryLockContext": func() error { return m.TryLockContext(ctx) },
		"Hold": func() error {
			_, err := m.Hold(ctx)
			return err
		},
		"Do": func() error {
			return rl.Do(ctx, m.Name(), func(context.Context) error {
				panic("called")
			})
		},
	}
}

func TestALockThatWouldWaitForItselfFailsAtOnce(t *testing.T) {
	for name, derive := range derivations {
		for _, n := range []int{1, 3, 5} {
			t.Run(fmt.Sprintf("%s, %d nodes", name, n), func(t *testing.T) {
				bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					m := rl.NewMutex("app:x")
					ctx, over := derive(mustHold(t, m), rl.NewMutex("inner"))
					synctest.Wait()
					start, sent := time.Now(), nodes.Count("")
					// What comes from one New is one, whatever the options.
					for _, l := range []*redlock.Redlock{rl, rl.With(redlock.WithFencing(),
						redlock.WithTries(redlock.Unlimited), redlock.WithPolling())} {
						for what, do := range acquisitions(ctx, l.NewMutex("app:x"), l) {
							assert.Equal(t, "Failed Self Taken", matched(do()), what)
						}
					}
					prefixed := rl.With(redlock.WithKeyPrefix("app:")).NewMutex("x")
					assert.ErrorIs(t, prefixed.LockContext(ctx), redlock.ErrSelf, "the same key")
					assert.ErrorIs(t, m.LockContext(ctx), redlock.ErrSelf, "its own mutex")
					assert.Equal(t, start, time.Now())
					synctest.Wait()
					assert.Equal(t, sent, nodes.Count(""), "nothing is sent")
					over()
					mustUnlock(t, m)
				})
			})
		}
	}
}

// What is no deadlock is none of the library's business.
func TestALockThatDoesNotWaitForItselfIsNotRefusedForThat(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		held := mustHold(t, m)
		for name, other := range map[string]*redlock.Mutex{
			"another name":   rl.NewMutex("y"),
			"another prefix": rl.NewMutex("x", redlock.WithKeyPrefix("app:")),
			"other nodes":    redlock.New(sim.NewNodes(3).Pools("b")...).NewMutex("x"),
		} {
			require.NoError(t, other.LockContext(held), name)
			mustUnlock(t, other)
		}
		elsewhere := redlock.New(nodes.Pools("b")...)
		assert.Equal(t, "Failed Taken", matched(elsewhere.NewMutex("x").TryLockContext(held)),
			"of another New")
		assert.Equal(t, "Failed Taken", matched(rl.NewMutex("x").TryLock()), "another context")
		locked := rl.NewMutex("z")
		require.NoError(t, locked.LockContext(held))
		assert.Equal(t, "Failed Taken", matched(rl.NewMutex("z").TryLockContext(held)),
			"a lock that no context holds")
		mustUnlock(t, locked)

		cancelled, cancel := context.WithCancel(held)
		cancel()
		assert.Equal(t, "Canceled Failed", matched(rl.NewMutex("x").LockContext(cancelled)),
			"the end of the context comes first")
		mustUnlock(t, m)
		require.NoError(t, elsewhere.Close())
	})
}

// A goroutine that outlives a hold may have the lock next, and so may another after the hold was
// lost.
func TestALockAfterTheEndOfTheHoldIsNotRefused(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, nodes sim.Nodes, m *redlock.Mutex){
		"Unlock": func(t *testing.T, _ sim.Nodes, m *redlock.Mutex) { mustUnlock(t, m) },
		"a loss": func(t *testing.T, nodes sim.Nodes, m *redlock.Mutex) {
			for _, n := range nodes {
				n.Flush()
			}
			_, err := m.Extend()
			require.ErrorIs(t, err, redlock.ErrExpired)
		},
		"until": func(_ *testing.T, nodes sim.Nodes, m *redlock.Mutex) {
			all(nodes, sim.Hang())
			time.Sleep(time.Until(m.Until()))
			all(nodes, sim.Fate{})
			time.Sleep(time.Second)
		},
		"WithMaxHold": func(_ *testing.T, _ sim.Nodes, _ *redlock.Mutex) {
			time.Sleep(time.Minute + redlock.DefaultExpiry)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x", redlock.WithMaxHold(time.Minute))
				held := mustHold(t, m)
				synctest.Wait()
				end(t, nodes, m)
				assert.Error(t, held.Err())
				assert.NotErrorIs(t, rl.NewMutex("x").TryLockContext(held), redlock.ErrSelf)
				next := rl.NewMutex("x")
				require.NoError(t, next.TryLockContext(context.WithoutCancel(held)))
				mustUnlock(t, next)
			})
		})
	}
}

// The hold may end at any moment of the question.
func TestAHoldEndsWhileItsContextLocks(t *testing.T) {
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		for range 200 {
			m := rl.NewMutex("x")
			held := mustHold(t, m)
			var all sync.WaitGroup
			all.Go(func() {
				next := rl.NewMutex("x")
				if err := next.LockContext(context.WithoutCancel(held)); err == nil {
					mustUnlock(t, next)
				} else {
					assert.ErrorIs(t, err, redlock.ErrSelf)
				}
			})
			mustUnlock(t, m)
			all.Wait()
		}
	})
}

// Whoever locks with a context that comes from no hold allocates nothing for the question, and a
// hold allocates nothing to be found by it.
func TestToAskWhetherALockIsTheCallersOwnAllocatesNothing(t *testing.T) {
	const pairs = 200
	rl := redlock.New(sim.NewNodes(5).Instants("a")...)
	defer func() { require.NoError(t, rl.Close()) }()
	allocs := func(ctx context.Context) float64 {
		m := rl.NewMutex("x")
		return testing.AllocsPerRun(5, func() {
			for range pairs {
				if m.LockContext(ctx) != nil {
					t.Error("not locked")
				}
				if _, err := m.Unlock(); err != nil {
					t.Error(err)
				}
			}
		}) / pairs
	}
	deep := context.Background()
	for range 20 {
		deep = context.WithValue(deep, ctxKey{}, "value")
	}
	none := allocs(context.Background())
	assert.InDelta(t, none, allocs(deep), 0.4)
	cancelled, cancel := context.WithCancel(deep)
	defer cancel()
	outer := rl.NewMutex("outer")
	held, err := outer.Hold(context.Background())
	require.NoError(t, err)
	assert.InDelta(t, allocs(cancelled), allocs(held), 0.4)
	mustUnlock(t, outer)
}
