package quorum

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
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

// keys is a node that stalls. It buffers what it is sent meanwhile and executes that when it goes
// on, in any order, whether the client still waits or not.
type keys struct {
	pool.Pool // never called

	mu       sync.Mutex
	rand     *rand.Rand
	values   map[int]bool
	stalled  bool
	buffer   []func()
	deletes  int   // that it was sent
	failing  error // of deletions
	executes bool  // those that fail
}

func newKeys(seed uint64) *keys {
	return &keys{values: map[int]bool{}, rand: rand.New(rand.NewPCG(seed, 1))}
}

func (k *keys) stall() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stalled = true
}

func (k *keys) goOn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stalled = false
	k.rand.Shuffle(len(k.buffer), func(i, j int) {
		k.buffer[i], k.buffer[j] = k.buffer[j],
			k.buffer[i]
	})
	for _, execute := range k.buffer {
		execute()
	}
	k.buffer = nil
}

// fail makes deletions fail, though they may be executed; nil ends that.
func (k *keys) fail(err error, executes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failing, k.executes = err, executes
}

// has reports whether a key is there.
func (k *keys) has(v int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.values[v]
}

// left is how many keys there are.
func (k *keys) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.values)
}

// deletions is how many it was sent.
func (k *keys) deletions() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.deletes
}

// do carries out what is called with mu held.
func (k *keys) do(ctx context.Context, execute func() (int64, error)) (int64, error) {
	type answer struct {
		reply int64
		err   error
	}
	answers := make(chan answer, 1)
	k.mu.Lock()
	run := func() {
		reply, err := execute()
		answers <- answer{reply, err}
	}
	if k.stalled {
		k.buffer = append(k.buffer, run)
	} else {
		run()
	}
	k.mu.Unlock()
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// set and del are commands.
func (k *keys) set(v int) op {
	return func(ctx context.Context, _ *Node) (int64, error) {
		return k.do(ctx, func() (int64, error) { k.values[v] = true; return 1, nil })
	}
}

func (k *keys) del(v int) op {
	return func(ctx context.Context, _ *Node) (int64, error) {
		k.mu.Lock()
		k.deletes++
		k.mu.Unlock()
		return k.do(ctx, func() (int64, error) {
			if k.failing != nil && !k.executes {
				return 0, k.failing
			}
			was := k.values[v]
			delete(k.values, v)
			if k.failing != nil {
				return 0, k.failing
			}
			if was {
				return 1, nil
			}
			return 0, nil
		})
	}
}

// lock writes a key on a pipeline of its own, and returns what takes it back.
func (k *keys) lock(t *testing.T, node *Node, v int) (unlock func() *Round) {
	pipelines, m := Pipelines([]*Node{node}), make([]WriteState, 1)
	send(t, pipelines, Write, m, k.set(v))
	return func() *Round { return send(t, pipelines, Release, m, k.del(v)) }
}

// lesson L97: a node that stalls while commands wait on it keeps no key of theirs, however long
// it stalls and whatever it executes first when it goes on; and while it stalls it is not asked
// all the time.
func TestAStallLeavesNoKey(t *testing.T) {
	for _, callers := range []int{1, 2, 20, 100, 1000} {
		for _, stall := range []time.Duration{budget / 2, budget, 10 * budget, 200 * budget} {
			for seed := range uint64(3) {
				name := fmt.Sprint(callers, " callers, ", stall, ", seed ", seed)
				synctest.Test(t, func(t *testing.T) {
					k, node := newKeys(seed), newNodes(1, NewTracker())[0]
					k.stall()
					for v := range callers {
						unlock := k.lock(t, node, v)
						if v%3 == 0 {
							unlock()
						} else {
							time.AfterFunc(time.Duration(k.rand.Int64N(int64(2*budget))),
								func() { unlock() })
						}
						if v%(callers/10+1) == 0 {
							time.Sleep(budget / 20)
						}
					}
					later(stall)
					sent := k.deletions()
					k.goOn()
					later(5 * budget)
					assert.Zero(t, k.left(), name)
					assert.Zero(t, pendingFor(node), name)
					assert.LessOrEqual(t, sent, callers+int(stall/budget)+1, name)
					assert.LessOrEqual(t, k.deletions()-sent, 2*callers+1, name)
					assert.Zero(t, node.tracker.Wait(t.Context()))
				})
			}
		}
	}
}

// A node that is silent is asked once in a budget for one of the releases, for as long as their
// keys may live, and no more after that.
func TestASilentNodeIsAskedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, node := newKeys(1), newNodes(1, NewTracker())[0]
		var unlock []func() *Round
		for v := range 300 {
			unlock = append(unlock, k.lock(t, node, v))
		}
		synctest.Wait()
		k.stall()
		for _, u := range unlock {
			u()
		}
		later(2 * budget)
		assert.Equal(t, 300, pendingFor(node))
		sent := k.deletions()
		later(leastPending / 2)
		assert.InDelta(t, float64(leastPending/2/budget), float64(k.deletions()-sent),
			0.6*float64(leastPending/2/budget))
		later(leastPending/2 + 3*budget)
		assert.Zero(t, pendingFor(node), "the keys have expired")
		sent = k.deletions()
		later(time.Hour)
		assert.Equal(t, sent, k.deletions())
		assert.Nil(t, node.retries.timer)
	})
}

