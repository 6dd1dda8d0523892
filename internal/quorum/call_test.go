package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/pool"
)

// lesson L62: whatever panics or ends the goroutine while a node is asked, it is one node's
// failure. lesson L70: it is told in one line, and has the stack.
func TestAPanicIsOneNodesFailure(t *testing.T) {
	oops := errors.New("oops,\n\tand oops")
	answers := func(context.Context, *Node) (int64, error) { return 1, nil }
	starts := func(_ context.Context, _ *pool.Command, to pool.Receiver) { to.Receive(true, nil) }
	type spec struct {
		starts  func(context.Context, *pool.Command, pool.Receiver)
		read    func(*pool.Command, any, error) (Reply, error)
		op      op
		decides func(int) *pool.Command
	}
	for name, c := range map[string]spec{
		"Op": {op: func(_ context.Context, n *Node) (int64, error) { panic(oops) }},
		"Start": {starts: func(context.Context, *pool.Command, pool.Receiver) { panic(oops) },
			read: accept},
		"Read": {starts: starts, read: func(*pool.Command, any, error) (Reply, error) {
			panic(oops)
		}},
		"For": {decides: func(int) *pool.Command { panic(oops) }},
		"Goexit": {op: func(context.Context, *Node) (int64, error) {
			runtime.Goexit()
			return 0, nil
		}},
		"Goexit in Start": {
			starts: func(_ context.Context, c *pool.Command, to pool.Receiver) { runtime.Goexit() },
			read:   accept,
		},
	} {
		for _, kind := range []Kind{Ask, Write, Release} {
			t.Run(fmt.Sprint(name, "/", kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					healthy := starter{&server{}}
					nodes := newNodes(3, NewTracker())
					if c.starts != nil {
						bad := startFunc(c.starts)
						nodes = Nodes([]pool.Pool{bad, healthy, healthy}, NewTracker())
					}
					s := plan{Kind: kind, Need: 2, Budget: budget, Writes: sentBefore(3)}
					answers := op(answers).command()
					switch {
					case c.op != nil:
						s.Op = func(ctx context.Context, n *Node) (int64, error) {
							if n.Index == 0 {
								return c.op(ctx, n)
							}
							return 1, nil
						}
					case c.decides != nil:
						s.Command = answers
						s.Command.For = func(n int) *pool.Command {
							if n == 0 {
								return c.decides(n)
							}
							return answers.Command
						}
					default:
						s.Command = setNX
					}
					if name == "Read" {
						first := true
						s.Command.Read = func(c2 *pool.Command, reply any, err error) (Reply,
							error) {
							if first {
								first = false
								return c.read(c2, reply, err)
							}
							return accept(c2, reply, err)
						}
					}
					pipelines := Pipelines(nodes)
					rounds := make(chan *Round, 1)
					go func() { // which Goexit may end
						defer close(rounds)
						rounds <- startRound(t.Context(), pipelines, s)
					}()
					r, started := <-rounds
					if name == "Goexit in Start" {
						assert.False(t, started, "the caller's goroutine has ended")
					} else {
						won, err := r.Wait(t.Context())
						assert.True(t, won && err == nil, "the others decide")
						synctest.Wait()
						err = r.Outcomes()[0].Err
						require.Error(t, err)
						assert.NotContains(t, err.Error(), "\n")
						if !strings.HasPrefix(name, "Goexit") {
							var p *pool.PanicError
							require.ErrorAs(t, err, &p)
							assert.ErrorIs(t, err, oops)
							assert.Contains(t, string(p.Stack), "TestAPanicIsOneNodesFailure")
							assert.EqualError(t, err, "the client panicked: oops, and oops")
						}
					}
					later(5 * budget) // a Release is tried again
					assert.Nil(t, pipelines[0].running, "the pipeline goes on")
					go Finish(t.Context(), nodes) // Goexit may end this goroutine
					later(5 * budget)
					for i, n := range nodes {
						assert.Zero(t, n.breaker.unanswered, "node %d", i)
						assert.Zero(t, n.tracker.n.Load())
					}
				})
			})
		}
	}
}

