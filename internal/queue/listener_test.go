package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

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

// listening runs f in a bubble with n nodes, of which the last ones are mute, and a listener
// that is in use. When it has ended nothing may be left of it.
func listening(t *testing.T, n, mutes int, prepare func([]*node),
	f func(t *testing.T, nodes []*node, l *listener)) {
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
		l, end := listenTo(t, pools)
		assert.Equal(t, n-mutes > n/2, l.able)
		l.use(0)
		synctest.Wait()
		f(t, nodes, l)
		end()
		for _, n := range nodes {
			assert.Zero(t, n.subscriptions())
		}
	})
}

// listenTo returns a listener to pools, and what ends it.
func listenTo(t *testing.T, pools []pool.Pool) (l *listener, end func()) {
	tracker := quorum.NewTracker()
	open, cancel := context.WithCancel(t.Context())
	l = newListener(Config{
		Nodes: quorum.Nodes(pools, tracker), Tracker: tracker, Channel: "channel", Open: open,
		Jitter: half,
	})
	return l, func() {
		cancel()
		start := time.Now()
		require.Zero(t, tracker.Wait(context.WithoutCancel(open)))
		assert.Zero(t, time.Since(start), "nothing holds up the end")
	}
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

// takeUp lets nodes say that they have taken up the bid of those numbers for the key.
func takeUp(nodes []*node, key string, numbers []string, which ...int) {
	for _, i := range which {
		say(nodes, key+" "+numbers[i], i)
	}
}

// woken reports whether who waits for the call was woken.
func woken(c *notification) bool { return received(c.wake) }

// isReady reports whether the listener is ready.
func isReady(l *listener) bool { return received(l.readiness()) }

// A node that says whose turn it is wakes that one, and no other.
func TestNodesCall(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7} {
		listening(t, n, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
			c, other := l.expect(""), l.expect("")
			assert.NotEqual(t, c.number, other.number)
			for i := range n {
				assert.Equal(t, i, c.count(kept))
				say(nodes, c.number, i)
				assert.True(t, woken(c))
			}
			assert.Zero(t, other.count(kept))
			assert.False(t, woken(other))
			c.end()
			other.end()
			c.ask(nil)
			say(nodes, c.number, 0)
			assert.Zero(t, c.count(kept), "nobody waits for it")
		})
	}
}

// A node that says the same twice counts once, and what is noted counts like what is said.
func TestANodeCountsOnce(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		c := l.expect("")
		defer c.end()
		say(nodes, c.number, 0, 0, 0)
		c.replied(0, 0)
		assert.Equal(t, 1, c.count(kept))
		c.replied(2, 0)
		assert.Equal(t, 2, c.count(kept))
		assert.True(t, woken(c))
	})
}

// What nodes send for a bid counts as a turn as well, and only that says that the bid was taken up.
func TestABidIsTakenUpByAQuorum(t *testing.T) {
	listening(t, 5, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		c := l.expect("")
		defer c.end()
		numbers := c.bid("key")
		for i, number := range numbers {
			assert.GreaterOrEqual(t, len(number), 26, "nobody else can guess it")
			assert.NotContains(t, numbers[:i], number, "each node has one of its own")
		}
		takeUp(nodes, "key", numbers, 0, 0, 1)
		assert.Equal(t, 2, c.count(kept))
		say(nodes, c.number, 2)
		assert.True(t, woken(c), "it is the number's turn on a quorum")
		assert.Equal(t, 2, c.count(taken), "one of them keeps the key for it, and has not given it")
		takeUp(nodes, "key", numbers, 2)
		assert.Equal(t, 3, c.count(taken), "that one has given it later")
	})
}

// A bid that one node takes up is not taken up by another, which somebody lets say the same.
func TestANodeSpeaksForItself(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		c := l.expect("")
		defer c.end()
		said := "key " + c.bid("key")[0]
		say(nodes, said, 1, 2)
		assert.Zero(t, c.count(kept))
		assert.Zero(t, c.count(taken))
		say(nodes, said, 0, 1, 2)
		assert.Equal(t, 1, c.count(kept))
		assert.Equal(t, 1, c.count(taken))
	})
}

