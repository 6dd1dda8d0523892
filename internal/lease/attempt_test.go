package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/test/leak"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// with runs f with the lock x on n nodes, in a bubble. open begins an attempt at it.
func with(t *testing.T, n int, options Options, f func(t *testing.T, nodes sim.Nodes, k *Lock,
	open func(value string) *Lease)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes, tracker := sim.NewNodes(n), quorum.NewTracker()
		defer nodes.Close()
		options.Expiry, options.NodeTimeout = time.Second, 100*time.Millisecond
		tokens := wire.Tokens{Now: time.Now}
		open, end := context.WithCancel(t.Context())
		defer end()
		p := Process{
			Nodes: quorum.Nodes(nodes.Pools("a"), tracker), Open: open, Now: time.Now,
		}
		p.Queues = queue.New(queue.Config{
			Nodes: p.Nodes, Tracker: tracker, Channel: wire.TurnChannel + strings.Repeat("a", 26),
			Open: p.Open, Now: p.Now,
			Jitter: func(d time.Duration) time.Duration { return d / 2 },
		})
		k := &Lock{
			Lock: wire.NewLock("x", &options.Terms, &tokens), Pipelines: quorum.Pipelines(p.Nodes),
			Process: &p, Options: &options,
			Denied: func(quorum.Reply) error { return errors.New("denied") },
			Ender:  enderFunc(func(*Lease, EndReason, *Failure) error { return errOops }),
		}
		f(t, nodes, k, func(value string) *Lease {
			l := k.open(value)
			l.Began = time.Now()
			return l
		})
		nodes.Close()
		quorum.Finish(t.Context(), p.Nodes)
	})
}

var errOops = errors.New("oops")

