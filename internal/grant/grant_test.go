package grant_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/test/leak"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// with runs f with grants of the lock x on n nodes, in a bubble.
func with(t *testing.T, n int, terms wire.Terms,
	f func(t *testing.T, nodes sim.Nodes, open func(value string) *grant.Grant)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes, tracker := sim.NewNodes(n), quorum.NewTracker()
		defer nodes.Close()
		terms.Expiry, terms.NodeTimeout = time.Second, 100*time.Millisecond
		reach := quorum.Nodes(nodes.Pools("a"), tracker)
		tokens := wire.Tokens{Now: time.Now}
		f(t, nodes, func(value string) *grant.Grant {
			g := &grant.Grant{Began: time.Now()}
			g.Open(&grant.Lock{
				Lock: wire.NewLock("x", &terms, &tokens), Pipelines: quorum.Pipelines(reach),
				Now: time.Now, Denied: func(quorum.Reply) error { return errors.New("denied") },
			}, value)
			return g
		})
		nodes.Close()
		quorum.Finish(t.Context(), reach)
	})
}

var errOops = errors.New("oops")

// What an attempt comes to, and what is left of it.
func TestAttempt(t *testing.T) {
	slow := sim.Slow(60 * time.Millisecond)
	for name, tt := range map[string]struct {
		fates []sim.Fate // of the attempt, node by node; those of taken nodes are not used
		taken int        // nodes, the last ones
		want  *grant.Why // nil: it wins
	}{
		"all grant it": {fates: []sim.Fate{{}, {}, {}}},
		"two grant it": {fates: []sim.Fate{{}, {}, sim.Fail(errOops)}},
		"all refuse":   {taken: 3, want: &grant.Why{Kind: grant.Taken, Refused: 3}},
		"two refuse": {fates: []sim.Fate{{}}, taken: 2,
			want: &grant.Why{Kind: grant.Taken, Granted: 1, Refused: 2}},
		"one of each": {fates: []sim.Fate{{}, sim.Fail(errOops)}, taken: 1,
			want: &grant.Why{Kind: grant.Divided, Granted: 1, Refused: 1}},
		"two fail": {fates: []sim.Fate{slow, sim.Fail(errOops), sim.Fail(errOops)},
			want: &grant.Why{Granted: 1}},
		"nobody speaks": {fates: []sim.Fate{sim.Hang(), sim.Hang(), sim.Hang()},
			want: &grant.Why{}},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, 3, wire.Terms{}, func(t *testing.T, nodes sim.Nodes,
				open func(string) *grant.Grant) {
				for i := range nodes {
					if i >= 3-tt.taken {
						nodes[i].Set("x", "other", 0)
					} else if i < len(tt.fates) {
						nodes[i].Next("", tt.fates[i])
					}
				}
				g := open("mine")
				d := g.Attempt(t.Context(), queue.Attempt{Final: true}, nil)
				if tt.want == nil {
					require.Nil(t, d)
					g.Release(t.Context(), quorum.Spec{})
				} else {
					require.NotNil(t, d)
					assert.False(t, d.Unsettled())
					assert.True(t, d.Final)
					time.Sleep(time.Second)
					why := d.Why()
					why.Outcomes = nil
					assert.Equal(t, *tt.want, why)
				}
				time.Sleep(time.Second)
				for _, n := range nodes {
					assert.NotEqual(t, "mine", n.Value("x"), "it is released")
				}
			})
		})
	}
}

// Somebody asks why while a node fails the attempt, and its release right after that. What the node
// has said to the attempt counts.
func TestTheReleaseNeverHidesTheAttempt(t *testing.T) {
	errRelease := errors.New("release")
	late := sim.Fail(errOops)
	late.Reply = time.Millisecond
	with(t, 3, wire.Terms{}, func(t *testing.T, nodes sim.Nodes, open func(string) *grant.Grant) {
		for range 1000 {
			for i, n := range nodes {
				n.Always(sim.Fail(errRelease))
				n.Next("set", []sim.Fate{late, sim.Fail(errOops), sim.Fail(errOops)}[i])
			}
			d := open("mine").Attempt(t.Context(), queue.Attempt{}, nil)
			require.NotNil(t, d)
			require.True(t, d.Why().Outcomes[0].Missing())
			time.Sleep(late.Reply)
			for missing := true; missing; {
				o := d.Why().Outcomes[0]
				missing = o.Missing()
				require.NotErrorIs(t, o.Err, errRelease)
			}
			time.Sleep(time.Second)
		}
	})
}

