package doctor_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// A client that sends SET again after its reply was lost is refused by its own key.
func TestCheckAllowsForClientsThatResend(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[1].Next("set", sim.Fate{ReplyLost: true, Again: 10 * time.Millisecond})
		r, _ := check(t, rl)
		assert.NoError(t, r.Nodes[1].Err)
		assert.Zero(t, nodes[1].Keys())
	})
}

// A lock that is shared is tried as such, and leaves nothing.
func TestCheckTriesASharedLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		r, found := check(t, rl.With(redlock.WithShared()))
		assert.NotContains(t, r.String(), "unreachable")
		assert.Equal(t, []string{"note unknown [0 1 2]"}, found)
		assert.Equal(t, 3, nodes.Count("share"))
		assert.Equal(t, 3, nodes.Count("seat"))
		for _, n := range nodes {
			assert.Zero(t, n.Keys())
		}
	})
}

// An address behind which there are several servers grants what it does not have a moment later.
func TestCheckFindsNodesThatForgetAtOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[1].Next("extend", sim.Reply(int64(0)))
		_, found := check(t, rl)
		assert.Contains(t, found, "warning unreachable [1]")
		nodes[1].Next("release", sim.Reply(int64(1)))
		_, found = check(t, rl)
		assert.Contains(
			t,
			found,
			"warning unreachable [1]",
			"it deletes without looking at the value",
		)
	})
}

func TestCheckFindsWhoTheGuardKeepsOut(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		kept := func(want ...string) *doctor.Report {
			t.Helper()
			r, found := check(t, rl)
			assert.Equal(t, want, found)
			return r
		}
		nodes[0].Restart(true)
		time.Sleep(60 * time.Second)
		r := kept("note guard [0]", "note unknown [0 1 2]")
		time.Sleep(500 * time.Millisecond) // a pending release comes again after a node timeout
		assert.Equal(t, 5, nodes[0].Count("release"),
			"a stranger's, one, two that leave the queue, and that of the pools' common key")
		assert.Equal(t, &redlock.GuardError{Wait: time.Second}, r.Nodes[0].Err)
		assert.NotContains(t, r.String(), "unreachable")
		nodes[2].Restart(true)
		kept("critical guard [0]", "critical guard [2]", "note unknown [0 1 2]")
		time.Sleep(time.Second)
		nodes[1].Always(sim.Fail(errOops))
		kept("critical unreachable [1]", "critical guard [2]", "note unknown [0 2]")
	}, redlock.WithRestartGuard(time.Minute))
}

func TestCheckEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		nodes[1].Always(sim.Deaf(sim.Hang()))
		rl := redlock.New(nodes.Pools("a")...)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(errOops) })
		start := time.Now()
		r, err := doctor.Check(ctx, rl)
		assert.Nil(t, r)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errOops)
		assert.Equal(t, time.Millisecond, time.Since(start))

		// A client that does not come back costs a node timeout.
		start = time.Now()
		r, err = doctor.Check(t.Context(), rl)
		require.NoError(t, err)
		assert.ErrorIs(t, r.Nodes[1].Err, redlock.ErrNodeTimeout)
		assert.Equal(t, 400*time.Millisecond, time.Since(start))

		// Nor does one that hangs only later cost more than a node timeout for each command.
		ds, pools := doers(3)
		ds[1].hang = make(chan struct{})
		late := redlock.New(pools...)
		start = time.Now()
		r, err = doctor.Check(t.Context(), late)
		require.NoError(t, err)
		assert.ErrorIs(t, r.Nodes[1].Err, redlock.ErrNodeTimeout)
		assert.Equal(t, 2800*time.Millisecond, time.Since(start))
		close(ds[1].hang)
		require.NoError(t, late.Close())
		nodes.Close()
		require.NoError(t, rl.Close())
	})
}

// What the caller has done wrong is said before anything is sent.
func TestCheckOfNothing(t *testing.T) {
	_, err := doctor.Check(t.Context(), redlock.New())
	assert.ErrorAs(t, err, new(*redlock.OptionError))

	nodes := sim.NewNodes(3)
	var noContext context.Context
	assert.PanicsWithValue(t, "redlock: nil context", func() {
		_, _ = doctor.Check(noContext, redlock.New(nodes.Pools("a")...))
	})
	for _, rl := range []*redlock.Redlock{nil, {}} {
		assert.PanicsWithValue(t,
			"redlock: this Redlock is nil or the zero value: make it with New",
			func() { _, _ = doctor.Check(t.Context(), rl) })
	}
	assert.Zero(t, nodes.Count(""))
}

// The time for several commands is no longer than a duration can be.
//
// lesson L66
func TestCheckWithTheLongestNodeTimeouts(t *testing.T) {
	const longest = time.Duration(math.MaxInt64 / time.Millisecond * time.Millisecond)
	for _, timeout := range []time.Duration{longest, longest / 5, longest / 10} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, pools := doers(3)
				rl := redlock.New(pools...).
					With(redlock.WithExpiry(longest), redlock.WithNodeTimeout(timeout))
				_, found := check(t, rl)
				assert.Empty(t, found)
				require.NoError(t, rl.Close())
			})
		})
	}
}

// A node through which no announcement comes wakes nobody. It takes part in locks.
func TestCheckFindsNodesThatDoNotWake(t *testing.T) {
	lost := sim.Fate{ReplyLost: true}
	for name, tt := range map[string]struct {
		plan map[string]sim.Fate
		says string
		time time.Duration
	}{
		"the message is lost": {
			map[string]sim.Fate{"message": lost},
			"(the announcement of a release did not arrive)", 400 * time.Millisecond,
		},
		"no subscription": {map[string]sim.Fate{"subscribe": sim.Fail(errOops)}, "(oops)", 0},
		"not released": {
			map[string]sim.Fate{"message": lost, "release": sim.Fail(errOops)}, "", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, _ *redlock.Redlock) {
				pools := nodes.Pools("b")
				pools[1].(*sim.Link).Plan(func(op sim.Op) sim.Fate { return tt.plan[op.Command] })
				rl := redlock.New(pools...)
				start := time.Now()
				r, found := check(t, rl)
				assert.Equal(t, tt.time, time.Since(start))
				if tt.says == "" {
					assert.Contains(t, found, "warning unreachable [1]")
				} else {
					assert.Contains(t, found, "warning announcements [1]")
					assert.Contains(t, r.Findings[0].Problem, tt.says)
				}
				assert.Len(t, found, 2, "that, and what no simulated node tells")
				nodes.Close()
				require.NoError(t, rl.Close())
			})
		})
	}
}
