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
	if _, ring := p.client.(*redis.Ring); ring {
		return nil, errRing
	}
	return p.hub.Subscribe(ctx, channel)
}

var errRing = fmt.Errorf("goredis: Subscribe with a redis.Ring: %w", errors.ErrUnsupported)

// dial opens the connection for the subscriptions, with that to a channel: the client connects only
// when it has something to send.
func (p *Pool) dial(ctx context.Context, channel string) (pubsub.Conn, error) {
	conn := pubSub{p.client.Subscribe(ctx)}
	return conn, conn.Subscribe(ctx, channel)
}

type pubSub struct{ *redis.PubSub }

func (c pubSub) Send(command, channel string) error {
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

func (c pubSub) Receive(timeout time.Duration) (pubsub.Event, error) {
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