// An attempt that is kept for the queue releases nothing where nobody has granted it, until it is
// settled. Where it then stands in the queue, the nodes that refused are left out.
func TestSettle(t *testing.T) {
	with(t, 3, wire.Terms{}, func(t *testing.T, nodes sim.Nodes, open func(string) *grant.Grant) {
		for _, n := range nodes {
			n.Set("x", "other", 0)
		}
		for stands, releases := range map[bool]int{true: 0, false: 3} {
			before := nodes.Count("release")
			d := open("mine").Attempt(t.Context(), queue.Attempt{Keep: true}, nil)
			time.Sleep(time.Second)
			assert.Equal(t, before, nodes.Count("release"))
			assert.True(t, d.Unsettled())
			assert.Equal(t, map[bool]string{true: "mine"}[stands], d.Settle(t.Context(), stands))
			assert.False(t, d.Unsettled())
			time.Sleep(time.Second)
			assert.Equal(t, before+releases, nodes.Count("release"))
			assert.Empty(t, d.Settle(t.Context(), false), "once")
		}
		var none *grant.FailedAttempt
		assert.False(t, none.Unsettled())
		assert.Empty(t, none.Settle(t.Context(), true))
	})
}

// GiveBack releases an attempt but on nodes that refuse, whether they have done so by then or do so
// later. Standing in the queue settles these, or a release does.
func TestGiveBack(t *testing.T) {
	with(t, 3, wire.Terms{}, func(t *testing.T, nodes sim.Nodes, open func(string) *grant.Grant) {
		for _, tt := range []struct {
			name            string
			last            string // has the third node's key
			stands          bool
			sooner, settles int // releases
		}{
			{"a late refusal, and the queue", "other", true, 0, 0},
			{"a late refusal, and no queue", "other", false, 0, 3},
			{"a late grant, and the queue", "", true, 1, 1},
			{"a late grant, and no queue", "", false, 1, 3},
		} {
			for _, n := range nodes {
				n.Set("x", "other", 0)
			}
			if tt.last == "" {
				nodes[2].Delete("x")
			}
			nodes[2].Next("", sim.Slow(60*time.Millisecond))
			before := nodes.Count("release")
			d := open("mine").Attempt(t.Context(), queue.Attempt{Keep: true}, nil)
			assert.True(t, d.Unsettled(), tt.name)
			d.GiveBack(t.Context())
			assert.False(t, d.Unsettled(), tt.name)
			d.GiveBack(t.Context())
			time.Sleep(time.Second)
			assert.Equal(t, before+tt.sooner, nodes.Count("release"), tt.name)
			assert.Equal(t, tt.last, nodes[2].Value("x"), tt.name)
			assert.Equal(t, map[bool]string{true: "mine"}[tt.stands],
				d.Settle(t.Context(), tt.stands), tt.name)
			time.Sleep(time.Second)
			assert.Equal(t, before+tt.settles, nodes.Count("release"), tt.name)
			assert.Empty(t, d.Settle(t.Context(), false), "once")
			assert.Equal(t, before+tt.settles, nodes.Count("release"), tt.name)
		}
	})
}

// A client may send an attempt twice, and be refused by its own key. The release that GiveBack
// leaves out takes that back, and the error still tells of what was found before.
func TestGiveBackOfWhatRefusedItself(t *testing.T) {
	with(t, 3, wire.Terms{}, func(t *testing.T, nodes sim.Nodes, open func(string) *grant.Grant) {
		for _, n := range nodes[:2] {
			n.Set("x", "mine", 0)
		}
		nodes[2].Set("x", "other", 0)
		nodes[2].Next("", sim.FailAfter(errOops))
		d := open("mine").Attempt(t.Context(), queue.Attempt{Keep: true}, nil)
		d.GiveBack(t.Context())
		time.Sleep(time.Second)
		assert.Equal(t, []string{"mine", "mine", "other"}, nodes.Values("x"))
		d.Settle(t.Context(), false)
		time.Sleep(time.Second)
		assert.Equal(t, []string{"", "", "other"}, nodes.Values("x"))
		why := d.Why()
		assert.Equal(t, 2, why.Refused)
		assert.ErrorIs(t, why.Outcomes[2].Err, errOops)
	})
}

