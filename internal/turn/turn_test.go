package turn

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/test/leak"
	"github.com/redlock-go/redlock/pool"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var errDown = errors.New("down")

// node is a pool that a test subscribes to and publishes on.
type node struct {
	pool.Pool
	delay time.Duration // of Subscribe

	mu       sync.Mutex // guards what follows
	messages chan string
	fail     error // of Subscribe
	tries    int
	asked    time.Time // when Subscribe was called last
	open     int       // subscriptions
}

// down makes Subscribe fail, or not any more, and returns how often it has been tried.
func (n *node) down(err error) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
	return n.tries
}

// subscriptions returns how many are open.
func (n *node) subscriptions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open
}

func (n *node) Subscribe(ctx context.Context, _ string) (pool.Subscription, error) {
	n.mu.Lock()
	n.asked = time.Now()
	n.mu.Unlock()
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

func (n *node) Messages() <-chan string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.messages
}

// send returns the channel of its messages.
func (n *node) send() chan<- string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.messages
}

// lose ends its subscription. The next one has a new channel.
func (n *node) lose() {
	n.mu.Lock()
	close(n.messages)
	n.messages = make(chan string)
	n.mu.Unlock()
	synctest.Wait()
}

func (n *node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open--
	return nil
}

// mute is a pool that cannot be subscribed to.
type mute struct{ pool.Pool }

// listening runs f in a bubble with n nodes, of which the last ones are mute, and a source that
// is in use. When the source has ended nothing may be left of it.
func listening(t *testing.T, n, mutes int, prepare func([]*node),
	f func(t *testing.T, nodes []*node, s *Source, l *Listener)) {
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
		s := NewSource(quorum.Nodes(pools, tracker), tracker, "channel", half)
		assert.Equal(t, n-mutes > n/2, s.Able())
		l := s.Use(0)
		synctest.Wait()
		f(t, nodes, s, l)
		s.End()
		start := time.Now()
		require.Zero(t, tracker.Wait(t.Context()))
		assert.Zero(t, time.Since(start), "nothing holds up the end")
		for _, n := range nodes {
			assert.Zero(t, n.subscriptions())
		}
	})
}

// half is the jitter of a test.
func half(limit time.Duration) time.Duration { return limit / 2 }

// say publishes on some nodes, one after the other.
func say(nodes []*node, number string, which ...int) {
	for _, i := range which {
		nodes[i].send() <- number
	}
	synctest.Wait()
}

// woken reports whether who waits for the call was woken.
func woken(c *Call) bool {
	select {
	case <-c.Wake():
		return true
	default:
		return false
	}
}

// isReady reports whether the listener is ready.
func isReady(l *Listener) bool {
	select {
	case <-l.Ready():
		return true
	default:
		return false
	}
}

func TestAQuorumOfNodesCalls(t *testing.T) {
	for n, need := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 7: 4} {
		listening(t, n, 0, nil, func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
			c, other := l.Expect(), l.Expect()
			assert.NotEqual(t, c.Number, other.Number)
			for i := range n {
				assert.Equal(t, i, c.Heard())
				say(nodes, c.Number, i)
				assert.Equal(t, i+1 == need, woken(c), "%d of %d nodes", i+1, n)
			}
			assert.Zero(t, other.Heard())
			time.Sleep(2 * grace)
			assert.False(t, woken(other))
			c.End()
			other.End()
			say(nodes, c.Number, 0)
			assert.Zero(t, c.Heard(), "nobody waits for it")
		})
	}
}

// Fewer than a quorum wake once, a moment after the first.
func TestAMinorityWakesAMomentLater(t *testing.T) {
	listening(t, 5, 0, nil, func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
		c := l.Expect()
		defer c.End()
		say(nodes, c.Number, 1)
		time.Sleep(grace / 2)
		say(nodes, c.Number, 3)
		assert.False(t, woken(c))
		time.Sleep(grace / 2)
		synctest.Wait()
		assert.True(t, woken(c))
		assert.Equal(t, []bool{false, true, false, true, false}, c.Where())
		time.Sleep(2 * grace)
		assert.False(t, woken(c))
		say(nodes, c.Number, 0)
		assert.True(t, woken(c), "a quorum")
	})
}

