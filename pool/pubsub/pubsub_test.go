package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock/pool"
)

var errLost = errors.New("connection lost")

// conn is a connection in the hands of the test.
type conn struct {
	node   *node
	sent   []string // guarded by node.mu
	events chan Event
	closed chan struct{}
	close  func()
}

func (c *conn) Send(command, channel string) error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	select {
	case <-c.closed:
		return errLost
	default:
	}
	if command == "PING" {
		c.node.pings++
	} else {
		c.sent = append(c.sent, command+" "+channel)
	}
	reply := Event{Channel: channel}
	switch command {
	case "PING":
		reply.Kind = Pong
	case "SUBSCRIBE":
		reply.Kind = Subscribed
	case "UNSUBSCRIBE":
		reply.Kind = Unsubscribed
	}
	if err := c.node.denied[command+" "+channel]; err != nil {
		reply = Event{Kind: Refused, Err: err}
	}
	switch {
	case c.node.panics == command:
		panic("a bug\nin " + command)
	case c.node.slow:
		c.node.held = append(c.node.held, reply)
	case !c.node.silent:
		c.events <- reply
	}
	return nil
}

func (c *conn) Receive(timeout time.Duration) (Event, error) {
	if c.node.does("Receive") {
		panic("a bug in Receive")
	}
	select {
	case e := <-c.events:
		return e, nil
	case <-c.closed:
		return Event{}, errLost
	case <-time.After(timeout):
		return Event{}, context.DeadlineExceeded
	}
}

func (c *conn) Close() error {
	c.close()
	if c.node.does("Close") {
		panic("a bug in Close")
	}
	return nil
}

// node is what the hub dials.
type node struct {
	hub Hub

	mu      sync.Mutex
	conns   []*conn
	dials   int
	pings   int
	down    error            // what dialling ends with
	hang    bool             // dialling lasts until its context ends
	stuck   chan struct{}    // dialling lasts until this is closed, whatever its context does
	silent  bool             // nothing is answered
	slow    bool             // replies are held back
	held    []Event          // those
	denied  map[string]error // "SUBSCRIBE a", "PING ": what is answered by an error
	nothing bool             // dialling returns nothing
	drops   bool             // a connection is lost after so long
	lasts   time.Duration
	panics  string // the method, or the command in Send, that panics
}

func (n *node) does(method string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.panics == method
}

func (n *node) dial(ctx context.Context, channel string) (Conn, error) {
	c, err := n.open(ctx)
	if c == nil {
		return nil, err
	}
	sent := false
	defer func() {
		if !sent { // it panics
			_ = c.Close()
		}
	}()
	err = c.Send("SUBSCRIBE", channel)
	sent = true
	return c, err
}

func (n *node) open(ctx context.Context) (*conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	if n.panics == "Dial" {
		panic("a bug in Dial")
	}
	if stuck := n.stuck; stuck != nil {
		n.mu.Unlock()
		<-stuck
		n.mu.Lock()
	}
	if n.hang {
		n.mu.Unlock()
		<-ctx.Done()
		n.mu.Lock()
		return nil, ctx.Err()
	}
	if n.down != nil || n.nothing {
		return nil, n.down
	}
	c := &conn{node: n, events: make(chan Event, 100), closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	n.conns = append(n.conns, c)
	if n.drops {
		time.AfterFunc(n.lasts, c.close)
	}
	return c, nil
}

// set changes what the node does.
func (n *node) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func inBubble(t *testing.T, f func(t *testing.T, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		n.hub.Dial = n.dial
		f(t, n)
		// Everything must have ended some time after the last subscription did; the
		// bubble fails if a goroutine has not.
		sleep(time.Minute)
		for _, c := range n.conns {
			select {
			case <-c.closed:
			default:
				t.Error("a connection was left open")
			}
		}
	})
}

// sleep returns when all that happens within d has happened.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (n *node) last() *conn { return n.conns[len(n.conns)-1] }

func (n *node) subscribe(t *testing.T, channel string) pool.Subscription {
	t.Helper()
	sub, err := n.hub.Subscribe(t.Context(), channel)
	if err != nil {
		t.Fatalf("Subscribe(%s): %v", channel, err)
	}
	return sub
}

// publish is what the node does with a message.
func (n *node) publish(channel, payload string) {
	n.last().events <- Event{Kind: Message, Channel: channel, Payload: payload}
	synctest.Wait()
}