// Of a waiter's attempts the latest counts that the nodes had the time to answer.
func TestFailedAttempts(t *testing.T) {
	with(t, 3, wire.Terms{}, func(t *testing.T, nodes sim.Nodes, open func(string) *grant.Grant) {
		var all grant.FailedAttempts
		assert.Nil(t, all.Latest())
		attempt := func(ctx context.Context) *grant.FailedAttempt {
			return open("mine").Attempt(ctx, queue.Attempt{}, nil)
		}
		for _, n := range nodes {
			n.Set("x", "other", 0)
		}
		first := attempt(t.Context())
		assert.True(t, all.Note(first))
		assert.Same(t, first, all.Latest())

		for _, n := range nodes {
			n.Always(sim.Slow(10 * time.Millisecond)) // later than the end of the context
		}
		cut, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, all.Note(attempt(cut)), "the nodes are well")
		assert.Same(t, first, all.Latest())

		wrong := &grant.FailedAttempt{Final: true, Err: errOops}
		assert.True(t, all.Note(wrong))
		assert.Same(t, wrong, all.Latest())
	})
}

// lesson L106: a node that keeps the key for one in the queue has not granted it. What it said to
// the attempt before that counts, unless it has said since that the key is somebody else's.
func TestAPlaceInTheQueueHidesNoError(t *testing.T) {
	terms := wire.Terms{Queue: true, NodeTimeout: 100 * time.Millisecond}
	lock := &grant.Lock{Lock: wire.NewLock("x", &terms, nil), Now: time.Now}
	with(t, 3, terms, func(t *testing.T, nodes sim.Nodes, open func(string) *grant.Grant) {
		var all grant.FailedAttempts
		stand := func() *grant.FailedAttempt {
			place := open("")
			member := wire.Member{ID: "redlock:turn:" + strings.Repeat("a", 26) + "1", Ticket: 1}
			r := place.Write(t.Context(), quorum.Spec{Command: lock.Stand(member, time.Minute)})
			began := time.Now()
			time.Sleep(time.Second)
			d := grant.Stood(lock, r, began, false)
			assert.True(t, all.Note(d))
			place.Release(t.Context(), quorum.Spec{Command: lock.Leave(member)})
			time.Sleep(time.Second)
			return d
		}
		for _, n := range nodes {
			n.Next("set", sim.Fail(errOops))
		}
		attempt := open("mine").Attempt(t.Context(), queue.Attempt{}, nil)
		assert.True(t, attempt.Failing())
		assert.True(t, all.Note(attempt))
		for taken, want := range []grant.Why{
			{Kind: grant.NoQuorum},
			{Kind: grant.NoQuorum, Refused: 1},
			{Kind: grant.Taken, Refused: 2},
		} {
			if taken > 0 {
				nodes[taken-1].Set("x", "other", 0)
			}
			d := stand()
			assert.Same(t, d, all.Latest())
			assert.Equal(t, taken < 2, d.Failing())
			why := d.Why()
			for _, o := range why.Outcomes[taken:] {
				assert.ErrorIs(t, o.Err, errOops)
			}
			why.Outcomes = nil
			assert.Equal(t, want, why, "%d nodes have another's key", taken)
		}
	})
}

// Of the errors of nodes, silence alone does not say that an attempt would fail again.
func TestFailing(t *testing.T) {
	for name, tt := range map[string]struct {
		fates []sim.Fate
		want  bool
	}{
		"errors":             {[]sim.Fate{sim.Fail(errOops), sim.Fail(errOops)}, true},
		"silence":            {[]sim.Fate{sim.Hang(), sim.Hang()}, false},
		"both":               {[]sim.Fate{sim.Fail(errOops), sim.Hang()}, true},
		"an error too few":   {[]sim.Fate{sim.Fail(errOops), {}}, false},
		"no error, but keys": {[]sim.Fate{{}, {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, 3, wire.Terms{}, func(t *testing.T, nodes sim.Nodes,
				open func(string) *grant.Grant) {
				for i, n := range nodes {
					if i < len(tt.fates) {
						n.Always(tt.fates[i])
					}
					if i == 2 || tt.fates[i] == (sim.Fate{}) {
						n.Set("x", "other", 0)
					}
				}
				d := open("mine").Attempt(t.Context(), queue.Attempt{}, nil)
				time.Sleep(time.Second)
				assert.Equal(t, tt.want, d.Failing())
			})
		})
	}
}
