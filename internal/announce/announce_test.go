package announce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/leak"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var errDown = errors.New("down")

// node is a pool that a test subscribes to and publishes on.
type node struct {
	pool.Pool
	messages chan string
	delay    time.Duration // of Subscribe

	mu    sync.Mutex // guards what follows
	fail  error      // of Subscribe
	tries int
	open  int // subscriptions
}

// down makes Subscribe fail, or not any more, and returns how often it has been tried.
func (n *node) down(err error) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
	return n.tries
}

func (n *node) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	select {
	case <-time.After(n.delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tries++
	if n.fail != nil {
		return nil, n.fail
	}
	n.open++
	return n, nil
}

func (n *node) Messages() <-chan string { return n.messages }

func (n *node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open--
	return nil
}

// mute is a pool that cannot be subscribed to.
type mute struct{ pool.Pool }

// ear is a listener and what it has told and nobody has picked up: one release.
type ear struct {
	*Listener
	told chan Release
}

// listening runs f in a bubble with n nodes, of which the last ones are mute, and a listener. When the listener
// has been closed nothing may be left of it.
func listening(t *testing.T, n, mutes int, prepare func([]*node), f func(t *testing.T, nodes []*node, l *ear)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var nodes []*node
		var pools []pool.Pool
		for i := range n {
			nodes = append(nodes, &node{messages: make(chan string)})
			if i < n-mutes {
				pools = append(pools, nodes[i])
			} else {
				pools = append(pools, mute{})
			}
		}
		if prepare != nil {
			prepare(nodes)
		}
		tracker := quorum.NewTracker()
		l := &ear{told: make(chan Release, 1)}
		l.Listener = NewSource(quorum.Nodes(pools, tracker), tracker).Listen("channel", func(r Release) {
			select {
			case l.told <- r:
			default:
			}
		})
		synctest.Wait()
		r, told := heard(l)
		assert.Equal(t, l.Subscribed(), told, "a quorum is listened to from now on")
		if told {
			assert.Equal(t, Release{First: -1}, r)
		}
		f(t, nodes, l)
		l.Close()
		start := time.Now()
		require.Zero(t, tracker.Wait(t.Context()))
		assert.Zero(t, time.Since(start), "nothing holds up the end")
		for _, n := range nodes {
			n.mu.Lock()
			assert.Zero(t, n.open)
			n.mu.Unlock()
		}
	})
}

// say publishes on some nodes, one after the other.
func say(nodes []*node, value string, which ...int) {
	for _, i := range which {
		nodes[i].messages <- value
	}
	synctest.Wait()
}

// heard returns what has been signalled, if anything.
func heard(l *ear) (Release, bool) {
	select {
	case r := <-l.told:
		return r, true
	default:
		return Release{}, false
	}
}

func TestAQuorumOfAnnouncementsWakes(t *testing.T) {
	for n, need := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 7: 4} {
		listening(t, n, 0, nil, func(t *testing.T, nodes []*node, l *ear) {
			assert.True(t, l.Subscribed())
			for i := range need {
				time.Sleep(10 * time.Millisecond)
				_, ok := heard(l)
				assert.False(t, ok, "%d of %d nodes", i, n)
				say(nodes, "v", i)
			}
			time.Sleep(grace)
			synctest.Wait()
			r, ok := heard(l)
			assert.True(t, ok)
			assert.Equal(t, "v", r.Value)
			assert.Less(t, r.First, need)
			for i := need; i < n; i++ {
				say(nodes, "v", i)
			}
			_, ok = heard(l)
			assert.False(t, ok, "one wake-up for one release")
		})
	}
}

func TestDuplicatesAndDifferentReleasesMakeNoQuorum(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *ear) {
		say(nodes, "v", 0, 0, 0)
		say(nodes, "w", 1)
		say(nodes, "u", 2)
		time.Sleep(time.Minute)
		_, ok := heard(l)
		assert.False(t, ok)
		say(nodes, "w", 0)
		time.Sleep(grace)
		synctest.Wait()
		r, ok := heard(l)
		assert.True(t, ok)
		assert.Equal(t, "w", r.Value)
		say(nodes, "w", 0, 1, 2, 0, 1, 2)
		time.Sleep(time.Minute)
		_, ok = heard(l)
		assert.False(t, ok, "announced before")
	})
}

// What one node announces by itself, all that it was behind with for instance, crowds out nothing that others
// announce, and the oldest of it is forgotten.
func TestOneNodesMessagesCrowdOutNoRelease(t *testing.T) {
	listening(t, 5, 0, nil, func(t *testing.T, nodes []*node, l *ear) {
		say(nodes, "v", 0, 1)
		say(nodes, "w", 4)
		for i := range 100 {
			say(nodes, fmt.Sprint("old", i), 4)
		}
		say(nodes, "w", 2, 3)
		time.Sleep(time.Minute)
		_, ok := heard(l)
		assert.False(t, ok, "forgotten")
		say(nodes, "v", 2)
		time.Sleep(grace)
		synctest.Wait()
		r, ok := heard(l)
		assert.True(t, ok)
		assert.Equal(t, "v", r.Value)
	})
}