// What has a longer expiry is pending for longer.
func TestAReleaseIsPendingUntilTheKeyHasExpired(t *testing.T) {
	const expiry = 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		k, node := newKeys(1), newNodes(1, NewTracker())[0]
		pipelines, m := Pipelines([]*Node{node}), make([]WriteState, 1)
		send(t, pipelines, Write, m, k.set(1))
		synctest.Wait()
		k.stall()
		startRound(t.Context(), pipelines, plan{Op: k.del(1), Kind: Release, Need: 1,
			Budget: budget, Writes: m, Expiry: expiry})
		later(expiry - time.Second)
		assert.Equal(t, 1, pendingFor(node))
		later(2 * time.Second)
		assert.Zero(t, pendingFor(node))
	})
}

// A node that answers others and fails releases is asked for them, by however many answers, no more
// than 16 times a quarter of a budget; and as soon as it does not fail them they are done.
func TestANodeThatFailsReleasesIsNotPressed(t *testing.T) {
	for _, executes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k, node := newKeys(1), newNodes(1, NewTracker())[0]
			k.fail(errNode, executes)
			for v := range 100 {
				unlock := k.lock(t, node, v)
				synctest.Wait()
				unlock()
			}
			synctest.Wait()
			assert.Equal(t, 100, pendingFor(node))
			sent := k.deletions()
			for range 1000 {
				send(t, Pipelines([]*Node{node}), Ask, nil, k.set(1000))
				time.Sleep(budget / 100)
			}
			assert.LessOrEqual(t, k.deletions()-sent, 10*4*maxRetries)
			k.fail(nil, false)
			send(t, Pipelines([]*Node{node}), Ask, nil, k.set(1000))
			later(2 * budget)
			assert.Equal(t, 1, k.left(), "that of others")
			assert.Zero(t, pendingFor(node))
		})
	}
}

// A release that has failed is sent again when the node answers anything.
func TestAReleaseIsSentAgainWhenTheNodeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, node := newKeys(1), newNodes(1, NewTracker())[0]
		k.fail(errNode, false)
		unlock := k.lock(t, node, 1)
		synctest.Wait()
		unlock()
		time.Sleep(budget / 2)
		k.fail(nil, false)
		synctest.Wait()
		assert.Equal(t, 1, pendingFor(node), "nothing was answered")
		send(t, Pipelines([]*Node{node}), Ask, nil, k.set(1000))
		synctest.Wait()
		assert.Zero(t, pendingFor(node))
	})
}

// No more is pending than fits, and it is the oldest that is forgotten.
func TestWhatIsPendingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, node := newKeys(1), newNodes(1, NewTracker())[0]
		k.fail(errNode, false)
		const others = 100
		for v := range maxPending + others {
			unlock := k.lock(t, node, v)
			synctest.Wait()
			unlock()
		}
		synctest.Wait()
		assert.Equal(t, maxPending, pendingFor(node))
		k.fail(nil, false)
		later(2 * budget)
		assert.Zero(t, pendingFor(node))
		assert.InDelta(t, others, k.left(), 1)
		for v := range others - 1 {
			assert.True(t, k.has(v), "key %d was forgotten", v)
		}
	})
}

