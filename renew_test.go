package redlock_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
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
		for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); most = b.most.Load() {
		}
	}
	return b.Pool.Eval(ctx, s, keys, args...)
}

// Holds that began together come due together, and are renewed in turn, a bounded number at a time.
func TestHoldsThatAreDueTogetherAreRenewedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holds, bound = 2000, 256
		pools := sim.NewNodes(1).Pools("a")
		plan(pools, func(sim.Op) sim.Fate { return sim.Fate{Request: 10 * time.Millisecond, Reply: 10 * time.Millisecond} })
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
		time.Sleep(time.Minute)
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