// What is released while nobody has picked up the last release is joined with it, and the sender never waits.
func TestReleasesAreJoined(t *testing.T) {
	listening(t, 1, 0, nil, func(t *testing.T, nodes []*node, l *ear) {
		say(nodes, "a", 0)
		say(nodes, "b", 0)
		r, ok := heard(l)
		assert.True(t, ok)
		assert.Equal(t, "a", r.Value)
		_, ok = heard(l)
		assert.False(t, ok)
	})
}

// All listeners are told to ask the same node first, whichever nodes told them; unless that one is
// late, for which they wait a moment, and then, until it is heard again, no more.
func TestListenersAgreeOnTheFirstNode(t *testing.T) {
	listening(t, 5, 0, nil, func(t *testing.T, nodes []*node, l *ear) {
		first := l.order[0]
		others := slices.DeleteFunc([]int{0, 1, 2, 3, 4}, func(i int) bool { return i == first })
		say(nodes, "a", others[0], others[1], first)
		r, ok := heard(l)
		assert.True(t, ok, "at once")
		assert.Equal(t, first, r.First)

		say(nodes, "b", others[0], others[1], others[2])
		_, ok = heard(l)
		assert.False(t, ok, "a moment for the first")
		say(nodes, "b", first)
		r, _ = heard(l)
		assert.Equal(t, first, r.First)
		time.Sleep(2 * grace)
		_, ok = heard(l)
		assert.False(t, ok)

		say(nodes, "c", others...)
		time.Sleep(grace)
		synctest.Wait()
		r, ok = heard(l)
		assert.True(t, ok, "no longer than a moment")
		second := l.order[1]
		assert.Equal(t, second, r.First)

		say(nodes, "d", others...)
		r, ok = heard(l)
		assert.True(t, ok, "not again for the one that was late")
		assert.Equal(t, second, r.First)

		say(nodes, "e", first)
		say(nodes, "e", others...)
		r, _ = heard(l)
		assert.Equal(t, first, r.First, "it is heard again")
	})
}

// An empty message says that some may have been missed: that is worth a wake-up by itself.
func TestWhatMayHaveBeenMissedWakes(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *ear) {
		say(nodes, "", 1)
		r, ok := heard(l)
		assert.True(t, ok)
		assert.Equal(t, Release{First: -1}, r)
	})
}

// It is told when a quorum is listened to, and not when more nodes are, or fewer.
func TestItIsToldWhenAQuorumIsListenedTo(t *testing.T) {
	down := func(n *node) { n.down(errDown) }
	silent := func(n *node) { n.delay = time.Hour }
	slow := func(n *node) { n.delay = patience / 2 }
	for name, tt := range map[string]struct {
		n, mutes int
		prepare  func([]*node)
		never    bool
		after    time.Duration
	}{
		"all":                {n: 3},
		"minority down":      {n: 3, prepare: func(n []*node) { down(n[0]) }},
		"minority silent":    {n: 3, prepare: func(n []*node) { silent(n[0]) }},
		"majority slow":      {n: 3, prepare: func(n []*node) { slow(n[0]); slow(n[1]) }, after: patience / 2},
		"majority down":      {n: 3, prepare: func(n []*node) { down(n[0]); down(n[2]) }, never: true},
		"majority silent":    {n: 3, prepare: func(n []*node) { silent(n[0]); silent(n[2]) }, never: true},
		"minority mute":      {n: 3, mutes: 1},
		"majority mute":      {n: 5, mutes: 3, never: true},
		"half of four down":  {n: 4, prepare: func(n []*node) { down(n[0]); down(n[1]) }, never: true},
		"all cannot, at all": {n: 3, mutes: 3, never: true},
	} {
		t.Run(name, func(t *testing.T) {
			listening(t, tt.n, tt.mutes, tt.prepare, func(t *testing.T, nodes []*node, l *ear) {
				if tt.never {
					time.Sleep(time.Minute)
					_, ok := heard(l)
					assert.False(t, ok)
					assert.False(t, l.Subscribed())
					return
				}
				if tt.after > 0 {
					time.Sleep(tt.after - 1)
					_, ok := heard(l)
					assert.False(t, ok)
					assert.False(t, l.Subscribed())
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					r, ok := heard(l)
					assert.True(t, ok)
					assert.Equal(t, Release{First: -1}, r)
				}
				assert.True(t, l.Subscribed())
				time.Sleep(time.Minute)
				_, ok := heard(l)
				assert.False(t, ok, "once")
			})
		})
	}
}

