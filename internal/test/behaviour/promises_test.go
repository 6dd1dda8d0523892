package behaviour_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// LockAny tries 20 names, and two after each wait for one. WithoutWaiting it only tries.
func TestLockAnyTriesSoManyNames(t *testing.T) {
	asked := map[string]int{}
	sum := func() (n int) {
		for _, times := range asked {
			n += times
		}
		return n
	}
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		names := redlock.Slots("x", 30)
		for _, n := range nodes {
			for _, name := range names {
				n.Set(name, "somebody else's", time.Hour)
			}
		}
		_, err := rl.LockAny(t.Context(), names, redlock.WithoutWaiting())
		assert.Equal(t, "Failed Taken", matched(err))
		assert.Len(t, asked, 20)
		assert.Equal(t, 20, sum(), "each is tried once")

		clear(asked)
		start := time.Now()
		_, err = rl.LockAny(t.Context(), names, redlock.WithTries(3),
			redlock.WithRetryDelay(time.Second))
		assert.Equal(t, "Failed Taken", matched(err))
		assert.Equal(t, 20+1+2+1+2, sum())
		assert.Equal(t, 2*time.Second, time.Since(start).Round(100*time.Millisecond))
	}, redlock.WithEvents(&redlock.Events{
		Acquire: func(ctx context.Context, a redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			asked[a.Name]++
			return ctx, nil
		},
	}))
}

// A name that is none is found before the names that come before it are locked.
func TestABadNameAmongSeveralSendsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		names := []string{"a", "redlock:fence:0000"}
		var wrong *redlock.OptionError
		assert.ErrorAs(t, rl.DoAll(t.Context(), names, func(context.Context) error {
			panic("called")
		}), &wrong)
		_, err := rl.LockAny(t.Context(), names)
		assert.ErrorAs(t, err, &wrong)
		assert.Zero(t, nodes.Count(""))
	})
}

// A candidate waits to be elected even if the Redlock has WithoutWaiting.
func TestCampaignWaitsAlsoWithoutWaiting(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		rival := newCandidate(nodes, "rival")
		defer rival.rl.Close()
		_, err := rival.Campaign(t.Context())
		require.NoError(t, err)
		time.AfterFunc(time.Minute, func() { assert.NoError(t, rival.Resign(t.Context())) })
		start := time.Now()
		held, err := c.Campaign(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), time.Minute)
		require.NoError(t, c.Resign(held))
	}, redlock.WithoutWaiting())
}

// A second Campaign of one candidate waits until the first one's term is over. With that term's
// context it would wait for itself.
func TestASecondCampaignWaitsForTheFirst(t *testing.T) {
	election(t, func(t *testing.T, _ sim.Nodes, c *candidate) {
		first, err := c.Campaign(t.Context())
		require.NoError(t, err)
		term := c.Term()
		_, err = c.Campaign(first)
		assert.ErrorIs(t, err, redlock.ErrSelf)
		time.AfterFunc(time.Minute, func() { assert.NoError(t, c.Resign(first)) })
		start := time.Now()
		second, err := c.Campaign(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), time.Minute)
		assert.ErrorIs(t, context.Cause(first), redlock.ErrReleased)
		assert.Greater(t, c.Term(), term)
		require.NoError(t, c.Resign(second))
	})
}

// Where a user may not run scripts, a lock without token and guard is granted by SET. It can only
// expire, and what needs a script says why.
func TestALockWhereScriptsAreForbidden(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, _ *redlock.Redlock) {
		denied := errors.New("NOPERM this user has no permissions to run the 'evalsha' command")
		pools := nodes.Pools("b")
		plan(pools, func(op sim.Op) sim.Fate {
			if op.Command == "set" {
				return sim.Fate{}
			}
			return sim.Fail(denied)
		})
		rl := redlock.New(pools...)
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		for _, needsScript := range []func() (bool, error){m.Valid, m.Extend, m.Unlock} {
			_, err := needsScript()
			assert.ErrorIs(t, err, redlock.ErrNoQuorum)
			assert.ErrorIs(t, err, denied)
			assert.ErrorContains(t, err, "NOPERM")
		}
		time.Sleep(redlock.DefaultExpiry - time.Millisecond)
		assert.Len(t, holders(nodes, "x"), 1)
		time.Sleep(time.Millisecond)
		assert.Empty(t, holders(nodes, "x"))
		for _, opt := range []redlock.Option{
			redlock.WithFencing(), redlock.WithRestartGuard(time.Minute),
		} {
			assert.ErrorIs(t, rl.NewMutex("x", opt).TryLock(), denied)
		}
		assert.Empty(t, holders(nodes, "x"))
		require.NoError(t, rl.CloseContext(t.Context()))
	})
}