// lesson L101: what a node says of a bid counts for the key that it was for.
func TestABidForAnotherKeyIsNotHeard(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		c := l.expect("")
		defer c.end()
		for _, key := range []string{"key", "key+", "a key", ""} {
			numbers := c.bid(key)
			for _, other := range []string{"", "ke", "key", "key+", "key++", "a key", " key", " "} {
				if other != key {
					takeUp(nodes, other, numbers, 0, 1, 2)
				}
			}
			for i, number := range numbers {
				say(nodes, number, i)
				say(nodes, number+" "+key, i)
				say(nodes, key+" "+number+nextUp, i)
			}
			assert.Zero(t, c.count(taken), key)
			takeUp(nodes, key, numbers, 1)
			assert.Equal(t, 1, c.count(taken), key)
		}
	})
}

// Of a bid that is over nothing counts, whatever nodes have said of it and will say.
func TestABidThatIsOverIsNotHeard(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		for _, over := range []func(*notification) []string{
			func(c *notification) []string { c.endBid(); return make([]string, 3) },
			func(c *notification) []string { return c.bid("key") },
		} {
			c := l.expect("")
			old := c.bid("key")
			takeUp(nodes, "key", old, 0)
			next := over(c)
			assert.NotEqual(t, old, next)
			c.ask(nil)
			woken(c)
			takeUp(nodes, "key", old, 0, 1, 2)
			assert.Zero(t, c.count(kept))
			assert.Zero(t, c.count(taken))
			assert.False(t, woken(c))
			c.end()
			takeUp(nodes, "key", old, 0, 1, 2)
			takeUp(nodes, "key", next, 0, 1, 2)
			assert.Empty(t, l.notes)
		}
	})
}

// One that is the next is told so once, and has no turn yet.
func TestTheNextIsTold(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		c, other := l.expect(""), l.expect("")
		defer c.end()
		defer other.end()
		say(nodes, c.number+nextUp, 0, 1, 2)
		assert.True(t, woken(c))
		assert.False(t, woken(other))
		assert.Zero(t, c.count(kept))
		for _, told := range []bool{true, false} {
			next, missed := c.news()
			assert.Equal(t, told, next)
			assert.False(t, missed)
		}
	})
}

// What was heard is forgotten when nodes are asked anew. So are late replies to what they were
// asked before.
func TestWhatWasHeardIsForgotten(t *testing.T) {
	listening(t, 5, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		c := l.expect("")
		defer c.end()
		first := c.ask(nil)
		say(nodes, c.number, 0, 1)
		second := c.ask(nil)
		assert.Zero(t, c.count(kept))
		c.replied(0, first)
		assert.Zero(t, c.count(kept), "a late reply")
		c.replied(0, second)
		say(nodes, c.number, 0)
		assert.Equal(t, 1, c.count(kept))
	})
}

// A message that says that others may have been missed wakes everybody. So does a subscription
// that was lost and is back, but not the first one.
func TestWhatMayHaveBeenMissedWakes(t *testing.T) {
	listening(t, 3, 0, func(n []*node) { n[2].delay = time.Second },
		func(t *testing.T, nodes []*node, l *listener) {
			calls := []*notification{l.expect(""), l.expect("")}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			for _, c := range calls {
				assert.False(t, woken(c), "the third has just been subscribed to")
			}
			say(nodes, "", 1)
			for _, c := range calls {
				assert.True(t, woken(c))
				_, missed := c.news()
				assert.True(t, missed)
				assert.Zero(t, c.count(kept))
			}
			nodes[0].lose()
			time.Sleep(retry)
			synctest.Wait()
			for _, c := range calls {
				assert.True(t, woken(c))
				c.end()
			}
		})
}

// It is ready as long as a quorum is listened to.
func TestItIsReadyWhenAQuorumIsListenedTo(t *testing.T) {
	down := func(n *node) { n.down(errDown) }
	silent := func(n *node) { n.delay = time.Hour }
	slow := func(n *node) { n.delay = confirms / 2 }
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
			after: confirms / 2},
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
				func(t *testing.T, _ []*node, l *listener) {
					assert.Equal(t, tt.deaf, l.deaf())
					if tt.after > 0 {
						time.Sleep(tt.after - 1)
						assert.False(t, isReady(l))
						time.Sleep(time.Nanosecond)
						synctest.Wait()
					}
					assert.Equal(t, !tt.never, isReady(l))
				})
		})
	}
}

