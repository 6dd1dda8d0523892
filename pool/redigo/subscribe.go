package redigo

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Subscribe implements [pool.Subscriber]. Its connection is opened by the
// pool's DialContext or Dial but is none of the pool's: it does not count for
// MaxActive, and closing the pool does not close it.
func (p *Pool) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	return p.hub.Subscribe(ctx, channel)
}

var errNoDial = errors.New("redigo: the pool has neither DialContext nor Dial")

// dial opens the connection for the subscriptions.
func (p *Pool) dial(ctx context.Context, channel string) (pubsub.Conn, error) {
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
	return pubSub{conn}, pubSub{conn}.Send("SUBSCRIBE", channel)
}

// pubSub may be closed while it is read and written: redigo's own context support does the same.
type pubSub struct{ redis.Conn }

func (c pubSub) Send(command, channel string) error {
	args := []any{channel}
	if channel == "" {
		args = nil
	}
	if err := c.Conn.Send(command, args...); err != nil {
		return err
	}
	return c.Flush()
}

func (c pubSub) Receive(timeout time.Duration) (pubsub.Event, error) {
	reply, err := redis.ReceiveWithTimeout(c.Conn, timeout)
	if isRefusal(err) {
		return pubsub.Event{Kind: pubsub.Refused, Err: err}, nil
	}
	return pubsub.Parse(reply), err
}
