// Package valkeygo makes a redlock node of a valkey-go client.
//
//	client, err := valkey.NewClient(valkey.ClientOption{
//		InitAddress:       []string{"10.0.0.1:6379"},
//		ForceSingleClient: true,
//		DisableCache:      true,
//	})
//	if client == nil {
//		return err
//	}
//	node := valkeygo.NewPool(client)
//
// Valkey-go is a fork of rueidis, with the same options. What the comment of package
// [github.com/redlock-go/redlock/pool/rueidis] says of those, of round trips, of a failover behind
// one address, of contexts, and of clients for a cluster or for Sentinel, holds here too.
package valkeygo

import (
	"context"
	"maps"
	"slices"

	"github.com/valkey-io/valkey-go"

	"github.com/redlock-go/redlock/pool/internal/rueidiscore"
)

// Pool is one node, made by [NewPool]. It is safe for concurrent use. It implements [pool.Pool],
// [pool.Starter], [pool.Carrier], [pool.Subscriber], [pool.Doer], [pool.Addressed] and
// [pool.Explainer].
//
// Explain returns the error of the last attempt to reach the node, if that failed and is less than
// a minute old. The errors of locks say the same. It is always nil for a cluster.
//
// Addr returns the address that the client dials. With Sentinel it is the master's, as far as it is
// known. Those of a cluster stand in order, with commas between them.
type Pool struct{ *core }

// core has the methods.
type core = rueidiscore.Pool

// NewPool returns the node behind client, which stays the caller's to close, after the last use of
// the node. It does not connect. The package comment says which options the client needs. Make one
// Pool of a client, not several: callers share round trips within a Pool. With a nil client it
// returns nil, which redlock.New refuses.
func NewPool(client valkey.Client) *Pool {
	p := rueidiscore.NewPool(adapted{conn{client}, client}, client)
	if p == nil {
		return nil
	}
	return &Pool{p}
}

// adapted is a client as rueidiscore takes it.
type adapted struct {
	conn
	client valkey.Client
}

func (a adapted) IsCluster() bool { return a.client.Mode() == valkey.ClientModeCluster }

func (a adapted) Addrs() []string { return slices.Collect(maps.Keys(a.client.Nodes())) }

func (a adapted) Dedicate() rueidiscore.Dedicated {
	client, _ := a.client.Dedicate()
	return dedicated{conn{client}, client}
}

// conn is a client or one connection of it.
type conn struct{ commands valkey.CommandClient }

func (c conn) Do(ctx context.Context, command rueidiscore.Command) rueidiscore.Reply {
	return reply(c.commands.Do(ctx, c.build(command)))
}

func (c conn) DoMulti(ctx context.Context, list []rueidiscore.Command) []rueidiscore.Reply {
	commands := make(valkey.Commands, len(list))
	for i, command := range list {
		commands[i] = c.build(command)
	}
	replies := make([]rueidiscore.Reply, 0, len(list)) // a wrapper may return fewer
	for _, r := range c.commands.DoMulti(ctx, commands...) {
		replies = append(replies, reply(r))
	}
	return replies
}

func (c conn) build(command rueidiscore.Command) valkey.Completed {
	b := c.commands.B().Arbitrary()
	for _, arg := range command.Args {
		b = b.Args(rueidiscore.Text(arg))
	}
	switch {
	case command.Own:
		return b.Blocking()
	case command.Routed:
		return b.Build().SetSlot(command.Key)
	}
	return b.Build()
}

// dedicated is a connection for Pub/Sub.
type dedicated struct {
	conn
	client valkey.DedicatedClient
}

func (d dedicated) Change(ctx context.Context, command, channel string) rueidiscore.Reply {
	c := d.client.B().Unsubscribe().Channel(channel).Build()
	if command == "SUBSCRIBE" {
		c = d.client.B().Subscribe().Channel(channel).Build()
	}
	r := d.client.Do(ctx, c) // nothing that ToAny takes
	return rueidiscore.Reply{Err: r.Error(), Lost: r.NonValkeyError()}
}

func (d dedicated) Listen(
	message func(channel, payload string),
	confirm func(kind, channel string),
) <-chan error {
	return d.client.SetPubSubHooks(valkey.PubSubHooks{
		OnMessage:      func(m valkey.PubSubMessage) { message(m.Channel, m.Message) },
		OnSubscription: func(s valkey.PubSubSubscription) { confirm(s.Kind, s.Channel) },
	})
}

func (d dedicated) Close() { d.client.Close() }

func reply(r valkey.ValkeyResult) rueidiscore.Reply {
	if err := r.NonValkeyError(); err != nil {
		return rueidiscore.Reply{Lost: err}
	}
	value, err := r.ToAny()
	if valkey.IsValkeyNil(err) {
		return rueidiscore.Reply{}
	}
	return rueidiscore.Reply{Value: value, Err: err}
}
