package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Pool is the part of an adapter that makes it a pool.Subscriber.
type Pool struct {
	addr string
	hub  pubsub.Hub
}

var _ pool.Subscriber = (*Pool)(nil)

func NewPool(addr string) *Pool {
	p := &Pool{addr: addr}
	p.hub.Dial = p.dial
	return p
}

func (p *Pool) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	return p.hub.Subscribe(ctx, channel)
}

func (p *Pool) dial(ctx context.Context, channel string) (pubsub.Conn, error) {
	c, err := redis.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	return conn{c}, conn{c}.Send("SUBSCRIBE", channel)
}

// conn is a connection of the client, as a Hub wants it.
type conn struct{ redis.Conn }

func (c conn) Send(command, channel string) error {
	var args []any
	if channel != "" {
		args = []any{channel}
	}
	if err := c.Conn.Send(command, args...); err != nil {
		return err
	}
	return c.Flush()
}

func (c conn) Receive(timeout time.Duration) (pubsub.Event, error) {
	reply, err := redis.ReceiveWithTimeout(c.Conn, timeout)
	var refused redis.Error
	if errors.As(err, &refused) {
		return pubsub.Event{Kind: pubsub.Refused, Err: err}, nil
	}
	return pubsub.Parse(reply), err
}

func ExampleHub() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	sub, err := NewPool(server.Addr()).Subscribe(context.Background(), "invoice:42:released")
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	server.Publish("invoice:42:released", "by its holder")
	fmt.Println(<-sub.Messages())
	// Output: by its holder
}
