package main

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

func TestEmbedded(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	see := watch{verbose: true, metrics: true, log: &log}
	require.NoError(t, run(t.Context(), &out, "", 4, &see))
	t.Log(out.String())
	assert.Contains(t, log.String(), `msg="redlock: lock acquired" lock=quickstart:counter`)
	assert.Regexp(t, `(?m)^ +\d+  acquire, ok$`, out.String())
	assert.GreaterOrEqual(t, see.counts["acquire, ok"], 20)
	assert.Contains(t, out.String(), "all within ")
	assert.Contains(t, out.String(), "node 1 is stopped")
	assert.Contains(t, out.String(), "node 3 is restarted, empty")
	assert.Contains(t, out.String(), "3/5")
	assert.Contains(t, out.String(), "The counter is 20 after 20 additions: exact.")
}

// takeTurn takes one turn on a cluster.
func takeTurn(t *testing.T, locks *redlock.Redlock) (added int64, done bool, err error) {
	var counter atomic.Int64
	show := newAccount(&bytes.Buffer{}, locks, 3, 1)
	done, err = turn(t.Context(), locks.NewMutex(name), "Ada", &counter, show)
	return counter.Load(), done, err
}

func TestNoQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		c.Node(1).Down()
		c.Node(2).Down()
		added, done, err := takeTurn(t, c.Redlock())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		assert.ErrorContains(t, err, "connection refused")
		assert.False(t, done)
		assert.Zero(t, added)
	})
}

func TestATurnWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, start := redlocktest.New(t, 3), time.Now()
		c.Take(name, time.Minute)
		added, done, err := takeTurn(t, c.Redlock())
		require.NoError(t, err)
		assert.True(t, done)
		assert.EqualValues(t, 1, added)
		assert.GreaterOrEqual(t, time.Since(start), time.Minute)
		c.WantFree(t, name)
	})
}

// Whenever the lock is lost, the turn is not taken to be done in order.
func TestALostLockIsNoticed(t *testing.T) {
	t.Parallel()
	redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		_, _, err := takeTurn(t, c.Redlock())
		if owner, _ := c.Holder(name); owner == redlocktest.Other {
			assert.ErrorIs(t, err, redlock.ErrExpired)
		} else {
			assert.NoError(t, err)
		}
	}, redlocktest.Stolen)
}

// A lock that excludes nobody must not go unnoticed.
func TestInexactCounter(t *testing.T) {
	show := newAccount(&bytes.Buffer{}, nil, 5, 20)
	assert.EqualError(t, show.summary(19, 20), "the counter is 19 after 20 additions")
}
