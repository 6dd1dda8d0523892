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
//	node := redlockrueidis.NewPool(client)
//
// TLS and authentication are the client's. Each command is sent at most once.
//
// Concurrent callers share round trips: see [batch.Batcher]. Up to three commands are sent at once,
// or three batches in a group of one node. Those that arrive while so many are under way go
// together. All go on one connection, in order, unless the client is one for a cluster. Callers who
// send their own commands have others: see Contexts.
//
// Releases that go together are one EVALSHA with the keys of their locks: hooks, traces and MONITOR
// see one command for several locks. A Pool of a client for a cluster sends each release by itself.
// So does one whose server has refused keys of several slots: see OneServer of [batch.Batcher].
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
//     also bounds those of the user's commands that block. Locks need three of them, and wait for
//     one that is free.
//   - ConnLifetime: with it, rueidis sends commands again that had no reply when the time of a
//     connection was over. A lock stays exclusive, but may be refused because of itself, or look
//     lost at its release: see [pool.Pool].
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
// command fails with an error that matches [pool.ErrNotSent], so that redlock has nothing to take
// back. A command that rueidis has taken cannot be called back: the node may execute it later.
//
// The callers of a group of one node send their own commands, unless the contexts of their Locks
// may end: see [Pool.Carry]. Each of up to three has a connection to itself then, one of those for
// commands that block. The functions of the user's by which rueidis connects run on the caller's
// goroutine. A DialFn, DialCtxFn or AuthCredentialsFn that ignores its context holds up the caller.
// On a node that does not answer, so do BlockingPoolCleanup and ConnLifetime, for a second for each
// connection that they close.
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
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Pool is one node. It is safe for concurrent use. It implements [pool.Pool], [pool.Starter],
// [pool.Carrier], [pool.Subscriber], [pool.Doer], [pool.Addressed] and [pool.Explainer].
type Pool struct {
	client  rueidis.Client
	cluster bool
	bare    bool // the client is one of rueidis, not a wrapper
	plain   bool // it is that for one server
	link    link
	calls   batch.Batcher[struct{}]
	numbers numbers
	hub     pubsub.Hub
}

var (
	errNilClient = errors.New("rueidis: NewPool was given a nil client")
	errNoArgs    = errors.New("rueidis: Do was given no command")
)

// NewPool returns the node behind client, which stays the caller's to close, after the last use of
// the node. It does not connect. The package comment says which options the client needs. Make one
// Pool of a client, not several: callers share round trips within a Pool. With a nil client it
// returns nil, which redlock.New refuses.
func NewPool(client rueidis.Client) *Pool {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	p := &Pool{client: client}
	p.cluster = client.Mode() == rueidis.ClientModeCluster
	p.bare, p.plain = kind(client)
	if !p.cluster { // a cluster has several servers, and may have lost only one
		p.link.ask = p.hello
	}
	p.calls.Send, p.calls.Explain = p.send, p.link.explain
	p.calls.OneServer = !p.cluster
	p.hub.Dial = p.dial
	return p
}

// SetNX implements [pool.Pool].
func (p *Pool) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	ok, err := p.run(ctx, pool.SetNX(key, value, expiry))
	return ok == true, err
}

// Eval implements [pool.Pool].
func (p *Pool) Eval(
	ctx context.Context,
	script *pool.Script,
	keys []string,
	args ...any,
) (any, error) {
	return p.run(ctx, pool.Eval(script, keys, args...))
}

func (p *Pool) run(ctx context.Context, c *pool.Command) (any, error) {
	if p == nil {
		return nil, pool.NotSent(errNilClient)
	}
	return p.calls.Do(ctx, c)
}

// Start implements [pool.Starter].
func (p *Pool) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	if p == nil {
		to.Receive(nil, pool.NotSent(errNilClient))
		return
	}
	p.calls.Start(ctx, c, to)
}

// Carry implements [pool.Carrier]. The caller sends the command itself if ctx has a deadline and
// the client is one of rueidis for one server. The command goes on one of the connections that
// rueidis keeps for commands that block. It waits for the network, and for a connection if
// BlockingPoolSize are in use. That is no longer than the context allows.
//
// On loopback a lone lock and its release took 0.8 of the time that way, and of the processor time.
func (p *Pool) Carry(ctx context.Context, c *pool.Command, to pool.Receiver) {
	if _, ends := ctx.Deadline(); ends && p != nil && p.plain {
		p.calls.Carry(ctx, c, to)
	} else {
		p.Start(ctx, c, to)
	}
}

// kind reports whether a client is bare, one of rueidis itself, and whether it is plain. A plain
// one waits for nothing but the network of one server. The one that follows redirections, or that
// for Sentinel, may wait for another server, and a wrapper for its hooks. No interface tells them
// apart.
func kind(client rueidis.Client) (bare, plain bool) {
	name := fmt.Sprintf("%T", client)
	return strings.HasPrefix(name, "*rueidis."), name == "*rueidis.singleClient"
}

// Do implements [pool.Doer]. It does not share a round trip with others. If ctx ends first, a
// goroutine waits for the client's answer.
func (p *Pool) Do(ctx context.Context, args ...any) (any, error) {
	switch {
	case p == nil:
		return nil, pool.NotSent(errNilClient)
	case len(args) == 0:
		return nil, errNoArgs
	}
	if err := p.link.reach(ctx); err != nil {
		return nil, p.link.explain(pool.NotSent(err))
	}
	if err := ctx.Err(); err != nil {
		return nil, pool.NotSent(err)
	}
	type result struct {
		reply any
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = try(func() (err error) {
			var result rueidis.RedisResult
			for range maxTries {
				result = p.client.Do(ctx, p.command(args, false))
				if !p.isUnsent(ctx, result) {
					break
				}
			}
			r.reply, err = p.reply(result)
			return err
		})
		done <- r
	}()
	select {
	case r := <-done:
		return r.reply, p.link.explain(r.err)
	case <-ctx.Done():
		return nil, p.link.explain(ctx.Err())
	}
}

// hello asks the node for a reply. Every user may send HELLO, which changes nothing without
// arguments; an error is a reply too.
func (p *Pool) hello(ctx context.Context) error {
	return p.client.Do(ctx, p.command([]any{"HELLO"}, false)).NonRedisError()
}

// Explain implements [pool.Explainer]. It returns the error of the last attempt to reach the node,
// if that failed and is less than a minute old. Errors of commands whose context ended say the
// same. It is always nil for a cluster.
func (p *Pool) Explain() error {
	if p == nil {
		return nil
	}
	return p.link.why()
}

// Addr implements [pool.Addressed]: the address that the client dials. With Sentinel it is the
// master's, as far as it is known. Those of a cluster stand in order, with commas between them.
func (p *Pool) Addr() string {
	if p == nil {
		return ""
	}
	return strings.Join(slices.Sorted(maps.Keys(p.client.Nodes())), ",")
}