// A Write that was certainly not sent has left nothing.
func TestAWriteThatWasNotSentLeavesNothingPending(t *testing.T) {
	for _, tt := range []struct {
		name    string
		takes   time.Duration
		release time.Duration // when it is submitted
		want    []string
	}{
		{"known before the Release", 0, budget / 2, []string{"0s set"}},
		{"known while the Release waits", budget / 2, budget / 4, []string{"0s set"}},
		{"known after the Release has failed", budget * 27 / 10, 0,
			[]string{"0s set", "100ms release", "200ms release"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pipelines, j := newPipelines(1), newJournal()
				m := make([]WriteState, 1)
				send(t, pipelines, Write, m, j.op("set", tt.takes, 0, pool.NotSent(errNode)))
				time.Sleep(tt.release)
				u := send(t, pipelines, Release, m, j.op("release", budget/2, 0, errNode))
				later(time.Second)
				assert.Equal(t, tt.want, j.read())
				assert.Zero(t, pendingFor(pipelines[0].node))
				assert.Equal(t, len(tt.want) == 1, u.Outcomes()[0].Err == errNothing)
			})
		})
	}
}

// lesson L97: a client that keeps a Release beyond its time, on a dead connection, keeps nobody
// from sending another.
func TestAReleaseThatDoesNotReturnIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		sent(t, pipelines, Write, m, j.op("set", 0, 1, nil))
		var tries atomic.Int64
		send(t, pipelines, Release, m, func(context.Context, *Node) (int64, error) {
			j.note("release")
			if tries.Add(1) == 1 {
				time.Sleep(time.Hour)
			}
			return 1, nil
		})
		later(time.Second)
		assert.Equal(t, []string{"0s set", "0s release", "101ms release"}, j.read())
		assert.Zero(t, pendingFor(pipelines[0].node))
		assert.True(t, released(pipelines, m))
		done(t, pipelines)
	})
}

// A Write from which the client returns without an answer, while a Release is under way that would
// have been the last, may be executed within a budget from then on.
func TestAWriteThatFailsDuringTheLastReleaseIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		sent(t, pipelines, Write, m, j.op("set", 300*time.Millisecond, 0, errNode))
		time.Sleep(90 * time.Millisecond)
		// From 100ms on:
		send(t, pipelines, Write, m, j.op("heal", 325*time.Millisecond, 0, errNode))
		time.Sleep(30 * time.Millisecond)
		send(t, pipelines, Release, m, j.op("release", 50*time.Millisecond, 0, nil))
		done(t, pipelines)
		assert.Equal(t, []string{"0s set", "100ms heal", "190ms release", "400ms release",
			"525ms release"}, j.read())
	})
}

// A Write that has waited on its pipeline is given up soon after it was sent. It may arrive as late
// as one that was sent at the beginning of its round.
func TestAWriteThatWasSentLateIsTakenBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		sent(t, pipelines, Ask, nil, j.op("ask", 80*time.Millisecond, 1, nil))
		m := make([]WriteState, 1)
		send(t, pipelines, Write, m, func(ctx context.Context, _ *Node) (int64, error) {
			j.note("set")
			<-ctx.Done()
			return 0, ctx.Err()
		})
		later(90 * time.Millisecond)
		send(t, pipelines, Release, m, j.op("release", 0, 0, nil))
		done(t, pipelines)
		assert.Equal(t, []string{"0s ask", "80ms set", "99ms release", "280ms release"}, j.read())
	})
}

// Seed 9102815 of TestCancelAtEveryEvent: a Write may arrive two budgets after it was sent, however
// soon its client has returned without an answer. If that takes longer, it may arrive a budget
// after that.
func TestAWriteMayBeUnderWayForTwoBudgets(t *testing.T) {
	for _, tt := range []struct {
		takes time.Duration
		want  []string
	}{
		{0, []string{"0s set", "0s release", "200ms release"}},
		{budget / 2, []string{"0s set", "50ms release", "200ms release"}},
		{budget - lastWord, []string{"0s set", "99ms release", "200ms release"}},
		{budget * 3 / 2, []string{"0s set", "100ms release", "250ms release"}},
	} {
		t.Run(fmt.Sprint(tt.takes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pipelines, j := newPipelines(1), newJournal()
				m := make([]WriteState, 1)
				sent(t, pipelines, Write, m, j.op("set", tt.takes, 0, errNode))
				send(t, pipelines, Release, m, j.op("release", 0, 0, nil))
				done(t, pipelines)
				assert.Equal(t, tt.want, j.read())
			})
		})
	}
}

