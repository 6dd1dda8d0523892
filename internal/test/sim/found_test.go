package sim_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// What the schedules have found, each as a test of its own. Where it has to be all nodes that have
// granted a lock, and not only those that decided, the test waits for it.

// Seed 19 of TestSchedules: an Extend that waited behind an unanswered one was sent when Unlock
// had returned. lesson L28
func TestWhatWaitsForANodeIsNotSentAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		rl := redlock.New(nodes.Pools("a")...).With(redlock.WithNodeTimeout(2 * time.Second))
		m := rl.NewMutex("k")
		require.NoError(t, m.Lock())
		synctest.Wait()
		nodes[2].Next("extend", sim.Hang())
		for range 3 {
			_, err := m.Extend()
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		log := nodes.Record()
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		events := log.Events()
		require.Len(t, events, 3)
		for _, e := range events {
			assert.Equal(t, "release", e.Command)
		}
	})
}

// Seed 183 of TestSchedules: the same with the SET of a node that was still busy with the release
// of the lock before.
func TestWhatWasNeverSentIsNotSentAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		rl := redlock.New(nodes.Pools("a")...).With(redlock.WithNodeTimeout(2 * time.Second))
		m := rl.NewMutex("k")
		require.NoError(t, m.Lock())
		synctest.Wait()
		nodes[2].Next("release", sim.Hang())
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, m.Lock())
		_, err = m.Extend()
		require.NoError(t, err)
		log := nodes.Record()
		_, err = m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		for _, e := range log.Events() {
			assert.Equal(t, "release", e.Command)
		}
	})
}

// Seed 139 of TestSchedules: an Extend of the caller's own proved that the lock was gone, and
// the held context went on until the next renewal. lesson L26
func TestHeldContextEndsWhenTheCallersOwnQuestionProvesTheLoss(t *testing.T) {
	for name, question := range map[string]func(*redlock.Mutex) (bool, error){
		"Extend": (*redlock.Mutex).Extend, "Valid": (*redlock.Mutex).Valid,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(3)
				m := redlock.New(nodes.Pools("a")...).NewMutex("k")
				held, err := m.Hold(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				nodes[0].Flush()
				nodes[1].Flush()
				_, err = question(m)
				require.ErrorIs(t, err, redlock.ErrExpired)
				synctest.Wait()
				assert.ErrorIs(t, context.Cause(held), redlock.ErrLost)
				_, _ = m.Unlock()
			})
		})
	}
}
