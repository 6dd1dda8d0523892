package behaviour_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// contend lets processes with some waiters each lock and unlock for a while.
func contend(t *testing.T, seed uint64, c contention) *contention {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		c.run(t, nodes, seed)
		nodes.Close()
	})
	return &c
}

// lesson L88: within one process a release wakes the next waiter directly where announcements do
// not.
func TestATurnWithinAProcessNeedsNoAnnouncement(t *testing.T) {
	counts(t)
	holds := []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond}
	beside(t, func(t *testing.T, shard, shards uint64) {
		for i := shard; i < 9; i += shards {
			waiters, hold := []int{2, 4, 16}[i/3], holds[i%3]
			c := contention{processes: 1, waiters: waiters, hold: hold,
				last: larger(time.Second + 60*hold)}
			with := contend(t, 1, c)
			c.opts = []redlock.Option{redlock.WithPolling()}
			without := contend(t, 1, c)
			t.Logf("%d waiters, holds of %v: %d turns with announcements, %d without", waiters,
				hold, with.sum(), without.sum())
			assert.GreaterOrEqual(t, float64(without.sum())*1.5, float64(with.sum()))
			assert.GreaterOrEqual(t, 1.1*float64(slices.Min(without.turns)+2),
				float64(slices.Max(without.turns)), "in their order")
		}
	})
}

// lesson L88: and the processes still take turns.
func TestProcessesTakeTurnsWithPolling(t *testing.T) {
	counts(t)
	holds := []time.Duration{5 * time.Millisecond, 50 * time.Millisecond}
	beside(t, func(t *testing.T, shard, shards uint64) {
		for i := shard; i < 2; i += shards {
			processes, hold := []int{2, 4}[i], holds[i]
			c := contend(t, 1, contention{processes: processes, waiters: 4, hold: hold,
				last: time.Minute + 10000*hold, // so that luck evens out
				opts: []redlock.Option{redlock.WithPolling()}})
			turns := make([]int, processes)
			for i, n := range c.turns {
				turns[i/4] += n
			}
			fewest, most := slices.Min(turns), slices.Max(turns)
			t.Logf("%d processes, holds of %v: %d turns, %d to %d a process, longest wait %v",
				processes, hold, c.sum(), fewest, most, c.longest)
			assert.GreaterOrEqual(t, float64(fewest)/float64(most), 0.5)
			assert.GreaterOrEqual(t, float64(c.sum()), 0.4*float64(c.last/(hold+time.Millisecond)))
		}
	})
}

// lesson L88: pools that cannot subscribe, and servers that forbid to publish, are no reason to
// sleep beside a lock that one's own process has released. What a minority of nodes announces
// counts as nothing.
func TestAReleaseWakesItsOwnProcessWhateverTheNodesAllow(t *testing.T) {
	for name, tt := range map[string]struct {
		n      int
		unable int // pools that cannot subscribe
		forbid int // nodes that forbid to publish
		frozen int // others that are frozen
		opts   []redlock.Option
	}{
		"no pool subscribes":    {n: 5, unable: 5},
		"a minority subscribes": {n: 5, unable: 3},
		"a majority subscribes": {n: 5, unable: 2},
		"nobody wants it": {n: 5,
			opts: []redlock.Option{redlock.WithPolling()}},
		"nothing can be published":              {n: 5, forbid: 5},
		"a minority can publish":                {n: 5, forbid: 3},
		"one of three can publish":              {n: 3, forbid: 2},
		"a minority can publish, one may":       {n: 5, forbid: 2, frozen: 1},
		"one of three can publish, another may": {n: 3, forbid: 1, frozen: 1},
		"one of two can publish":                {n: 2, forbid: 1},
		"two of four can publish":               {n: 4, forbid: 1, frozen: 1},
		"all that answer can publish":           {n: 5, frozen: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(tt.n)
				pools := nodes.Pools("a")
				for i := range tt.unable {
					pools[i] = poor{pools[i]}
				}
				rl := redlock.New(pools...).With(redlock.WithRetryDelay(time.Hour),
					redlock.WithExpiry(48*time.Hour)).With(tt.opts...)
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				synctest.Wait() // before the waiter is granted a node that has not granted yet
				got := make(chan time.Time)
				go func() {
					w := rl.NewMutex("x")
					assert.NoError(t, w.Lock())
					got <- time.Now()
					mustUnlock(t, w)
				}()
				time.Sleep(time.Minute)
				if tt.forbid > 0 {
					plan(pools, func(op sim.Op) sim.Fate {
						return sim.Fate{ReplyLost: op.Command == "message" && op.Node < tt.forbid}
					})
				}
				for _, n := range nodes[:tt.forbid] {
					n.Next("release", sim.Fate{Answer: &sim.Answer{Value: int64(1)}})
				}
				for _, n := range nodes[tt.n-tt.frozen:] {
					n.Freeze()
				}
				released := time.Now()
				mustUnlock(t, m)
				assert.Less(t, (<-got).Sub(released), 10*time.Millisecond)
				for _, n := range nodes[tt.n-tt.frozen:] {
					n.Thaw()
				}
				synctest.Wait()
				nodes.Close()
				require.NoError(t, rl.CloseContext(t.Context()))
			})
		})
	}
}

