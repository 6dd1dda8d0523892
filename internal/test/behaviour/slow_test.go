package behaviour_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// lesson L119: while all nodes answer, however much later than a node timeout, a hold goes on.
func TestAHoldOutlastsSlowNodes(t *testing.T) {
	for _, tt := range []struct{ expiry, answer time.Duration }{
		{2 * time.Second, 120 * time.Millisecond},
		{2 * time.Second, 200 * time.Millisecond},
		{2 * time.Second, 300 * time.Millisecond},
		{8 * time.Second, 500 * time.Millisecond},
		{8 * time.Second, time.Second},
		{time.Minute, 6 * time.Second},
		{6 * time.Hour, 30 * time.Minute}, // which the first renewals do not wait for
	} {
		t.Run(fmt.Sprintf("%v of %v", tt.answer, tt.expiry), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x")
				held := mustHold(t, m)
				all(nodes, sim.Slow(tt.answer))
				time.Sleep(30 * tt.expiry)
				assert.NoError(t, held.Err())
				all(nodes, sim.Fate{})
				time.Sleep(tt.expiry)
				mustUnlock(t, m)
			}, redlock.WithExpiry(tt.expiry))
		})
	}
}

// lesson L119: and so it does through real clients, who dial again when they have given up.
func TestAHoldOutlastsSlowServers(t *testing.T) {
	redistest.Require(t)
	for client, newPool := range adapters {
		for expiry, answer := range map[time.Duration]time.Duration{
			2 * time.Second: 300 * time.Millisecond,
			8 * time.Second: time.Second,
		} {
			t.Run(fmt.Sprintf("%s, %v of %v", client, answer, expiry), func(t *testing.T) {
				t.Parallel()
				var dark atomic.Bool
				var trip atomic.Int64
				var pools []pool.Pool
				servers := redistest.Start(t, 3)
				for _, s := range servers {
					pools = append(pools, newPool(t, longTunnel(t, s.Addr(), &dark, &trip)))
				}
				pulse := redistest.TakePulse(t, servers...)
				rl := redlock.New(pools...).With(redlock.WithExpiry(expiry))
				held, err := rl.NewMutex("x").Hold(t.Context())
				require.NoError(t, err)
				trip.Store(int64(answer))
				time.Sleep(larger(2 * expiry))
				if worst := pulse.Worst(); held.Err() != nil && worst > expiry/20 {
					redistest.SkipBusy(t, "the servers answered %v late", worst)
				}
				assert.NoError(t, context.Cause(held))
				trip.Store(0)
				time.Sleep(2 * answer) // what is under way
				mustClose(t, rl)
			})
		}
	}
}

// lesson L119: and so it does in a process that is too busy to look at answers at once: a renewal's
// own timer does not cut off what has arrived.
func TestHoldsOutlastABusyProcess(t *testing.T) {
	redistest.Require(t)
	if *more < 3 {
		t.Skip("needs -more 3, and a machine that does nothing else")
	}
	for _, adapter := range slices.Sorted(maps.Keys(adapters)) {
		t.Run(adapter, func(t *testing.T) {
			var pools []pool.Pool
			for _, s := range redistest.Start(t, 3) {
				pools = append(pools, adapters[adapter](t, s.Addr()))
			}
			rl := redlock.New(pools...)
			_, helds := hold(t, rl, group{50, 2 * time.Second})
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			ctx, stop := context.WithCancel(t.Context())
			var work sync.WaitGroup
			for range 8 {
				work.Go(func() {
					for ctx.Err() == nil {
					}
				})
			}
			time.Sleep(larger(6 * time.Second))
			stop()
			work.Wait()
			allHeld(t, helds)
			mustClose(t, rl)
		})
	}
}
