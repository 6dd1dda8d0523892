package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// journal notes what is sent on a pipeline, and when.
type journal struct {
	start time.Time
	mu    sync.Mutex
	lines []string
}

func newJournal() *journal { return &journal{start: time.Now()} }

func (j *journal) note(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%v %s", time.Since(j.start), what))
}

// op makes a command that takes so long and answers that, whatever its context says.
func (j *journal) op(name string, takes time.Duration, reply int64, err error) op {
	return func(context.Context, *Node) (int64, error) {
		j.note(name)
		time.Sleep(takes)
		return reply, err
	}
}

// replies makes a command that answers at once, each time the next of the replies.
func (j *journal) replies(name string, replies ...int64) op {
	return func(context.Context, *Node) (int64, error) {
		j.note(name)
		j.mu.Lock()
		defer j.mu.Unlock()
		reply := replies[0]
		replies = replies[1:]
		if reply == failure {
			return 0, errNode
		}
		return reply, nil
	}
}

// failure among replies stands for an error.
const failure = -1000

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

// sent is send, and it has been sent if it can be.
func sent(t *testing.T, pipelines []Pipeline, kind Kind, writes []WriteState, o op) *Round {
	r := send(t, pipelines, kind, writes, o)
	synctest.Wait()
	return r
}

// later is when d has passed and all that is due has been done.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// done is when all commands have returned and nothing is pending.
func done(t *testing.T, pipelines []Pipeline) {
	t.Helper()
	n := pipelines[0].node
	for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(budget) {
		synctest.Wait()
		if pendingFor(n) == 0 && n.tracker.n.Load() == 0 {
			return
		}
	}
	assert.Fail(t, "there is no end", "%d pending, %d under way", pendingFor(n), n.tracker.n.Load())
}

// pendingFor is how many releases are pending for a node.
func pendingFor(n *Node) int {
	n.retries.mu.Lock()
	defer n.retries.mu.Unlock()
	return len(n.retries.pending)
}

// send starts a round on the pipelines.
func send(t *testing.T, pipelines []Pipeline, kind Kind, writes []WriteState, o op) *Round {
	return startRound(t.Context(), pipelines, plan{Op: o, Kind: kind, Need: 1, Budget: budget,
		Writes: writes})
}

// lesson L13: a release does not overtake the slow SET it is to take back.
func TestCommandsOnAPipelineAreSentOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		send(t, pipelines, Write, m, j.op("set", 30*time.Millisecond, 1, nil))
		send(t, pipelines, Write, m, j.op("heal", 40*time.Millisecond, 1, nil))
		time.Sleep(35 * time.Millisecond)
		send(t, pipelines, Release, m, j.op("release", 90*time.Millisecond, 1, nil))
		send(t, pipelines, Ask, nil, j.op("valid", 0, 1, nil))
		later(time.Second)
		assert.Equal(t, []string{"0s set", "30ms heal", "70ms release"}, j.read(),
			"the last one's budget ran out while it waited")
	})
}

// A release does not wait for a question that is lost on the node, like a renewal. What follows
// waits for the release. If the release may leave the key, it waits as well.
func TestAReleaseDoesNotWaitForAQuestion(t *testing.T) {
	for _, tt := range []struct {
		name    string
		leaves  bool // the key
		other   Kind // of a command that waits behind the question, or Release if none does
		want    []string
		waiting int
	}{
		{"sent at once", false, Release,
			[]string{"0s set", "0s extend", "10ms release", "30ms set"}, 1},
		{"may leave the key", true, Release,
			[]string{"0s set", "0s extend", "100ms release", "120ms set"}, 2},
		{"behind another's write", false, Write,
			[]string{"0s set", "0s extend", "100ms other", "100ms release", "120ms set"}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pipelines, j := newPipelines(1), newJournal()
				m, next := make([]WriteState, 1), make([]WriteState, 1)
				sent(t, pipelines, Write, m, j.op("set", 0, 1, nil))
				extend := sent(t, pipelines, Ask, m, j.op("extend", time.Second, 1, nil))
				time.Sleep(10 * time.Millisecond)
				if tt.other == Write {
					startRound(t.Context(), pipelines, plan{Op: j.op("other", 0, 1, nil),
						Kind: Write, Need: 1, Budget: 2 * budget})
				}
				release := j.op("release", 20*time.Millisecond, 1, nil).command()
				if tt.leaves {
					release = release.when(func(int) bool { return true })
				}
				startRound(t.Context(), pipelines, plan{Command: release, Kind: Release, Need: 1,
					Budget: 2 * budget, Writes: m})
				startRound(t.Context(), pipelines, plan{Op: j.op("set", 0, 1, nil), Kind: Write,
					Need: 1, Budget: 2 * budget, Writes: next})
				pipelines[0].mu.Lock()
				assert.Len(t, pipelines[0].waiting, tt.waiting)
				pipelines[0].mu.Unlock()
				later(2 * time.Second)
				assert.Equal(t, tt.want, j.read())
				assert.ErrorIs(t, extend.Outcomes()[0].Err, ErrTimeout)
				assert.True(t, released(pipelines, m))
				assert.Zero(t, pendingFor(pipelines[0].node))
				assert.Nil(t, pipelines[0].running)
			})
		})
	}
}

func TestAnIdlePipelineHasNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		for range 3 {
			send(t, pipelines, Ask, nil, j.op("ask", 10*time.Millisecond, 1, nil))
		}
		later(time.Second)
		l := &pipelines[0]
		assert.Nil(t, l.running)
		assert.Empty(t, l.waiting)
		assert.Zero(t, l.node.tracker.n.Load())
		assert.Zero(t, l.node.breaker.unanswered)
	})
}

func TestAPipelineGoesOnPastACommandThatUsedUpItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		send(t, pipelines, Ask, nil, j.op("frozen", time.Hour, 1, nil))
		time.Sleep(budget / 2)
		send(t, pipelines, Ask, nil, j.op("next", budget, 1, nil))
		time.Sleep(budget / 4)
		send(t, pipelines, Ask, nil, j.op("last", 0, 1, nil))
		later(2 * time.Hour)
		assert.Equal(t, []string{"0s frozen", "100ms next", "150ms last"}, j.read(),
			"next has the rest of its own budget, not a new one")
		assert.Zero(t, pipelines[0].node.tracker.n.Load())
	})
}

func TestReleaseOfAWriteThatWasNotSentIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		send(t, pipelines, Ask, nil, j.op("slow", 50*time.Millisecond, 1, nil))
		m := make([]WriteState, 1)
		w := send(t, pipelines, Write, m, j.op("set", 0, 1, nil))
		a := send(t, pipelines, Ask, m, j.op("raise", 0, 1, nil))
		u := send(t, pipelines, Release, m, j.op("release", 0, 1, nil))
		for _, r := range []*Round{w, a} {
			assert.Equal(t, Outcomes{{Err: ErrUnsent}}, r.Outcomes(), "known at once")
		}
		assert.Equal(t, Outcomes{{Err: errNothing}}, u.Outcomes(), "known at once")
		assert.ErrorIs(t, errNothing, ErrUnsent)
		assert.EqualValues(t, 1, pipelines[0].node.tracker.n.Load())
		later(time.Second)
		assert.Equal(t, []string{"0s slow"}, j.read())
	})
}

func TestReleaseEndsWhatHasItsWriteStateAndWaitsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		sent(t, pipelines, Write, m, j.op("set", 10*time.Millisecond, 1, nil))
		heal := send(t, pipelines, Write, m, j.op("heal", 0, 1, nil))
		send(t, pipelines, Ask, nil, j.op("other", 0, 1, nil))
		send(t, pipelines, Release, m, j.op("release", 0, 1, nil))
		later(time.Second)
		assert.Equal(t, []string{"0s set", "10ms other", "10ms release"}, j.read())
		assert.Equal(t, Outcomes{{Err: ErrUnsent}}, heal.Outcomes())
	})
}

func TestReleaseOfWritesSentElsewhereIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		send(t, newPipelines(2), Release, sentBefore(2), j.op("release", 0, 1, nil))
		later(time.Second)
		assert.Equal(t, []string{"0s release", "0s release"}, j.read())
		startRound(t.Context(), newPipelines(1), plan{Op: j.op("trusts", 0, 1, nil), Kind: Release,
			Need: 1, Budget: budget, Writes: sentBefore(1), Trusts: true})
		later(time.Second)
		assert.Contains(t, j.read(), "1s trusts", "nobody knows what the node has answered")
	})
}