// A node that says the same twice counts once, and what is noted counts like what is said.
func TestANodeCountsOnce(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
		c := l.Expect()
		defer c.End()
		say(nodes, c.Number, 0, 0, 0)
		c.Note(0, 0)
		assert.Equal(t, 1, c.Heard())
		assert.False(t, woken(c))
		c.Note(2, 0)
		assert.Equal(t, 2, c.Heard())
		assert.Equal(t, []bool{true, false, true}, c.Where())
		assert.True(t, woken(c), "a quorum")
	})
}

// What nodes send for a bid counts as a turn as well, and only that says that the bid was taken up.
func TestABidIsTakenUpByAQuorum(t *testing.T) {
	listening(t, 5, 0, nil, func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
		c := l.Expect()
		defer c.End()
		number := c.Bid("key")
		assert.GreaterOrEqual(t, len(number), 26, "nobody else can guess it")
		bid := "key " + number
		say(nodes, bid, 0, 0, 1)
		assert.Equal(t, 2, c.Heard())
		say(nodes, c.Number, 2)
		assert.True(t, woken(c), "it is the number's turn on a quorum")
		assert.Equal(t, 2, c.TakenUp(), "one of them keeps the key for it, and has not given it")
		say(nodes, bid, 2)
		assert.Equal(t, 3, c.TakenUp(), "that one has given it later")
	})
}

// lesson L101: what a node says of a bid counts for the key that it was for.
func TestABidForAnotherKeyIsNotHeard(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
		c := l.Expect()
		defer c.End()
		for _, key := range []string{"key", "key+", "a key", ""} {
			number := c.Bid(key)
			for _, other := range []string{"", "ke", "key", "key+", "key++", "a key", " key", " "} {
				if other != key {
					say(nodes, other+" "+number, 0, 1, 2)
				}
			}
			say(nodes, number, 0, 1, 2)
			say(nodes, number+" "+key, 0, 1, 2)
			say(nodes, key+" "+number+Next, 0, 1, 2)
			assert.Zero(t, c.TakenUp(), key)
			say(nodes, key+" "+number, 1)
			assert.Equal(t, 1, c.TakenUp(), key)
		}
	})
}

// Of a bid that is over nothing counts, whatever nodes have said of it and will say.
func TestABidThatIsOverIsNotHeard(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
		for _, over := range []func(*Call) string{
			func(c *Call) string { c.EndBid(); return "" },
			func(c *Call) string { return "key " + c.Bid("key") },
		} {
			c := l.Expect()
			old := "key " + c.Bid("key")
			say(nodes, old, 0)
			next := over(c)
			assert.NotEqual(t, old, next)
			c.Ask(nil)
			say(nodes, old, 0, 1, 2)
			assert.Zero(t, c.Heard())
			assert.Zero(t, c.TakenUp())
			assert.False(t, woken(c))
			c.End()
			say(nodes, old, 0, 1, 2)
			say(nodes, next, 0, 1, 2)
			assert.Empty(t, l.calls)
		}
	})
}

// One that is the next is told so, and has no turn yet.
func TestTheNextIsTold(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
		c, other := l.Expect(), l.Expect()
		defer c.End()
		defer other.End()
		say(nodes, c.Number+Next, 0, 1, 2)
		assert.Len(t, c.Next(), 1)
		assert.Empty(t, other.Next())
		assert.Zero(t, c.Heard())
		assert.False(t, woken(c))
	})
}

// What some nodes have said is forgotten without the rest; nobody is woken for what is forgotten.
func TestWhatWasHeardIsForgotten(t *testing.T) {
	listening(t, 5, 0, nil, func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
		c := l.Expect()
		defer c.End()
		say(nodes, c.Number, 0, 1)
		first := c.Ask([]bool{true, false, false, false, true})
		assert.Equal(t, []bool{false, true, false, false, false}, c.Where())
		assert.Equal(t, 1, c.Heard())
		time.Sleep(2 * grace)
		synctest.Wait()
		assert.True(t, woken(c), "by node 1")
		second := c.Ask(nil)
		assert.Zero(t, c.Heard())
		c.Note(0, first)
		assert.Zero(t, c.Heard(), "a late reply")
		c.Note(0, second)
		assert.Equal(t, 1, c.Heard())
		say(nodes, c.Number, 1, 2, 3)
		c.Ask(nil)
		assert.False(t, woken(c))
	})
}

