package quorum

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTrackerWaitsForTheLastToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker()
		assert.Zero(t, tr.Wait(t.Context()), "nothing under way")
		start := time.Now()
		tr.Enter()
		time.AfterFunc(1*time.Second, tr.Enter) // while somebody waits
		time.AfterFunc(2*time.Second, tr.Leave)
		time.AfterFunc(3*time.Second, tr.Leave)
		assert.Zero(t, tr.Wait(t.Context()))
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestTrackerLetsEverybodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker()
		tr.Enter()
		time.AfterFunc(time.Second, tr.Leave)
		start := time.Now()
		var waiters sync.WaitGroup
		for range 10 {
			waiters.Go(func() {
				assert.Zero(t, tr.Wait(t.Context()))
				assert.Equal(t, time.Second, time.Since(start))
			})
		}
		waiters.Wait()
	})
}

func TestTrackerTellsHowManyAreLeftWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker()
		for range 3 {
			tr.Enter()
		}
		time.AfterFunc(time.Second, tr.Leave)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		assert.Equal(t, 2, tr.Wait(ctx))
	})
}

// No wake-up is lost between the last to leave and those who begin to wait.
func TestTrackerUnderRace(t *testing.T) {
	tr := NewTracker()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2000 {
		var all sync.WaitGroup
		tr.Enter()
		all.Go(tr.Leave)
		for range 2 {
			all.Go(func() { assert.Zero(t, tr.Wait(ctx)) })
		}
		all.Wait()
	}
}

// Each has so many calls under way, and counts them in until they return. When its context ends, it
// leaves those under way behind.
func TestTrackerEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker()
		each := func(ctx context.Context) []int {
			var begun atomic.Int64 // of one that stays behind, too
			over := 0
			tr.Each(ctx, 10, 3, func(int) error {
				begun.Add(1)
				time.Sleep(time.Second)
				return strconv.ErrSyntax
			}, func(err error) {
				assert.ErrorIs(t, err, strconv.ErrSyntax)
				over++
			})
			return []int{int(begun.Load()), over}
		}
		start := time.Now()
		assert.Equal(t, []int{10, 10}, each(t.Context()), "begun, over")
		assert.Equal(t, 4*time.Second, time.Since(start), "three at a time")

		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		assert.Equal(t, []int{9, 6}, each(ctx), "begun, over")
		assert.Zero(t, tr.Wait(t.Context()))
		assert.Equal(t, 7*time.Second, time.Since(start))
	})
}