// lesson L13, L17: what a pipeline sends to take back a Write whose fate is not known.
func TestReleaseIsSentAsOftenAsItTakes(t *testing.T) {
	const none = 0
	for _, tt := range []struct {
		name    string
		takes   time.Duration // of the Write
		reply   int64
		err     error
		release []int64 // replies
		want    []string
	}{
		{"answered in time", 10 * time.Millisecond, 1, nil, []int64{1},
			[]string{"0s set", "10ms release"}},
		{"refused in time", 10 * time.Millisecond, 0, nil, []int64{-500},
			[]string{"0s set", "10ms release"}},
		{"failed, was executed", 10 * time.Millisecond, 0, errNode, []int64{1},
			[]string{"0s set", "10ms release"}},
		{"failed, may yet be executed", 10 * time.Millisecond, 0, errNode, []int64{none, none},
			[]string{"0s set", "10ms release", "200ms release"}},
		{"failed, and the release fails", 10 * time.Millisecond, 0, errNode, []int64{failure, 1},
			[]string{"0s set", "10ms release", "110ms release"}},
		{"the release fails three times", 10 * time.Millisecond, 1, nil,
			[]int64{failure, failure, failure, 1},
			[]string{"0s set", "10ms release", "110ms release", "210ms release", "310ms release"}},
		{"failed, the release fails, may yet be executed", 10 * time.Millisecond, 0, errNode,
			[]int64{failure, failure, none, none},
			[]string{"0s set", "10ms release", "110ms release", "210ms release", "310ms release"}},
		{"given up, was executed", time.Second, 1, nil, []int64{1},
			[]string{"0s set", "100ms release"}},
		{"given up, overtaken, executed", time.Second, 1, nil, []int64{none, none, 1},
			[]string{"0s set", "100ms release", "200ms release", "1s release"}},
		{"given up, overtaken, failed", time.Second, 0, errNode, []int64{none, none, none},
			[]string{"0s set", "100ms release", "200ms release", "1.1s release"}},
		{"given up while it fails", budget, 0, errNode, []int64{none, none},
			[]string{"0s set", "100ms release", "200ms release"}},
		{"given up, release failed, executed", time.Second, 1, nil,
			[]int64{failure, none, none, 1}, []string{"0s set", "100ms release", "200ms release",
				"300ms release", "1s release"}},
		{"given up, refused in the end", time.Second, 0, nil, []int64{-500, -500},
			[]string{"0s set", "100ms release", "200ms release"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pipelines, j := newPipelines(1), newJournal()
				m := make([]WriteState, 1)
				sent(t, pipelines, Write, m, j.op("set", tt.takes, tt.reply, tt.err))
				send(t, pipelines, Release, m, j.replies("release", tt.release...))
				done(t, pipelines)
				assert.Equal(t, tt.want, j.read())
				took := slices.Contains(tt.release, 1)
				m[0].pending, m[0].sentAt = nil, 0 // it remembers what was pending
				assert.Equal(t, WriteState{
					sent: 1, over: true, unsure: m[0].unsure, granted: tt.reply == 1,
					released: took,
				}, m[0])
				assert.Equal(t, took, released(pipelines, m))
			})
		})
	}
}

// A Release that trusts is left out where every Write was answered with a no, also if that comes
// when the Release waits for its turn. A later one is sent.
func TestReleaseThatTrustsIsLeftOutAfterANo(t *testing.T) {
	const takes = budget * 2 / 5 // so a Release that waits for it begins late
	set := func(j *journal, reply int64, err error) op { return j.op("set", takes, reply, err) }
	for _, tt := range []struct {
		name   string
		writes []int64 // replies
		late   bool    // the Release comes when they have been answered
		sent   bool
	}{
		{"refused later", []int64{0}, false, false},
		{"refused before", []int64{0}, true, false},
		{"refused twice", []int64{0, 0}, true, false},
		{"granted", []int64{1}, false, true},
		{"refused, then granted", []int64{0, 1}, true, true},
		{"failed", []int64{failure}, true, true},
		{"refused, then failed", []int64{0, failure}, true, true},
		{"nothing was written", nil, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pipelines, j := newPipelines(1), newJournal()
				m := make([]WriteState, 1)
				for _, reply := range tt.writes {
					if reply == failure {
						send(t, pipelines, Write, m, set(j, 0, errNode))
					} else {
						send(t, pipelines, Write, m, set(j, reply, nil))
					}
				}
				if tt.late {
					later(time.Second)
				}
				u := startRound(t.Context(), pipelines, plan{Op: j.op("release", 0, 1, nil),
					Kind: Release, Need: 1, Budget: budget, Writes: m, Trusts: true})
				done(t, pipelines)
				assert.Equal(t, tt.sent, len(j.read()) > len(tt.writes), j.read())
				assert.Equal(t, !tt.sent, u.Outcomes()[0].Err == errNothing)
				sure := send(t, pipelines, Release, m, j.op("release", 0, 1, nil))
				done(t, pipelines)
				assert.Equal(t, tt.writes == nil, sure.Outcomes()[0].Err == errNothing)
			})
		})
	}
}

