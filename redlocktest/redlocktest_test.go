package redlocktest_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/redlocktest"
)

// A cluster works in a bubble and outside of one, with any number of nodes.
func TestLocksExcludeEachOther(t *testing.T) {
	play := func(t *testing.T, n int) {
		c := redlocktest.New(t, n)
		ada := c.Redlock(redlock.WithFencing())
		grace := redlock.New(c.Pools()...).With(redlock.WithFencing())
		m := mustLock(t, ada, "x")
		require.ErrorIs(t, grace.NewMutex("x").TryLock(), redlock.ErrTaken)
		owner, held := c.Holder("x")
		assert.True(t, held)
		assert.Equal(t, m.Value(), owner)
		token := m.FencingToken()
		mustUnlock(t, m)
		c.WantFree(t, "x")
		_, held = c.Holder("x")
		assert.False(t, held)
		m = mustLock(t, grace, "x")
		assert.Greater(t, m.FencingToken(), token)
		mustUnlock(t, m)
		require.NoError(t, grace.Close())
	}
	for _, n := range []int{1, 2, 3, 5, 7} {
		play(t, n)
		synctest.Test(t, func(t *testing.T) { play(t, n) })
	}
}

func TestALockExpiresInVirtualTime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		start := time.Now()
		mustLock(t, c.Redlock(), "x", redlock.WithExpiry(time.Hour))
		m := mustLock(t, c.Redlock(), "x",
			redlock.WithTries(redlock.Unlimited), redlock.WithRetryDelay(time.Minute))
		assert.WithinRange(t, time.Now(), start.Add(time.Hour), start.Add(time.Hour+time.Second))
		mustUnlock(t, m)
	})
}

// A waiter is woken by the release, and not by its retry delay.
func TestAReleaseIsAnnounced(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		m := mustLock(t, c.Redlock(), "x", redlock.WithExpiry(time.Hour))
		start := time.Now()
		time.AfterFunc(time.Minute, func() { mustUnlock(t, m) })
		waiter := mustLock(t, c.Redlock(), "x",
			redlock.WithTries(redlock.Unlimited), redlock.WithRetryDelay(time.Hour))
		assert.Less(t, time.Since(start), time.Minute+time.Second)
		mustUnlock(t, waiter)
	})
}

func TestTake(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		locks, start := c.Redlock(), time.Now()
		c.Take("x", 3*time.Second)
		owner, held := c.Holder("x")
		assert.True(t, held)
		assert.Equal(t, redlocktest.Other, owner)
		require.ErrorIs(t, locks.NewMutex("x").TryLock(), redlock.ErrTaken)
		m := mustLock(t, locks, "x")
		assert.WithinRange(t, time.Now(), start.Add(3*time.Second),
			start.Add(3500*time.Millisecond))
		mustUnlock(t, m)
	})
}

// The holder learns of a theft at its next extension, or when it unlocks.
func TestSteal(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		m := c.Redlock().NewMutex("x")
		held, err := m.Hold(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		stolen := time.Now()
		c.Steal("x")
		<-held.Done()
		require.ErrorIs(t, context.Cause(held), redlock.ErrLost)
		assert.Less(t, time.Since(stolen), redlock.DefaultExpiry/2)
		owner, _ := c.Holder("x")
		assert.Equal(t, redlocktest.Other, owner)
		_, err = m.Unlock()
		require.ErrorIs(t, err, redlock.ErrExpired)

		other := mustLock(t, c.Redlock(), "x", redlock.WithTries(redlock.Unlimited))
		assert.WithinRange(t, time.Now(), stolen.Add(time.Minute),
			stolen.Add(time.Minute+time.Second))
		c.Steal("x")
		_, err = other.Unlock()
		require.ErrorIs(t, err, redlock.ErrExpired)
	})
}

func TestForget(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		ada := mustLock(t, c.Redlock(redlock.WithFencing()), "x")
		token := ada.FencingToken()
		c.Forget("x")
		c.WantFree(t, "x")
		grace := mustLock(t, c.Redlock(redlock.WithFencing()), "x")
		assert.Equal(t, token+1, grace.FencingToken(), "the counters are left alone")
		_, err := ada.Unlock()
		require.ErrorIs(t, err, redlock.ErrExpired)
		mustUnlock(t, grace)
	})
}

