package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/pool"
)

// server is a node that stalls. What it is sent meanwhile it answers when it goes on, if the
// client still waits; a deaf client waits for ever.
type server struct {
	takes time.Duration
	deaf  bool

	mu sync.Mutex
	// closed when it answers what it was sent while it stalled; nil if it does not stall
	going chan struct{}
	sent  int
	hand  int // commands in the client's hands
	most  int
}

func (s *server) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.going = make(chan struct{})
}

// recover makes it answer new commands. It answers the others when answer is called.
func (s *server) recover() (answer func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	going := s.going
	s.going = nil
	return func() { close(going) }
}

func (s *server) goOn() { s.recover()() }

func (s *server) op(ctx context.Context, _ *Node) (int64, error) {
	s.mu.Lock()
	s.sent++
	s.hand++
	s.most = max(s.most, s.hand)
	going := s.going
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hand--
	}()
	if going != nil {
		ended := ctx.Done()
		if s.deaf {
			ended = nil
		}
		select {
		case <-going:
		case <-ended:
			return 0, ctx.Err()
		}
	}
	time.Sleep(s.takes)
	return 1, nil
}

// sentSoFar is how many commands the client was handed.
func (s *server) sentSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// SetNX and Eval make the server a Pool.
func (s *server) SetNX(ctx context.Context, _, _ string, _ time.Duration) (bool, error) {
	n, err := s.op(ctx, nil)
	return n > 0, err
}

func (s *server) Eval(ctx context.Context, _ *pool.Script, _ []string, _ ...any) (any, error) {
	return s.op(ctx, nil)
}

// starter is a Pool that needs no goroutine of its caller.
type starter struct{ pool.Pool }

func (s starter) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	go func() { to.Receive(c.Run(ctx, s.Pool)) }()
}

func accept(_ *pool.Command, reply any, err error) (Reply, error) {
	if reply == true || reply == int64(1) {
		return said(1), err
	}
	return Reply{}, err
}

// setNX is a SET, for clients of both kinds.
var setNX = Command{Command: pool.SetNX("k", "v", time.Second), Read: accept}

// one makes a node of a pool, and a function that sends it a command on a pipeline of its own.
func one(t *testing.T, p pool.Pool) (*Node, func() *Round) {
	node := Nodes([]pool.Pool{p}, NewTracker())[0]
	return node, func() *Round {
		return startRound(t.Context(), Pipelines([]*Node{node}),
			plan{Command: setNX, Kind: Ask, Need: 1, Budget: budget})
	}
}

// kinds are the two kinds of clients.
func kinds(t *testing.T, f func(t *testing.T, client func(*server) pool.Pool)) {
	for name, client := range map[string]func(*server) pool.Pool{
		"a client that waits":  func(s *server) pool.Pool { return s },
		"a client that starts": func(s *server) pool.Pool { return starter{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, client) })
		})
	}
}

// lesson L96: a Pool that is a Starter is used as one.
func TestAStarterStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits, starts := &server{}, &server{}
		started := false
		nodes := Nodes([]pool.Pool{waits,
			startFunc(func(ctx context.Context, c *pool.Command, to pool.Receiver) {
				started = true
				starter{starts}.Start(ctx, c, to)
			})}, NewTracker())
		r := startRound(t.Context(), Pipelines(nodes),
			plan{Command: setNX, Kind: Ask, Need: 2, Budget: budget})
		won, err := r.Wait(t.Context())
		assert.True(t, won && err == nil && started,
			"the client that starts was called as one that waits")
	})
}

// startFunc is a Starter that cannot be used as a Pool.
type startFunc func(ctx context.Context, c *pool.Command, to pool.Receiver)

func (f startFunc) Start(ctx context.Context, c *pool.Command, to pool.Receiver) { f(ctx, c, to) }

func (startFunc) SetNX(context.Context, string, string, time.Duration) (bool, error) {
	return false, errors.New("called as a pool that waits")
}

func (f startFunc) Eval(context.Context, *pool.Script, []string, ...any) (any, error) {
	return nil, errors.New("called as a pool that waits")
}

