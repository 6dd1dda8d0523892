package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
)

// onNodes runs a test of behaviour with both adapters on n nodes: real servers where there are
// some, embedded ones otherwise.
func onNodes(t *testing.T, n int, f func(t *testing.T, nodes []redistest.Node,
	rl *redlock.Redlock)) {
	t.Helper()
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, n)
			pools := make([]pool.Pool, n)
			for i, node := range nodes {
				pools[i] = newPool(t, node.Addr())
			}
			// None of the nodes is silent on purpose.
			rl := redlock.New(pools...).With(redlock.WithTimeoutFactor(0.5))
			f(t, nodes, rl)
			mustClose(t, rl)
		})
	}
}

// patient gives real nodes the time that they take on a busy machine, and veryPatient that which
// they may take beside many other tests.
var (
	patient     = redlock.WithTimeoutFactor(0.25)
	veryPatient = redlock.WithTimeoutFactor(1)
)

// values returns what the nodes hold under a key, nil for nothing.
func values(nodes []redistest.Node, key string) []any {
	all := make([]any, len(nodes))
	for i, n := range nodes {
		all[i] = n.Must("GET", key)
	}
	return all
}

// everywhere is a value on all of n nodes.
func everywhere(n int, value any) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = value
	}
	return all
}

func TestLockExtendUnlockOnNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, 3, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		const expiry = time.Minute
		m, other := rl.NewMutex("x", redlock.WithExpiry(expiry)), rl.NewMutex("x")
		start := time.Now()
		require.NoError(t, m.Lock())
		eventually(t, "the key on all nodes", func() bool {
			return assert.ObjectsAreEqual(everywhere(3, m.Value()), values(nodes, "x"))
		})
		ttl := nodes[0].Must("PTTL", "x").(int64)
		assert.LessOrEqual(t, ttl, expiry.Milliseconds())
		assert.Greater(t, ttl, (expiry-time.Since(start)).Milliseconds()-2)

		require.ErrorIs(t, other.TryLock(), redlock.ErrTaken)
		until := m.Until()
		for _, call := range []func() (bool, error){m.Extend, m.Valid} {
			ok, err := call()
			require.NoError(t, err)
			assert.True(t, ok)
		}
		assert.True(t, m.Until().After(until))

		mustUnlock(t, m)
		eventually(t, "no key", func() bool {
			return assert.ObjectsAreEqual(everywhere(3, nil),
				values(nodes, "x"))
		})
		require.NoError(t, other.TryLock())
		ok, err := m.Unlock()
		require.ErrorIs(t, refused(t, ok, err), redlock.ErrNotHeld)
		mustUnlock(t, other)
	})
}

func TestALockExpiresOnNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, 3, func(t *testing.T, _ []redistest.Node, rl *redlock.Redlock) {
		m := rl.NewMutex("x", redlock.WithExpiry(2*time.Second),
			redlock.WithNodeTimeout(2*time.Second))
		require.NoError(t, m.Lock())
		other := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited))
		require.NoError(t, other.Lock())
		assert.False(t, time.Now().Before(m.Until()), "nobody else before until")
		for _, call := range []func() (bool, error){m.Extend, m.Unlock} {
			ok, err := call()
			require.ErrorIs(t, refused(t, ok, err), redlock.ErrExpired)
		}
		ok, err := other.Valid()
		require.NoError(t, err, "not touched")
		assert.True(t, ok)
		mustUnlock(t, other)
	})
}

// lesson L2, L3
func TestQuorumsOfNodesThatAreDown(t *testing.T) {
	t.Parallel()
	onNodes(t, 5, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		nodes[0].Kill()
		nodes[4].Kill()
		require.NoError(t, m.Lock())
		_, err := m.Extend()
		require.NoError(t, err)
		nodes[2].Kill()
		until := m.Until()
		_, err = m.Extend()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		assert.Equal(t, until, m.Until())
		_, err = m.Unlock()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, rl.NewMutex("y", redlock.WithTries(2)).Lock(), redlock.ErrNoQuorum)
		for _, i := range []int{0, 2, 4} {
			nodes[i].Restart()
		}
		eventually(t, "the lock is free for all", func() bool {
			m := rl.NewMutex("x")
			if m.TryLock() != nil {
				return false
			}
			_, err := m.Unlock()
			return err == nil
		})
	})
}

