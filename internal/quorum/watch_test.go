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

	"github.com/redlock-go/redlock/pool"
)

// A node turns at its third error in a row, and at the first answer after that.
func TestTurnedTellsOfEachChangeOnce(t *testing.T) {
	var n Node
	bad := errors.New("bad")
	for i, step := range []struct {
		err        error
		turned, up bool
	}{
		{nil, false, true}, {bad, false, false}, {bad, false, false}, {nil, false, true},
		{bad, false, false}, {bad, false, false}, {bad, true, false}, {bad, false, false},
		{nil, true, true}, {nil, false, true},
	} {
		turned, up := n.Turned(step.err)
		assert.Equal(t, step.turned, turned, "step %d", i)
		assert.Equal(t, step.up, up, "step %d", i)
	}

	var g sync.WaitGroup
	var mu sync.Mutex
	downs := 0
	for range 100 {
		g.Go(func() {
			if turned, _ := n.Turned(bad); turned {
				mu.Lock()
				defer mu.Unlock()
				downs++
			}
		})
	}
	g.Wait()
	assert.Equal(t, 1, downs)
}

// What was sent is told when the client has returned, also when nobody waits for it any more, and
// with the Undos that are sent again. What was not sent is not told.
func TestAWatchIsToldOfWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lanes := newLanes(2)
		type told struct {
			node int
			kind Kind
			err  error
		}
		var mu sync.Mutex
		var all []told
		Watched(lanes, func(n *Node, c *pool.Command, k Kind, began int64, err error) {
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
		r := startRound(t.Context(), lanes,
			plan{Op: asked, Kind: Ask, Need: 1, Budget: time.Second})
		won, err := r.Wait(t.Context())
		require.True(t, won && err == nil)
		synctest.Wait()
		assert.Equal(t, []told{{0, Ask, nil}}, sofar())
		time.Sleep(late)
		synctest.Wait()
		answered := []told{{0, Ask, nil}, {1, Ask, nil}}
		assert.Equal(t, answered, sofar())

		unsent := op(asked).command().When(func(node int) bool { return false })
		r = startRound(t.Context(), lanes,
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
		marks := sentBefore(2)
		skip := func(node int) bool { return node != 0 }
		startRound(t.Context(), lanes, plan{Op: failing, Kind: Undo, Need: 1, Budget: time.Second,
			Expiry: time.Hour, Marks: marks, Skip: skip})
		time.Sleep(late)
		synctest.Wait()
		assert.Equal(t, []told{{0, Undo, errFull}, {0, Undo, nil}}, sofar()[2:4])
	})
}

var errFull = errors.New("full")