// unread takes what has arrived.
func unread(sub pool.Subscription) (messages []string) {
	synctest.Wait()
	for {
		select {
		case m := <-sub.Messages():
			messages = append(messages, m)
		default:
			return messages
		}
	}
}

func want(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestSubscriptionsShareAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a1, a2, b := n.subscribe(t, "a"), n.subscribe(t, "a"), n.subscribe(t, "b")
		n.publish("a", "1")
		n.publish("b", "2")
		n.publish("c", "3")
		want(t, "a", unread(a1), []string{"1"})
		want(t, "a again", unread(a2), []string{"1"})
		want(t, "b", unread(b), []string{"2"})
		_ = a1.Close()
		_ = a1.Close()
		n.publish("a", "4")
		want(t, "a after Close", unread(a1), nil)
		want(t, "the other a", unread(a2), []string{"4"})
		_ = a2.Close()
		_ = b.Close()
		synctest.Wait()
		want(t, "commands", n.last().sent,
			[]string{"SUBSCRIBE a", "SUBSCRIBE b", "UNSUBSCRIBE a", "UNSUBSCRIBE b"})
		if len(n.conns) != 1 {
			t.Errorf("%d connections, want 1", len(n.conns))
		}
	})
}

func TestTheConnectionOutlivesAShortBreak(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		for range 5 {
			_ = n.subscribe(t, "a").Close()
			sleep(linger / 2)
		}
		if len(n.conns) != 1 {
			t.Errorf("%d connections, want 1", len(n.conns))
		}
		sleep(linger)
		select {
		case <-n.last().closed:
		default:
			t.Errorf("the connection is still open %v after its last use", linger)
		}
		_ = n.subscribe(t, "a").Close()
		if len(n.conns) != 2 {
			t.Errorf("%d connections, want a second one", len(n.conns))
		}
	})
}

func TestALostConnectionIsOpenedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a, b := n.subscribe(t, "a"), n.subscribe(t, "b")
		_ = n.last().Close()
		synctest.Wait()
		want(t, "while lost", unread(a), nil)
		sleep(minDelay)
		want(t, "a", unread(a), []string{""})
		want(t, "b", unread(b), []string{""})
		n.publish("a", "back")
		want(t, "a", unread(a), []string{"back"})
		slices.Sort(n.last().sent)
		want(t, "commands", n.last().sent, []string{"SUBSCRIBE a", "SUBSCRIBE b"})
		_, _ = a.Close(), b.Close()
	})
}

func TestANodeThatIsDownIsTriedLessAndLess(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a := n.subscribe(t, "a")
		n.set(func() { n.down = errLost })
		_ = n.last().Close()
		sleep(10 * time.Second)
		n.set(func() {
			if n.dials < 10 || n.dials > 30 {
				t.Errorf("%d attempts in 10s, want about 20", n.dials)
			}
		})
		before := time.Now()
		if _, err := n.hub.Subscribe(t.Context(), "b"); !errors.Is(err, errLost) {
			t.Errorf("Subscribe while the node is down: %v, want %v", err, errLost)
		}
		if d := time.Since(before); d > maxDelay {
			t.Errorf("it took %v, want %v at most", d, maxDelay)
		}
		n.set(func() { n.down = nil })
		sleep(2 * maxDelay) // long enough for the connection to have worked
		want(t, "a", unread(a), []string{""})
		_ = n.last().Close()
		sleep(minDelay)
		want(t, "a, after another loss", unread(a), []string{""})
		_ = a.Close()
	})
}

func TestSubscribeFailsWithTheNode(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.set(func() { n.down = errLost })
		for range 3 {
			if _, err := n.hub.Subscribe(t.Context(), "a"); !errors.Is(err, errLost) {
				t.Errorf("Subscribe: %v, want %v", err, errLost)
			}
		}
		n.set(func() {
			if n.dials != 3 {
				t.Errorf("%d attempts, want 3", n.dials)
			}
		})
	})
}

func TestSubscribeEndsWithItsContext(t *testing.T) {
	for name, fault := range map[string]func(*node){
		"dialling":   func(n *node) { n.hang = true },
		"confirming": func(n *node) { n.silent = true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *node) {
				fault(n)
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				start := time.Now()
				if _, err := n.hub.Subscribe(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Subscribe: %v, want %v", err, context.DeadlineExceeded)
				}
				if d := time.Since(start); d != 50*time.Millisecond {
					t.Errorf("it took %v, want 50ms", d)
				}
			})
		})
	}
}

