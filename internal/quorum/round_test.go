package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/pool"
)

const budget = 100 * time.Millisecond

var errNode = errors.New("node error")

// A vote is what a node does in a round.
type vote uint8

const (
	yes vote = iota
	no
	fails
	hangs
	votes
)

// script makes an op of what each node does and when.
func script(pattern []vote, delay []time.Duration, deaf bool) op {
	return func(ctx context.Context, n *Node) (int64, error) {
		if pattern[n.Index] == hangs {
			if deaf {
				time.Sleep(3 * budget)
				return 1, nil // too late to count
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}
		time.Sleep(delay[n.Index])
		switch pattern[n.Index] {
		case yes:
			return 1, nil
		case no:
			return 0, nil
		}
		return 0, errNode
	}
}

// decision works out by brute force what a round has to come to, and when: at the first moment at
// which all ways in which the missing votes could be cast lead to the same outcome. Nodes that
// hang count as failed after patience.
func decision(pattern []vote, delay []time.Duration, need int, patience time.Duration) (won bool,
	at time.Duration) {
	moments := []time.Duration{patience}
	for i, v := range pattern {
		if v != hangs {
			moments = append(moments, delay[i])
		}
	}
	at = patience
	for _, now := range moments {
		known, missing := 0, 0
		for i, v := range pattern {
			switch {
			case v != hangs && delay[i] > now || v == hangs && now < patience:
				missing++
			case v == yes:
				known++
			}
		}
		outcomes := map[bool]bool{}
		for cast := range 1 << missing {
			outcomes[known+bits.OnesCount(uint(cast)) >= need] = true
		}
		if len(outcomes) == 1 && now <= at {
			at, won = now, outcomes[true]
		}
	}
	return won, at
}

// lesson L9 and L11: errors and refusals count at once, an even number of nodes decides too.
func TestRoundIsDecidedAtTheFirstReplyAfterWhichNothingCanChange(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 7} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			t.Parallel()
			patterns := 1
			for range n {
				patterns *= int(votes)
			}
			step := 1
			if testing.Short() || n == 7 {
				step = 1 + patterns/4000*2 // odd, so that every node votes in every way
			}
			synctest.Test(t, func(t *testing.T) {
				for p := 0; p < patterns; p += step {
					for need := 1; need <= n; need++ {
						if n > 4 && need != n/2+1 && need != n-n/2 {
							continue
						}
						everyVote(t, n, p, need)
					}
				}
			})
		})
	}
}

// everyVote runs one round in which the digits of p to base 4 are the votes.
func everyVote(t *testing.T, n, p, need int) {
	pattern := make([]vote, n)
	delay := make([]time.Duration, n)
	for i := range n {
		pattern[i] = vote(p >> (2 * i) & 3)
		// Replies at distinct times, in an order that varies with the pattern.
		delay[i] = time.Duration(1+(i*(1+p%(n+1))+p/7)%n)*10*time.Millisecond + time.Duration(i)
	}
	deaf, patience := p%2 == 0, budget
	if !deaf {
		patience -= lastWord // a client that heeds the context gives up in time to say so
	}
	want, at := decision(pattern, delay, need, patience)

	begun := time.Now()
	r := startRound(t.Context(), newPipelines(n), plan{Op: script(pattern, delay, deaf), Need: need,
		Budget: budget})
	got, err := r.Wait(t.Context())
	took := time.Since(begun)
	if err != nil || got != want || took != at {
		t.Fatalf("votes %v after %v, %d needed: decided %v after %v (%v), want %v after %v",
			pattern, delay, need, got, took, err, want, at)
	}
	synctest.Wait() // several may give up in this very moment
	sum := r.votes()
	for i, o := range r.Outcomes() {
		pending := pattern[i] == hangs && took < patience || pattern[i] != hangs && delay[i] > took
		switch {
		case pending != (o.Err == ErrUnanswered):
			t.Fatalf("votes %v after %v, decided after %v: node %d is said to have answered %v",
				pattern, delay, took, i, o)
		case pending:
			sum.Pending--
		case o.Err != nil:
			sum.Failed--
		case o.Yes():
			sum.Yes--
		default:
			sum.No--
		}
	}
	if sum != (tally{}) {
		t.Fatalf("votes %v: tally %+v is not the outcomes %v", pattern, r.votes(), r.Outcomes())
	}
	time.Sleep(4 * budget)
}

func TestRoundEndsWithTheCallersContextAndGoesOnWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var ended []time.Duration
		start := time.Now()
		r := startRound(ctx, newPipelines(1), plan{Need: 1, Budget: budget,
			Op: func(ctx context.Context, _ *Node) (int64, error) {
				<-ctx.Done()
				ended = append(ended, time.Since(start))
				return 0, ctx.Err()
			}})
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := r.Wait(ctx)
		assert.Equal(t, context.Canceled, err)
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []time.Duration{budget - lastWord}, ended,
			"the command's own time is not cut short")
		assert.ErrorIs(t, r.Outcomes()[0].Err, ErrTimeout)
	})
}

func TestRoundKeepsTheValuesOfTheContext(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	cancel()
	got := make(chan any, 1)
	startRound(ctx, newPipelines(1), plan{Need: 1, Budget: time.Minute,
		Op: func(ctx context.Context, _ *Node) (int64, error) {
			assert.NoError(t, ctx.Err())
			got <- ctx.Value(key{})
			return 1, nil
		}})
	assert.Equal(t, "v", <-got)
}

func TestSkippedNodesHaveNoVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan int, 3)
		r := startRound(t.Context(), newPipelines(3), plan{
			Need: 2, Budget: budget,
			Skip: func(node int) bool { return node == 1 },
			Op: func(_ context.Context, n *Node) (int64, error) {
				asked <- n.Index
				return int64(n.Index), nil
			},
		})
		won, err := r.Wait(t.Context())
		require.NoError(t, err)
		assert.False(t, won)
		synctest.Wait()
		assert.Len(t, asked, 2)
		assert.Equal(t, Outcomes{{}, {Err: ErrUnsent}, {Reply: said(2)}}, r.Outcomes())
		assert.Equal(t, tally{Yes: 1, No: 1, Failed: 1}, r.votes())
	})
}

func TestVoteDecidesWhatAReplyMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRound(t.Context(), newPipelines(3), plan{
			Need: 2, Budget: budget,
			Op: func(_ context.Context, n *Node) (int64, error) { return int64(n.Index), nil },
			Vote: func(node int, reply Reply) bool {
				return node == 0 && reply.Number == 0 ||
					node == 1
			},
		})
		won, err := r.Wait(t.Context())
		require.NoError(t, err)
		assert.True(t, won)
	})
}

func TestHeardTellsWhetherANodeHasSaidSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := op(func(ctx context.Context, n *Node) (int64, error) {
			time.Sleep(time.Duration(n.Index) * time.Millisecond)
			return int64(n.Index), nil
		}).command()
		c.Read = func(_ *pool.Command, reply any, _ error) (Reply, error) {
			switch reply {
			case int64(0):
				return Reply{Means: Turn}, errNode
			case int64(2):
				return Reply{Means: HandedOn}, nil
			}
			return Reply{Means: Done}, nil
		}
		r := startRound(t.Context(), newPipelines(4), plan{Need: 4, Budget: budget, Command: c})
		for _, want := range []bool{false, false, true, true} {
			time.Sleep(time.Millisecond / 2)
			assert.Equal(t, want, r.Heard(HandedOn))
			time.Sleep(time.Millisecond / 2)
		}
		assert.True(t, r.Heard(Done))
		assert.False(t, r.Heard(Turn), "with an error it was not said")
	})
}

func TestReplyAfterTheBudgetDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRound(t.Context(), newPipelines(1),
			plan{Need: 1, Budget: budget, Op: func(context.Context, *Node) (int64, error) {
				time.Sleep(budget + 1)
				return 1, nil
			}})
		won, err := r.Wait(t.Context())
		require.NoError(t, err)
		assert.False(t, won)
		time.Sleep(time.Second)
		assert.Equal(t, tally{Failed: 1}, r.votes())
		var timeout *TimeoutError
		require.ErrorAs(t, r.Outcomes()[0].Err, &timeout)
		assert.Equal(t, &TimeoutError{Budget: budget}, timeout)
	})
}

func TestErrorAtTheEndOfTheBudgetIsATimeoutThatNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRound(t.Context(), newPipelines(2),
			plan{Need: 1, Budget: budget, Op: func(ctx context.Context, n *Node) (int64, error) {
				if n.Index == 1 {
					return 0, nil
				}
				<-ctx.Done()
				return 0, fmt.Errorf("read: %w", ctx.Err())
			}})
		synctest.Wait()
		time.Sleep(budget)
		synctest.Wait() // nobody waits for the round: the client's own error counts
		err := r.Outcomes()[0].Err
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, "no answer within 100ms: read: context deadline exceeded")
		assert.EqualError(t, &TimeoutError{Budget: budget}, "no answer within 100ms")
	})
}

func TestAWriteSetThatCeasesSendsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened(1)
		c.Write(t.Context(), Spec{Command: newJournal().op("set", budget/2, 1, nil).command()})
		r := c.Write(t.Context(), Spec{
			Command: op(func(context.Context, *Node) (int64, error) {
				t.Error("sent")
				return 1, nil
			}).command()})
		c.Cease()
		won, err := r.Wait(t.Context())
		require.NoError(t, err)
		assert.False(t, won)
		assert.Equal(t, ErrUnsent, r.Outcomes()[0].Err)
	})
}

// A timer that fires late, on a busy machine or after a pause, still ends the context.
func TestTheContextOfARoundEndsThoughItsTimerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines := newPipelines(1)
		r := startRound(t.Context(), pipelines, plan{Need: 1, Budget: budget,
			Op: func(ctx context.Context, _ *Node) (int64, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}})
		synctest.Wait()
		r.start = time.Now().Add(-budget - time.Nanosecond)
		r.expire()
		synctest.Wait()
		assert.Equal(t, context.DeadlineExceeded, r.Err())
		assert.Zero(t, pipelines[0].node.tracker.Wait(t.Context()))
	})
}

// Start can stand still between two nodes.
func TestWhatBeginsWhenItsRoundIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []Kind{Ask, Write, Release} {
			sent := time.Duration(-1)
			startRound(t.Context(), newPipelines(1), plan{
				Kind: kind, Need: 1, Budget: budget, Writes: sentBefore(1),
				Skip: func(int) bool { time.Sleep(2 * budget); return false },
				Op: func(ctx context.Context, _ *Node) (int64, error) {
					end, _ := ctx.Deadline()
					sent = time.Until(end)
					return 1, ctx.Err()
				},
			})
			later(budget / 2)
			if kind == Release {
				assert.Equal(t, budget-lastWord, sent, "it is sent, and has its time")
			} else {
				assert.EqualValues(t, -1, sent, "it is not sent any more")
			}
		}
	})
}
