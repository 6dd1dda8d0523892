// Package goredis makes a redlock node of a go-redis client.
//
//	client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", DialerRetries: 1})
//	node := goredis.NewPool(client)
//
// TLS, authentication, hooks and tracing are the client's. The adapter sends each command at most
// once, whatever MaxRetries says: a SET NX that go-redis sends again after a lost reply is
// refused because of itself.
//
// Concurrent callers share round trips: see [batch.Batcher]. Up to three commands are sent at once,
// each by itself. Those that arrive while so many are under way go together as the next pipeline.
// In a group of one node, up to six pipelines are under way. Where that takes longer than a
// millisecond, commands go on one of up to 16 connections. Where none of those brings a reply,
// there is one more every 100 ms, up to 48. Hooks see pipelines then.
//
// Releases that go together are one EVALSHA with the keys of their locks: hooks, traces and MONITOR
// see one command for several locks. A Pool of a Cluster or Ring client sends each release by
// itself. So does one whose server has refused keys of several slots: see OneServer of
// [batch.Batcher].
//
// # Options
//
// Every option of go-redis works, and the defaults do. DialerRetries: 1 is better for locks. By
// default go-redis tries five times to connect, 100 ms apart, which is longer than redlock's
// default node timeout. With 1, a node that refuses connections fails at once, and redlock itself
// tries again. With either, the error of a lock says why the node could not be reached: see
// [Pool.Explain].
//
// ContextTimeoutEnabled: true is faster for a program with few callers at a time on one node: see
// Contexts.
//
// By default go-redis says its name on each connection, and asks on the first one for notices of
// maintenance, which a plain Redis server does not know. Each is a round trip. These options save
// them; maintnotifications is a package of go-redis:
//
//	DisableIdentity: true,
//	MaintNotificationsConfig: &maintnotifications.Config{
//		Mode: maintnotifications.ModeDisabled,
//	},
//
// That matters where hundreds of processes begin at once. In the benchmark, 1,000 new processes
// reach 80 % of the turns a second of 64, instead of 76 % (medians of eight runs).
//
// Behind one address, another server may take the place of the master. Go-redis closes a connection
// whose server says READONLY, and so reaches the new master. It keeps one whose server says LOADING
// or MASTERDOWN. ConnMaxLifetime bounds how long.
//
// Locks leave one connection of a MaxActiveConns above 1 to a subscription, and to [Pool.Do]. What
// would need one more waits, and goes with others.
//
// # Log
//
// go-redis writes a line to its log, by default standard error, whenever it fails to connect. A
// Lock that waits for a dead node causes some twenty lines. The error of the lock says the same. A
// program that logs those errors does not need the lines:
//
//	redis.SetLogger(logger)  // one of the program's own
//	logging.Disable()        // or none, by package github.com/redis/go-redis/v9/logging
//
// Both are for all clients of the process. Redlock leaves the log as it is.
//
// # Contexts
//
// By default go-redis does not look at a context once it has sent a command. It waits for
// ReadTimeout (3 s). Callers of SetNX and Eval still return when their contexts end; a caller of
// [Pool.Do] is held up. At most 48 pipelines of one Pool wait for the client.
// With ContextTimeoutEnabled nobody waits longer than a context says, but each timeout costs a
// connection.
//
// With ContextTimeoutEnabled and one node, a caller sends its own commands, unless the context of
// its Lock may end: see [Pool.Carry]. Hooks run on the caller's goroutine then. One that blocks
// holds up the caller.
//
// # Which clients
//
// A node should be one master that shares its fate with no other node. That is a
// redis.Client. The others work as one node each, and count as one:
//
//   - A client for Sentinel, or one for a replicated server behind a name, follows
//     failovers. Replication is asynchronous, so the new master may not know a lock
//     that the old one granted: a failover is like a restart without data.
//   - A redis.ClusterClient keeps each lock on the one master that its name hashes to; the
//     cluster's size makes it no safer. Five nodes that are the same cluster are one
//     node, asked five times.
//   - A redis.Ring is like that, except that the clients decide where a lock is. Those
//     that see different shards alive look in different places: two of
//     them can be granted the same lock on that node. It cannot [Pool.Subscribe].
package goredis

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Pool is one node, made by [NewPool]. It is safe for concurrent use. It implements [pool.Pool],
// [pool.Starter], [pool.Carrier], [pool.Subscriber], [pool.Doer], [pool.Addressed] and
// [pool.Explainer].
type Pool struct {
	*calls
	client redis.UniversalClient
	dials  *dials
	strict bool // the client keeps to the deadlines of contexts, see keepsDeadlines
	hub    pubsub.Hub
}

