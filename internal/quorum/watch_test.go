package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
)

// lesson L120: a node turns at the third error in a row of one kind of command. It turns back when
// it answers that kind, and has failed nothing for a second, or answers anything after a minute. An
// error of a command that was sent before the last answer says nothing.
func TestTurnedTellsOfEachChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{}
		start := time.Now()
		bad := errors.New("bad")
		const second = time.Second
		for i, step := range []struct {
			at, sent   time.Duration
			kind       Kind
			err        error
			turned, up bool
		}{
			{0, 0, Write, nil, false, true},
			{second, second, Write, bad, false, false},
			{second, second, Write, bad, false, false},
			{second, second, Release, nil, false, true}, // says nothing of Writes
			{second, 0, Release, bad, false, false},     // sent before
			{second, second / 2, Write, bad, true, false},
			{second, second, Write, bad, false, false},
			{3 * second, 3 * second, Release, nil, false, true},
			{3 * second, 3 * second, Write, bad, false, false},
			{4*second - 1, 3 * second, Write, nil, false, true}, // not for a second yet
			{4 * second, 2 * second, Write, bad, false, false},  // sent before
			{4 * second, 4 * second, Write, nil, true, true},
			{4 * second, 3 * second, Ask, bad, false, false}, // sent before it turned
			{4 * second, 3 * second, Ask, bad, false, false},
			{4 * second, 3 * second, Ask, bad, false, false},
			{5 * second, 5 * second, Ask, bad, false, false},
			{5 * second, 5 * second, Ask, bad, false, false},
			{5 * second, 5 * second, Ask, nil, false, true},
			{5 * second, 5 * second, Ask, bad, false, false},
			{5 * second, 5 * second, Ask, bad, false, false},
			{5 * second, 5 * second, Ask, bad, true, false},
			{64 * second, 64 * second, Write, nil, false, true},
			{65 * second, 65 * second, Write, nil, true, true}, // nobody asks any more
		} {
			time.Sleep(time.Until(start.Add(step.at)))
			turned, up := n.Turned(step.kind, clock.Ticks(start.Add(step.sent)), step.err)
			assert.Equal(t, step.turned, turned, "step %d", i)
			assert.Equal(t, step.up, up, "step %d", i)
		}

		var g sync.WaitGroup
		var downs atomic.Int32
		for range 100 {
			g.Go(func() {
				if turned, _ := n.Turned(Ask, clock.NowTicks(), bad); turned {
					downs.Add(1)
				}
			})
		}
		g.Wait()
		assert.EqualValues(t, 1, downs.Load())
	})
}

// What was sent is told when the client has returned, also when nobody waits for it any more, and
// with the releases that are sent again. What was not sent is not told.
func TestAWatchIsToldOfWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines := newPipelines(2)
		type told struct {
			node int
			kind Kind
			err  error
		}
		var mu sync.Mutex
		var all []told
		Watched(pipelines, func(n *Node, c *pool.Command, k Kind, began int64, err error) {
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, "op", c.Script().Name)
			all = append(all, told{n.Index, k, err})
		})
		sofar := func() []told {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		const late = time.Minute
		asked := func(ctx context.Context, n *Node) (int64, error) {
			if n.Index == 1 {
				time.Sleep(late)
			}
			return 1, nil
		}
		r := startRound(t.Context(), pipelines,
			plan{Op: asked, Kind: Ask, Need: 1, Budget: time.Second})
		won, err := r.Wait(t.Context())
		require.True(t, won && err == nil)
		synctest.Wait()
		assert.Equal(t, []told{{0, Ask, nil}}, sofar())
		time.Sleep(late)
		synctest.Wait()
		answered := []told{{0, Ask, nil}, {1, Ask, nil}}
		assert.Equal(t, answered, sofar())

		unsent := op(asked).command().when(func(node int) bool { return false })
		r = startRound(t.Context(), pipelines,
			plan{Command: unsent, Kind: Ask, Need: 1, Budget: time.Second})
		_, _ = r.Wait(t.Context())
		synctest.Wait()
		assert.Equal(t, answered, sofar())

		var tries atomic.Int32
		failing := func(context.Context, *Node) (int64, error) {
			if tries.Add(1) == 1 {
				return 0, errFull
			}
			return 1, nil
		}
		writes := sentBefore(2)
		skip := func(node int) bool { return node != 0 }
		startRound(t.Context(), pipelines, plan{Op: failing, Kind: Release, Need: 1,
			Budget: time.Second,
			Expiry: time.Hour, Writes: writes, Skip: skip})
		time.Sleep(late)
		synctest.Wait()
		assert.Equal(t, []told{{0, Release, errFull}, {0, Release, nil}}, sofar()[2:4])
	})
}

var errFull = errors.New("full")