func TestEachOfTwoGivenUpWritesIsFollowedByARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		sent(t, pipelines, Write, m, j.op("set", time.Second, 1, nil))
		time.Sleep(budget / 2)
		send(t, pipelines, Write, m, j.op("heal", 2*time.Second, 1, nil))
		time.Sleep(budget * 6 / 10)
		send(t, pipelines, Release, m, j.replies("release", 0, 0, 1, 1))
		done(t, pipelines)
		assert.Equal(t, []string{"0s set", "100ms heal", "150ms release", "300ms release",
			"1s release", "2.1s release"}, j.read())
	})
}

func TestADeletionDoesNotAnswerForTheOtherWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		sent(t, pipelines, Write, m, j.op("set", time.Second, 1, nil)) // arrives after all others
		time.Sleep(budget / 2)
		send(t, pipelines, Write, m, j.op("heal", 0, 1, nil))
		time.Sleep(budget * 6 / 10)
		send(t, pipelines, Release, m, j.replies("release", 1, 0, 1))
		done(t, pipelines)
		assert.Equal(t, []string{"0s set", "100ms heal", "110ms release", "300ms release",
			"1s release"}, j.read())
	})
}

func TestALateReleaseHasABudgetOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		sent(t, pipelines, Write, m, j.op("set", time.Second, 1, nil))
		var left time.Duration
		send(t, pipelines, Release, m, func(ctx context.Context, _ *Node) (int64, error) {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			assert.NoError(t, ctx.Err())
			return 1, nil
		})
		done(t, pipelines)
		assert.Equal(t, budget-lastWord, left)
	})
}

// What it comes to counts for the round that it belongs to, if that still waits.
func TestALateReleaseCountsForItsRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines, j := newPipelines(1), newJournal()
		m := make([]WriteState, 1)
		sent(t, pipelines, Write, m, j.op("set", budget/2, 1, nil))
		start := time.Now()
		u := send(t, pipelines, Release, m, j.op("release", budget/4, 1, nil))
		won, err := u.Wait(t.Context())
		assert.True(t, won && err == nil)
		assert.Equal(t, budget*3/4, time.Since(start))
		done(t, pipelines)
		assert.Equal(t, []string{"0s set", "50ms release"}, j.read())
	})
}

// An owner that locks and unlocks beside a frozen node leaves nothing there to do later.
func TestTheQueueOfAFrozenNodeStaysShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipelines := newPipelines(1)
		frozen := make(chan struct{})
		var count atomic.Int64
		op := func(context.Context, *Node) (int64, error) {
			count.Add(1)
			<-frozen
			return 0, errNode
		}
		for i := range 1000 {
			m := make([]WriteState, 1)
			send(t, pipelines, Write, m, op)
			if i%3 == 0 {
				synctest.Wait()
			}
			if true {
				send(t, pipelines, Ask, m, op)
			}
			send(t, pipelines, Release, m, op)
			l := &pipelines[0]
			l.mu.Lock()
			assert.LessOrEqual(t, len(l.waiting), 2)
			l.mu.Unlock()
			if i%100 == 99 {
				later(budget / 3)
			}
		}
		assert.LessOrEqual(t, count.Load(), int64(6), "one by one as they are given up")
		close(frozen)
		done(t, pipelines)
	})
}

// model is a small model of a key on a slow node: writes and deletions take effect some time
// between call and return, or up to a budget after an error.
type model struct {
	mu    sync.Mutex
	value int // 0: no key
}

func (m *model) set(v int) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.value == 0 {
		m.value = v
	}
	if m.value == v {
		return 1
	}
	return 0
}

func (m *model) del(v int) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.value {
	case v:
		m.value = 0
		return 1
	case 0:
		return 0
	}
	return -500
}

// Whatever happens at the very moment at which commands are given up, fail or return: when all is
// done no key is left, and no value was ever set after the last release of it.
func TestNoWriteSurvivesItsRelease(t *testing.T) {
	for seed := range 400 * *more {
		synctest.Test(t, func(t *testing.T) { survive(t, seed) })
	}
}