// Only the client is cut off, with all that With has derived from it, and only while it is.
func TestCut(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		ada, grace := c.Redlock(), c.Redlock()
		derived := ada.With(redlock.WithExpiry(time.Minute), redlock.WithTries(1))
		c.Cut(ada, 0, 1, 4)
		require.ErrorIs(t, derived.NewMutex("x").Lock(), redlock.ErrNoQuorum)
		mustUnlock(t, mustLock(t, grace, "x"))
		c.Cut(ada, 0, 1)
		mustUnlock(t, mustLock(t, derived, "x"))
		c.Node(2).Delay(time.Millisecond) // does not connect anybody
		c.Node(1).Delay(time.Millisecond)
		c.Node(2).Down()
		require.ErrorIs(t, derived.NewMutex("x").Lock(), redlock.ErrNoQuorum)
		mustUnlock(t, mustLock(t, grace, "x"))
		c.Cut(ada)
		mustUnlock(t, mustLock(t, derived, "x"))
	})
}

func TestAHoldEndsBeforeSomebodyElseHasTheLock(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		locks := c.Redlock()
		m := locks.NewMutex("x")
		held, err := m.Hold(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		c.Cut(locks, 0, 1, 2, 3, 4)
		<-held.Done()
		require.ErrorIs(t, context.Cause(held), redlock.ErrLost)
		owner, _ := c.Holder("x")
		assert.NotEmpty(t, owner)
		mustLock(t, c.Redlock(), "x")
	})
}

// One node may do anything, and its faults are told as they are with real servers.
func TestFaultsOfNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		begin, end func(n *redlocktest.Node)
		text       string
	}{
		"down":   {(*redlocktest.Node).Down, (*redlocktest.Node).Up, "dial: connection refused"},
		"frozen": {(*redlocktest.Node).Freeze, (*redlocktest.Node).Thaw, "no answer within"},
		"failing": {func(n *redlocktest.Node) { n.Fail(errOops) },
			func(n *redlocktest.Node) { n.Fail(nil) }, "oops"},
		"slow": {func(n *redlocktest.Node) { n.Delay(time.Minute) },
			func(n *redlocktest.Node) { n.Delay(0) }, "no answer within"},
		"silent": {func(n *redlocktest.Node) { n.LoseReplies(1000) },
			func(n *redlocktest.Node) { n.LoseReplies(0) }, "no answer within"},
		"down and back empty": {(*redlocktest.Node).Down,
			func(n *redlocktest.Node) { n.Restart(false) }, "dial: connection refused"},
		"down, and not frozen": {func(n *redlocktest.Node) { n.Down(); n.Freeze() },
			(*redlocktest.Node).Up, "dial: connection refused"},
		"frozen and restarted": {(*redlocktest.Node).Freeze,
			func(n *redlocktest.Node) { n.Restart(true) }, "no answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
				locks := c.Redlock(redlock.WithTries(2))
				tt.begin(c.Node(1))
				m := mustLock(t, locks, "x")
				tt.begin(c.Node(2))
				_, err := m.Extend()
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				err = locks.NewMutex("y").Lock()
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				assert.ErrorContains(t, err, tt.text)
				tt.end(c.Node(1))
				tt.end(c.Node(2))
				time.Sleep(time.Second) // for what is pending for them
				m = mustLock(t, locks, "z")
				_, err = m.Extend()
				require.NoError(t, err)
				mustUnlock(t, m)
				time.Sleep(time.Second)
				c.WantFree(t, "z")
				c.WantFree(t, "y")
			})
		})
	}
}

