package pubsub

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/pool"
)

const (
	// linger is how long an unused connection stays open. A process that waited for a lock often
	// waits for another one soon.
	linger = 200 * time.Millisecond
	// Attempts to open a lost connection again are minDelay apart at first, then more and more,
	// up to maxDelay. A connection that worked for maxDelay starts this over; one that breaks
	// earlier does not, or each reconnection would wake all subscribers, many times a second.
	minDelay = 10 * time.Millisecond
	maxDelay = time.Second
	// room is how many messages a subscriber may have unread before it misses some. A process hears
	// of all its locks on one channel. 2,000 waiters of a process had up to 403 unread on a machine
	// with five times as much to do as it could.
	room = 1024
)

// Hub implements [pool.Subscriber] with one connection, which it opens for the first subscription
// and closes soon after the last. It is safe for concurrent use. The zero value is ready once
// Dial is set.
type Hub struct {
	// Dial opens a connection and sends SUBSCRIBE with the channel on it, as the first command. It
	// need not wait for the reply. A Conn beside an error is closed.
	//
	// The context ends when no subscription needs the connection any more, and not before. Dial
	// should return soon after that. A Hub makes one call of Dial at a time. So a Dial that does
	// not return holds up later subscriptions until their contexts end. It ties up no more than
	// one goroutine. A panic counts as an error.
	Dial func(ctx context.Context, channel string) (Conn, error)

	mu       sync.Mutex // guards what follows, and the fields of connection and subscription
	channels map[string][]*subscription
	running  bool               // there is a goroutine in run
	cancel   context.CancelFunc // ends what that does now
	conn     *connection        // or nil
	unused   *time.Timer        // calls end; or nil
}

type subscription struct {
	hub      *Hub
	channel  string
	messages chan string
	ready    chan struct{} // closed when the subscription is confirmed, or has failed with err
	err      error

	confirmed, closed bool
	missed            bool // the last of messages says that some were missed
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
	sub := &subscription{
		hub: h, channel: name,
		messages: make(chan string, room+1), ready: make(chan struct{}),
	}
	if h.channels == nil {
		h.channels = make(map[string][]*subscription)
	}
	others := h.channels[name]
	h.channels[name] = append(others, sub)
	switch {
	case h.conn == nil: // the next connection subscribes
	case len(others) == 0 || h.conn.refused[name]:
		h.conn.subscribe(name)
	case !h.conn.awaits(name):
		sub.confirm()
	}
	if !h.running {
		h.running = true
		go h.run()
	}
	return sub
}

// run opens one connection after the other, for as long as there are subscriptions.
func (h *Hub) run() {
	for delay := minDelay; ; {
		ctx, channel := h.next()
		if ctx == nil {
			return
		}
		err := h.connect(ctx, channel)
		if h.lost(ctx, err) >= maxDelay {
			delay = minDelay
		}
		select {
		case <-time.After(delay/2 + rand.N(delay/2)):
			delay = min(2*delay, maxDelay)
		case <-ctx.Done():
		}
	}
}

// next returns one of the channels, and the context of the next connection. That ends when there is
// no subscription for a while, and is nil if there is none.
func (h *Hub) next() (ctx context.Context, channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for channel := range h.channels {
		ctx, h.cancel = context.WithCancel(context.Background())
		return ctx, channel
	}
	h.running = false
	return nil, ""
}

// connect opens a connection and works with it until it is lost or ctx ends.
func (h *Hub) connect(ctx context.Context, channel string) error {
	var conn Conn
	err := pool.Try(func() (err error) {
		conn, err = h.Dial(ctx, channel)
		return err
	})
	if conn == nil {
		return cmp.Or(err, errNoConn)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = pool.Try(conn.Close) })
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	c := h.begin(conn, channel)
	written := make(chan error, 1)
	go func() {
		defer cancel()
		written <- pool.Try(func() error { return h.write(ctx, c) })
	}()
	err = pool.Try(func() error { return h.read(c) })
	select {
	case err = <-written: // this made Receive fail
	default:
		cancel()
		<-written
	}
	return err
}

var errNoConn = errors.New("pubsub: Dial returned neither a connection nor an error")

// lost notes the end of a connection, or of the attempt to open one. It returns for how long the
// connection worked. Those who wait for a confirmation are told: the node is in trouble, and
// waiting for it is not their business. But those who have come since ctx ended wait for the next
// connection.
func (h *Hub) lost(ctx context.Context, err error) (worked time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != nil && !h.conn.confirmed.IsZero() {
		worked = time.Since(h.conn.confirmed)
	}
	h.conn = nil
	if ctx.Err() == nil {
		for name := range h.channels {
			h.fail(name, err)
		}
	}
	return worked
}

// fail tells those who wait for the confirmation of a channel that there will be none. The caller
// holds mu.
func (h *Hub) fail(name string, err error) {
	var kept []*subscription
	for _, sub := range h.channels[name] {
		if sub.confirmed {
			kept = append(kept, sub)
			continue
		}
		sub.err, sub.closed = err, true
		close(sub.ready)
	}
	h.keep(name, kept)
}

// keep sets who has a channel. If nobody has any, the connection ends after a while. The caller
// holds mu.
func (h *Hub) keep(name string, subs []*subscription) {
	if len(subs) > 0 {
		h.channels[name] = subs
		return
	}
	delete(h.channels, name)
	if len(h.channels) > 0 {
		return
	}
	if h.unused != nil {
		h.unused.Stop()
	}
	h.unused = time.AfterFunc(linger, h.end)
}

// end ends the connection, or the attempt to open one, if there is no subscription.
func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.channels) == 0 && h.cancel != nil {
		h.cancel()
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
	h := sub.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if sub.closed {
		return nil
	}
	sub.closed = true
	subs := h.channels[sub.channel]
	i := slices.Index(subs, sub)
	h.keep(sub.channel, slices.Delete(subs, i, i+1))
	if h.channels[sub.channel] == nil && h.conn != nil {
		delete(h.conn.refused, sub.channel)
		h.conn.request("UNSUBSCRIBE", sub.channel)
	}
	return nil
}
