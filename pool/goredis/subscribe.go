package goredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/internal/hub"
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
	return p.hub.Subscribe(ctx, channel)
}

var errRing = fmt.Errorf("goredis: Subscribe with a redis.Ring: %w", errors.ErrUnsupported)

// dial opens the connection for the subscriptions.
func (p *Pool) dial(ctx context.Context) (hub.Conn, error) {
	conn := &pubSub{p.client.Subscribe(ctx)} // connects only when it has something to send
	if err := conn.Ping(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

type pubSub struct{ *redis.PubSub }

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

// ended is a context for ReceiveTimeout: that reads all the same, but does not
// open a lost connection again by itself, behind the hub's back. (A Dialer of the
// user's that ignores contexts opens one all the same; it is closed at once.)
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (c *pubSub) Receive(timeout time.Duration) (hub.Event, error) {
	reply, err := c.ReceiveTimeout(ended, timeout)
	if err != nil {
		return hub.Event{}, err
	}
	switch r := reply.(type) {
	case *redis.Message:
		return hub.Event{Kind: hub.Message, Channel: r.Channel, Payload: r.Payload}, nil
	case *redis.Subscription:
		if r.Kind == "subscribe" {
			return hub.Event{Kind: hub.Subscribed, Channel: r.Channel}, nil
		}
	}
	return hub.Event{}, nil
}
