package behaviour_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// Whoever does not wait fails as soon as it knows of a holder, and only then.
func TestWithoutWaiting(t *testing.T) {
	for name, tt := range map[string]struct {
		before   func(nodes sim.Nodes) // the Lock
		attempts int
		is       string // what the error matches, "" for a grant
	}{
		"free":     {func(sim.Nodes) {}, 1, ""},
		"a holder": {func(nodes sim.Nodes) { keep(nodes, "h", "h", "h") }, 1, "Failed Taken"},
		"a holder and a node that has lost its key": {
			func(nodes sim.Nodes) { keep(nodes, "h", "h", "") }, 1, "Failed Taken",
		},
		"a split vote": {func(nodes sim.Nodes) { keep(nodes, "a", "b", "c") }, 4, "Failed Taken"},
		"errors": {
			func(nodes sim.Nodes) { all(nodes, sim.Fail(errOops)) }, 4, "Failed NoQuorum oops",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				tt.before(nodes)
				m := rl.NewMutex("x", redlock.WithoutWaiting(), redlock.WithTries(4),
					redlock.WithRetryDelay(time.Second))
				began := time.Now()
				err := m.Lock()
				assert.Equal(t, tt.is, matched(err))
				pauses := time.Since(began).Round(time.Second) / time.Second
				assert.EqualValues(t, tt.attempts-1, pauses)
				if err == nil {
					mustUnlock(t, m)
				}
				all(nodes, sim.Fate{})
			})
		})
	}
}

// Nor does it outlast the minimum hold: another that asked at the same moment may be done by then.
func TestWithoutWaitingEndsWithTheMinimumHold(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		keep(nodes, "a", "b", "c")
		began := time.Now()
		require.ErrorIs(t, rl.NewMutex("x", redlock.WithoutWaiting(), redlock.WithTries(100),
			redlock.WithRetryDelay(time.Second), redlock.WithMinHold(5*time.Second)).Lock(),
			redlock.ErrTaken)
		assert.Less(t, time.Since(began), 5*time.Second)
	})
}

// keep makes the nodes have these values of the lock x, for long.
func keep(nodes sim.Nodes, values ...string) {
	for i, v := range values {
		if v != "" {
			nodes[i].Set("x", v, time.Hour)
		}
	}
}