// A client proposes more than each token that it has seen, of any name, unless that is more than a
// day ahead of its clock.
func TestTokensOfOtherNamesCountForADay(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		token := func(name string, ahead time.Duration) uint64 {
			if ahead > 0 {
				for _, n := range nodes {
					n.Set(fenceOf(name), fmt.Sprint(time.Now().Add(ahead).UnixMicro()), 0)
				}
			}
			m := rl.NewMutex(name)
			require.NoError(t, m.Lock())
			defer mustUnlock(t, m)
			return m.FencingToken()
		}
		near := token("y", 24*time.Hour-time.Minute)
		assert.Greater(t, token("x", 0), near)
		far := token("z", 24*time.Hour+time.Minute)
		assert.Greater(t, far, near)
		assert.Less(t, token("x", 0), far)
	}, redlock.WithFencing())
}

// TryLock takes two node timeouts at most, and three with a token, whatever the nodes do.
func TestTryLockIsOverInTime(t *testing.T) {
	const timeout = 100 * time.Millisecond
	for seed := range larger(uint64(200)) {
		r := rand.New(rand.NewPCG(3, seed))
		opts, rounds := []redlock.Option{redlock.WithNodeTimeout(timeout)}, 2*timeout
		if seed%2 == 1 {
			opts, rounds = append(opts, redlock.WithFencing()), 3*timeout
		}
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, _ *redlock.Redlock) {
			for i, n := range nodes {
				if r.IntN(3) == 0 {
					n.Set("x", "somebody else's", time.Minute)
				}
				n.Set(fenceOf("x"), fmt.Sprint(time.Now().UnixMicro()+int64(i)), 0)
			}
			pools := nodes.Pools("b")
			var mu sync.Mutex // guards r
			plan(pools, func(sim.Op) sim.Fate {
				mu.Lock()
				defer mu.Unlock()
				switch r.IntN(4) {
				case 0:
					return sim.Deaf(sim.Hang())
				case 1:
					return sim.Fail(errOops)
				}
				return sim.Slow(between(r, 0, 3*timeout/2))
			})
			rl := redlock.New(pools...)
			start := time.Now()
			err := rl.NewMutex("x", opts...).TryLock()
			took := time.Since(start)
			assert.LessOrEqual(t, took, rounds+time.Millisecond, "seed %d: %v", seed, err)
			nodes.Close()
			require.NoError(t, rl.CloseContext(t.Context()))
		})
	}
}

// Nil stands for the default logger.
func TestLogEventsWithoutALogger(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Crash()
		require.Error(t, rl.NewMutex("x").TryLock())
		nodes[0].Restart(true)
	}, redlock.WithEvents(redlock.LogEvents(nil)))
	assert.Contains(t, log.String(), "no quorum of nodes")
}

// A release that a node does not answer is pending for a minute, or for the lock's expiry if that
// is longer, and no longer.
func TestForHowLongAReleaseIsPending(t *testing.T) {
	for _, tt := range []struct {
		silent, expiry time.Duration
		released       bool
	}{
		{50 * time.Second, 8 * time.Second, true},
		{70 * time.Second, 8 * time.Second, false},
		{70 * time.Second, 80 * time.Second, true},
		{90 * time.Second, 80 * time.Second, false},
	} {
		t.Run(fmt.Sprint(tt.silent, " of ", tt.expiry), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, _ *redlock.Redlock) {
				pools, start := nodes.Pools("b"), time.Now()
				var asked atomic.Int64 // when the node was last asked, after start
				pools[2].(*sim.Link).Plan(func(op sim.Op) sim.Fate {
					switch {
					case op.Command == "set":
						return sim.Fate{Request: tt.silent} // and is not answered in time
					case time.Since(start) < tt.silent:
						asked.Store(int64(time.Since(start)))
						return sim.Hang()
					}
					return sim.Fate{}
				})
				rl := redlock.New(pools...)
				m := rl.NewMutex("x", redlock.WithExpiry(tt.expiry),
					redlock.WithNodeTimeout(400*time.Millisecond))
				require.NoError(t, m.Lock())
				mustUnlock(t, m)
				time.Sleep(time.Until(start.Add(tt.silent + 2*time.Second)))
				assert.Equal(t, tt.released, nodes[2].Value("x") == "")
				last := max(time.Minute, tt.expiry) // and a node timeout
				assert.LessOrEqual(t, time.Duration(asked.Load()), last+time.Second)
				require.NoError(t, rl.CloseContext(t.Context()))
			})
		})
	}
}

