package rueidiscore

import (
	"context"
	"errors"
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
func (p *Pool) dial(ctx context.Context, channel string) (pubsub.Conn, error) {
	c := &pubSub{client: p.client.Dedicate(), events: make(chan pubsub.Event, 1)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	context.AfterFunc(c.ctx, func() {
		_ = pool.Try(func() error {
			c.client.Close() // may wait a second for a node that is silent
			return nil
		})
	})
	if err := c.client.Do(ctx, ping).Lost; err != nil {
		return c, err
	}
	c.lost = c.client.Listen(c.message, c.confirm)
	return c, c.Send("SUBSCRIBE", channel)
}

var ping = Command{Args: []any{"PING"}}

// pubSub is a dedicated connection.
type pubSub struct {
	client Dedicated
	lost   <-chan error      // has the error of a connection that is lost
	events chan pubsub.Event // for Receive; has room for the first
	ctx    context.Context   // ends with Close
	cancel context.CancelFunc
}

// Close lets the client close the connection.
func (c *pubSub) Close() error {
	c.cancel()
	return nil
}

// Send waits for the reply, and tells what that alone tells. With RESP2, the client sends a PING on
// another connection than the rest.
func (c *pubSub) Send(command, channel string) error {
	if command == "PING" {
		err := c.client.Do(c.ctx, ping).Lost
		if err == nil {
			c.tell(pubsub.Event{Kind: pubsub.Pong}) // also if the user may not send PING
		}
		return err
	}
	r := c.client.Change(c.ctx, command, channel)
	if r.Lost == nil && r.Err != nil && command == "SUBSCRIBE" {
		c.tell(pubsub.Event{Kind: pubsub.Refused, Channel: channel, Err: r.Err})
	}
	return r.Lost
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