// A node that could not be subscribed to is tried once per interval, and counts as soon as it
// can. One that is lost does not count.
func TestAFailedSubscriptionIsTriedAgain(t *testing.T) {
	listening(t, 3, 0, func(n []*node) { n[0].down(errDown); n[2].down(errDown) },
		func(t *testing.T, nodes []*node, l *listener) {
			ready := l.readiness()
			time.Sleep(10*retry + retry/2)
			synctest.Wait()
			assert.Equal(t, 11, nodes[0].down(nil))
			assert.Equal(t, 1, nodes[1].down(nil))
			time.Sleep(retry)
			synctest.Wait()
			<-ready
			assert.True(t, isReady(l))
			nodes[1].lose()
			assert.False(t, isReady(l))
			time.Sleep(retry)
			synctest.Wait()
			assert.True(t, isReady(l))
		})
}

// A process listens a moment longer than it needs to, and not twice.
func TestAListenerLingers(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		l.use(0)
		l.done()
		time.Sleep(2 * linger)
		assert.Equal(t, 1, nodes[0].subscriptions(), "somebody uses it")
		for range 10 {
			l.done()
			time.Sleep(linger / 2)
			l.use(0)
		}
		assert.Equal(t, 1, nodes[0].down(nil))
		l.done()
		time.Sleep(linger)
		synctest.Wait()
		assert.Zero(t, nodes[0].subscriptions())
		assert.False(t, isReady(l))
		l.use(0)
		synctest.Wait()
		assert.Equal(t, 1, nodes[0].subscriptions())
		assert.Equal(t, 2, nodes[0].down(nil))
		assert.True(t, isReady(l))
	})
}

// A listener that need not hear at once subscribes to each node at a random moment.
func TestAListenerMaySubscribeLater(t *testing.T) {
	listening(t, 3, 0, nil, func(t *testing.T, nodes []*node, l *listener) {
		l.done()
		time.Sleep(2 * linger)
		l.use(time.Minute)
		l.use(0)
		time.Sleep(half(time.Minute) - 1)
		synctest.Wait()
		assert.Equal(t, 1, nodes[0].down(nil), "once, before")
		assert.False(t, isReady(l) || l.deaf())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.True(t, isReady(l))
		l.done()
		l.done()
		time.Sleep(2 * linger)
		l.use(time.Minute) // and the end cuts it short
	})
}

// The end ends what is subscribing, waiting to try again, and listening; the bubble sees to the
// rest. What is used after that hears nothing.
func TestEndAtAnyTime(t *testing.T) {
	for _, at := range []time.Duration{0, 1, confirms / 2, confirms, retry / 2, 3 * retry} {
		synctest.Test(t, func(t *testing.T) {
			nodes := []*node{{delay: time.Hour}, {fail: errDown}, {messages: make(chan string)}}
			l, end := listenTo(t, []pool.Pool{nodes[0], nodes[1], nodes[2]})
			l.use(0)
			time.Sleep(at)
			l.done()
			end()
			l.use(0)
			synctest.Wait()
			assert.False(t, isReady(l))
			assert.Zero(t, nodes[2].subscriptions())
			l.done()
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
				l, end := listenTo(t, []pool.Pool{good[0], odd, good[1]})
				l.use(0)
				synctest.Wait()
				assert.True(t, isReady(l))
				time.Sleep(10*retry + retry/2)
				c := l.expect("")
				say(good, c.number, 0, 1)
				assert.Equal(t, 2, c.count(kept))
				c.end()
				end()
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
			l, end := listenTo(t, []pool.Pool{d})
			for range listeners {
				l.use(0)
				l.done()
				time.Sleep(linger)
				synctest.Wait()
			}
			assert.EqualValues(t, min(listeners, maxCalls), d.calls.Load())
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			assert.Equal(t, min(listeners, maxCalls), l.Tracker.Wait(ended))
			close(d.release)
			require.Zero(t, l.Tracker.Wait(t.Context()))

			// They have returned: it is asked again.
			before := d.calls.Load()
			l.use(0)
			synctest.Wait()
			assert.Greater(t, d.calls.Load(), before)
			end()
		})
	}
}