// A leader's TTL is not 0 while it leads, also in its last millisecond.
func TestALeaderHasATTLUpToItsEnd(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		for _, n := range nodes {
			n.Set("leader", "somebody:AAAAAAAAAAAAAAAAAAAAAA==", 2*trip)
		}
		l, err := c.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "somebody", l.Owner)
		assert.Equal(t, time.Millisecond, l.TTL)
	})
}

// A leader whose keys last for ever has no end. Observe expects none while the nodes are silent,
// and asks as seldom as ever.
func TestALeaderForEver(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		for _, n := range nodes {
			n.Set("leader", "somebody:AAAAAAAAAAAAAAAAAAAAAA==", 0)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		time.AfterFunc(time.Minute, func() { c.dead.Store(true) })
		var seen []redlock.Leader
		for l, err := range c.Observe(ctx) {
			assert.NoError(t, err)
			seen = append(seen, l)
		}
		assert.Equal(t, []redlock.Leader{{Owner: "somebody", TTL: redlock.NoExpiry}}, seen)
		assert.LessOrEqual(t, nodes[0].Count("inspect"), 1+int(time.Minute*4/redlock.DefaultExpiry))
	})
}

// A Lock that fails has waited for all of the time that it took.
func TestEventsTellHowLongAFailedLockHasWaited(t *testing.T) {
	var told redlock.Acquired
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Set("x", "somebody else's", time.Hour)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, "DeadlineExceeded Failed Taken", matched(rl.NewMutex("x").LockContext(ctx)))
		assert.Equal(t, time.Second, told.Took)
		assert.Equal(t, told.Took, told.Waited)
	}, redlock.WithEvents(&redlock.Events{
		Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			return ctx, func(a redlock.Acquired) { told = a }
		},
	}))
}

// The nodes have five seconds for a renewal, twice as long after each that failed, and two thirds
// of the time left at most. After an error that comes at once, an eighth of the time left passes.
func TestHowLongARenewalWaits(t *testing.T) {
	const accuracy = 2 * time.Millisecond // a round ends a millisecond early
	for name, fate := range map[string]sim.Fate{
		"silence": sim.Hang(), "errors": sim.Fail(errOops),
	} {
		t.Run(name, func(t *testing.T) {
			var began, ended []time.Time
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x", redlock.WithExpiry(time.Minute))
				held, err := m.Hold(t.Context())
				require.NoError(t, err)
				until := m.Until()
				all(nodes, fate)
				<-held.Done()
				all(nodes, sim.Fate{})
				require.Greater(t, len(ended), 4)
				for i := range 4 {
					left, took := until.Sub(began[i]), ended[i].Sub(began[i])
					next := began[i+1].Sub(began[i])
					if name == "errors" {
						assert.Zero(t, took)
						assert.InDelta(t, min(left/8, 5*time.Second), next, float64(accuracy))
						continue
					}
					assert.InDelta(t, min(5*time.Second<<i, left/3*2), took, float64(accuracy))
					assert.InDelta(t, took, next, float64(accuracy))
				}
				_, _ = m.Unlock()
			}, redlock.WithEvents(&redlock.Events{
				Extend: func(ctx context.Context, _ redlock.Extending) (context.Context,
					func(redlock.Extended)) {
					began = append(began, time.Now())
					return ctx, func(redlock.Extended) { ended = append(ended, time.Now()) }
				},
			}))
		})
	}
}

// A client that sends each command twice is refused by its own key each time. The attempt is made
// anew three times, and not for ever.
func TestAnAttemptIsMadeAnewThreeTimes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			for range 40 {
				n.Next("set", sim.Fate{ReplyLost: true, Again: time.Millisecond})
			}
		}
		attempts := 0
		m := rl.NewMutex("x", redlock.WithGenValueFunc(func() (string, error) {
			attempts++
			return "me", nil
		}))
		assert.Error(t, m.TryLock())
		assert.Equal(t, 1+3, attempts)
		landed()
		assert.Empty(t, holders(nodes, "x"))
	})
}