// A message that says that others may have been missed wakes everybody. So does a subscription
// that was lost and is back, but not the first one.
func TestWhatMayHaveBeenMissedWakes(t *testing.T) {
	listening(t, 3, 0, func(n []*node) { n[2].delay = time.Second },
		func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
			calls := []*Call{l.Expect(), l.Expect()}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			for _, c := range calls {
				assert.False(t, woken(c), "the third has just been subscribed to")
			}
			say(nodes, "", 1)
			for _, c := range calls {
				assert.True(t, woken(c))
				assert.Zero(t, c.Heard())
			}
			nodes[0].lose()
			time.Sleep(retry)
			synctest.Wait()
			for _, c := range calls {
				assert.True(t, woken(c))
				c.End()
			}
		})
}

// It is ready as long as a quorum is listened to.
func TestItIsReadyWhenAQuorumIsListenedTo(t *testing.T) {
	down := func(n *node) { n.down(errDown) }
	silent := func(n *node) { n.delay = time.Hour }
	slow := func(n *node) { n.delay = patience / 2 }
	for name, tt := range map[string]struct {
		n, mutes int
		prepare  func([]*node)
		never    bool
		deaf     bool // for certain
		after    time.Duration
	}{
		"all":             {n: 3},
		"minority down":   {n: 3, prepare: func(n []*node) { down(n[0]) }},
		"minority silent": {n: 3, prepare: func(n []*node) { silent(n[0]) }},
		"majority slow": {n: 3, prepare: func(n []*node) { slow(n[0]); slow(n[1]) },
			after: patience / 2},
		"majority down": {n: 3, prepare: func(n []*node) { down(n[0]); down(n[2]) },
			never: true, deaf: true},
		"majority silent": {n: 3, prepare: func(n []*node) { silent(n[0]); silent(n[2]) },
			never: true},
		"minority mute": {n: 3, mutes: 1},
		"majority mute": {n: 5, mutes: 3, never: true, deaf: true},
		"half of four down": {n: 4, prepare: func(n []*node) { down(n[0]); down(n[1]) },
			never: true, deaf: true},
		"all cannot, at all": {n: 3, mutes: 3, never: true, deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			listening(t, tt.n, tt.mutes, tt.prepare,
				func(t *testing.T, _ []*node, _ *Source, l *Listener) {
					assert.Equal(t, tt.deaf, l.Deaf())
					if tt.after > 0 {
						time.Sleep(tt.after - 1)
						assert.False(t, isReady(l) || l.Hears())
						time.Sleep(time.Nanosecond)
						synctest.Wait()
					}
					assert.Equal(t, !tt.never, isReady(l))
					assert.Equal(t, !tt.never, l.Hears())
				})
		})
	}
}

// A node that could not be subscribed to is tried once per interval, and counts as soon as it
// can. One that is lost does not count.
func TestAFailedSubscriptionIsTriedAgain(t *testing.T) {
	listening(t, 3, 0, func(n []*node) { n[0].down(errDown); n[2].down(errDown) },
		func(t *testing.T, nodes []*node, _ *Source, l *Listener) {
			ready := l.Ready()
			time.Sleep(10*retry + retry/2)
			synctest.Wait()
			assert.Equal(t, 11, nodes[0].down(nil))
			assert.Equal(t, 1, nodes[1].down(nil))
			time.Sleep(retry)
			synctest.Wait()
			<-ready
			assert.True(t, l.Hears())
			nodes[1].lose()
			assert.False(t, isReady(l) || l.Hears())
			time.Sleep(retry)
			synctest.Wait()
			assert.True(t, isReady(l) && l.Hears())
		})
}

