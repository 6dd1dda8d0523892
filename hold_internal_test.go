package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/lease"
)

// The end of a hold cancels its context and stops its timer. Close has still to release what it has
// ended.
func TestTheEndOfAHold(t *testing.T) {
	why := errors.New("why")
	for reason, registered := range map[lease.EndReason]bool{
		lease.EndLost: false, lease.EndReleased: false, lease.EndClosed: true,
	} {
		hs := newHolds()
		ctx, cancel := context.WithCancelCause(t.Context())
		h := &hold{m: &Mutex{core: &core{holds: hs}}, cancel: cancel}
		h.timer = time.NewTimer(time.Hour)
		assert.True(t, hs.add(h))
		h.end(reason, why)
		assert.Equal(t, why, context.Cause(ctx))
		assert.False(t, h.timer.Stop(), "it runs")
		assert.Equal(t, registered, slices.Contains(hs.list(), h))
	}
}

// Nothing is added after close, and what is there stays until it is removed.
func TestHoldsAreClosed(t *testing.T) {
	hs, one, two, none := newHolds(), &hold{}, &hold{}, &hold{}
	assert.True(t, hs.add(one))
	assert.True(t, hs.add(two))
	assert.ElementsMatch(t, []*hold{one, two}, hs.list())
	hs.remove(one)
	hs.remove(none) // is not there
	assert.Len(t, hs.list(), 1)

	assert.False(t, hs.isClosed())
	hs.close()
	<-hs.open.Done()
	assert.True(t, hs.isClosed())
	hs.close() // again
	assert.False(t, hs.add(none))
	assert.Len(t, hs.list(), 1)
	hs.remove(two)
	assert.Empty(t, hs.list())
}

// Whatever was added before close is listed after it: nothing slips in between.
func TestNoHoldIsAddedBehindClose(t *testing.T) {
	for range 100 {
		hs := newHolds()
		var some [8]*hold
		added := make([]bool, len(some))
		var all sync.WaitGroup
		for i := range some {
			some[i] = &hold{}
			all.Go(func() { added[i] = hs.add(some[i]) })
		}
		hs.close()
		seen := hs.list()
		all.Wait()
		for i, ok := range added {
			assert.Equal(t, ok, slices.Contains(seen, some[i]))
		}
	}
}