// lesson L24, L25
func TestHealingOnNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, 3, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		m := rl.NewMutex("x", redlock.WithFencing(), redlock.WithExpiry(time.Minute))
		require.NoError(t, m.Lock())
		token := m.FencingToken()
		nodes[1].Must("FLUSHALL")
		eventually(t, "a quorum at the rest", func() bool { ok, _ := m.Valid(); return ok })
		_, err := m.Extend()
		require.NoError(t, err)
		eventually(t, "a healed node", func() bool {
			return nodes[1].Must("GET",
				"x") == m.Value()
		})
		assert.Equal(t, fmt.Sprint(token), nodes[1].Must("GET", fenceOf("x")))
		eventually(t, "the loss of a quorum", func() bool {
			// What was slow to answer the extension before may just have been healed.
			nodes[0].Must("FLUSHALL")
			nodes[2].Must("FLUSHALL")
			_, err = m.Extend()
			return errors.Is(err, redlock.ErrExpired)
		})
		assert.Nil(t, nodes[0].Must("GET", "x"), "a lost lock is not brought back")
		_, err = m.Unlock()
		require.ErrorIs(t, err, redlock.ErrExpired)
		eventually(t, "what is left has been released", func() bool {
			return assert.ObjectsAreEqual(everywhere(3, nil), values(nodes, "x"))
		})
	})
}

// lesson L39
func TestForgottenScriptsAreSentAgainOnNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, 3, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		m := rl.NewMutex("x", redlock.WithFencing())
		for _, some := range [][]redistest.Node{nil, nodes[:1], nodes} {
			for _, call := range []func() (bool, error){
				func() (bool, error) { err := m.Lock(); return err == nil, err }, m.Valid, m.Extend,
				m.Unlock,
			} {
				for _, n := range some {
					n.Must("SCRIPT", "FLUSH")
				}
				ok, err := call()
				require.NoError(t, err)
				assert.True(t, ok)
			}
		}
	})
}

// lesson L40, L44: names and values arrive byte for byte.
func TestNamesAndValuesOnNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, 1, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		for _, name := range []string{"x", "a b", "{tag}:1", "a{b", "é☃", "\x00\xff\r\n",
			strings.Repeat("long", 1000)} {
			m := rl.NewMutex(name, redlock.WithFencing(), redlock.WithKeyPrefix("p:"),
				redlock.WithGenValueFunc(func() (string, error) { return "host\r\n\x00", nil }))
			require.NoError(t, m.Lock())
			assert.Equal(t, m.Value(), nodes[0].Must("GET", "p:"+name))
			_, err := rl.NewMutex("p:"+name, redlock.WithValue(m.Value()[:8])).Extend()
			require.ErrorIs(t, err, redlock.ErrExpired)
			taker := rl.NewMutex("p:"+name, redlock.WithValue(m.Value()))
			_, err = taker.Extend()
			require.NoError(t, err)
			mustUnlock(t, taker)
			assert.Nil(t, nodes[0].Must("GET", "p:"+name))
		}
	})
}

func TestContentionOnNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, 3, func(t *testing.T, _ []redistest.Node, rl *redlock.Redlock) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		inside, total := 0, 0 // the lock is all that guards them
		var last uint64
		for range 8 {
			m := rl.NewMutex("x", redlock.WithTries(redlock.Unlimited), redlock.WithFencing())
			all.Go(func() {
				for range 10 {
					if !assert.NoError(t, m.LockContext(ctx)) {
						return
					}
					inside++
					assert.Equal(t, 1, inside)
					total++
					assert.Greater(t, m.FencingToken(), last)
					last = m.FencingToken()
					inside--
					_, err := m.Unlock()
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		assert.Equal(t, 80, total)
	})
}
