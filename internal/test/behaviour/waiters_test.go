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

// waits starts n callers that wait for x, and returns what ends one wait, and when all are over,
// how many have had the lock.
func waits(t *testing.T, rl *redlock.Redlock, n int) (endOne func(), had func() int) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex // guards granted
	granted := 0
	first, end := context.WithCancel(t.Context())
	for i := range n {
		ctx := t.Context()
		if i == 0 {
			ctx = first
		}
		all.Go(func() {
			m := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited))
			if err := m.LockContext(ctx); err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				return
			}
			mu.Lock()
			granted++
			mu.Unlock()
			mustUnlock(t, m)
		})
	}
	synctest.Wait()
	return end, func() int {
		all.Wait()
		end()
		return granted
	}
}

// Who would be one too many is told so at once, and the others have the lock.
func TestNoMoreCallersWaitThanMay(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 300} {
		for name, opts := range map[string][]redlock.Option{
			"the nodes keep a queue": nil, "polling": {redlock.WithPolling()},
		} {
			t.Run(fmt.Sprintf("%d waiters, %s", n, name), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					holder := locked(t, redlock.New(nodes.Pools("b")...))
					rl = rl.With(append(opts, redlock.WithMaxWaiters(n))...)
					endOne, had := waits(t, rl, n)
					sent, start := nodes.Count(""), time.Now()
					text := fmt.Sprintf("redlock: \"x\" not acquired: %d callers of this process "+
						"wait already", n)
					if n == 1 {
						text = "redlock: \"x\" not acquired: 1 caller of this process waits already"
					}
					for what, do := range acquisitions(t.Context(), rl.NewMutex("x"), rl) {
						if what == "TryLockContext" {
							continue
						}
						err := do()
						assert.Equal(t, "Failed Taken", matched(err), what)
						assert.EqualError(t, err, text, what)
					}
					assert.Equal(t, start, time.Now(), "at once")
					assert.Equal(t, sent, nodes.Count(""), "and nothing is sent")
					assert.ErrorContains(t, rl.NewMutex("x").TryLock(), " of 3 nodes (node ",
						"it never waits")

					// Each caller's own bound counts, and one that leaves makes room.
					_, others := waits(t, rl.With(redlock.WithMaxWaiters(redlock.Unlimited)), 2)
					assert.ErrorContains(t, rl.NewMutex("x").Lock(),
						fmt.Sprintf("%d callers of this process wait already", n+2))
					_, more := waits(t, rl.With(redlock.WithMaxWaiters(n+3)), 1)
					endOne()
					synctest.Wait()
					_, last := waits(t, rl.With(redlock.WithMaxWaiters(n+3)), 1)
					mustUnlock(t, holder)
					assert.Equal(t, n-1, had())
					assert.Equal(t, 4, others()+more()+last())
					m := rl.NewMutex("x")
					require.NoError(t, m.Lock(), "nobody waits any more")
					mustUnlock(t, m)
				})
			})
		}
	}
}

// However many come at the same moment, no more wait than may.
func TestAThousandCallersAtOnceAndThreeMayWait(t *testing.T) {
	for _, callers := range []int{0, 1, 4, 5, 1000} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				holder := locked(t, rl)
				var all sync.WaitGroup
				var mu sync.Mutex // guards refused and granted
				refused, granted := 0, 0
				for range callers {
					all.Go(func() {
						m := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited),
							redlock.WithMaxWaiters(3))
						err := m.Lock()
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							granted++
							mustUnlock(t, m)
							return
						}
						refused++
						assert.Equal(t, "Failed Taken", matched(err))
						assert.ErrorContains(t, err, "3 callers of this process wait already")
					})
				}
				synctest.Wait()
				mu.Lock()
				assert.Equal(t, max(callers-3, 0), refused)
				mu.Unlock()
				mustUnlock(t, holder)
				all.Wait()
				assert.Equal(t, min(callers, 3), granted)
			})
		})
	}
}

// A caller that has asked before it finds too many waiting says what it was told.
func TestWhoHasAskedAndMayNotWaitSaysWhatTheNodesSaid(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		holder := locked(t, redlock.New(nodes.Pools("b")...))
		for i, n := range nodes {
			n.Next("set", sim.Slow(time.Duration(10+i)*time.Millisecond))
		}
		failed := make(chan error, 1)
		go func() { failed <- rl.NewMutex("x", redlock.WithMaxWaiters(1)).Lock() }()
		synctest.Wait() // it asks, and nobody waits yet
		_, had := waits(t, rl, 1)
		err := <-failed
		assert.EqualError(t, err, `redlock: "x" not acquired: 1 caller of this process waits `+
			`already; the last attempt: taken on 2 of 3 nodes (node 0: taken; node 1: taken; `+
			`node 2: no answer yet)`)
		assert.Equal(t, "Failed Taken", matched(err))
		mustUnlock(t, holder)
		assert.Equal(t, 1, had())
	})
}

// lesson L111: a caller that has asked before it finds too many waiting leaves nothing on nodes
// that grant its attempt when the others have refused.
func TestWhoHasAskedAndMayNotWaitLeavesNothing(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for i, n := range nodes {
			if i < 3 {
				n.Set("x", "another's", 0)
				n.Next("set", sim.Slow(10*time.Millisecond))
			} else {
				n.Next("set", sim.Slow(100*time.Millisecond))
			}
		}
		failed := make(chan error, 1)
		go func() { failed <- rl.NewMutex("x", redlock.WithMaxWaiters(1)).Lock() }()
		synctest.Wait() // it asks, and nobody waits yet
		leave, _ := waits(t, rl, 1)
		assert.ErrorContains(t, <-failed, "1 caller of this process waits already")
		leave()
		time.Sleep(time.Second) // much less than the expiry
		assert.Equal(t, []string{"another's", "another's", "another's", "", ""}, nodes.Values("x"))
	})
}