func survive(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	// Multiples of half a budget meet each other and every deadline exactly.
	pause := func() time.Duration {
		if r.IntN(3) > 0 {
			return 0
		}
		return time.Duration(r.IntN(5)) * budget / 2
	}
	node := &model{}
	pipelines := newPipelines(1)
	command := func(effect func() int64) op {
		before, after := pause(), pause()
		fate := r.IntN(3)
		return func(context.Context, *Node) (int64, error) {
			time.Sleep(before)
			if fate == 0 {
				return 0, errNode // not executed
			}
			reply := effect()
			time.Sleep(after)
			if fate == 1 {
				return 0, errNode
			}
			return reply, nil
		}
	}
	for v := 1; v <= 3; v++ {
		m := make([]WriteState, 1)
		set := func() int64 { return node.set(v) }
		if r.IntN(4) == 0 { // executed after the client has lost patience
			patience := pause()
			send(t, pipelines, Write, m, func(context.Context, *Node) (int64, error) {
				time.Sleep(patience)
				time.AfterFunc(budget*9/10, func() { set() })
				return 0, errNode
			})
		} else {
			send(t, pipelines, Write, m, command(set))
		}
		for range r.IntN(3) {
			time.Sleep(pause())
			if r.IntN(2) == 0 {
				send(t, pipelines, Ask, m, command(func() int64 { return 1 }))
			} else {
				send(t, pipelines, Write, m, command(set))
			}
		}
		time.Sleep(pause())
		before, after := pause(), pause()
		send(t, pipelines, Release, m, func(context.Context, *Node) (int64, error) {
			time.Sleep(before)
			reply := node.del(v)
			time.Sleep(after)
			return reply, nil
		})
		time.Sleep(pause())
	}
	done(t, pipelines)
	if node.value != 0 {
		t.Fatalf("seed %d: value %d is left", seed, node.value)
	}
	l := &pipelines[0]
	if l.running != nil || len(l.waiting) > 0 || l.node.breaker.unanswered != 0 {
		t.Fatalf("seed %d: the pipeline is not idle: %+v", seed, l.running)
	}
}

// A Write that was given up is executed and fails at the moment at which the node answers the
// Release, sent in its turn or because the node has not answered it then. One of the two learns
// that it must be sent again, whichever comes first.
func TestAWriteThatReturnsWithTheAnswerToItsReleaseIsTakenBack(t *testing.T) {
	for _, tt := range []struct {
		keys  int
		fails bool // the first Release
	}{{1, false}, {maxUnanswered, false}, {100, false}, {1, true}, {maxUnanswered / 2, true}} {
		for range 40 {
			synctest.Test(t, func(t *testing.T) {
				node := newNodes(1, NewTracker())[0]
				keys := make([]model, tt.keys)
				for i := range keys {
					pipelines, m, fails := Pipelines([]*Node{node}), make([]WriteState, 1), tt.fails
					answered, answer := context.WithCancel(context.Background())
					send(t, pipelines, Write, m, func(context.Context, *Node) (int64, error) {
						<-answered.Done()
						keys[i].set(1)
						return 0, errNode
					})
					send(t, pipelines, Release, m, func(context.Context, *Node) (int64, error) {
						if fails {
							fails = false
							return 0, errNode
						}
						defer answer()
						return keys[i].del(1), nil
					})
				}
				later(leastPending)
				for i := range keys {
					assert.Zero(t, keys[i].value, "key %d of %d is left", i, tt.keys)
				}
				assert.Zero(t, pendingFor(node))
			})
		}
	}
}

// The same with real goroutines and the race detector: clients that return at the moment they are
// given up, owners that start rounds and release at once.
func TestPipelinesUnderRace(t *testing.T) {
	const short = time.Millisecond
	node := &model{}
	var owners sync.WaitGroup
	tracker := NewTracker()
	shared := newNodes(1, tracker)
	for owner := range 4 {
		owners.Go(func() {
			pipelines := Pipelines(shared)
			for i := range 100 {
				v := 1 + owner*1000 + i
				m := make([]WriteState, 1)
				w := startRound(t.Context(), pipelines,
					plan{Kind: Write, Need: 1, Budget: short, Writes: m,
						Op: func(context.Context, *Node) (int64, error) {
							time.Sleep(rand.N(2 * short))
							reply := node.set(v)
							time.Sleep(rand.N(short))
							return reply, nil
						}})
				if i%3 == 0 {
					_, _ = w.Wait(t.Context())
				}
				startRound(t.Context(), pipelines, plan{Kind: Release, Need: 1, Budget: short,
					Writes: m,
					Op: func(context.Context, *Node) (int64, error) {
						return node.del(v), nil
					}})
			}
		})
	}
	owners.Wait()
	settled(t, shared[0])
	assert.Zero(t, node.value, "left behind")
}