// What an attempt comes to, and what is left of it.
func TestAttempt(t *testing.T) {
	slow := sim.Slow(60 * time.Millisecond)
	for name, tt := range map[string]struct {
		fates []sim.Fate // of the attempt, node by node; those of taken nodes are not used
		taken int        // nodes, the last ones
		kind  Kind
		why   string // "": it wins
	}{
		"all grant it": {fates: []sim.Fate{{}, {}, {}}},
		"two grant it": {fates: []sim.Fate{{}, {}, sim.Fail(errOops)}},
		"all refuse":   {taken: 3, kind: Taken, why: "taken on 3 of 3 nodes"},
		"two refuse": {fates: []sim.Fate{{}}, taken: 2,
			kind: Taken, why: "taken on 2 of 3 nodes"},
		"one of each": {fates: []sim.Fate{{}, sim.Fail(errOops)}, taken: 1,
			kind: Taken,
			why:  "taken on 1 of 3 nodes, granted by 1, 2 needed"},
		"two fail": {fates: []sim.Fate{slow, sim.Fail(errOops), sim.Fail(errOops)},
			kind: NoQuorum,
			why:  "no quorum: granted by 1 of 3 nodes, taken on 0, 2 needed"},
		"nobody speaks": {fates: []sim.Fate{sim.Hang(), sim.Hang(), sim.Hang()},
			kind: NoQuorum,
			why:  "no quorum: granted by 0 of 3 nodes, taken on 0, 2 needed"},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, _ *Lock,
				open func(string) *Lease) {
				for i := range nodes {
					if i >= 3-tt.taken {
						nodes[i].Set("x", "other", 0)
					} else if i < len(tt.fates) {
						nodes[i].Next("", tt.fates[i])
					}
				}
				g := open("mine")
				d := g.attempt(t.Context(), queue.Attempt{Final: true}, nil)
				if tt.why == "" {
					require.Nil(t, d)
					g.Release(t.Context(), quorum.Spec{})
				} else {
					require.NotNil(t, d)
					assert.False(t, d.unsettled())
					assert.True(t, d.final)
					time.Sleep(time.Second)
					f := d.Failure()
					assert.Equal(t, tt.kind, f.Kind)
					assert.Equal(t, tt.why, f.Reason+f.More)
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
	with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, _ *Lock, open func(string) *Lease) {
		for range 1000 {
			for i, n := range nodes {
				n.Always(sim.Fail(errRelease))
				n.Next("set", []sim.Fate{late, sim.Fail(errOops), sim.Fail(errOops)}[i])
			}
			d := open("mine").attempt(t.Context(), queue.Attempt{}, nil)
			require.NotNil(t, d)
			require.True(t, d.Failure().Outcomes[0].Missing())
			time.Sleep(late.Reply)
			for missing := true; missing; {
				o := d.Failure().Outcomes[0]
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
	with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, _ *Lock, open func(string) *Lease) {
		for _, n := range nodes {
			n.Set("x", "other", 0)
		}
		for stands, releases := range map[bool]int{true: 0, false: 3} {
			before := nodes.Count("release")
			d := open("mine").attempt(t.Context(), queue.Attempt{Keep: true}, nil)
			time.Sleep(time.Second)
			assert.Equal(t, before, nodes.Count("release"))
			assert.True(t, d.unsettled())
			assert.Equal(t, map[bool]string{true: "mine"}[stands], d.settle(t.Context(), stands))
			assert.False(t, d.unsettled())
			time.Sleep(time.Second)
			assert.Equal(t, before+releases, nodes.Count("release"))
			assert.Empty(t, d.settle(t.Context(), false), "once")
		}
		var none *FailedAttempt
		assert.False(t, none.unsettled())
		assert.Empty(t, none.settle(t.Context(), true))
	})
}

// GiveBack releases an attempt but on nodes that refuse, whether they have done so by then or do so
// later. Standing in the queue settles these, or a release does.
func TestGiveBack(t *testing.T) {
	with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, _ *Lock, open func(string) *Lease) {
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
			d := open("mine").attempt(t.Context(), queue.Attempt{Keep: true}, nil)
			assert.True(t, d.unsettled(), tt.name)
			d.giveBack(t.Context())
			assert.False(t, d.unsettled(), tt.name)
			d.giveBack(t.Context())
			time.Sleep(time.Second)
			assert.Equal(t, before+tt.sooner, nodes.Count("release"), tt.name)
			assert.Equal(t, tt.last, nodes[2].Value("x"), tt.name)
			assert.Equal(t, map[bool]string{true: "mine"}[tt.stands],
				d.settle(t.Context(), tt.stands), tt.name)
			time.Sleep(time.Second)
			assert.Equal(t, before+tt.settles, nodes.Count("release"), tt.name)
			assert.Empty(t, d.settle(t.Context(), false), "once")
			assert.Equal(t, before+tt.settles, nodes.Count("release"), tt.name)
		}
	})
}

// A client may send an attempt twice, and be refused by its own key. The release that GiveBack
// leaves out takes that back, and the error still tells of what was found before.
func TestGiveBackOfWhatRefusedItself(t *testing.T) {
	with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, _ *Lock, open func(string) *Lease) {
		for _, n := range nodes[:2] {
			n.Set("x", "mine", 0)
		}
		nodes[2].Set("x", "other", 0)
		nodes[2].Next("", sim.FailAfter(errOops))
		d := open("mine").attempt(t.Context(), queue.Attempt{Keep: true}, nil)
		d.giveBack(t.Context())
		time.Sleep(time.Second)
		assert.Equal(t, []string{"mine", "mine", "other"}, nodes.Values("x"))
		d.settle(t.Context(), false)
		time.Sleep(time.Second)
		assert.Equal(t, []string{"", "", "other"}, nodes.Values("x"))
		why := d.Failure()
		assert.Equal(t, "taken on 2 of 3 nodes", why.Reason)
		assert.ErrorIs(t, why.Outcomes[2].Err, errOops)
	})
}

// Of a waiter's attempts the latest counts that the nodes had the time to answer.
func TestFailedAttempts(t *testing.T) {
	with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, _ *Lock, open func(string) *Lease) {
		var all failedAttempts
		assert.Nil(t, all.newest())
		attempt := func(ctx context.Context) *FailedAttempt {
			return open("mine").attempt(ctx, queue.Attempt{}, nil)
		}
		for _, n := range nodes {
			n.Set("x", "other", 0)
		}
		first := attempt(t.Context())
		assert.True(t, all.note(first))
		assert.Same(t, first, all.newest())

		for _, n := range nodes {
			n.Always(sim.Slow(10 * time.Millisecond)) // later than the end of the context
		}
		cut, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, all.note(attempt(cut)), "the nodes are well")
		assert.Same(t, first, all.newest())

		second := attempt(t.Context())
		assert.True(t, all.note(second))
		assert.Same(t, second, all.newest())
	})
}

