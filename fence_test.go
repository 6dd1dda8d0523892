package redlock_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
	"github.com/redlock-go/redlock/pool"
)

// counters returns the fence counter of x on each node, 0 for none.
func counters(t *testing.T, nodes sim.Nodes) []uint64 {
	t.Helper()
	var all []uint64
	for _, v := range nodes.Values("{x}:fence") {
		n, err := strconv.ParseUint(v+"0", 10, 64)
		require.NoError(t, err)
		all = append(all, n/10)
	}
	return all
}

// storedOnAQuorum checks the rule on which the order of tokens rests.
func storedOnAQuorum(t *testing.T, nodes sim.Nodes, token uint64) {
	t.Helper()
	have := 0
	for _, c := range counters(t, nodes) {
		if c >= token {
			have++
		}
	}
	assert.GreaterOrEqual(t, have, len(nodes)/2+1, "counters %v, token %d", counters(t, nodes), token)
}

func TestAFencingTokenCostsNoRoundTripWhenTheNodesAgree(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		var last uint64
		for i := range 5 {
			m := rl.NewMutex("x")
			require.NoError(t, m.Lock())
			synctest.Wait()
			assert.Greater(t, m.FencingToken(), last)
			last = m.FencingToken()
			assert.Equal(t, []uint64{last, last, last, last, last}, counters(t, nodes))
			mustUnlock(t, m)
			synctest.Wait()
			assert.Equal(t, 5*(i+1), nodes.Count("acquire"))
		}
		assert.Zero(t, nodes.Count("raise"))
		assert.Zero(t, nodes.Count("set"))
	}, redlock.WithFencing())
}

func TestFencingTokensIncreaseFromOneClientToTheNextWhateverTheirClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		var clients []*redlock.Redlock
		for _, offset := range []time.Duration{0, -time.Hour, 24 * time.Hour, -20000 * 24 * time.Hour} {
			pools := []pool.Pool{}
			for _, n := range nodes {
				pools = append(pools, clocked{n.Link("a"), offset})
			}
			clients = append(clients, redlock.New(pools...).With(redlock.WithFencing()))
		}
		var last uint64
		for i := range 40 {
			m := clients[i*7%4].NewMutex("x")
			// Whatever two nodes make the quorum.
			nodes[i%3].Next("acquire", sim.Fail(errOops))
			require.NoError(t, m.Lock())
			assert.Greater(t, m.FencingToken(), last)
			assert.Less(t, m.FencingToken(), uint64(1)<<53)
			last = m.FencingToken()
			storedOnAQuorum(t, nodes, last)
			mustUnlock(t, m)
			synctest.Wait()
		}
		assert.NotZero(t, nodes.Count("raise"), "the clocks disagree")
	})
}

func TestATokenIsRaisedOnAQuorumBeforeTheLockIsGranted(t *testing.T) {
	for high := range 3 {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			nodes[high].Set("{x}:fence", "9000000000000000", 0)
			for _, n := range nodes {
				n.Always(sim.Slow(10 * time.Millisecond))
			}
			nodes[(high+1)%3].Always(sim.Hang())
			m := rl.NewMutex("x")
			start := time.Now()
			require.NoError(t, m.Lock())
			assert.Equal(t, 20*time.Millisecond, time.Since(start))
			assert.Equal(t, uint64(9000000000000001), m.FencingToken())
			storedOnAQuorum(t, nodes, m.FencingToken())
			assert.Equal(t, start.Add(redlock.DefaultExpiry-drift(redlock.DefaultExpiry, 0.01)), m.Until(), "from before the first round")
			_, err := m.Extend()
			require.NoError(t, err)
			assert.Equal(t, uint64(9000000000000001), m.FencingToken())
			mustUnlock(t, m)
		}, redlock.WithFencing())
	}
}

func TestALockWhoseTokenIsNotOnAQuorumIsNotGranted(t *testing.T) {
	for name, fate := range map[string]sim.Fate{
		"fails": sim.Fail(errOops), "gone": sim.Reply(int64(0)), "foreign": sim.Reply(int64(-1)), "hangs": sim.Hang(),
	} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			nodes[0].Set("{x}:fence", "9000000000000000", 0)
			nodes[2].Always(sim.Hang())
			nodes[1].Next("raise", fate)
			m := rl.NewMutex("x")
			require.ErrorIs(t, m.TryLock(), redlock.ErrNoQuorum, name)
			assert.Zero(t, m.FencingToken())
			landed()
			assert.Empty(t, holders(nodes, "x"))
		}, redlock.WithFencing(), redlock.WithExpiry(time.Minute))
	}
}

func TestATooSlowRaiseRoundIsTooLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Set("{x}:fence", "9000000000000000", 0)
		for _, n := range nodes[:2] {
			n.Next("raise", sim.Slow(900*time.Millisecond))
			n.Next("acquire", sim.Slow(100*time.Millisecond))
		}
		nodes[2].Always(sim.Hang())
		m := rl.NewMutex("x")
		require.ErrorIs(t, m.TryLock(), redlock.ErrExpired)
		landed()
		assert.Empty(t, holders(nodes, "x"))
	}, redlock.WithFencing(), redlock.WithExpiry(time.Second), redlock.WithNodeTimeout(time.Second))
}

func TestTokensGoOnAfterTheCountersWereLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		first := m.FencingToken()
		mustUnlock(t, m)
		synctest.Wait()
		for _, n := range nodes {
			n.Flush()
		}
		other := redlock.New(nodes.Pools("b")...).NewMutex("x", redlock.WithFencing())
		time.Sleep(time.Microsecond)
		require.NoError(t, other.Lock())
		assert.Greater(t, other.FencingToken(), first)
	}, redlock.WithFencing())
}

func TestAFenceCounterOutlivesItsLastUse(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		assert.Equal(t, time.Hour, nodes[0].TTL("{x}:fence"))
		time.Sleep(time.Second)
		_, err := m.Extend()
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, time.Hour, nodes[0].TTL("{x}:fence"))
		mustUnlock(t, m)
		time.Sleep(time.Hour)
		assert.Zero(t, nodes[0].Keys(), "and not for ever")
	}, redlock.WithFencing(), redlock.WithFenceTTL(time.Hour))
}

func TestARestartedNodeTakesNoPartUntilItsGuardHasPassed(t *testing.T) {
	const maxTTL = 10500 * time.Millisecond // counts as 11 s, and a second more
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes[1:] {
			n.Crash()
			n.Restart(false)
		}
		start := time.Now()
		for _, up := range []time.Duration{0, time.Second, 11 * time.Second, 12*time.Second - 1} {
			time.Sleep(time.Until(start.Add(up)))
			err := rl.NewMutex("x").TryLock()
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			var guard *redlock.GuardError
			require.ErrorAs(t, err, &guard)
			assert.Equal(t, 12*time.Second-up.Truncate(time.Second), guard.Wait)
		}
		time.Sleep(time.Nanosecond)
		m := rl.NewMutex("x")
		require.NoError(t, m.TryLock())
		assert.Zero(t, m.FencingToken(), "a guard alone gives no token")
		mustUnlock(t, m)
	}, redlock.WithRestartGuard(maxTTL))
}

// That a guarded node has no key must not look as if the lock were about to be free.
func TestWaitingForAGuardIsNotBusy(t *testing.T) {
	for _, opts := range [][]redlock.Option{nil, {redlock.WithoutAnnouncements()}} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for _, n := range nodes[1:] {
				n.Crash()
				n.Restart(false)
			}
			start := time.Now()
			m := rl.NewMutex("x", append(opts, redlock.WithTries(redlock.Unlimited), redlock.WithRetryDelay(time.Second))...)
			require.NoError(t, m.Lock())
			assert.Less(t, time.Since(start), 13*time.Second)
			assert.LessOrEqual(t, nodes.Count("acquire"), 3*(2+13))
		}, redlock.WithRestartGuard(11*time.Second))
	}
}

func TestARaiseNeedsAQuorumTogetherWithTheNodesThatHadTheToken(t *testing.T) {
	for raised := range 3 {
		bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			nodes[0].Set("{x}:fence", "9000000000000000", 0)
			for _, n := range nodes[1+raised : 3] {
				n.Next("raise", sim.Fail(errOops))
			}
			for _, n := range nodes[3:] {
				n.Always(sim.Hang())
			}
			m := rl.NewMutex("x")
			err := m.TryLock()
			if raised < 2 {
				assert.ErrorIs(t, err, redlock.ErrNoQuorum)
				return
			}
			require.NoError(t, err)
			storedOnAQuorum(t, nodes, m.FencingToken())
		}, redlock.WithFencing())
	}
}
