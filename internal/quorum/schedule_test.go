package quorum

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever else begins and ends around it, a round expires at its own time, to the nanosecond.
func TestRoundsExpireInTime(t *testing.T) {
	for seed := range 60 * *more {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			nodes := newNodes(1, NewTracker())
			var all sync.WaitGroup
			for range 60 {
				begin := time.Duration(r.IntN(100)) * time.Millisecond
				budget := []time.Duration{budget, budget, budget, 3 * budget, budget / 7}[r.IntN(5)]
				answer := time.Duration(r.Int64N(int64(3 * budget)))
				all.Go(func() {
					time.Sleep(begin)
					start, patience := time.Now(), budget-min(budget/16, lastWord)
					round := startRound(t.Context(), Lanes(nodes),
						plan{Need: 1, Budget: budget,
							Op: func(ctx context.Context, _ *Node) (int64, error) {
								select {
								case <-time.After(answer):
									return 1, nil
								case <-ctx.Done():
									assert.Equal(t, patience, time.Since(start))
									time.Sleep(budget)
									return 0, ctx.Err()
								}
							}})
					won, err := round.Wait(t.Context())
					require.NoError(t, err)
					took := time.Since(start)
					if answer < patience {
						assert.True(t, won)
						assert.Equal(t, answer, took)
					} else {
						assert.False(t, won)
						assert.Equal(t, budget, took)
					}
				})
			}
			all.Wait()
			assert.Zero(t, nodes[0].tracker.Wait(t.Context()))
			assert.Nil(t, nodes[0].schedule.first)
			assert.Nil(t, nodes[0].schedule.last)
		})
	}
}

// One timer serves all rounds with the same budget, and none is set while none is due.
func TestRoundsShareATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1, NewTracker())
		s := nodes[0].schedule
		for i := range 10 {
			r := startRound(t.Context(), Lanes(nodes),
				plan{Need: 1, Budget: budget,
					Op: func(context.Context, *Node) (int64, error) { return 1, nil }})
			_, err := r.Wait(t.Context())
			require.NoError(t, err)
			assert.Nil(t, r.timer)
			s.mu.Lock()
			assert.Equal(t, r.ctx.Limit.Add(-time.Duration(i)*time.Millisecond), s.at)
			s.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(budget)
		synctest.Wait()
		assert.Zero(t, s.at)
	})
}

// A timer that has not fired when it should have, because the machine is busy or the process
// stood still, does not keep rounds from their ends, neither those before it nor later ones; nor
// does one that was set for a greater budget.
func TestATimerThatIsSetHoldsNobodyUp(t *testing.T) {
	for _, at := range []time.Duration{-time.Second, -time.Nanosecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(1, NewTracker())
			s := nodes[0].schedule
			hang := plan{Need: 1, Budget: budget,
				Op: func(ctx context.Context, _ *Node) (int64, error) {
					select {
					case <-ctx.Done():
					case <-time.After(time.Hour):
					}
					return 0, ctx.Err()
				}}
			start := time.Now()
			first := startRound(t.Context(), Lanes(nodes), hang)
			time.Sleep(budget / 2)
			s.mu.Lock()
			s.at = time.Now().Add(at) // instead of the timer that was set, which fires in vain
			if at > 0 {
				s.take(first)
			}
			s.mu.Unlock()
			second := startRound(t.Context(), Lanes(nodes), hang)
			if at < 0 {
				_, err := first.Wait(t.Context())
				require.NoError(t, err)
				assert.LessOrEqual(t, time.Since(start), budget)
			}
			_, err := second.Wait(t.Context())
			require.NoError(t, err)
			assert.LessOrEqual(t, time.Since(start), budget/2+budget)
			first.ctx.Cancel()
		})
	}
}
