package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// opened returns a write set on nodes that do ops, with the budget of the tests.
func opened(n int) *WriteSet {
	c := &WriteSet{}
	c.Open(newPipelines(n), budget, time.Hour)
	return c
}

func TestAWriteSetNeedsAQuorumWithinItsBudgetUnlessASpecSaysOtherwise(t *testing.T) {
	for n, quorum := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4} {
		assert.Equal(t, quorum, Majority(n))
		synctest.Test(t, func(t *testing.T) {
			answers := op(func(ctx context.Context, n *Node) (int64, error) {
				if n.Index >= quorum-1 {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				return 1, nil
			}).command()
			for _, s := range []Spec{{}, {Budget: budget / 2}, {Need: max(quorum-1, 1)}} {
				s.Command = answers
				start := time.Now()
				won, err := opened(n).Ask(t.Context(), s).Wait(t.Context())
				assert.NoError(t, err)
				took := time.Since(start)
				switch {
				case s.Need > 0 && quorum > 1:
					assert.True(t, won && took == 0)
				case s.Budget > 0:
					assert.True(t, !won && took < budget/2 && took > budget/4)
				default:
					assert.True(t, !won && took < budget && took > budget*3/4)
				}
				later(budget)
			}
		})
	}
}

// A node that has done before what is asked for is not asked again, and counts.
func TestWhatANodeHasDoneBeforeIsAYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan int, 3)
		c := op(func(_ context.Context, n *Node) (int64, error) {
			asked <- n.Index
			return 0, nil
		}).command()
		r := opened(3).Ask(t.Context(), Spec{Command: c,
			Have: func(node int) bool { return node != 1 }})
		won, err := r.Wait(t.Context())
		assert.True(t, won && err == nil)
		synctest.Wait()
		assert.Len(t, asked, 1)
		assert.Equal(t, Outcomes{{Reply: said(0)}, {}, {}}[1:2], r.Outcomes()[1:2])
		assert.Equal(t, 2, r.Outcomes().Count(Outcome.Yes))
	})
}

// The condition of a command is looked at when the pipeline has come to it, not before.
func TestAConditionIsAskedWhenItsTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := opened(2), newJournal()
		c.Ask(t.Context(), Spec{Command: j.op("ask", budget/2, 1, nil).command()})
		var holds atomic.Bool // on the second node
		r := c.Write(t.Context(), Spec{
			Command: j.op("heal", 0, 1, nil).command().when(func(n int) bool {
				return n == 1 && holds.Load()
			}),
		})
		holds.Store(true)
		later(budget)
		assert.Equal(t, []string{"0s ask", "0s ask", "50ms heal"}, j.read())
		assert.Equal(t, Outcomes{{Err: ErrUnsent}, {Reply: said(1)}}, r.Outcomes())
		assert.Zero(t, c.writes[0].sent, "nothing is there to take back")
	})
}

func TestAWriteSetKnowsWhatItHasTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := opened(7), newJournal()
		deletes := j.op("release", 0, 1, nil).command()
		c.Release(t.Context(), Spec{Command: deletes})
		synctest.Wait()
		assert.Empty(t, j.read(), "nothing was written")
		assert.False(t, c.ReleasedOn(0))

		c = opened(7)
		c.TakeOver(false)
		skip := func(node int) bool { return node > 4 }
		c.Release(t.Context(), Spec{Command: deletes, Skip: skip})
		synctest.Wait()
		assert.Len(t, j.read(), 5)
		assert.True(t, c.ReleasedOn(4))
		assert.False(t, c.ReleasedOn(5))
	})
}
