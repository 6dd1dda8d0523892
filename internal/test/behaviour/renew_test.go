package behaviour_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// busy counts the extensions that are under way at a time.
type busy struct {
	pool.Pool
	now, most atomic.Int64
}

func (b *busy) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any, error) {
	if s.Name == "extend" {
		n := b.now.Add(1)
		defer b.now.Add(-1)
		for most := b.most.Load(); n > most &&
			!b.most.CompareAndSwap(most, n); most = b.most.Load() {
		}
	}
	return b.Pool.Eval(ctx, s, keys, args...)
}

// Holds that began together come due together, and are renewed in turn, a bounded number at a time.
func TestHoldsThatAreDueTogetherAreRenewedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holds, bound = 2000, 256
		pools := sim.NewNodes(1).Pools("a")
		plan(pools, func(sim.Op) sim.Fate {
			return sim.Fate{Request: 10 * time.Millisecond,
				Reply: 10 * time.Millisecond}
		})
		node := &busy{Pool: pools[0]}
		rl := redlock.New(node)
		mutexes := make([]*redlock.Mutex, holds)
		helds := make([]context.Context, holds)
		var wg sync.WaitGroup
		for i := range mutexes {
			mutexes[i] = rl.NewMutex(strconv.Itoa(i))
			wg.Go(func() {
				held, err := mutexes[i].Hold(t.Context())
				assert.NoError(t, err)
				helds[i] = held
			})
		}
		wg.Wait()
		time.Sleep(larger(20 * time.Second))
		for i, held := range helds {
			require.NoError(t, held.Err(), i)
		}
		assert.EqualValues(t, bound, node.most.Load())
		synctest.Wait()
		for i := range mutexes {
			if i%2 == 0 { // some by Unlock, also while they wait for their turn; some by Close
				wg.Go(func() { mustUnlock(t, mutexes[i]) })
			}
		}
		wg.Wait()
		require.NoError(t, rl.Close())
		assert.Zero(t, node.now.Load())
	})
}

// group is a number of holds of one expiry.
type group struct {
	holds  int
	expiry time.Duration
}

func (g group) String() string { return fmt.Sprintf("%d of %v", g.holds, g.expiry) }

// hold returns the groups' mutexes, and their held contexts.
func hold(t *testing.T, rl *redlock.Redlock, groups ...group) (mutexes []*redlock.Mutex,
	helds []context.Context) {
	for _, g := range groups {
		for i := range g.holds {
			mutexes = append(mutexes, rl.NewMutex(fmt.Sprintf("%v: %d", g, i),
				redlock.WithExpiry(g.expiry)))
		}
	}
	helds = make([]context.Context, len(mutexes))
	var all sync.WaitGroup
	for i, m := range mutexes {
		all.Go(func() {
			held, err := m.Hold(t.Context())
			assert.NoError(t, err)
			helds[i] = held
		})
	}
	all.Wait()
	return mutexes, helds
}

// allHeld checks that no hold has been lost.
func allHeld(t *testing.T, helds []context.Context) bool {
	t.Helper()
	lost, example := 0, error(nil)
	for _, held := range helds {
		if held.Err() != nil {
			lost, example = lost+1, context.Cause(held)
		}
	}
	return assert.Zero(t, lost, "of %d: %v", len(helds), example)
}

// starting makes pools with which Redlock needs no goroutine for each command.
func starting(pools []pool.Pool) []pool.Pool {
	for i, p := range pools {
		pools[i] = sim.Starting{Link: p.(*sim.Link)}
	}
	return pools
}

// lesson L63: an outage that leaves enough time ends no hold, however many there are, and though
// renewals of holds with more time left wait for answers that are lost, for as long as half of
// their time.
func TestHoldsOfAllExpiriesSurviveAnOutage(t *testing.T) {
	const answer = time.Millisecond
	for i, tt := range []struct {
		nodes   int
		timeout float64
		groups  []group
	}{
		{3, 1, []group{{1, 3 * time.Second}}},
		{3, 1, []group{{300, 3 * time.Second}}},
		{1, 1, []group{{larger(1250), 8 * time.Second}}},
		{3, redlock.DefaultTimeoutFactor, []group{{1, 3 * time.Second}, {256, time.Minute}}},
		{3, 1, []group{{1, 3 * time.Second}, {256, time.Minute}}},
		{5, 1, []group{{300, 3 * time.Second}, {300, larger(15 * time.Second)}}},
		{3, 1, []group{{100, time.Second}, {larger(75), 3 * time.Second}, {300, 10 * time.Second},
			{300, larger(15 * time.Second)}}},
		{1, redlock.DefaultTimeoutFactor,
			[]group{{larger(625), 4 * time.Second}, {larger(625), larger(10 * time.Second)}}},
	} {
		t.Run(fmt.Sprintf("%v, timeout factor %v", tt.groups, tt.timeout), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(tt.nodes)
				defer nodes.Close()
				all(nodes, sim.Slow(answer))
				pools := nodes.Pools("a")
				if i%2 == 0 {
					pools = starting(pools)
				}
				rl := redlock.New(pools...).With(redlock.WithTimeoutFactor(tt.timeout))
				mutexes, helds := hold(t, rl, tt.groups...)
				longest := tt.groups[len(tt.groups)-1].expiry
				left := func() time.Duration { // until the first until
					least := longest
					for _, m := range mutexes {
						least = min(least, time.Until(m.Until()))
					}
					return least
				}
				// First when most of those with the longest expiry are due.
				for _, wait := range []time.Duration{longest/3 - longest/50, longest / 7} {
					time.Sleep(wait)
					all(nodes, sim.Hang())
					least := time.Duration(4+2*(len(helds)+255)/256)*answer + 100*time.Millisecond
					for rest := left() - least; rest > 0; rest = left() - least {
						time.Sleep(rest)
					}
					all(nodes, sim.Slow(answer))
					time.Sleep(longest / 4)
					if !allHeld(t, helds) {
						break
					}
				}
				assert.NoError(t, rl.CloseContext(t.Context()))
			})
		})
	}
}

