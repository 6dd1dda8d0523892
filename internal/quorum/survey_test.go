package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A survey has the answers of all nodes, whatever becomes of some of them.
func TestSurveyAsksEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 100 * time.Millisecond
		refused, back := errors.New("refused"), make(chan struct{})
		tracker := NewTracker()
		nodes := newNodes(6, tracker)
		start := time.Now()
		answers := Survey(
			t.Context(),
			nodes,
			budget,
			func(ctx context.Context, n *Node) (int, error) {
				switch n.Index {
				case 1:
					return 0, refused
				case 2:
					panic("a client's")
				case 3: // obeys its context
					<-ctx.Done()
					return 0, ctx.Err()
				case 4: // obeys nothing
					<-back
				case 5:
					time.Sleep(budget / 2)
				}
				return n.Index * 10, nil
			},
		)
		assert.Equal(t, budget, time.Since(start))
		assert.Equal(t, Answer[int]{Value: 0}, answers[0])
		assert.Equal(t, Answer[int]{Err: refused}, answers[1])
		assert.ErrorContains(t, answers[2].Err, "a client's")
		assert.EqualError(t, answers[3].Err, "no answer within 100ms")
		assert.EqualError(t, answers[4].Err, "no answer within 100ms")
		assert.ErrorIs(t, answers[4].Err, ErrTimeout)
		assert.Equal(t, Answer[int]{Value: 50}, answers[5])

		synctest.Wait()
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, 1, tracker.Wait(limited), "the client that has not come back")
		close(back)
		assert.Zero(t, tracker.Wait(t.Context()))
	})
}

func TestSurveyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		nodes := newNodes(1, NewTracker())
		answers := Survey(ctx, nodes, time.Hour, func(ctx context.Context, _ *Node) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		assert.Equal(t, time.Millisecond, time.Since(start))
		assert.ErrorIs(t, answers[0].Err, ErrTimeout)
		synctest.Wait()
	})
}