// A process listens a moment longer than it needs to, and not twice.
func TestASourceLingers(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, s *Source, l *Listener) {
		again := s.Use(0)
		assert.Same(t, l, again)
		s.Done()
		time.Sleep(2 * linger)
		assert.Equal(t, 1, nodes[0].subscriptions(), "somebody uses it")
		for range 10 {
			s.Done()
			time.Sleep(linger / 2)
			assert.Same(t, l, s.Use(0))
		}
		s.Done()
		time.Sleep(linger)
		synctest.Wait()
		assert.Zero(t, nodes[0].subscriptions())
		assert.NotSame(t, l, s.Use(0))
		synctest.Wait()
		assert.Equal(t, 1, nodes[0].subscriptions())
		assert.Equal(t, 2, nodes[0].down(nil))
	})
}

// A listener that need not hear at once subscribes to each node at a random moment.
func TestAListenerMaySubscribeLater(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, s *Source, _ *Listener) {
		s.Done()
		time.Sleep(2 * linger)
		l := s.Use(time.Minute)
		assert.Same(t, l, s.Use(0))
		time.Sleep(half(time.Minute) - 1)
		synctest.Wait()
		assert.Equal(t, 1, nodes[0].down(nil), "once, before")
		assert.False(t, l.Hears() || l.Deaf())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.True(t, l.Hears())
		s.Done()
		s.Done()
		time.Sleep(2 * linger)
		s.Use(time.Minute) // and the end cuts it short
	})
}

// End ends what is subscribing, waiting to try again, and listening; the bubble sees to the rest.
// What is used after that hears nothing.
func TestEndAtAnyTime(t *testing.T) {
	for _, at := range []time.Duration{0, 1, patience / 2, patience, retry / 2, 3 * retry} {
		listening(t, 3, 0, func(n []*node) { n[0].delay = time.Hour; n[1].down(errDown) },
			func(t *testing.T, nodes []*node, s *Source, _ *Listener) {
				time.Sleep(at)
				s.Done()
				s.End()
				l := s.Use(0)
				synctest.Wait()
				assert.False(t, l.Hears())
				s.Done()
				time.Sleep(2 * linger)
			})
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
		"Subscribe panics": true, "no subscription": true, "Messages panics": true, "closed": true,
		"Close panics": false,
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, odd := []*node{{messages: make(chan string)}, {messages: make(chan string)}},
					&oddity{how: how}
				tracker := quorum.NewTracker()
				s := NewSource(quorum.Nodes([]pool.Pool{good[0], odd, good[1]}, tracker), tracker,
					"channel", half)
				l := s.Use(0)
				synctest.Wait()
				assert.True(t, l.Hears())
				time.Sleep(10*retry + retry/2)
				c := l.Expect()
				say(good, c.Number, 0, 1)
				assert.Equal(t, 2, c.Heard())
				c.End()
				s.End()
				require.Zero(t, tracker.Wait(t.Context()))
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

// lesson L70: a pool that keeps its calls keeps a bounded number of goroutines, however many
// listeners have come and gone.
func TestAPoolThatKeepsItsCallsKeepsFewGoroutines(t *testing.T) {
	for _, listeners := range []int{1, maxCalls, 10 * maxCalls} {
		synctest.Test(t, func(t *testing.T) {
			d := &deafPool{release: make(chan struct{})}
			tracker := quorum.NewTracker()
			s := NewSource(quorum.Nodes([]pool.Pool{d}, tracker), tracker, "channel", half)
			for range listeners {
				s.Use(0)
				s.Done()
				time.Sleep(linger)
				synctest.Wait()
			}
			assert.EqualValues(t, min(listeners, maxCalls), d.calls.Load())
			ended, end := context.WithCancel(t.Context())
			end()
			assert.Equal(t, min(listeners, maxCalls), tracker.Wait(ended))
			close(d.release)
			require.Zero(t, tracker.Wait(t.Context()))

			// They have returned: it is asked again.
			before := d.calls.Load()
			s.Use(0)
			synctest.Wait()
			assert.Greater(t, d.calls.Load(), before)
			s.End()
			require.Zero(t, tracker.Wait(t.Context()))
		})
	}
}