// lesson L106: a node that keeps the key for one in the queue has not granted it. What it said to
// the attempt before that counts, unless it has said since that the key is somebody else's.
func TestAPlaceInTheQueueHidesNoError(t *testing.T) {
	options := Options{Terms: wire.Terms{Queue: true}}
	with(t, 3, options, func(t *testing.T, nodes sim.Nodes, lock *Lock,
		open func(string) *Lease) {
		var all failedAttempts
		stand := func() *FailedAttempt {
			place := open("")
			member := wire.Member{ID: "redlock:turn:" + strings.Repeat("a", 26) + "1", Ticket: 1}
			r := place.Write(t.Context(), quorum.Spec{Command: lock.Stand(member, time.Minute)})
			began := time.Now()
			time.Sleep(time.Second)
			d := stood(lock, r, began, false)
			assert.True(t, all.note(d))
			place.Release(t.Context(), quorum.Spec{Command: lock.Leave(member)})
			time.Sleep(time.Second)
			return d
		}
		for _, n := range nodes {
			n.Next("set", sim.Fail(errOops))
		}
		attempt := open("mine").attempt(t.Context(), queue.Attempt{}, nil)
		assert.True(t, attempt.Failing())
		assert.True(t, all.note(attempt))
		for taken, want := range []Kind{NoQuorum, NoQuorum, Taken} {
			if taken > 0 {
				nodes[taken-1].Set("x", "other", 0)
			}
			d := stand()
			assert.Same(t, d, all.newest())
			assert.Equal(t, taken < 2, d.Failing())
			why := d.Failure()
			for _, o := range why.Outcomes[taken:] {
				assert.ErrorIs(t, o.Err, errOops)
			}
			assert.Equal(t, want, why.Kind, "%d nodes have another's key", taken)
			assert.Contains(t, why.Reason, fmt.Sprintf("taken on %d", taken))
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
			with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, _ *Lock,
				open func(string) *Lease) {
				for i, n := range nodes {
					if i < len(tt.fates) {
						n.Always(tt.fates[i])
					}
					if i == 2 || tt.fates[i] == (sim.Fate{}) {
						n.Set("x", "other", 0)
					}
				}
				d := open("mine").attempt(t.Context(), queue.Attempt{}, nil)
				time.Sleep(time.Second)
				assert.Equal(t, tt.want, d.Failing())
			})
		})
	}
}

// What a node has come to is what it said of the attempt, also late. If it said nothing, its answer
// to the release tells.
func TestWhatANodeHasComeTo(t *testing.T) {
	said := func(m quorum.Meaning) quorum.Outcome {
		return quorum.Outcome{Reply: quorum.Reply{Means: m}}
	}
	failed := func(err error) quorum.Outcome { return quorum.Outcome{Err: err} }
	silent, unsent := failed(quorum.ErrUnanswered), failed(quorum.ErrUnsent)
	full := failed(errors.New("OOM"))
	for _, c := range []struct{ met, later, released, want quorum.Outcome }{
		{silent, silent, said(quorum.Foreign), said(quorum.Foreign)},
		{silent, silent, said(quorum.Done), said(quorum.Done)},
		{silent, silent, said(quorum.Gone), silent},
		{silent, silent, said(quorum.NoLock), failed(errNotALock)},
		{silent, silent, full, full},
		{silent, silent, unsent, silent},
		{silent, unsent, said(quorum.Gone), silent},
		{silent, said(quorum.Done), said(quorum.Gone), said(quorum.Done)},
		{said(quorum.Foreign), silent, full, said(quorum.Foreign)},
		{said(quorum.Standing), silent, said(quorum.Gone), said(quorum.Foreign)},
		{full, full, said(quorum.Done), full},
	} {
		assert.Equal(t, c.want, latest(c.met, c.later, c.released), "%+v", c)
	}
}
