package hub

import (
	"context"
	"errors"
	"fmt"
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
	switch {
	case c.node.silent:
	case command == "PING":
		c.events <- Event{}
	case command == "SUBSCRIBE":
		c.events <- Event{Kind: Subscribed, Channel: channel}
	}
	return nil
}

func (c *conn) Receive(timeout time.Duration) (Event, error) {
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
	return nil
}

// node is what the hub dials.
type node struct {
	hub Hub

	mu     sync.Mutex
	conns  []*conn
	dials  int
	pings  int
	down   error // what dialling ends with
	hang   bool  // dialling lasts until its context ends
	silent bool  // nothing is answered
}

func (n *node) dial(ctx context.Context) (Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	if n.hang {
		n.mu.Unlock()
		<-ctx.Done()
		n.mu.Lock()
		return nil, ctx.Err()
	}
	if n.down != nil {
		return nil, n.down
	}
	c := &conn{node: n, events: make(chan Event, 100), closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	n.conns = append(n.conns, c)
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
		want(t, "commands", n.last().sent, []string{"SUBSCRIBE a", "SUBSCRIBE b", "UNSUBSCRIBE a", "UNSUBSCRIBE b"})
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
		sleep(maxDelay)
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

// A connection can be dead without anybody having said so.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		a := n.subscribe(t, "a")
		sleep(time.Minute)
		if len(n.conns) != 1 {
			t.Errorf("%d connections after a quiet minute, want the first", len(n.conns))
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
		want(t, "commands", n.last().sent[1:], []string{"SUBSCRIBE a", "UNSUBSCRIBE a", "SUBSCRIBE a"})
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
		for i := range 10 * buffer {
			n.publish("a", fmt.Sprint(i))
			want(t, "quick", unread(quick), []string{fmt.Sprint(i)})
		}
		if m := unread(slow); len(m) != buffer || m[0] != "0" {
			t.Errorf("the slow one has %d messages from %q, want the first %d", len(m), m[0], buffer)
		}
		_, _ = slow.Close(), quick.Close()
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
