package redigo

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/internal/hub"
)

// Subscribe implements [pool.Subscriber]. Its connection is opened by the
// pool's DialContext or Dial but is none of the pool's: it does not count for
// MaxActive, and closing the pool does not close it.
func (p *Pool) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	if p.pool == nil {
		return nil, errNilPool
	}
	return p.hub.Subscribe(ctx, channel)
}

var errNoDial = errors.New("redigo: the pool has neither DialContext nor Dial")

// dial opens the connection for the subscriptions.
func (p *Pool) dial(ctx context.Context) (hub.Conn, error) {
	var conn redis.Conn
	var err error
	switch {
	case p.pool.DialContext != nil:
		conn, err = p.pool.DialContext(ctx)
	case p.pool.Dial != nil:
		conn, err = p.pool.Dial()
	default:
		err = errNoDial
	}
	if err != nil {
		return nil, err
	}
	return &pubSub{redis.PubSubConn{Conn: conn}}, nil
}

// pubSub may be closed while it is read and written: redigo's own context support does
// the same.
type pubSub struct{ redis.PubSubConn }

func (c *pubSub) Send(command, channel string) error {
	switch command {
	case "SUBSCRIBE":
		return c.Subscribe(channel)
	case "UNSUBSCRIBE":
		return c.Unsubscribe(channel)
	default:
		return c.Ping("")
	}
}

func (c *pubSub) Receive(timeout time.Duration) (hub.Event, error) {
	switch r := c.ReceiveWithTimeout(timeout).(type) {
	case error:
		return hub.Event{}, r
	case redis.Message:
		return hub.Event{Kind: hub.Message, Channel: r.Channel, Payload: string(r.Data)}, nil
	case redis.Subscription:
		if r.Kind == "subscribe" {
			return hub.Event{Kind: hub.Subscribed, Channel: r.Channel}, nil
		}
	}
	return hub.Event{}, nil
}