// What a fault leaves of a command is what real servers leave.
func TestWhatFaultsLeaveBehind(t *testing.T) {
	has := func(c *redlocktest.Cluster) bool { _, held := c.Holder("x"); return held }
	for name, tt := range map[string]struct {
		fault func(n *redlocktest.Node)
		held  bool
	}{
		"none":    {func(*redlocktest.Node) {}, true},
		"down":    {(*redlocktest.Node).Down, false},
		"failing": {func(n *redlocktest.Node) { n.Fail(errOops) }, false},
		"silent":  {func(n *redlocktest.Node) { n.LoseReplies(1) }, true},
		"silent, then not": {func(n *redlocktest.Node) { n.LoseReplies(1); n.LoseReplies(0) },
			true},
		"silent, failing": {func(n *redlocktest.Node) { n.Fail(errOops); n.LoseReplies(1) }, true},
		"late":            {func(n *redlocktest.Node) { n.Delay(time.Minute) }, false},
		"frozen":          {(*redlocktest.Node).Freeze, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
				tt.fault(c.Node(0))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _ = c.Pools()[0].SetNX(ctx, "x", "v", time.Hour)
				assert.Equal(t, tt.held, has(c))
				c.Node(0).Thaw()
				time.Sleep(30 * time.Second)
				assert.Equal(t, tt.held || name == "late" || name == "frozen", has(c))
			})
		})
	}
}

// A node that is down does not hear of anything.
func TestANodeThatIsDownTakesNoPart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		slow := c.Pools()[2]
		c.Node(2).Delay(time.Second)
		time.AfterFunc(time.Millisecond, c.Node(2).Down)
		_, err := slow.SetNX(t.Context(), "y", "v", time.Minute)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.NotErrorIs(t, err, pool.ErrNotSent)
		_, err = slow.SetNX(t.Context(), "y", "v", time.Minute)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorIs(t, err, pool.ErrNotSent)

		c.Take("x", time.Minute)
		c.Node(2).Up()
		c.Node(0).Down()
		c.Node(1).Down()
		c.WantFree(t, "x")
	})
}

func TestRestart(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		locks := c.Redlock(redlock.WithRestartGuard(time.Minute),
			redlock.WithExpiry(time.Minute), redlock.WithTries(1))
		m := mustLock(t, locks, "x")
		c.Node(0).Restart(true)
		_, err := m.Extend()
		require.NoError(t, err, "it has its keys")
		c.Node(0).Down()
		c.Node(0).Up()
		_, err = m.Extend()
		require.NoError(t, err, "it has its keys")
		c.Node(0).Restart(false)
		c.WantFree(t, "x")
		var guard *redlock.GuardError
		require.ErrorAs(t, locks.NewMutex("y").Lock(), &guard)
		time.Sleep(time.Minute + time.Second)
		mustLock(t, locks, "y")
		c.Node(0).Up() // it is up: nothing happens
		mustLock(t, locks, "z")
	})
}

// WantFree waits for a release that is under way, and not for the expiry.
func TestWantFree(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		c.Node(2).Delay(100 * time.Millisecond)
		m := mustLock(t, c.Redlock(), "x")
		time.Sleep(time.Second)
		mustUnlock(t, m)
		c.WantFree(t, "x")
		start := time.Now()
		mustLock(t, c.Redlock(), "x")
		r := &recorder{}
		c.WantFree(r, "x")
		assert.Len(t, r.lines, 1)
		assert.Less(t, time.Since(start), time.Second)
	})
}