// A node that could not be subscribed to is tried once per interval, and counts as soon as it can.
func TestAFailedSubscriptionIsTriedAgain(t *testing.T) {
	listening(t, 3, 0, func(n []*node) { n[0].down(errDown); n[2].down(errDown) }, func(t *testing.T, nodes []*node, l *ear) {
		time.Sleep(10*retry + retry/2)
		synctest.Wait()
		_, ok := heard(l)
		assert.False(t, ok)
		assert.Equal(t, 11, nodes[0].down(nil))
		assert.Equal(t, 1, nodes[1].down(nil))
		time.Sleep(retry)
		synctest.Wait()
		r, ok := heard(l)
		assert.True(t, ok, "what was announced before is lost")
		assert.Equal(t, Release{First: -1}, r)
		say(nodes, "v", 0, 1)
		time.Sleep(grace)
		synctest.Wait()
		r, _ = heard(l)
		assert.Equal(t, "v", r.Value, "it counts from now on")
	})
}

// Close ends what is subscribing, waiting to try again, and listening; the bubble sees to the rest.
func TestCloseAtAnyTime(t *testing.T) {
	for _, at := range []time.Duration{0, 1, patience / 2, patience, retry / 2, 3 * retry} {
		listening(t, 3, 0, func(n []*node) { n[0].delay = time.Hour; n[1].down(errDown) },
			func(t *testing.T, _ []*node, _ *ear) { time.Sleep(at) })
	}
}

// oddity is a pool of somebody else's that goes wrong in one way.
type oddity struct {
	pool.Pool
	how   string
	mu    sync.Mutex // guards tries
	tries int
}

func (o *oddity) Subscribe(context.Context, string) (pool.Subscription, error) {
	o.mu.Lock()
	o.tries++
	o.mu.Unlock()
	switch o.how {
	case "Subscribe panics":
		panic(o.how)
	case "no subscription":
		return nil, nil
	}
	return o, nil
}

func (o *oddity) Messages() <-chan string {
	switch o.how {
	case "Messages panics":
		panic(o.how)
	case "closed":
		c := make(chan string)
		close(c)
		return c
	}
	return nil
}

func (o *oddity) Close() error {
	if o.how == "Close panics" {
		panic(o.how)
	}
	return nil
}

// lesson L62: what panics is one node's failure, which the others outvote and which is tried again.
func TestAnOddPoolIsOneNodesFailure(t *testing.T) {
	for how, again := range map[string]bool{
		"Subscribe panics": true, "no subscription": true, "Messages panics": true, "closed": true, "Close panics": false,
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, odd := []*node{{messages: make(chan string)}, {messages: make(chan string)}}, &oddity{how: how}
				tracker := quorum.NewTracker()
				told := make(chan Release, 100)
				l := NewSource(quorum.Nodes([]pool.Pool{good[0], odd, good[1]}, tracker), tracker).
					Listen("channel", func(r Release) { told <- r })
				synctest.Wait()
				assert.True(t, l.Subscribed())
				time.Sleep(10*retry + retry/2)
				say(good, "v", 0, 1)
				time.Sleep(grace)
				synctest.Wait()
				l.Close()
				require.Zero(t, tracker.Wait(t.Context()))
				close(told)
				var values []string
				for r := range told {
					values = append(values, r.Value)
				}
				assert.Equal(t, "v", values[len(values)-1])
				if again {
					assert.Equal(t, 11, odd.tries)
				} else {
					assert.Equal(t, 1, odd.tries)
				}
			})
		})
	}
}

// deafPool is a pool whose Subscribe does not return when its context has ended.
type deafPool struct {
	pool.Pool
	calls   atomic.Int64
	release chan struct{}
}

func (d *deafPool) Subscribe(context.Context, string) (pool.Subscription, error) {
	d.calls.Add(1)
	<-d.release
	return nil, errDown
}

// lesson L70: a pool that keeps its calls keeps a bounded number of goroutines, however many listeners have come and gone.
func TestAPoolThatKeepsItsCallsKeepsFewGoroutines(t *testing.T) {
	for _, listeners := range []int{1, maxCalls, 10 * maxCalls} {
		synctest.Test(t, func(t *testing.T) {
			d := &deafPool{release: make(chan struct{})}
			tracker := quorum.NewTracker()
			s := NewSource(quorum.Nodes([]pool.Pool{d}, tracker), tracker)
			for range listeners {
				l := s.Listen("channel", func(Release) {})
				synctest.Wait()
				l.Close()
			}
			synctest.Wait()
			assert.EqualValues(t, min(listeners, maxCalls), d.calls.Load())
			ended, end := context.WithCancel(t.Context())
			end()
			assert.Equal(t, min(listeners, maxCalls), tracker.Wait(ended))
			close(d.release)
			require.Zero(t, tracker.Wait(t.Context()))

			// They have returned: it is asked again.
			before := d.calls.Load()
			s.Listen("channel", func(Release) {}).Close()
			l := s.Listen("channel", func(Release) {})
			synctest.Wait()
			assert.Greater(t, d.calls.Load(), before)
			l.Close()
			require.Zero(t, tracker.Wait(t.Context()))
		})
	}
}