// calls share round trips, and make the Pool a [pool.Pool] and a [pool.Starter].
type calls = batch.Batcher

var errNoArgs = errors.New("goredis: Do was given no command")

// NewPool returns the node behind client, which stays the caller's to close, after the last use
// of the node. It does not connect. It adds a hook to the client, once, that notes why the client
// could not connect; give it the client itself, because a hook on what Client.WithTimeout
// returned would see no connection. Make one Pool of a client, not several: callers share round
// trips within a Pool. With a nil client it returns nil, which redlock.New refuses.
func NewPool(client redis.UniversalClient) *Pool {
	if isNil(client) {
		return nil
	}
	p := &Pool{client: client, dials: watch(client), strict: keepsDeadlines(client)}
	var o batch.Options
	if c, ok := client.(*redis.Client); ok {
		o.OneServer = true
		if most := c.Options().MaxActiveConns; most > 0 {
			o.MaxSends = max(most-1, 1)
		}
	}
	p.calls = batch.New(p.send, o)
	p.hub.Dial = p.dial
	return p
}

// keepsDeadlines reports whether the client returns from a command by the deadline of its context,
// also if it has to connect: it dials in a goroutine of its own. What its Options let it call in
// between may take longer; so may hooks, which cannot be seen.
func keepsDeadlines(client redis.UniversalClient) bool {
	c, ok := client.(*redis.Client)
	if !ok {
		return false
	}
	o := c.Options()
	return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 &&
		o.OnConnect == nil && o.Limiter == nil && o.CredentialsProvider == nil &&
		o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil
}

// isNil reports whether client is nil, or a nil pointer.
func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Carry implements [pool.Carrier]. The caller sends the command itself if the client has
// ContextTimeoutEnabled, and timeouts for reading and writing. The client must have no Limiter, and
// no functions of the user's that prepare a connection. On loopback a lone lock and its release
// took 1.1 times as long as two bare commands of the client. By another goroutine it was 1.5 times.
func (p *Pool) Carry(ctx context.Context, c *pool.Command, to pool.Receiver) {
	if p.strict {
		batch.StartCarried(ctx, p.calls, c, to)
	} else {
		p.Start(ctx, c, to)
	}
}

// Do implements [pool.Doer]. It does not share a round trip with others: a
// command that go-redis refuses to put into a Cluster client's pipeline fails the whole
// pipeline.
func (p *Pool) Do(ctx context.Context, args ...any) (any, error) {
	switch {
	case ctx.Err() != nil:
		return nil, pool.NotSent(ctx.Err())
	case len(args) == 0:
		return nil, errNoArgs
	}
	cmd := newCommand(ctx, args)
	reply, err := cmd.reply(p.process(ctx, cmd))
	if err == nil && ctx.Err() != nil {
		// A Cluster client may have sent copies of the command, and withheld some of them.
		reply, err = nil, ctx.Err()
	}
	return reply, err
}

// Explain implements [pool.Explainer]. It returns the error of the client's last attempt to
// connect. It returns nil if a later one succeeded, the node has replied since, or a minute has
// passed. With Sentinel an attempt includes the search for the master, and takes up to DialTimeout
// to fail. The errors of locks say the same.
func (p *Pool) Explain() error { return p.dials.failed() }

// Addr implements [pool.Addressed]: the address that the client dials. Those of a Cluster or Ring
// client stand in order, with commas between them. It is "" for another type of client, and for one
// that asks Sentinel.
func (p *Pool) Addr() string {
	var addrs []string
	switch c := p.client.(type) {
	case *redis.Client:
		if addr := c.Options().Addr; addr != "FailoverClient" { // see NewFailoverClient
			return addr
		}
		return ""
	case *redis.ClusterClient:
		addrs = slices.Clone(c.Options().Addrs)
	case *redis.Ring:
		addrs = slices.Collect(maps.Values(c.Options().Addrs))
	}
	slices.Sort(addrs)
	return strings.Join(addrs, ",")
}
