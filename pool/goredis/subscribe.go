package goredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Subscribe implements [pool.Subscriber]. A Ring cannot do it, because it keeps each
// channel on another server; the error is [errors.ErrUnsupported] then.
func (p *Pool) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	if p.client == nil {
		return nil, errNilClient
	}
	if _, ring := p.client.(*redis.Ring); ring {
		return nil, errRing
	}
	sub, err := p.hub.Subscribe(ctx, channel)
	return sub, p.explain(err)
}

var errRing = fmt.Errorf("goredis: Subscribe with a redis.Ring: %w", errors.ErrUnsupported)

// dial opens the connection for the subscriptions.
func (p *Pool) dial(ctx context.Context) (pubsub.Conn, error) {
	conn := &pubSub{PubSub: p.client.Subscribe(ctx)} // connects only when it has something to send
	if err := conn.Ping(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// pubSub is a connection whose first command was the PING of dial.
type pubSub struct {
	*redis.PubSub
	replied bool // to that PING; of the goroutine that receives
}

func (c *pubSub) Send(command, channel string) error {
	ctx := context.Background() // bounded by the client's WriteTimeout
	switch command {
	case "SUBSCRIBE":
		return c.Subscribe(ctx, channel)
	case "UNSUBSCRIBE":
		return c.Unsubscribe(ctx, channel)
	default:
		return c.Ping(ctx)
	}
}

// ended is a context for ReceiveTimeout. That reads nevertheless, but does not open a lost
// connection again by itself, behind the hub's back. (A Dialer that ignores contexts opens one
// even then; it is closed at once.)
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (c *pubSub) Receive(timeout time.Duration) (pubsub.Event, error) {
	event, err := c.receive(timeout)
	if err == nil && !c.replied && event.Kind != pubsub.Message {
		c.replied = true
		return pubsub.Event{}, nil // the hub did not send that PING
	}
	return event, err
}

func (c *pubSub) receive(timeout time.Duration) (pubsub.Event, error) {
	reply, err := c.ReceiveTimeout(ended, timeout)
	if err != nil {
		var refused redis.Error
		if errors.As(err, &refused) {
			return pubsub.Event{Kind: pubsub.Refused, Err: err}, nil
		}
		return pubsub.Event{}, err
	}
	switch r := reply.(type) {
	case *redis.Message:
		return pubsub.Event{Kind: pubsub.Message, Channel: r.Channel, Payload: r.Payload}, nil
	case *redis.Subscription:
		switch r.Kind {
		case "subscribe":
			return pubsub.Event{Kind: pubsub.Subscribed, Channel: r.Channel}, nil
		case "unsubscribe":
			return pubsub.Event{Kind: pubsub.Unsubscribed, Channel: r.Channel}, nil
		}
	case *redis.Pong:
		return pubsub.Event{Kind: pubsub.Pong}, nil
	}
	return pubsub.Event{}, nil
}
