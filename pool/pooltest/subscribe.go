package pooltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock/pool"
)

var subscribeTests = []test{
	{"delivers what is published after it returned", func(s *suite) { // lesson L50
		for i := range 20 {
			sub := s.subscribe(s.key(strconv.Itoa(i)))
			s.publish(s.key(strconv.Itoa(i)), "hello")
			s.receive(sub, "hello")
		}
	}},

	{"delivers messages in order", func(s *suite) {
		sub := s.subscribe(s.key("c"))
		for i := range 10 {
			s.publish(s.key("c"), strconv.Itoa(i))
			s.receive(sub, strconv.Itoa(i))
		}
	}},

	{"delivers to each subscription of a channel, and only of that one", func(s *suite) {
		a1, a2, b := s.subscribe(s.key("a")), s.subscribe(s.key("a")), s.subscribe(s.key("b"))
		s.publish(s.key("a"), "for a")
		s.receive(a1, "for a")
		s.receive(a2, "for a")
		s.publish(s.key("b"), "for b")
		s.receive(b, "for b")
		s.silent(a1)
		s.silent(a2)
		s.silent(b)
	}},

	{"keeps channels and messages byte by byte", func(s *suite) {
		for _, text := range hardStrings {
			if text == "" {
				continue // means "something may have been missed"
			}
			sub := s.subscribe(s.key(text))
			s.publish(s.key(text), text)
			s.receive(sub, text)
			s.close(sub)
		}
	}},

	{"does not take a channel for a pattern", func(s *suite) {
		sub := s.subscribe(s.key("*"))
		s.publish(s.key("other"), "wrong")
		s.publish(s.key("*"), "right")
		s.receive(sub, "right")
	}},

	{"outlives the context it was made with", func(s *suite) {
		ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
		sub, err := s.subscriber().Subscribe(ctx, s.key("c"))
		s.supported(err)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = sub.Close() })
		cancel()
		for i := range 50 { // a pool may take a moment to see that the context has ended
			message := fmt.Sprint("hello", i)
			s.publish(s.key("c"), message)
			s.receive(sub, message)
		}
	}},

	{"fails when the context has ended", func(s *suite) {
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		sub, err := s.subscriber().Subscribe(ctx, s.key("c"))
		s.supported(err)
		if err == nil {
			_ = sub.Close()
		}
		if !errors.Is(err, context.Canceled) {
			s.Errorf("Subscribe: %v, want %v", err, context.Canceled)
		}
	}},

	{"ends with Close, which may be called again", func(s *suite) {
		a, b := s.subscribe(s.key("c")), s.subscribe(s.key("c"))
		s.close(a)
		s.close(a)
		s.publish(s.key("c"), "hello")
		s.receive(b, "hello")
		s.silent(a)
		s.close(b)
		again := s.subscribe(s.key("c"))
		s.publish(s.key("c"), "again")
		s.receive(again, "again")
	}},

	{"unsubscribes with the last Close", func(s *suite) {
		sub := s.subscribe(s.key("c"))
		if s.publish(s.key("c"), "hello") == 0 {
			s.receive(sub, "hello")
			s.Skip("cannot see who is subscribed: a message of this Pool goes to a server that " +
				"has no subscriber, as in a cluster")
		}
		s.close(sub)
		s.eventually("the node to have no subscriber",
			func() bool { return s.publish(s.key("c"), "anybody?") == 0 })
	}},

	{"is not held up by a subscriber who does not read", func(s *suite) {
		s.subscribe(s.key("c")) // does not read
		quick := s.subscribe(s.key("c"))
		for i := range 300 {
			s.publish(s.key("c"), strconv.Itoa(i))
			s.receive(quick, strconv.Itoa(i))
		}
	}},

	{"tells a subscriber that it missed messages", func(s *suite) { // lesson L114
		sub, other := s.subscribe(s.key("c")), s.subscribe(s.key("d"))
		const sent = 5000
		s.want("PUBLISH", s.eval(flood, nil, s.key("c"), sent), int64(sent))
		s.publish(s.key("d"), "all sent")
		s.receive(other, "all sent")
		for end, came := time.After(arrival), 0; came < sent; {
			select {
			case message := <-sub.Messages():
				if message == "" {
					return
				}
				came++
			case <-end:
				s.Fatalf("%d of %d messages arrived, and no empty one", came, sent)
			}
		}
	}},

	{"may be used by many at once", func(s *suite) {
		s.close(s.subscribe(s.key("c")))
		sub := s.subscriber()
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for range 10 {
					c := s.key(strconv.Itoa(i % 4))
					one, err := sub.Subscribe(s.ctx, c)
					if err != nil {
						s.Error(err)
						return
					}
					if _, err := s.pool.Eval(s.ctx, publish, nil, c, "hello"); err != nil {
						s.Error(err)
					}
					select {
					case got := <-one.Messages():
						if got != "hello" {
							s.Errorf("message = %q, want %q", got, "hello")
						}
					case <-time.After(arrival):
						s.Error("no message arrived")
					}
					if err := one.Close(); err != nil {
						s.Errorf("Close: %v", err)
					}
				}
			})
		}
		wg.Wait()
	}},

	{"returns the same channel each time", func(s *suite) {
		sub := s.subscribe(s.key("c"))
		if first, second := sub.Messages(), sub.Messages(); first != second {
			s.Error("Messages returned two different channels")
		}
	}},

	{"opens a lost connection again and says so", func(s *suite) {
		d := s.doer()
		subs := []pool.Subscription{s.subscribe(s.key("a")), s.subscribe(s.key("b"))}
		var before []string // a cluster may bring them again, from the server of the new connection
		for _, back := range []string{"first", "second", "third"} {
			s.killSubscribers(d)
			for i, c := range []string{"a", "b"} {
				s.receive(subs[i], "", before...)
				s.publish(s.key(c), back)
				s.receive(subs[i], back, before...)
			}
			before = append(before, back)
		}
	}},
}