// lesson L58: commands that are sent while a node stalls for less than their budget do not fail
// for it, however many they are.
func TestAHiccupFailsNobody(t *testing.T) {
	kinds(t, func(t *testing.T, client func(*server) pool.Pool) {
		for _, n := range []int{1, 65, 150, 1000, 4000} {
			for _, hiccup := range []time.Duration{budget / 5, budget * 3 / 8, budget * 9 / 10} {
				s := &server{takes: time.Millisecond}
				_, ask := one(t, client(s))
				var rounds []*Round
				time.AfterFunc(budget/8, func() {
					s.stall()
					time.AfterFunc(hiccup, s.goOn)
				})
				for i := range n {
					rounds = append(rounds, ask())
					if i%(n/40+1) == 0 { // 40 waves within two budgets
						time.Sleep(budget / 20)
					}
				}
				later(10 * budget)
				failed := 0
				for _, r := range rounds {
					failed += r.votes().Failed
				}
				assert.Zero(t, failed, "of %d commands around a hiccup of %v", n, hiccup)
			}
		}
	})
}

// lesson L58: a node that has stopped answering holds no more than 64 commands, what was sent
// within a quarter of the budget, and a probe every quarter of it; and one answer lets everybody
// through again.
func TestAFrozenNodeHoldsABoundedNumberOfCommands(t *testing.T) {
	kinds(t, func(t *testing.T, client func(*server) pool.Pool) {
		s := &server{deaf: true}
		node, ask := one(t, client(s))
		s.stall()
		const every = time.Millisecond
		quarter := int(budget / 4 / every)
		var rounds []*Round
		for range 5 * int(budget/every) {
			rounds = append(rounds, ask())
			time.Sleep(every)
		}
		synctest.Wait()
		held := max(maxUnanswered, quarter+1)
		probes := 4*5 - int(held)/quarter - 1
		assert.Equal(t, held+probes, s.most)

		var err error
		for _, r := range rounds[100:103] { // of which one may be a probe
			if err = r.Outcomes()[0].Err; strings.Contains(err.Error(), "not sent") {
				break
			}
		}
		require.ErrorIs(t, err, ErrTimeout)
		assert.EqualError(t, err, "no answer within 100ms: not sent: the node leaves 69 commands "+
			"unanswered")

		before, keeps := s.sent, len(node.breaker.kept)
		assert.InDelta(t, budget/every, keeps, 5, "those whose time is not over")
		s.goOn()
		later(budget / 8)
		assert.Equal(t, before+keeps, s.sent)
		assert.Zero(t, node.breaker.unanswered)
		assert.Zero(t, node.breaker.probes)
		won, err := ask().Wait(t.Context())
		require.NoError(t, err)
		assert.True(t, won, "open again")
	})
}

// lesson L58: a node whose earlier calls never return is asked again within one node timeout of
// coming back, and then is open.
func TestANodeWhoseEarlierCallsNeverReturnIsAskedAgain(t *testing.T) {
	kinds(t, func(t *testing.T, client func(*server) pool.Pool) {
		for _, lost := range []int{65, 70, 700} {
			for _, outage := range []time.Duration{budget / 2, budget, 10 * budget} {
				// How often somebody asks.
				for _, every := range []time.Duration{0, budget / 50, budget / 3} {
					s := &server{deaf: true}
					node, ask := one(t, client(s))
					s.stall()
					for range lost {
						ask()
					}
					for start := time.Now(); time.Since(start) < outage; {
						time.Sleep(max(every, budget/100))
						if every > 0 {
							ask()
						}
					}
					answer := s.recover()
					back, sent := time.Now(), s.sentSoFar()
					ask()
					for s.sentSoFar() == sent {
						time.Sleep(time.Millisecond)
					}
					what := fmt.Sprint(lost, " lost calls, ", outage, ", every ", every)
					assert.LessOrEqual(t, time.Since(back), budget/4+time.Millisecond, what)
					later(budget)
					assert.False(t, node.breaker.tripped, what)
					rounds := make([]*Round, 200)
					for i := range rounds {
						rounds[i] = ask()
					}
					later(1)
					for _, r := range rounds {
						assert.Equal(t, 1, r.votes().Yes, what)
					}
					answer()
					synctest.Wait()
					assert.Zero(t, node.breaker.unanswered, what)
					assert.Zero(t, node.breaker.probes, what)
				}
			}
		}
	})
}

