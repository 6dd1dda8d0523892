package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
)

func TestHoldExtendsUntilUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...)
		m := rl.NewMutex("x")
		held, err := m.Hold(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		assert.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrTaken)

		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.ErrorIs(t, context.Cause(held), redlock.ErrReleased)
		synctest.Wait()
		assert.Equal(t, []string{"", "", "", "", ""}, nodes.Values("x"))
		require.NoError(t, rl.Close())
	})
}

func TestHoldIsLostAtUntilWhenTheNodesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...)
		m := rl.NewMutex("x")
		held, err := m.Hold(t.Context())
		require.NoError(t, err)
		until := m.Until()
		for _, n := range nodes {
			n.Always(sim.Deaf(sim.Hang()))
		}
		<-held.Done()
		assert.Equal(t, until, time.Now())
		cause := context.Cause(held)
		assert.ErrorIs(t, cause, redlock.ErrLost)
		var node *redlock.NodeError
		assert.ErrorAs(t, cause, &node)
		t.Log(cause)
		nodes.Close()
		_, err = m.Unlock()
		assert.ErrorIs(t, err, redlock.ErrExpired)
		assert.ErrorIs(t, err, redlock.ErrLost)
	})
}

func TestDoJoinsErrors(t *testing.T) {
	nodes := sim.NewNodes(3)
	rl := redlock.New(nodes.Pools("a")...)
	oops := errors.New("oops")
	err := rl.Do(t.Context(), "x", func(ctx context.Context) error {
		nodes[0].Flush()
		nodes[1].Flush()
		return oops
	})
	assert.ErrorIs(t, err, oops)
	assert.ErrorIs(t, err, redlock.ErrExpired)
}