// A subscription that fails just as its caller's context ends is closed once.
func TestSubscribeEndsAsItFails(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		hub := &Hub{Dial: func(context.Context, string) (Conn, error) {
			cancel()
			return nil, errLost
		}}
		if _, err := hub.Subscribe(ctx, "a"); err == nil {
			t.Error("Subscribe returned no error")
		}
	}
}

// A connection can be dead without anybody having said so.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a := n.subscribe(t, "a")
		sleep(time.Minute)
		if len(n.conns) != 1 {
			t.Errorf("%d connections after a quiet minute, want the first", len(n.conns))
		}
		if pings := int(time.Minute / pingEvery); n.pings != pings {
			t.Errorf("%d PINGs in a quiet minute, want %d", n.pings, pings)
		}
		first := n.last()
		n.set(func() { n.silent = true })
		sleep(silence)
		n.set(func() { n.silent = false })
		select {
		case <-first.closed:
		default:
			t.Errorf("the connection is still open after a silence of %v", silence)
		}
		sleep(silence)
		want(t, "a", unread(a), []string{""})
		_ = a.Close()
	})
}

// The confirmation of an earlier SUBSCRIBE, which an UNSUBSCRIBE follows, is none of a
// later subscription's.
func TestOnlyTheLastConfirmationCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		other := n.subscribe(t, "other")
		n.set(func() { n.silent = true })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = n.hub.Subscribe(ctx, "a") }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		second := make(chan pool.Subscription)
		go func() { second <- n.subscribe(t, "a") }()
		synctest.Wait()
		want(t, "commands", n.last().sent[1:],
			[]string{"SUBSCRIBE a", "UNSUBSCRIBE a", "SUBSCRIBE a"})
		n.last().events <- Event{Kind: Subscribed, Channel: "a"}
		synctest.Wait()
		select {
		case <-second:
			t.Error("Subscribe returned on the confirmation of an earlier one")
		default:
		}
		n.last().events <- Event{Kind: Subscribed, Channel: "a"}
		sub := <-second
		_, _ = sub.Close(), other.Close()
	})
}

func TestASubscriberWhoDoesNotReadHoldsUpNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		slow, quick := n.subscribe(t, "a"), n.subscribe(t, "a")
		for i := range 3 * room {
			n.publish("a", fmt.Sprint(i))
			want(t, "quick", unread(quick), []string{fmt.Sprint(i)})
		}
		if m := unread(slow); len(m) != room+1 || m[0] != "0" {
			t.Errorf("the slow one has %d messages from %q, want the first %d and one more", len(m),
				m[0], room)
		}
		_, _ = slow.Close(), quick.Close()
	})
}

// lesson L114: a subscriber that misses messages reads that it has, once, and after those that it
// has not missed. What comes when it has read that is not missed.
func TestASubscriberHearsThatItMissedMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		sub := n.subscribe(t, "a")
		for round := range 3 {
			var all []string
			for i := range room {
				all = append(all, fmt.Sprint(round, i))
				n.publish("a", all[i])
			}
			switch round {
			case 0: // nothing is missed
			case 1:
				n.publish("a", "too many")
				n.publish("a", "and another")
				all = append(all, "")
			case 2: // the only message that is missed is that there may have been some
				_ = n.last().Close()
				sleep(minDelay)
				all = append(all, "")
			}
			want(t, "messages", unread(sub), all)
		}
		_ = sub.Close()
	})
}

func TestCloseDoesNotWaitForTheNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a := n.subscribe(t, "a")
		n.set(func() { n.hang = true })
		_ = n.last().Close()
		sleep(minDelay) // the next dial hangs
		start := time.Now()
		_ = a.Close()
		if d := time.Since(start); d != 0 {
			t.Errorf("Close took %v", d)
		}
	})
}

var errDenied = errors.New("NOPERM no permission")

