package rueidiscore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Subscribe implements [pool.Subscriber]. Its connection is a dedicated one of the client's.
func (p *Pool) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	return p.hub.Subscribe(ctx, channel)
}

// dial opens the connection for the subscriptions. The client connects without a look at ctx,
// within the Dialer's Timeout.
func (p *Pool) dial(ctx context.Context) (pubsub.Conn, error) {
	client := p.client.Dedicate()
	if err := client.Do(ctx, ping).Lost; err != nil {
		client.Close()
		return nil, err
	}
	c := &pubSub{
		client: client,
		events: make(chan pubsub.Event),
		kick:   make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.lost = client.Listen(c.message, c.confirm)
	go c.write()
	return c, nil
}

var ping = Command{Args: []any{"PING"}}

// pubSub is a dedicated connection.
type pubSub struct {
	client Dedicated
	lost   <-chan error      // has the error of a connection that is lost
	events chan pubsub.Event // for Receive
	ctx    context.Context   // ends with Close
	cancel context.CancelFunc
	kick   chan struct{} // tells write to look into outbox; has room for one

	mu     sync.Mutex // guards what follows
	outbox []Request  // not yet written, in order
}

// Close makes write end, which closes the connection.
func (c *pubSub) Close() error {
	c.cancel()
	return nil
}

func (c *pubSub) Send(command, channel string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outbox = append(c.outbox, Request{command, channel})
	select {
	case c.kick <- struct{}{}:
	default:
	}
	return c.ctx.Err()
}

func (c *pubSub) Receive(timeout time.Duration) (pubsub.Event, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case event := <-c.events:
		return event, nil
	case err := <-c.lost:
		if err == nil {
			err = errLost
		}
		return pubsub.Event{}, err
	case <-timer.C:
		return pubsub.Event{}, context.DeadlineExceeded
	case <-c.ctx.Done():
		return pubsub.Event{}, c.ctx.Err()
	}
}

var errLost = errors.New("pool: the connection for Pub/Sub is lost")

// tell hands an event to Receive.
func (c *pubSub) tell(event pubsub.Event) {
	select {
	case c.events <- event:
	case <-c.ctx.Done():
	}
}

func (c *pubSub) message(channel, payload string) {
	c.tell(pubsub.Event{Kind: pubsub.Message, Channel: channel, Payload: payload})
}

func (c *pubSub) confirm(kind, channel string) {
	switch kind {
	case "subscribe":
		c.tell(pubsub.Event{Kind: pubsub.Subscribed, Channel: channel})
	case "unsubscribe":
		c.tell(pubsub.Event{Kind: pubsub.Unsubscribed, Channel: channel})
	}
}

// write sends the requests, and tells what their replies alone tell.
func (c *pubSub) write() {
	defer func() {
		_ = try(func() error {
			c.client.Close() // may wait a second for a node that is silent
			return nil
		})
	}()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.kick:
		}
		c.mu.Lock()
		requests := c.outbox
		c.outbox = nil
		c.mu.Unlock()
		if err := try(func() error { return c.exchange(requests) }); err != nil {
			return
		}
	}
}

// exchange sends some requests and waits for the replies. With RESP2, the client sends a PING on
// another connection than the rest, so it goes alone.
func (c *pubSub) exchange(requests []Request) error {
	all := len(requests)
	requests = slices.DeleteFunc(requests, func(r Request) bool { return r.Command == "PING" })
	for i, r := range c.client.Change(c.ctx, requests) {
		if r.Lost != nil {
			return r.Lost
		}
		if r.Err != nil && requests[i].Command == "SUBSCRIBE" {
			c.tell(pubsub.Event{Kind: pubsub.Refused, Channel: requests[i].Channel, Err: r.Err})
		}
	}
	for range all - len(requests) {
		if err := c.client.Do(c.ctx, ping).Lost; err != nil {
			return err
		}
		c.tell(pubsub.Event{Kind: pubsub.Pong}) // also if the user may not send PING
	}
	return nil
}