// Each mistake of a test fails it, in one line that says what was wrong.
func TestMistakesFailTheTest(t *testing.T) {
	type cluster = redlocktest.Cluster
	for want, f := range map[string]func(t testing.TB, c *cluster){
		"": func(_ testing.TB, c *cluster) { c.Take("x", time.Minute) },
		`New with 0 nodes: must be at least 1`: func(t testing.TB, _ *cluster) {
			redlocktest.New(t, 0)
		},
		`Node(3): the cluster has nodes 0 to 2`: func(_ testing.TB, c *cluster) { c.Node(3) },
		`Node(-1): the cluster has nodes 0 to 2`: func(_ testing.TB, c *cluster) {
			c.Cut(c.Redlock(), 0, -1)
		},
		`Cut: not a Redlock that this cluster's method Redlock has returned`: func(
			_ testing.TB, c *cluster,
		) {
			c.Cut(c.Redlock().With(redlock.WithTries(1)), 0)
		},
		`Take("x"): the expiry is 0s, and must be at least 1ms`: func(_ testing.TB, c *cluster) {
			c.Take("x", 0)
		},
		`Take("x"): node 0 holds it for "somebody else" already: use Steal`: func(
			_ testing.TB, c *cluster,
		) {
			c.Take("x", time.Minute)
			c.Take("x", time.Minute)
		},
		`Take("x"): 1 of 3 nodes work, 2 needed`: func(_ testing.TB, c *cluster) {
			c.Node(0).Down()
			c.Node(2).Freeze()
			c.Take("x", time.Minute)
		},
		`Steal("x"): nobody holds it; no lock is held`: func(_ testing.TB,
			c *cluster) {
			c.Steal("x")
		},
		`Steal("x"): nobody holds it; held are "p:y", "p:x"`: func(_ testing.TB, c *cluster) {
			locks := c.Redlock(redlock.WithKeyPrefix("p:"))
			_ = locks.NewMutex("y").Lock()
			_ = locks.NewMutex("x").Lock()
			c.Take("z", time.Minute)
			c.Steal("x")
		},
		`Steal("x"): somebody else holds it already`: func(_ testing.TB, c *cluster) {
			c.Take("x", time.Minute)
			c.Steal("x")
		},
		`Steal("x"): 1 of 3 nodes work, 2 needed`: func(_ testing.TB, c *cluster) {
			_ = c.Redlock().NewMutex("x").Lock()
			c.Node(0).Down()
			c.Node(1).Down()
			c.Steal("x")
		},
		`Forget("x"): no node holds it; held are "y"`: func(_ testing.TB, c *cluster) {
			_ = c.Redlock().NewMutex("y").Lock()
			c.Forget("x")
		},
		`the lock "x" is not free: held by node 1 for "somebody else", ` +
			`node 2 for "somebody else"`: func(
			t testing.TB, c *cluster,
		) {
			c.Take("x", time.Minute)
			c.Node(0).Down()
			c.WantFree(t, "x")
		},
		`after the test, the nodes still have 0 calls and 1 subscriptions: ` +
			`close every Redlock`: func(
			_ testing.TB, c *cluster,
		) {
			_, _ = c.Pools()[0].(pool.Subscriber).Subscribe(context.Background(), "channel")
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lines := record(3, f)
				if want == "" {
					assert.Empty(t, lines)
					return
				}
				assert.Equal(t, []string{"redlocktest: " + want}, lines)
			})
		})
	}
}

// A timer of the test that fires after the test does no harm.
func TestNothingFailsAfterTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late *redlocktest.Cluster
		r := &recorder{}
		late = redlocktest.New(r, 3)
		locks := late.Redlock()
		mustLock(t, locks, "x")
		r.cleanups[0]()
		late.Steal("y")
		late.Forget("y")
		late.Take("x", time.Minute)
		err := locks.NewMutex("z").Lock()
		require.ErrorIs(t, err, redlock.ErrClosed)
		_, err = late.Pools()[0].SetNX(t.Context(), "z", "v", time.Minute)
		require.EqualError(t, err, "redlocktest: the test is over")
		assert.Empty(t, r.lines)
	})
}

// What still waits for a lock when the test is over ends with it, and at once.
func TestTheEndOfTheTestEndsWaiters(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(t *testing.T)){
		"bubble": func(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) },
		"real":   func(t *testing.T, f func(t *testing.T)) { f(t) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				ended, start := make(chan error, 3), time.Now()
				lines := record(3, func(_ testing.TB, c *redlocktest.Cluster) {
					c.Take("x", time.Hour)
					c.Node(0).Freeze()
					c.Node(1).LoseReplies(5)
					locks := c.Redlock(redlock.WithTries(redlock.Unlimited))
					for _, name := range []string{"x", "x", "y"} {
						go func() { ended <- locks.NewMutex(name).Lock() }()
					}
					time.Sleep(time.Millisecond)
				})
				assert.Empty(t, lines)
				for range 3 {
					if err := <-ended; !errors.Is(err, redlock.ErrClosed) && err != nil {
						require.ErrorIs(t, err, redlock.ErrFailed)
					}
				}
				if name == "bubble" {
					assert.Less(t, time.Since(start), 100*time.Millisecond)
				}
			})
		})
	}
}