// A head whose retry delay ends just before its own process releases the lock wins while its
// queue is told of that. Its successor may take this for another release, and be refused by its own
// process. It has the lock even so as soon as that is released: the process does not leave it to
// others that poll.
func TestAReleaseThatTheHeadDidNotNeedKeepsNobodyWaiting(t *testing.T) {
	const delay, trip = 100 * time.Millisecond, 4 * time.Millisecond
	for _, n := range []int{1, 2, 3, 5} {
		for before := time.Duration(0); before <= 2*trip; before += trip / 16 {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(n)
				for _, node := range nodes {
					node.Always(sim.Slow(trip))
				}
				rl := redlock.New(nodes.Pools("a")...).With(redlock.WithPolling(),
					redlock.WithRetryDelay(delay))
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				time.Sleep(time.Second)
				var all sync.WaitGroup
				var released time.Time // by the first of the two; the lock guards it
				for range 2 {
					all.Go(func() {
						w := rl.NewMutex("x")
						assert.NoError(t, w.Lock())
						if !released.IsZero() {
							assert.LessOrEqual(t, time.Since(released), 2*trip,
								"released %v before the head asks", before)
						}
						time.Sleep(delay / 2)
						released = time.Now()
						mustUnlock(t, w)
					})
				}
				// The head asks as it comes, which takes a trip, and then after the delay.
				time.Sleep(trip + delay - before)
				mustUnlock(t, m)
				all.Wait()
				nodes.Close()
				require.NoError(t, rl.CloseContext(t.Context()))
			})
		}
	}
}

// lesson L68: connections that hear every release and never release anything, those of a
// monitoring tool, do not slow down a process that locks again and again.
func TestAMonitorDoesNotSlowDownLockingAgain(t *testing.T) {
	for name, monitors := range map[string][]int{"none": {}, "one": {0},
		"three of one node": {0, 0, 0}, "one of all": {0, 1, 2, 3, 4}} {
		bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for _, node := range monitors {
				listen(t, nodes[node], "*")
			}
			start := time.Now()
			const turns = 1000
			for range turns {
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				mustUnlock(t, m)
			}
			t.Logf("%s: %v", name, time.Since(start))
			assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
		})
	}
}

// listen subscribes to a channel and reads what is published on it.
func listen(t *testing.T, node *sim.Node, channel string) {
	t.Helper()
	s, err := node.Link("monitor").Subscribe(t.Context(), channel)
	require.NoError(t, err)
	done := make(chan struct{})
	go func(s pool.Subscription) {
		for {
			select {
			case <-s.Messages():
			case <-done:
				return
			}
		}
	}(s)
	t.Cleanup(func() { close(done); _ = s.Close() })
}

// lesson L68: beside a monitor, processes that do want the lock take turns as they do without one.
func TestProcessesTakeTurnsBesideAMonitor(t *testing.T) {
	counts(t)
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		for _, n := range nodes {
			listen(t, n, "*")
		}
		c := contention{processes: 4, waiters: 1, hold: 5 * time.Millisecond,
			last: larger(10 * time.Second)}
		c.run(t, nodes, 1)
		t.Logf("%d turns, %d to %d each, longest wait %v", c.sum(), slices.Min(c.turns),
			slices.Max(c.turns), c.longest)
		assert.GreaterOrEqual(t, float64(slices.Min(c.turns))/float64(slices.Max(c.turns)), 0.5)
		nodes.Close()
	})
}

// A node that announces nothing, because its subscriptions were lost or an ACL forbids them,
// makes nobody believe that a release went unheard. Processes that believed it rested in turn:
// some waited for 300 to 870 ms, not 100.
func TestAMuteMinorityMakesNobodyRest(t *testing.T) {
	for _, tt := range []struct{ n, mute int }{{3, 1}, {4, 1}, {5, 1}, {5, 2}, {6, 2}, {7, 3}} {
		t.Run(fmt.Sprintf("%d of %d", tt.mute, tt.n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(tt.n)
				c := contention{processes: 4, waiters: 4, hold: 5 * time.Millisecond,
					last: larger(4 * time.Second), mute: tt.mute}
				c.run(t, nodes, 1)
				fewest, most := slices.Min(c.turns), slices.Max(c.turns)
				t.Logf("%d turns, %d to %d each, longest wait %v", c.sum(), fewest, most, c.longest)
				assert.Less(t, c.longest, 16*2*(c.hold+time.Millisecond))
				assert.GreaterOrEqual(t, float64(fewest)/float64(most), 0.9)
				nodes.Close()
			})
		})
	}
}