// lesson L58: calls that never return do not add up: the more probes are lost, the rarer they are.
// Nor are they so rare that a node that comes back waits for longer than one node timeout, or a
// fiftieth of the time that it was away.
func TestLostProbesGetRarer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = budget / 20
		s := &server{deaf: true}
		_, ask := one(t, s)
		s.stall()
		for range maxUnanswered {
			ask()
		}
		start := time.Now()
		last, sent := start, 0
		for time.Since(start) < 10*time.Minute {
			ask()
			time.Sleep(step)
			if now := s.sentSoFar(); now > sent {
				gap := time.Since(last)
				assert.LessOrEqual(t, gap, max(budget, time.Since(start)/50)+step)
				last, sent = time.Now(), now
			}
		}
		assert.InDelta(t, 10*maxUnanswered, s.most, maxUnanswered, "calls that have not returned")
		s.goOn()
	})
}

// What the breaker keeps is not sent once nobody needs it, and then there is nothing to take back.
func TestWhatTheBreakerKeepsIsNotSentAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		node, ask := one(t, s)
		trip(t, s, ask)
		sent := s.sentSoFar()
		pipelines, m := Pipelines([]*Node{node}), make([]WriteState, 1)
		w := send(t, pipelines, Write, m, s.op)
		a := send(t, pipelines, Ask, m, s.op)
		assert.Equal(t, 2, len(node.breaker.kept), "this and the one of trip")
		u := send(t, pipelines, Release, m, s.op)
		for _, r := range []*Round{a, u} {
			assert.ErrorIs(t, r.Outcomes()[0].Err, ErrUnsent)
		}
		next := send(t, pipelines, Ask, nil, s.op)
		s.goOn()
		later(budget / 8)
		assert.ErrorIs(t, w.Outcomes()[0].Err, ErrUnsent)
		assert.Equal(t, 1, next.votes().Yes)
		assert.Equal(t, sent+2, s.sentSoFar())
		assert.Nil(t, pipelines[0].running)
		assert.Zero(t, pendingFor(node))
	})
}

// trip makes the breaker of the server trip, one probe through.
func trip(t *testing.T, s *server, ask func() *Round) {
	s.stall()
	for range maxUnanswered {
		ask()
	}
	time.Sleep(budget/4 + 1)
	for range 2 {
		ask()
	}
	synctest.Wait()
	require.Equal(t, maxUnanswered, s.sentSoFar())
	time.Sleep(budget/4 + 1) // the probe
	require.Equal(t, maxUnanswered+1, s.sentSoFar())
}

func TestASlowNodeThatAnswersIsNotLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: budget * 9 / 10}
		_, ask := one(t, s)
		var rounds []*Round
		for range 500 {
			rounds = append(rounds, ask())
			time.Sleep(budget / 450) // from then on, an answer as often as a question
		}
		later(2 * budget)
		failed := 0
		for _, r := range rounds {
			failed += r.votes().Failed
		}
		// Those that the breaker kept while the node had not answered at all begin when it does,
		// with what time they have left.
		assert.LessOrEqual(t, failed, 450-maxUnanswered)
		assert.Zero(t, rounds[499].votes().Failed)
	})
}

func TestAQuickErrorIsAnAnswerAndASlowOneIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			takes time.Duration
			err   error
			trips bool
		}{{budget/4 - 1, errNode, false}, {budget / 4, errNode, true}, {0, ErrUnsent, true}} {
			node := newNodes(1, NewTracker())[0]
			hang := func(ctx context.Context, _ *Node) (int64, error) {
				<-ctx.Done()
				return 0,
					ctx.Err()
			}
			for range maxUnanswered {
				send(t, Pipelines([]*Node{node}), Ask, nil, hang)
			}
			synctest.Wait()
			send(t, Pipelines([]*Node{node}), Ask, nil, newJournal().op("", tt.takes, 0, tt.err))
			time.Sleep(budget/4 + 1)
			send(t, Pipelines([]*Node{node}), Ask, nil, hang)
			synctest.Wait()
			assert.Equal(t, tt.trips, node.breaker.tripped, tt.takes)
			node.tracker.Wait(t.Context())
		}
	})
}

