package pooltest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// subscriber is the adapter node with all that is optional and does not start commands.
type subscriber struct {
	*node
	hub pubsub.Hub
}

func newSubscriber(n *node) *subscriber {
	s := &subscriber{node: n}
	s.hub.Dial = func(_ context.Context, channel string) (pubsub.Conn, error) {
		conn, err := redistest.Dial(n.addr)
		if err != nil {
			return nil, err
		}
		return line{conn}, line{conn}.Send("SUBSCRIBE", channel)
	}
	return s
}

func (s *subscriber) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	return s.hub.Subscribe(ctx, channel)
}

// line is a connection for Pub/Sub.
type line struct{ *redistest.Conn }

func (l line) Send(command, channel string) error {
	if channel == "" {
		return l.Conn.Send(command)
	}
	return l.Conn.Send(command, channel)
}

func (l line) Receive(time.Duration) (pubsub.Event, error) { // the Conn has a timeout of its own
	reply, err := l.Conn.Receive()
	if refused := redistest.Error(""); errors.As(err, &refused) {
		return pubsub.Event{Kind: pubsub.Refused, Err: err}, nil
	}
	return pubsub.Parse(reply), err
}

func (s *subscriber) Do(ctx context.Context, args ...any) (any, error) {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = fmt.Sprint(arg)
	}
	if len(words) == 0 {
		return nil, errors.New("no command")
	}
	return s.do(ctx, words...)
}
