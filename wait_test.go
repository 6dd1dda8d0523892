package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
)

func TestWaiterIsWokenByTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		defer nodes.Close()
		a := redlock.New(nodes.Pools("a")...)
		b := redlock.New(nodes.Pools("b")...).With(redlock.WithRetryDelay(time.Hour))
		m := a.NewMutex("x", redlock.WithExpiry(2*time.Hour))
		require.NoError(t, m.Lock())
		synctest.Wait() // until all five nodes have it
		done := make(chan time.Time)
		go func() {
			assert.NoError(t, b.NewMutex("x", redlock.WithExpiry(2*time.Hour)).Lock())
			done <- time.Now()
		}()
		time.Sleep(time.Second)
		_, err := m.Unlock()
		require.NoError(t, err)
		released := time.Now()
		assert.Less(t, (<-done).Sub(released), 2*time.Millisecond)
		assert.LessOrEqual(t, nodes.Count("set"), 4*5, "for the holder, at first, after subscribing, and after the wake-up")
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}