// A command that had to wait for its turn has little time left. That its context ends soon after it
// was sent says nothing about the node.
func TestTheTimeoutOfACommandThatBeganLateIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, frozen := newNodes(1, NewTracker())[0], make(chan struct{})
		deaf := func(context.Context, *Node) (int64, error) {
			<-frozen
			return 0, errNode
		}
		ask := func(pipelines []Pipeline, o op) { send(t, pipelines, Ask, nil, o) }
		for range maxUnanswered - 1 {
			ask(Pipelines([]*Node{node}), deaf)
		}
		pipelines := Pipelines([]*Node{node})
		ask(pipelines, newJournal().op("", budget*9/10, 0, errNode))
		ask(pipelines, func(ctx context.Context, _ *Node) (int64, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		later(budget)
		for range 2 {
			ask(Pipelines([]*Node{node}), deaf)
		}
		synctest.Wait()
		assert.True(t, node.breaker.tripped)
		close(frozen)
		node.tracker.Wait(t.Context())
	})
}

// Renewals have small budgets at times. They do not make the node look silent.
func TestASmallBudgetDoesNotTripTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: budget / 8}
		node, ask := one(t, s)
		for range maxUnanswered + 1 {
			ask()
		}
		time.Sleep(budget / 10)
		r := startRound(t.Context(), Pipelines([]*Node{node}),
			plan{Command: setNX, Kind: Ask, Need: 1, Budget: budget / 6})
		won, err := r.Wait(t.Context())
		assert.True(t, won && err == nil, "sent at once")
		later(budget)
	})
}

// With real goroutines and the race detector: nothing is lost between commands that the breaker is
// about to keep and answers that are about to open it.
func TestTheBreakerUnderRace(t *testing.T) {
	const short = 20 * time.Millisecond
	for range 20 {
		s := &server{takes: 100 * time.Microsecond}
		node := Nodes([]pool.Pool{starter{s}}, NewTracker())[0]
		over := make(chan struct{})
		var all, stalls sync.WaitGroup
		stalls.Go(func() {
			for {
				s.stall()
				time.Sleep(rand.N(short))
				s.goOn()
				select {
				case <-over:
					return
				case <-time.After(rand.N(short / 4)):
				}
			}
		})
		var won atomic.Int64
		for range 200 {
			all.Go(func() {
				for range 3 {
					pipelines, m := Pipelines([]*Node{node}), make([]WriteState, 1)
					w := startRound(t.Context(), pipelines,
						plan{Command: setNX, Kind: Write, Need: 1, Budget: short, Writes: m})
					if yes, _ := w.Wait(t.Context()); yes {
						won.Add(1)
					}
					u := startRound(t.Context(), pipelines,
						plan{Command: setNX, Kind: Release, Need: 1, Budget: short, Writes: m})
					_, _ = u.Wait(t.Context())
				}
			})
		}
		all.Wait()
		close(over)
		stalls.Wait()
		require.Zero(t, node.tracker.Wait(t.Context()))
		assert.Empty(t, node.breaker.kept)
		assert.Zero(t, node.breaker.probes)
		assert.Zero(t, node.breaker.unanswered)
		assert.NotZero(t, won.Load())
		settled(t, node)
	}
}

// lesson L63: the breaker was tripped by commands that had much time. One that has little does not
// wait for their pace, and a node that is lost for good is not asked more often for it than every
// quarter of that.
func TestTheCommandWithTheLeastTimeSetsThePaceOfProbes(t *testing.T) {
	kinds(t, func(t *testing.T, client func(*server) pool.Pool) {
		for _, lost := range []int{0, 200} {
			s := &server{deaf: true}
			node, _ := one(t, client(s))
			ask := func(budget time.Duration) *Round {
				return startRound(t.Context(), Pipelines([]*Node{node}),
					plan{Command: setNX, Kind: Ask, Need: 1, Budget: budget})
			}
			s.stall()
			for range maxUnanswered {
				ask(100 * budget)
			}
			time.Sleep(26 * budget)
			for range 2 { // a probe, and what the breaker keeps
				ask(100 * budget)
			}
			synctest.Wait()
			before := s.sentSoFar()
			for range lost {
				ask(budget)
				time.Sleep(budget / 20)
			}
			assert.InDelta(t, lost/5, s.sentSoFar()-before, 2, "every quarter of its time")

			answer := s.recover()
			won, err := ask(budget).Wait(t.Context())
			require.NoError(t, err)
			assert.True(t, won)
			answer()
			node.tracker.Wait(t.Context())
		}
	})
}