// subscriber returns the Pool as a Subscriber, or skips the subtest.
func (s *suite) subscriber() pool.Subscriber {
	s.Helper()
	sub, ok := s.pool.(pool.Subscriber)
	if !ok {
		s.Skip("the Pool is no pool.Subscriber")
	}
	return sub
}

// subscribe makes a subscription that ends with the subtest.
func (s *suite) subscribe(channel string) pool.Subscription {
	s.Helper()
	sub, err := s.subscriber().Subscribe(s.ctx, channel)
	s.supported(err)
	if err != nil {
		s.Fatalf("Subscribe(%.40q): %v", channel, err)
	}
	s.Cleanup(func() { _ = sub.Close() })
	return sub
}

// publish sends a message, and returns how many connections were subscribed where it was sent. In
// a cluster that may be another server than the subscriber's, which gets it nevertheless.
func (s *suite) publish(channel, message string) int64 {
	s.Helper()
	n, ok := s.eval(publish, nil, channel, message).(int64)
	if !ok {
		s.Fatalf("PUBLISH returned %T", n)
	}
	return n
}

// killSubscribers makes the node close its Pub/Sub connections, or skips the subtest. The
// commands of a Cluster client go to one server or another, so it tries more than once.
func (s *suite) killSubscribers(d pool.Doer) {
	s.Helper()
	for range 100 {
		reply, err := d.Do(s.ctx, "CLIENT", "KILL", "TYPE", "pubsub")
		if err != nil {
			s.Skipf("the node cannot kill connections: %v", err)
		}
		if reply != int64(0) {
			return
		}
	}
	s.Skip("CLIENT KILL TYPE pubsub found no connection: the commands of this Pool go to another " +
		"server than its subscriptions")
}

// receive wants a message, and ignores some.
func (s *suite) receive(sub pool.Subscription, want string, ignored ...string) {
	s.Helper()
	for end := time.After(arrival); ; {
		select {
		case got, open := <-sub.Messages():
			switch {
			case !open:
				s.Fatal("the channel of messages was closed")
			case slices.Contains(ignored, got):
				continue
			case got != want:
				s.Errorf("message = %.40q, want %.40q", got, want)
			}
			return
		case <-end:
			s.Fatalf("message %.40q did not arrive in %v", want, arrival)
		}
	}
}

// silent checks that nothing else has arrived for sub, and nothing arrives soon.
func (s *suite) silent(sub pool.Subscription) {
	s.Helper()
	select {
	case got, open := <-sub.Messages():
		s.Errorf("an unexpected message arrived: %q (channel open: %v)", got, open)
	case <-time.After(20 * time.Millisecond):
	}
}

func (s *suite) close(sub pool.Subscription) {
	s.Helper()
	if err := sub.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
}

func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	end := time.After(arrival)
	for !ok() {
		select {
		case <-end:
			s.Fatalf("waited %v for %s", arrival, what)
		case <-time.After(time.Millisecond):
		}
	}
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }
