package pubsub

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/pool"
)

// Hub implements [pool.Subscriber] with one connection, which it opens for the first subscription
// and closes soon after the last. It is safe for concurrent use. The zero value is ready once
// Dial or DialWith is set.
type Hub struct {
	// Dial opens a connection. It should return soon after its context ends, which happens when
	// no subscription needs the connection any more. A Hub makes one call of Dial at a time. So a
	// Dial that does not return holds up later subscriptions until their contexts end. It ties up
	// no more than one goroutine. A panic counts as an error.
	Dial func(context.Context) (Conn, error)

	// DialWith, if it is not nil, is called instead of Dial, as Dial would be. It sends SUBSCRIBE
	// with the channel as the first command, and does not wait for its reply. It is for a client
	// that connects only when it has something to send.
	DialWith func(ctx context.Context, channel string) (Conn, error)

	// Guards what follows, and the fields of session and subscription that change.
	mu      sync.Mutex
	session *session // nil when there is no subscription, and has been none for a while
	running bool     // there is a goroutine in run
}

type subscription struct {
	session  *session
	channel  string
	messages chan string
	ready    chan struct{} // closed when the subscription is confirmed, or has failed with err
	err      error

	confirmed, closed bool // guarded by Hub.mu
	missed            bool // the last of messages says that some were missed; guarded by Hub.mu
}

// Subscribe does what [pool.Subscriber] promises. It returns what Dial or the node made of the
// attempt, or ctx.Err() once ctx has ended, whatever Dial does.
func (h *Hub) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sub := h.add(channel)
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
		s = &session{hub: h, kick: make(chan struct{}, 1),
			channels: make(map[string][]*subscription)}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.unused = time.AfterFunc(linger, s.end)
		h.session = s
		if !h.running {
			h.running = true
			go h.run()
		}
	}
	sub := &subscription{
		session: s, channel: name,
		messages: make(chan string, room+1), ready: make(chan struct{}),
	}
	others := s.channels[name]
	s.channels[name], s.latest = append(others, sub), name
	switch {
	case len(others) == 0 || s.refused[name]:
		s.subscribe(name)
	case s.connected && s.awaited[name] == 0:
		sub.confirm()
	}
	return sub
}

// run keeps one session after the other connected, and returns when there is none.
func (h *Hub) run() {
	for {
		h.mu.Lock()
		s := h.session
		h.running = s != nil
		h.mu.Unlock()
		if s == nil {
			return
		}
		s.run()
	}
}

// confirm ends the wait of Subscribe. The caller holds Hub.mu.
func (sub *subscription) confirm() {
	sub.confirmed = true
	close(sub.ready)
}

// deliver hands over a message. A subscriber that has too many to read misses it, and reads that it
// has missed some after those. The caller holds Hub.mu, as everybody who sends to messages does.
func (sub *subscription) deliver(payload string) {
	unread := len(sub.messages)
	if sub.missed && unread > 0 {
		return // the subscriber has not read yet that it has missed some
	}
	if sub.missed = unread == room; sub.missed {
		payload = ""
	}
	sub.messages <- payload
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
	delete(s.refused, sub.channel)
	if s.connected {
		s.request("UNSUBSCRIBE", sub.channel)
	}
	s.armUnused()
	return nil
}
