// Package rueidis makes a redlock node of a rueidis client.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{
//		InitAddress:       []string{"10.0.0.1:6379"},
//		ForceSingleClient: true,
//		DisableCache:      true,
//	})
//	if client == nil {
//		return err
//	}
//	node := redlockrueidis.NewPool(client) // import redlockrueidis ".../pool/rueidis"
//
// TLS and authentication are the client's. Each command is sent at most once.
//
// Concurrent callers share round trips: see package [github.com/redlock-go/redlock/pool/batch]. Up
// to three commands are sent at once, or six batches in a group of one node. Those that arrive
// while so many are under way go together. All go on one connection, in order, unless the client is
// one for a cluster. Callers who send their own commands have others: see Contexts.
//
// Releases that go together are one EVALSHA with the keys of their locks: hooks, traces and MONITOR
// see one command for several locks. A Pool of a client for a cluster sends each release by itself.
// So does one whose server has refused keys of several slots: see OneServer of batch.Batcher.
//
// # Options
//
// Two options are needed for locks, one bounds them, and one must be left alone:
//
//   - ForceSingleClient: without it, NewClient fails while the server is down, and the program
//     cannot start with a minority of its nodes down. With it, NewClient returns a client beside
//     the error, which connects later.
//   - DisableCache: without it, each connection begins with CLIENT TRACKING, for which many users
//     have no right, and which RESP2 and some servers do not have. Locks do not use the cache.
//   - BlockingPoolSize bounds the connections that a group of one node has beside that for all. It
//     also bounds those of the user's commands that block. Locks need six of them, and one for a
//     subscription, and wait for one that is free.
//   - ConnLifetime: with it, rueidis sends commands again that had no reply when the time of a
//     connection was over. A lock stays exclusive, but may be refused because of itself, or look
//     lost at its release: see pool.Pool.
//
// Other options work, and the defaults do. Rueidis sends a command that writes once, whatever
// DisableRetry says. With AlwaysPipelining a lost connection is noticed at once. Without it, an
// idle connection is looked at once a second, and the first commands after a restart of the server
// may fail. With DisableAutoPipelining commands may be on several connections.
//
// # Failover behind one address
//
// A connection to a server that refuses a lock because it is a replica, or loads its data, is
// ended by QUIT. So the next one may reach the new master. A client for a cluster follows the
// cluster instead.
//
// # Contexts
//
// Callers return when their contexts end, whatever the client does. If a node does not answer, the
// Pool makes one attempt at a time to reach it, and sends no other command meanwhile. Such a
// command fails with an error that matches pool.ErrNotSent, so that redlock has nothing to take
// back. A command that rueidis has taken cannot be called back: the node may execute it later.
//
// The callers of a group of one node send their own commands, unless the contexts of their Locks
// may end. Each of up to six has a connection to itself then, one of those for commands that
// block. It waits for the network, and for a connection if BlockingPoolSize are in use, but no
// longer than its context allows. Behind a wrapper around the client, or one for a cluster or for
// Sentinel, a goroutine of the Pool sends instead. The functions of the user's by which rueidis
// connects run on the caller's goroutine. A DialFn, DialCtxFn or AuthCredentialsFn that ignores its
// context holds up the caller. On a node that does not answer, so do BlockingPoolCleanup and
// ConnLifetime, for a second for each connection that they close.
//
// # Which clients
//
// A node should be one master that shares its fate with no other node. The clients for a cluster
// or for Sentinel work as one node each, and count as one:
//
//   - A client for Sentinel follows failovers. Replication is asynchronous, so the new master may
//     not know a lock that the old one granted: a failover is like a restart without data.
//   - A client for a cluster keeps each lock on the one master that its name hashes to; the
//     cluster's size makes it no safer. Five nodes that are the same cluster are one node, asked
//     five times.
//
// SendToReplicas must not choose a replica for what locks send.
package rueidis

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/rueidis"

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
func NewPool(client rueidis.Client) *Pool {
	p := rueidiscore.NewPool(adapted{conn{client}, client}, client)
	if p == nil {
		return nil
	}
	return &Pool{p}
}

// adapted is a client as rueidiscore takes it.
type adapted struct {
	conn
	client rueidis.Client
}

func (a adapted) IsCluster() bool { return a.client.Mode() == rueidis.ClientModeCluster }

func (a adapted) Addrs() []string { return slices.Collect(maps.Keys(a.client.Nodes())) }

func (a adapted) Dedicate() rueidiscore.Dedicated {
	client, _ := a.client.Dedicate()
	return dedicated{conn{client}, client}
}

// conn is a client or one connection of it.
type conn struct{ commands rueidis.CommandClient }

func (c conn) Do(ctx context.Context, command rueidiscore.Command) rueidiscore.Reply {
	return reply(c.commands.Do(ctx, c.build(command)))
}

func (c conn) DoMulti(ctx context.Context, list []rueidiscore.Command) []rueidiscore.Reply {
	commands := make(rueidis.Commands, len(list))
	for i, command := range list {
		commands[i] = c.build(command)
	}
	replies := make([]rueidiscore.Reply, 0, len(list)) // a wrapper may return fewer
	for _, r := range c.commands.DoMulti(ctx, commands...) {
		replies = append(replies, reply(r))
	}
	return replies
}

func (c conn) build(command rueidiscore.Command) rueidis.Completed {
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
	client rueidis.DedicatedClient
}

func (d dedicated) Change(ctx context.Context, command, channel string) rueidiscore.Reply {
	c := d.client.B().Unsubscribe().Channel(channel).Build()
	if command == "SUBSCRIBE" {
		c = d.client.B().Subscribe().Channel(channel).Build()
	}
	r := d.client.Do(ctx, c) // nothing that ToAny takes
	return rueidiscore.Reply{Err: r.Error(), Lost: r.NonRedisError()}
}

func (d dedicated) Listen(
	message func(channel, payload string),
	confirm func(kind, channel string),
) <-chan error {
	return d.client.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(m rueidis.PubSubMessage) { message(m.Channel, m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) { confirm(s.Kind, s.Channel) },
	})
}

func (d dedicated) Close() { d.client.Close() }

func reply(r rueidis.RedisResult) rueidiscore.Reply {
	if err := r.NonRedisError(); err != nil {
		return rueidiscore.Reply{Lost: err}
	}
	value, err := r.ToAny()
	if rueidis.IsRedisNil(err) {
		return rueidiscore.Reply{}
	}
	return rueidiscore.Reply{Value: value, Err: err}
}