// Finish waits for what is pending for a node that answers, and not for one that does not.
func TestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3, NewTracker())
		k := []*keys{newKeys(0), newKeys(1), newKeys(2)}
		for n, node := range nodes {
			for v := range 40 {
				unlock := k[n].lock(t, node, v)
				synctest.Wait()
				k[n].fail(errNode, false)
				if n == 2 {
					k[n].stall()
				}
				unlock()
			}
		}
		later(budget + budget/2)
		k[0].fail(nil, false) // k[1] goes on failing, k[2] goes on being silent
		start := time.Now()
		Finish(t.Context(), nodes)
		assert.Zero(t, nodes[0].tracker.n.Load())
		assert.Zero(t, k[0].left())
		assert.LessOrEqual(t, time.Since(start), 3*budget)
		sent := k[1].deletions() + k[2].deletions()
		later(time.Hour)
		assert.Equal(t, sent, k[1].deletions()+k[2].deletions(), "forgotten")
		for _, n := range nodes {
			assert.Zero(t, pendingFor(n))
			assert.Nil(t, n.retries.timer)
		}
	})
	Finish(t.Context(), nil)
}

// Finish ends with its context, and tells what clients still have.
func TestFinishEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		sent(t, pipelines, Write, m, j.op("set", 0, 1, nil))
		send(t, pipelines, Release, m, j.op("release", time.Minute, 0, errNode))
		synctest.Wait()
		others := Pipelines([]*Node{pipelines[0].node})
		send(t, others, Ask, nil, j.op("ask", time.Minute, 0, errNode))
		ctx, cancel := context.WithTimeout(t.Context(), 10*budget)
		defer cancel()
		Finish(ctx, []*Node{pipelines[0].node})
		assert.EqualValues(t, 3, pipelines[0].node.tracker.n.Load(),
			"the Release, one try of it, the question")
		later(time.Hour)
		assert.Zero(t, pendingFor(pipelines[0].node))
		assert.Equal(t, []string{"0s set", "0s release", "0s ask", "100ms release"}, j.read(),
			"what fails after Finish is not pending")
	})
}

// Tries that never return are no reason to have ever more of them.
func TestRetriesThatNeverReturnAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		hand, most := 0, 0
		over := make(chan struct{})
		node := newNodes(1, NewTracker())[0]
		for range 1000 {
			pipelines, m := Pipelines([]*Node{node}), sentBefore(1)
			startRound(t.Context(), pipelines, plan{Kind: Release, Need: 1, Budget: budget,
				Writes: m, Expiry: 24 * time.Hour,
				Op: func(context.Context, *Node) (int64, error) {
					mu.Lock()
					hand++
					most = max(most, hand)
					mu.Unlock()
					<-over
					return 1, nil
				}})
			time.Sleep(budget / 100)
		}
		later(10 * time.Minute)
		assert.LessOrEqual(t, most, 11*maxUnanswered, "as many as of other commands")
		close(over)
		later(budget)
		assert.Zero(t, pendingFor(node))
		assert.Zero(t, node.tracker.Wait(t.Context()))
	})
}

// With many goroutines, for the race detector. In virtual time, because the last Release is sent
// one budget after the client has returned from the Write: a busy machine may keep a goroutine from
// running for longer than a short budget.
func TestPendingUnderRace(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const short = 5 * time.Millisecond
			k, node := newKeys(seed), newNodes(1, NewTracker())[0]
			over := make(chan struct{})
			var owners, stalls sync.WaitGroup
			stalls.Go(func() {
				for {
					k.stall()
					time.Sleep(rand.N(4 * short))
					k.goOn()
					select {
					case <-over:
						return
					case <-time.After(rand.N(short)):
					}
				}
			})
			for owner := range 20 {
				owners.Go(func() {
					for i := range 50 {
						pipelines, m := Pipelines([]*Node{node}), make([]WriteState, 1)
						v := owner*1000 + i
						w := startRound(t.Context(), pipelines,
							plan{Op: k.set(v), Kind: Write, Need: 1, Budget: short, Writes: m})
						if i%2 == 0 {
							_, _ = w.Wait(t.Context())
						}
						u := startRound(t.Context(), pipelines,
							plan{Op: k.del(v), Kind: Release, Need: 1, Budget: short, Writes: m})
						if i%3 == 0 {
							_, _ = u.Wait(t.Context())
						}
					}
				})
			}
			owners.Wait()
			close(over)
			stalls.Wait()
			settled(t, node)
			assert.Zero(t, k.left())
		})
	}
}