// lesson L70: a client that tells an outcome twice changes nothing.
func TestASecondOutcomeIsIgnored(t *testing.T) {
	for _, kind := range []Kind{Ask, Write, Release} {
		for _, panics := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				nodes := Nodes([]pool.Pool{startFunc(func(_ context.Context, _ *pool.Command,
					to pool.Receiver) {
					to.Receive(true, nil)
					to.Receive(nil, errNode)
					go to.Receive(nil, errNode)
					if panics {
						panic("after the outcome was told")
					}
				})}, NewTracker())
				r := startRound(t.Context(), Pipelines(nodes),
					plan{Command: setNX, Kind: kind, Need: 1, Budget: budget,
						Writes: sentBefore(1)})
				won, err := r.Wait(t.Context())
				assert.True(t, won && err == nil)
				later(5 * budget)
				assert.Equal(t, tally{Yes: 1}, r.votes())
				assert.Zero(t, nodes[0].breaker.unanswered)
				assert.Zero(t, nodes[0].tracker.n.Load())
				assert.Zero(t, pendingFor(nodes[0]))
			})
		}
	}
}

// lesson L77: a client that gives up at its context's deadline a moment before the context has
// ended says that the node used up its time.
func TestAClientsOwnDeadlineIsANodeTimeout(t *testing.T) {
	for _, tt := range []struct {
		early time.Duration // before the context's deadline
		err   error
		want  string // "" if it is no timeout
	}{
		{0, context.DeadlineExceeded, "no answer within 100ms: context deadline exceeded"},
		{0, errNode, "no answer within 100ms: node error"},
		{time.Microsecond, context.DeadlineExceeded,
			"no answer within 99ms: context deadline exceeded"},
		{time.Microsecond, fmt.Errorf("dial: %w", context.DeadlineExceeded),
			"no answer within 99ms: dial: context deadline exceeded"},
		{budget / 2, pool.NotSent(context.DeadlineExceeded),
			"no answer within 49ms: context deadline exceeded"},
		{time.Microsecond, errNode, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			pipelines := newPipelines(1)
			r := send(t, pipelines, Ask, nil, func(ctx context.Context, _ *Node) (int64, error) {
				end, _ := ctx.Deadline()
				time.Sleep(time.Until(end) - tt.early)
				return 0, tt.err
			})
			later(budget)
			err := r.Outcomes()[0].Err
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want != "", errors.Is(err, ErrTimeout))
			if tt.want != "" {
				assert.EqualError(t, err, tt.want)
			}
		})
	}
}

// lesson L73, L162: the outcome of a round with next to no time is in words that a person can read.
func TestATinyBudgetIsSaidBriefly(t *testing.T) {
	for b, want := range map[time.Duration]string{
		1: "no answer within 1ns", 41184: "no answer within 41.2µs",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := startRound(t.Context(), newPipelines(3),
				plan{Op: newJournal().op("", time.Second, 1, nil), Kind: Ask, Need: 2, Budget: b})
			won, err := r.Wait(t.Context())
			assert.True(t, !won && err == nil)
			for _, o := range r.Outcomes() {
				assert.EqualError(t, o.Err, want)
			}
			later(time.Second)
		})
	}
}

// lesson L56, L66: budgets as long as they can be end nothing early.
func TestTheLongestBudgets(t *testing.T) {
	for _, b := range []time.Duration{math.MaxInt64, math.MaxInt64 / 2, math.MaxInt64 / 3,
		math.MaxInt64 - 1} {
		synctest.Test(t, func(t *testing.T) {
			pipelines, j := newPipelines(3), newJournal()
			m := make([]WriteState, 3)
			takes := 24 * time.Hour
			w := startRound(t.Context(), pipelines,
				plan{Op: j.op("set", takes, 0, nil), Kind: Write, Need: 2, Budget: b, Writes: m,
					Hasty: true})
			u := startRound(t.Context(), pipelines,
				plan{Op: j.op("release", takes, 1, nil), Kind: Release, Need: 3, Budget: b,
					Writes: m, Expiry: b})
			later(2*takes + 1)
			assert.Equal(t, tally{No: 3}, w.votes())
			assert.Equal(t, tally{Yes: 3}, u.votes())
			assert.Len(t, j.read(), 6)
			assert.Zero(t, pendingFor(pipelines[0].node))

			s := &server{}
			node := Nodes([]pool.Pool{s}, NewTracker())[0]
			ask := func() *Round {
				return startRound(t.Context(), Pipelines([]*Node{node}),
					plan{Command: setNX, Kind: Ask, Need: 1, Budget: b})
			}
			s.stall()
			for range 2 * maxUnanswered {
				ask()
				time.Sleep(time.Hour)
			}
			assert.False(t, node.breaker.tripped, "silence is measured by the budget")
			s.goOn()
			later(1)
			assert.Zero(t, node.breaker.unanswered)
		})
	}
}
