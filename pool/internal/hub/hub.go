// Package hub lets many subscriptions share one Pub/Sub connection to a node.
// The adapters bring the connection; everything else about [pool.Subscriber] is here.
package hub

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/pool"
)

// Conn is a connection for Pub/Sub. Receive is called by one goroutine, Send by
// another, Close by any at any time; it makes the others return.
type Conn interface {
	// Send writes a command: SUBSCRIBE or UNSUBSCRIBE with a channel, or PING.
	Send(command, channel string) error
	// Receive returns what arrives next. It fails if that takes longer than timeout.
	Receive(timeout time.Duration) (Event, error)
	Close() error
}

// Event is something that arrived on a Conn.
type Event struct {
	Kind             Kind
	Channel, Payload string
}

// Kind says what arrived.
type Kind int

// The kinds of events.
const (
	Other      Kind = iota // nothing to do for the hub
	Subscribed             // the node confirmed a SUBSCRIBE of Channel
	Message                // Payload was published on Channel
)

// Hub shares a connection that it opens for the first subscription and closes after the
// last. It is safe for concurrent use; the zero value needs its Dial.
type Hub struct {
	// Dial opens a connection. The context ends when nobody needs it any more.
	Dial func(context.Context) (Conn, error)

	mu      sync.Mutex
	session *session // nil when there is no subscription, and has been none for a while
}

const (
	// linger is how long an unused connection stays open: who waits for a lock
	// often waits for the next one soon.
	linger = 200 * time.Millisecond
	// A connection on which nothing arrives for silence is given up. So that there is
	// always something to arrive, it is pinged more often.
	pingEvery = 5 * time.Second
	silence   = 2*pingEvery + time.Second
	// Attempts to open a lost connection again are at first minDelay apart, then more.
	minDelay = 10 * time.Millisecond
	maxDelay = time.Second
	// buffer is what a subscriber may have unread before it misses messages.
	buffer = 16
)

// session is one run of subscriptions without a longer break between them. It is
// two goroutines (run and write), which end when it is cancelled. Its fields are guarded by
// Hub.mu, except those that do not change.
type session struct {
	hub    *Hub
	ctx    context.Context
	cancel context.CancelFunc
	unused *time.Timer   // ends the session if it has no subscription when it fires
	kick   chan struct{} // tells write to look into outbox; has room for one

	channels map[string][]*subscription
	// connected tells that there is a connection. awaited counts the SUBSCRIBEs of
	// each channel that the node has still to confirm on it: only the last confirmation
	// counts, for the UNSUBSCRIBE of an earlier subscription may follow the first.
	connected bool
	awaited   map[string]int
	outbox    []request
}

type request struct{ command, channel string }

type subscription struct {
	session  *session
	channel  string
	messages chan string
	// ready is closed when the subscription is confirmed or has failed with err.
	ready     chan struct{}
	confirmed bool // guarded by Hub.mu
	closed    bool // guarded by Hub.mu
	err       error
}

// Subscribe does what [pool.Subscriber] promises.
func (h *Hub) Subscribe(ctx context.Context, name string) (pool.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sub := h.add(name)
	select {
	case <-sub.ready:
		if sub.err != nil {
			return nil, sub.err
		}
		return sub, nil
	case <-ctx.Done():
		_ = sub.Close()
		return nil, ctx.Err()
	}
}

func (h *Hub) add(name string) *subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.session
	if s == nil {
		s = &session{hub: h, kick: make(chan struct{}, 1), channels: make(map[string][]*subscription)}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.unused = time.AfterFunc(linger, s.end)
		h.session = s
		go s.run()
	}
	sub := &subscription{
		session: s, channel: name,
		messages: make(chan string, buffer), ready: make(chan struct{}),
	}
	others := s.channels[name]
	s.channels[name] = append(others, sub)
	switch {
	case len(others) == 0:
		s.request("SUBSCRIBE", name)
	case s.connected && s.awaited[name] == 0:
		sub.confirm()
	}
	return sub
}

// end ends the session if it has had no subscription for a while.
func (s *session) end() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if len(s.channels) == 0 && s.hub.session == s {
		s.hub.session = nil
		s.cancel()
	}
}