// lesson L60: a node that forbids one channel forbids no other.
func TestARefusedChannelIsItsOwnError(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.denied = map[string]error{"SUBSCRIBE secret": errDenied}
		a := n.subscribe(t, "a")
		for range 3 {
			start := time.Now()
			if _, err := n.hub.Subscribe(t.Context(), "secret"); !errors.Is(err, errDenied) {
				t.Errorf("Subscribe to a forbidden channel: %v, want %v", err, errDenied)
			}
			if d := time.Since(start); d != 0 {
				t.Errorf("it took %v", d)
			}
			n.publish("a", "still here")
			want(t, "a", unread(a), []string{"still here"})
		}
		b := n.subscribe(t, "b")
		n.publish("b", "hello")
		want(t, "b", unread(b), []string{"hello"})
		if n.dials != 1 {
			t.Errorf("%d connections, want the first", n.dials)
		}
		_, _ = a.Close(), b.Close()
	})
}

// An error reply names no channel. The order of the replies tells which command it answers, also
// where the node forbids other commands than SUBSCRIBE.
func TestAnErrorReplyAnswersTheOldestCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.denied = map[string]error{"PING ": errDenied, "UNSUBSCRIBE gone": errDenied,
			"SUBSCRIBE secret": errDenied}
		first := n.subscribe(t, "first")
		gone := n.subscribe(t, "gone")
		n.set(func() { n.slow = true })
		sleep(3 * pingEvery / 2) // a PING comes first
		_ = gone.Close()
		synctest.Wait()
		outcomes := map[string]chan error{}
		for _, channel := range []string{"a", "secret", "b"} {
			outcomes[channel] = make(chan error, 1)
			go func() {
				sub, err := n.hub.Subscribe(t.Context(), channel)
				if err == nil {
					defer sub.Close()
				}
				outcomes[channel] <- err
			}()
			synctest.Wait()
		}
		n.set(func() {
			want(t, "commands", n.last().sent[2:],
				[]string{"UNSUBSCRIBE gone", "SUBSCRIBE a", "SUBSCRIBE secret", "SUBSCRIBE b"})
			for _, reply := range n.held {
				n.last().events <- reply
			}
			n.slow = false
		})
		for channel, outcome := range outcomes {
			if err := <-outcome; errors.Is(err, errDenied) != (channel == "secret") {
				t.Errorf("Subscribe(%s): %v", channel, err)
			}
		}
		sleep(pingEvery)
		n.publish("first", "still here")
		want(t, "first", unread(first), []string{"still here"})
		if n.dials != 1 {
			t.Errorf("%d connections, want the first", n.dials)
		}
		_ = first.Close()
	})
}

// A node may refuse after a reconnection what it allowed before. The subscribers stay, and hear
// again when it allows it again.
func TestARefusedChannelIsAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a, b := n.subscribe(t, "a"), n.subscribe(t, "b")
		n.set(func() { n.denied = map[string]error{"SUBSCRIBE a": errDenied} })
		_ = n.last().Close()
		sleep(3 * pingEvery)
		want(t, "a, while refused", unread(a), nil)
		want(t, "b", unread(b), []string{""})
		if _, err := n.hub.Subscribe(t.Context(), "a"); !errors.Is(err, errDenied) {
			t.Errorf("another Subscribe: %v, want %v", err, errDenied)
		}
		n.set(func() { n.denied = nil })
		sleep(pingEvery)
		want(t, "a, when allowed again", unread(a), []string{""})
		n.publish("a", "back")
		want(t, "a", unread(a), []string{"back"})
		if n.dials != 2 {
			t.Errorf("%d connections, want 2", n.dials)
		}
		_, _ = a.Close(), b.Close()
	})
}

// lesson L60: a node that accepts connections and drops them is not asked a hundred times a
// second, and its subscribers are not woken as often.
func TestAFlappingConnectionIsOpenedLessAndLess(t *testing.T) {
	for name, c := range map[string]struct {
		confirms bool
		lasts    time.Duration
	}{
		"dropped at once":           {false, 0},
		"confirmed, then dropped":   {true, 0},
		"dropped soon":              {true, 20 * time.Millisecond},
		"dropped within a second":   {true, maxDelay - time.Millisecond},
		"dropped without an answer": {false, maxDelay},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *node) {
				a := n.subscribe(t, "a")
				n.set(func() {
					n.silent, n.dials, n.drops, n.lasts = !c.confirms, 0, true, c.lasts
				})
				_ = n.last().Close()
				woken := 0
				for range 1000 {
					sleep(10 * time.Millisecond)
					woken += len(unread(a))
				}
				n.set(func() {
					if n.dials < 5 || n.dials > 25 {
						t.Errorf("%d connections in 10s, want about 20 at most", n.dials)
					}
				})
				if woken > 25 {
					t.Errorf("the subscriber was woken %d times in 10s", woken)
				}
				_ = a.Close()
			})
		})
	}
}

func TestAConnectionThatWorkedIsOpenedAgainAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a := n.subscribe(t, "a")
		for range 20 {
			sleep(maxDelay)
			_ = n.last().Close()
			sleep(minDelay)
			want(t, "a", unread(a), []string{""})
		}
		_ = a.Close()
	})
}

// lesson L62: nobody but the hub can recover on its goroutines.
func TestAPanicIsTheLossOfTheConnection(t *testing.T) {
	for _, method := range []string{"Dial", "Receive", "SUBSCRIBE", "Close"} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *node) {
				n.set(func() { n.panics = method })
				sub, err := n.hub.Subscribe(t.Context(), "a")
				var panicked *pool.PanicError
				switch method {
				case "Close": // is called when nobody needs the connection any more
					if err != nil {
						t.Fatal(err)
					}
					_ = sub.Close()
					sleep(linger)
				default:
					if !errors.As(err, &panicked) ||
						err.Error() != "the client panicked: a bug in "+method ||
						len(panicked.Stack) == 0 {
						t.Errorf("Subscribe: %v, want what the panic said", err)
					}
				}
				n.set(func() { n.panics = "" })
				again := n.subscribe(t, "a")
				n.publish("a", "hello")
				want(t, "a", unread(again), []string{"hello"})
				_ = again.Close()
			})
		})
	}
}

func TestAPanicWhileTheConnectionIsInUse(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a := n.subscribe(t, "a")
		for _, method := range []string{"Receive", "Dial", "PING"} {
			sleep(maxDelay)
			n.set(func() { n.panics = method })
			if method == "Receive" {
				n.publish("a", "the last before the panic")
			} else {
				_ = n.last().Close()
			}
			sleep(2 * pingEvery)
			n.set(func() { n.panics = "" })
			sleep(2 * maxDelay)
			if m := unread(a); len(m) == 0 || m[len(m)-1] != "" {
				t.Errorf("after panics in %s the subscriber got %q, want it told that messages "+
					"may be missing", method, m)
			}
		}
		_ = a.Close()
	})
}

func TestADialThatReturnsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.nothing = true
		if _, err := n.hub.Subscribe(t.Context(), "a"); !errors.Is(err, errNoConn) {
			t.Errorf("Subscribe: %v, want %v", err, errNoConn)
		}
	})
}

// lesson L70: a Dial that ignores its context ties up one goroutine, however often somebody
// subscribes.
func TestADialThatNeverReturnsIsCalledOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.stuck = make(chan struct{})
		before := runtime.NumGoroutine()
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if _, err := n.hub.Subscribe(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Subscribe: %v, want %v", err, context.DeadlineExceeded)
			}
			cancel()
			sleep(2 * linger)
		}
		if more := runtime.NumGoroutine() - before; more > 2 {
			t.Errorf("%d goroutines more than before, want the one in Dial", more)
		}
		if n.dials != 1 {
			t.Errorf("%d calls of Dial, want the one that has not returned", n.dials)
		}
		close(n.stuck)
		n.set(func() { n.stuck = nil })
		a := n.subscribe(t, "a")
		n.publish("a", "hello")
		want(t, "a", unread(a), []string{"hello"})
		_ = a.Close()
	})
}

// pending is a Subscribe under way.
type pending struct {
	sub  pool.Subscription
	err  error
	done chan struct{}
}

// start begins a Subscribe, and returns when all goroutines wait for something.
func (n *node) start(ctx context.Context, channel string) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.sub, p.err = n.hub.Subscribe(ctx, channel)
	}()
	synctest.Wait()
	return p
}

// ended waits for the end, and closes the subscription if there is one.
func (p *pending) ended() error {
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		return errors.New("no end within a minute")
	}
	if p.sub != nil {
		_ = p.sub.Close()
	}
	return p.err
}

// The node may refuse the channel for which the connection was opened, and no other.
func TestTheFirstChannelIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.stuck, n.denied = make(chan struct{}), map[string]error{"SUBSCRIBE secret": errDenied}
		secret, open := n.start(t.Context(), "secret"), n.start(t.Context(), "open")
		close(n.stuck)
		if err := secret.ended(); !errors.Is(err, errDenied) {
			t.Errorf("Subscribe(secret): %v, want %v", err, errDenied)
		}
		if err := open.ended(); err != nil {
			t.Errorf("Subscribe(open): %v", err)
		}
	})
}

// Those who had the channel for which the connection is opened may have left when it is open, or
// before the hub comes to it.
func TestNobodyWantsTheFirstChannelAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.stuck = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, b := n.start(ctx, "a"), n.start(t.Context(), "b")
		cancel()
		<-a.done
		close(n.stuck)
		if err := b.ended(); err != nil {
			t.Errorf("Subscribe(b): %v", err)
		}
		synctest.Wait()
		want(t, "commands", n.last().sent,
			[]string{"SUBSCRIBE a", "UNSUBSCRIBE a", "SUBSCRIBE b", "UNSUBSCRIBE b"})
		sleep(2 * linger)

		n.stuck = make(chan struct{})
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		n.start(ctx, "c")
		cancel()
		sleep(2 * linger) // the hub waits for Dial, and for nobody else
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		n.start(ctx, "d")
		cancel()
		synctest.Wait()
		close(n.stuck)
		synctest.Wait()
		want(t, "commands", n.last().sent, []string{"SUBSCRIBE c"})
	})
}

// One who comes for the first channel after another has left is not confirmed before the node has
// come to its own SUBSCRIBE.
func TestTheFirstChannelIsAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.slow = true
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n.start(ctx, "a")
		cancel()
		synctest.Wait()
		again := n.start(t.Context(), "a")
		want(t, "commands", n.last().sent, []string{"SUBSCRIBE a", "UNSUBSCRIBE a", "SUBSCRIBE a"})
		for i, reply := range n.held {
			select {
			case <-again.done:
				t.Errorf("Subscribe returned after %d replies", i)
			default:
			}
			n.last().events <- reply
			synctest.Wait()
		}
		if err := again.ended(); err != nil {
			t.Errorf("Subscribe: %v", err)
		}
		n.set(func() { n.slow = false })
	})
}

// One who joins a channel that the node has not confirmed yet waits for that, too.
func TestTheSecondSubscriberWaitsForTheConfirmation(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.slow = true
		first, second := n.start(t.Context(), "a"), n.start(t.Context(), "a")
		select {
		case <-second.done:
			t.Error("Subscribe returned before the node had confirmed the channel")
		default:
		}
		n.last().events <- n.held[0]
		for _, p := range []*pending{first, second} {
			if err := p.ended(); err != nil {
				t.Errorf("Subscribe: %v", err)
			}
		}
		n.set(func() { n.slow = false })
	})
}

// That a node has refused an earlier SUBSCRIBE is not the outcome of a later one.
func TestOnlyTheLastRefusalCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.slow, n.denied = true, map[string]error{"SUBSCRIBE a": errDenied}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n.start(ctx, "a")
		cancel()
		synctest.Wait()
		n.set(func() { n.denied = nil })
		again := n.start(t.Context(), "a")
		for _, reply := range n.held {
			n.last().events <- reply
			synctest.Wait()
		}
		if err := again.ended(); err != nil {
			t.Errorf("Subscribe: %v", err)
		}
		n.set(func() { n.slow = false })
	})
}

// Replies come as arrays or, to a PING without a subscription, as a bare string. What is too short,
// or something else, is no event.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		reply any
		want  Event
	}{
		{[]any{"message", "c", "hello"},
			Event{Kind: Message, Channel: "c", Payload: "hello"}},
		{[]any{[]byte("message"), []byte("c"), []byte("hello")},
			Event{Kind: Message, Channel: "c", Payload: "hello"}},
		{[]any{"message", "c"}, Event{Kind: Message, Channel: "c"}},
		{[]any{"subscribe", "c", int64(1)}, Event{Kind: Subscribed, Channel: "c"}},
		{[]any{"unsubscribe", "c", int64(0)},
			Event{Kind: Unsubscribed, Channel: "c"}},
		{[]any{"pong", ""}, Event{Kind: Pong}},
		{"PONG", Event{Kind: Pong}},
		{[]any{}, Event{}},
		{[]any{int64(1)}, Event{}},
		{"OK", Event{}},
		{nil, Event{}},
	} {
		if got := Parse(c.reply); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.reply, got, c.want)
		}
	}
}