// lesson L63: in turn means that those with the least time left come first, whenever they came due.
func TestARenewalWithLessTimeLeftComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(1)
		defer nodes.Close()
		rl := redlock.New(starting(nodes.Pools("a"))...).With(redlock.WithTimeoutFactor(1))
		_, many := hold(t, rl, group{4000, time.Minute})
		all(nodes, sim.Slow(20*time.Millisecond)) // for each 256 of them
		time.Sleep(time.Minute/3 - 300*time.Millisecond)
		_, few := hold(t, rl, group{10, 200 * time.Millisecond})
		time.Sleep(time.Minute / 3)
		allHeld(t, few)
		allHeld(t, many)
		all(nodes, sim.Fate{})
		assert.NoError(t, rl.CloseContext(t.Context()))
	})
}

// serial is a server that takes a millisecond for each extension, one after the other.
type serial struct {
	pool.Pool
	turn       chan struct{}
	now, worst atomic.Int64 // waiting
}

func (s *serial) Eval(ctx context.Context, script *pool.Script, keys []string, args ...any) (any,
	error) {
	if script.Name == "extend" {
		s.worst.Store(max(s.worst.Load(), s.now.Add(1)))
		defer s.now.Add(-1)
		s.turn <- struct{}{}
		time.Sleep(time.Millisecond)
		<-s.turn
	}
	return s.Pool.Eval(ctx, script, keys, args...)
}

// lesson L63: a server that answers, but is slow, is asked no more at a time for that, or it would
// answer nobody in time.
func TestRenewalsKeepTheirPlacesWhileOthersAreConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &serial{Pool: sim.NewNodes(1).Pools("a")[0], turn: make(chan struct{}, 1)}
		rl := redlock.New(node)
		_, helds := hold(t, rl, group{2000, 20 * time.Second})
		time.Sleep(larger(30 * time.Second))
		allHeld(t, helds)
		assert.LessOrEqual(t, node.worst.Load(), int64(300))
		assert.NoError(t, rl.CloseContext(t.Context()))
	})
}

// lesson L63: some commands hang, on connections that are cut, perhaps. The answers to others show
// that nodes answer, and those that hang keep nobody waiting.
func TestRenewalsThatHangLoseTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(1)
		defer nodes.Close()
		pools := starting(nodes.Pools("a"))
		var healed atomic.Bool
		pools[0].(sim.Starting).Plan(func(op sim.Op) sim.Fate {
			if op.Command == "extend" && strings.HasPrefix(op.Key, "hung ") && !healed.Load() {
				return sim.Hang()
			}
			return sim.Slow(10 * time.Millisecond)
		})
		rl := redlock.New(pools...).With(redlock.WithTimeoutFactor(1))
		_, hung := hold(t, rl.With(redlock.WithKeyPrefix("hung ")), group{255, time.Minute})
		var helds []context.Context
		for i := range 2 { // confirmed at all times
			_, often := hold(t, rl.With(redlock.WithKeyPrefix(strconv.Itoa(i))),
				group{1, 100 * time.Millisecond})
			helds = append(helds, often...)
			time.Sleep(15 * time.Millisecond)
		}
		time.Sleep(19500 * time.Millisecond)
		_, due := hold(t, rl, group{300, 3 * time.Second}) // soon after those that hang
		helds = append(helds, due...)
		time.Sleep(10 * time.Second)
		healed.Store(true)
		time.Sleep(time.Minute)
		allHeld(t, helds)
		allHeld(t, hung)
		assert.NoError(t, rl.CloseContext(t.Context()))
	})
}