// settled is when all commands have returned and nothing is pending.
func settled(t *testing.T, node *Node) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); pendingFor(node) > 0 ||
		node.tracker.n.Load() > 0; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d pending, %d under way", pendingFor(node),
			node.tracker.n.Load())
	}
}

// unsentRelease returns a release that is not submitted.
func unsentRelease(t *testing.T) ([]Pipeline, *call) {
	pipelines, m := newPipelines(1), sentBefore(1)
	spec := Spec{Command: newJournal().op("release", 0, 1, nil).command(), Need: 1, Budget: budget}
	r := newRound(t.Context(), Release, spec, time.Minute, 1)
	r.calls[0].pipeline, r.calls[0].write = &pipelines[0], &m[0]
	r.begin()
	return pipelines, &r.calls[0]
}

// A goroutine may come so late to send a release again that its round is over, which ends what the
// breaker keeps and what the client has. It is neither kept nor sent.
func TestAReleaseThatIsSentAgainTooLateHasFailed(t *testing.T) {
	for _, tripped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			pipelines, release := unsentRelease(t)
			node := pipelines[0].node
			b := &node.breaker
			if tripped {
				b.tripped, b.probed = true, clock.Ticks(time.Now().Add(time.Hour))
			}
			retry := release.again()
			later(budget)
			pipelines[0].submit(retry)
			assert.Empty(t, b.kept)
			assert.Nil(t, retry.sent)
			assert.Equal(t, 1, pendingFor(node), "it has failed")
			if tripped {
				b.leave(true, true)
			}
			done(t, pipelines)
		})
	}
}

// An owner may want more of a later Release than of an earlier one. What is sent again is the last.
func TestTheLastReleaseIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, m, j := newPipelines(1), sentBefore(1), newJournal()
		sent(t, pipelines, Release, m, j.replies("leave", failure))
		sent(t, pipelines, Release, m, j.replies("delete", failure, failure, 1))
		done(t, pipelines)
		assert.Equal(t, []string{"0s leave", "0s delete", "100ms delete", "200ms delete"}, j.read())
	})
}

// The first of two Writes fails, and may yet be executed. The second is given up, and comes to
// nothing after the Release was answered.
func TestAWriteThatComesToNothingLeavesTheOther(t *testing.T) {
	for _, err := range []error{nil, pool.ErrNotSent} {
		synctest.Test(t, func(t *testing.T) {
			pipelines, m, j := newPipelines(1), make([]WriteState, 1), newJournal()
			sent(t, pipelines, Write, m, j.op("set", 0, 0, errNode))
			sent(t, pipelines, Write, m, j.op("heal", budget*3/2, 0, err))
			time.Sleep(budget)
			send(t, pipelines, Release, m, j.replies("release", 0, 1))
			done(t, pipelines)
			assert.Equal(t, []string{"0s set", "0s heal", "100ms release", "200ms release"},
				j.read())
		})
	}
}

// A command that is about to be sent again is under way, also if that is not needed any more.
func TestAReleaseThatIsAboutToBeSentAgainIsTracked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, release := unsentRelease(t)
		node := pipelines[0].node
		s, p := &node.retries, release.pending()
		s.mu.Lock()
		s.put(p, clock.NowTicks())
		s.send()
		s.take(p)
		assert.EqualValues(t, 1, node.tracker.n.Load())
		s.mu.Unlock()
		done(t, pipelines)
	})
}

// lesson L56: an answer within the longest budget is not the last word.
func TestAnAnswerWithinTheLongestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = math.MaxInt64
		pipelines, m := newPipelines(1), sentBefore(1)
		m[0].sent, m[0].unsure = 2, true
		for range 3 {
			startRound(t.Context(), pipelines, plan{Op: newJournal().op("release", 0, 0, nil),
				Kind: Release, Need: 1, Budget: longest, Writes: m})
			synctest.Wait()
			left := time.Duration(m[0].pending.final - clock.NowTicks())
			assert.Greater(t, left, 100*365*24*time.Hour)
			assert.Equal(t, 1, pendingFor(pipelines[0].node))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		Finish(ctx, []*Node{pipelines[0].node})
	})
}
