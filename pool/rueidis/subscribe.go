package rueidis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Subscribe implements [pool.Subscriber]. Its connection is a dedicated one of the client's.
func (p *Pool) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	if p == nil {
		return nil, errNilClient
	}
	sub, err := p.hub.Subscribe(ctx, channel)
	return sub, p.link.explain(err)
}

// dial opens the connection for the subscriptions. Rueidis connects without a look at ctx, within
// the Dialer's Timeout.
func (p *Pool) dial(ctx context.Context) (pubsub.Conn, error) {
	client, _ := p.client.Dedicate()
	err := client.Do(ctx, client.B().Ping().Build()).NonRedisError()
	if err != nil {
		client.Close()
		return nil, err
	}
	c := &pubSub{
		client: client,
		events: make(chan pubsub.Event),
		kick:   make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.lost = client.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      c.message,
		OnSubscription: c.subscription,
	})
	go c.write()
	return c, nil
}

// pubSub is a dedicated connection. Rueidis calls the hooks in the order in which the node has
// sent messages and confirmations.
type pubSub struct {
	client rueidis.DedicatedClient
	lost   <-chan error      // has the error of a connection that is lost
	events chan pubsub.Event // for Receive
	ctx    context.Context   // ends with Close
	cancel context.CancelFunc
	kick   chan struct{} // tells write to look into outbox; has room for one

	mu     sync.Mutex // guards what follows
	outbox []request  // not yet written, in order
}

type request struct{ command, channel string }

// Close makes write end, which closes the connection.
func (c *pubSub) Close() error {
	c.cancel()
	return nil
}

func (c *pubSub) Send(command, channel string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outbox = append(c.outbox, request{command, channel})
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

var errLost = errors.New("rueidis: the connection for Pub/Sub is lost")

// tell hands an event to Receive.
func (c *pubSub) tell(event pubsub.Event) {
	select {
	case c.events <- event:
	case <-c.ctx.Done():
	}
}

func (c *pubSub) message(m rueidis.PubSubMessage) {
	c.tell(pubsub.Event{Kind: pubsub.Message, Channel: m.Channel, Payload: m.Message})
}

func (c *pubSub) subscription(s rueidis.PubSubSubscription) {
	switch s.Kind {
	case "subscribe":
		c.tell(pubsub.Event{Kind: pubsub.Subscribed, Channel: s.Channel})
	case "unsubscribe":
		c.tell(pubsub.Event{Kind: pubsub.Unsubscribed, Channel: s.Channel})
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

// exchange sends some requests and waits for the replies. With RESP2, rueidis sends a PING on
// another connection than the rest, so it goes alone.
func (c *pubSub) exchange(requests []request) error {
	pings := 0
	var channels []string
	var commands rueidis.Commands
	for _, r := range requests {
		channel := r.channel
		switch r.command {
		case "SUBSCRIBE":
			commands = append(commands, c.client.B().Subscribe().Channel(channel).Build())
		case "UNSUBSCRIBE":
			commands = append(commands, c.client.B().Unsubscribe().Channel(channel).Build())
			channel = ""
		default:
			pings++
			continue
		}
		channels = append(channels, channel)
	}
	for i, r := range c.client.DoMulti(c.ctx, commands...) {
		if err := r.NonRedisError(); err != nil {
			return err
		}
		if err := r.Error(); err != nil && channels[i] != "" {
			c.tell(pubsub.Event{Kind: pubsub.Refused, Channel: channels[i], Err: err})
		}
	}
	for range pings {
		if err := c.client.Do(c.ctx, c.client.B().Ping().Build()).NonRedisError(); err != nil {
			return err
		}
		c.tell(pubsub.Event{Kind: pubsub.Pong}) // also if the user may not send PING
	}
	return nil
}
