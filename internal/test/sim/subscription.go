package sim

import (
	"context"
	"slices"
	"sync"

	"github.com/redlock-go/redlock/pool"
)

// room is how many messages a subscriber may have unread before it misses some.
const room = 64

// A subscription is one link's on one channel. Its fields are protected by the node's mutex,
// but for the last ones.
type subscription struct {
	link     *Link
	channel  string
	messages chan string
	closed   bool

	mu     sync.Mutex // held by those who send to messages
	missed bool       // the last of messages says that some were missed
}

// Subscribe implements pool.Subscriber.
func (l *Link) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	s := &subscription{link: l, channel: channel, messages: make(chan string, room+1)}
	if _, err := l.do(ctx, &command{code: cmdSubscribe, key: channel, channel: channel,
		sub: s}); err != nil {
		_ = s.Close() // the confirmation may be what was lost
		return nil, err
	}
	return s, nil
}

// Subscriptions returns how many subscriptions the node has.
func (n *Node) Subscriptions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.subs)
}

// Hush ends the subscriptions of the client of that name, as the death of its process does.
func (n *Node) Hush(client string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subs = slices.DeleteFunc(n.subs,
		func(s *subscription) bool { return s.link.client == client })
}

// Messages implements pool.Subscription.
func (s *subscription) Messages() <-chan string { return s.messages }

// Close implements pool.Subscription.
func (s *subscription) Close() error {
	n := s.link.node
	n.mu.Lock()
	defer n.mu.Unlock()
	s.closed = true
	n.subs = slices.DeleteFunc(n.subs, func(o *subscription) bool { return o == s })
	return nil
}

// subscribe adds s unless its client has given up. The caller holds the mutex.
func (n *Node) subscribe(s *subscription) {
	if !s.closed && !slices.Contains(n.subs, s) {
		n.subs = append(n.subs, s)
	}
}

// publish sends message to the subscribers of channel, and of "*", which stands for PSUBSCRIBE,
// and returns how many there are. The caller holds the mutex.
func (n *Node) publish(channel, message string) int {
	heard := 0
	for _, s := range n.subs {
		if s.channel == channel || s.channel == "*" {
			s.send(message)
			heard++
		}
	}
	return heard
}

// send lets one message meet its fate on the way to the subscriber.
func (s *subscription) send(message string) {
	var f Fate
	if plan := s.link.currentPlan(); plan != nil {
		f = plan(Op{Client: s.link.client, Node: s.link.node.id, Command: "message", Key: s.channel,
			Value: message})
	}
	if f.Lost || f.ReplyLost {
		return
	}
	s.link.node.after(f.Reply, &f, replied, func() { s.deliver(message) })
}

// deliver hands over a message, or that some were missed, as package pubsub does.
func (s *subscription) deliver(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread := len(s.messages)
	if s.missed && unread > 0 {
		return
	}
	if s.missed = unread == room; s.missed {
		message = ""
	}
	s.messages <- message
}