// request sends a command if there is a connection; a new one begins with what is
// subscribed then. The caller holds hub.mu.
func (s *session) request(command, name string) {
	if !s.connected {
		return
	}
	if command == "SUBSCRIBE" {
		s.awaited[name]++
	}
	s.outbox = append(s.outbox, request{command, name})
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run keeps the session connected until it ends.
func (s *session) run() {
	delay := minDelay
	for {
		conn, err := s.hub.Dial(s.ctx)
		if err == nil {
			delay = minDelay
			err = s.serve(conn)
		}
		if !s.lost(err) {
			return
		}
		select {
		case <-time.After(delay/2 + rand.N(delay/2)):
			delay = min(2*delay, maxDelay)
		case <-s.ctx.Done():
		}
	}
}

// serve works with one connection until that is lost or the session ends.
func (s *session) serve(conn Conn) error {
	ctx, cancel := context.WithCancel(s.ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	written := make(chan struct{})
	defer func() {
		cancel()
		stop()
		_ = conn.Close()
		<-written
	}()
	s.connect()
	go func() {
		defer close(written)
		defer cancel()
		s.write(ctx, conn)
	}()
	for {
		event, err := conn.Receive(silence)
		if err != nil {
			return err
		}
		s.handle(event)
	}
}

// connect begins a new connection by subscribing to all channels.
func (s *session) connect() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.connected = true
	s.awaited = make(map[string]int)
	for name := range s.channels {
		s.request("SUBSCRIBE", name)
	}
}

// write sends what is asked for, until ctx ends or the connection is lost.
func (s *session) write(ctx context.Context, conn Conn) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var requests []request
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
			requests = []request{{"PING", ""}}
		case <-s.kick:
			s.hub.mu.Lock()
			requests, s.outbox = s.outbox, nil
			s.hub.mu.Unlock()
		}
		for _, r := range requests {
			if conn.Send(r.command, r.channel) != nil {
				return
			}
		}
	}
}

func (s *session) handle(event Event) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	switch event.Kind {
	case Message:
		for _, sub := range s.channels[event.Channel] {
			sub.deliver(event.Payload)
		}
	case Subscribed:
		if s.awaited[event.Channel]--; s.awaited[event.Channel] > 0 {
			return
		}
		delete(s.awaited, event.Channel)
		for _, sub := range s.channels[event.Channel] {
			if sub.confirmed {
				sub.deliver("")
			} else {
				sub.confirm()
			}
		}
	}
}

// lost notes the end of a connection, or of the attempt to open one, and reports
// whether there is still somebody to open another for. Those who wait for a confirmation
// are told: the node is in trouble, and waiting for it is not their business.
func (s *session) lost(err error) bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.connected = false
	s.outbox = nil
	for name, subs := range s.channels {
		var kept []*subscription
		for _, sub := range subs {
			if sub.confirmed {
				kept = append(kept, sub)
				continue
			}
			sub.err, sub.closed = err, true
			close(sub.ready)
		}
		if s.channels[name] = kept; kept == nil {
			delete(s.channels, name)
		}
	}
	if len(s.channels) > 0 {
		return true
	}
	if s.hub.session == s {
		s.hub.session = nil
	}
	s.cancel()
	return false
}

// confirm and deliver are called with Hub.mu held.

func (sub *subscription) confirm() {
	sub.confirmed = true
	close(sub.ready)
}

func (sub *subscription) deliver(payload string) {
	select {
	case sub.messages <- payload:
	default: // it has enough to wake up for
	}
}

func (sub *subscription) Messages() <-chan string { return sub.messages }

func (sub *subscription) Close() error {
	s := sub.session
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if sub.closed {
		return nil
	}
	sub.closed = true
	subs := s.channels[sub.channel]
	i := slices.Index(subs, sub)
	subs = slices.Delete(subs, i, i+1)
	if s.channels[sub.channel] = subs; len(subs) > 0 {
		return nil
	}
	delete(s.channels, sub.channel)
	s.request("UNSUBSCRIBE", sub.channel)
	if len(s.channels) == 0 {
		s.unused.Reset(linger)
	}
	return nil
}
