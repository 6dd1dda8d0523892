// Package rueidiscore is what the adapters for rueidis and its fork valkey-go have in common. They
// add what names a type of their client: see [Client].
//
// The adapters are modules of their own, and may be older than this one. So what they use here
// stays compatible, as if it were public.
package rueidiscore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Pool is one node. It is safe for concurrent use. It implements [pool.Pool], [pool.Starter],
// [pool.Carrier], [pool.Subscriber], [pool.Doer], [pool.Addressed] and [pool.Explainer].
type Pool struct {
	*calls
	client  Client
	cluster bool
	bare    bool // the client is one of rueidis or valkey-go, not a wrapper
	plain   bool // it is that for one server
	link    link
	hub     pubsub.Hub
}

// calls share round trips, and make the Pool a [pool.Pool] and a [pool.Starter].
type calls = batch.Batcher

var errNoArgs = errors.New("pool: Do was given no command")

// NewPool returns the node behind a client, which is made of the one that the user has given to
// the adapter. If that is nil, so is the Pool.
func NewPool(client Client, given any) *Pool {
	if v := reflect.ValueOf(given); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	p := &Pool{client: client, cluster: client.IsCluster()}
	p.bare, p.plain = kind(given)
	if !p.cluster { // a cluster has several servers, and may have lost only one
		p.link.ask = p.hello
	}
	p.calls = batch.New(p.send, batch.Options{OneServer: !p.cluster})
	p.hub.Dial = p.dial
	return p
}

// kind reports whether a client is bare, one of rueidis or valkey-go itself, and whether it is
// plain. A plain one waits for nothing but the network of one server. The one that follows
// redirections, or that for Sentinel, may wait for another server, and a wrapper for its hooks. No
// interface tells them apart.
func kind(given any) (bare, plain bool) {
	of, name, _ := strings.Cut(fmt.Sprintf("%T", given), ".")
	bare = of == "*rueidis" || of == "*valkey"
	return bare, bare && name == "singleClient"
}

// Carry implements [pool.Carrier]. The caller sends the command itself if ctx has a deadline and
// the client is one of the library's for one server. The command goes on one of the connections
// that the library keeps for commands that block. It waits for the network, and for a connection if
// BlockingPoolSize are in use. That is no longer than the context allows.
//
// On loopback a lone lock and its release took 0.8 of the time that way, and of the processor time.
func (p *Pool) Carry(ctx context.Context, c *pool.Command, to pool.Receiver) {
	if _, ends := ctx.Deadline(); ends && p.plain {
		batch.StartCarried(ctx, p.calls, c, to)
	} else {
		p.Start(ctx, c, to)
	}
}

// Do implements [pool.Doer]. It does not share a round trip with others. If ctx ends first, a
// goroutine waits for the client's answer.
func (p *Pool) Do(ctx context.Context, args ...any) (any, error) {
	if len(args) == 0 {
		return nil, errNoArgs
	}
	if err := p.link.reach(ctx); err != nil {
		return nil, pool.NotSent(err)
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
		r.err = pool.Try(func() (err error) {
			var reply Reply
			for range maxTries {
				reply = p.client.Do(ctx, Command{Args: args})
				if !p.isUnsent(ctx, reply) {
					break
				}
			}
			r.reply, err = p.outcome(reply)
			return err
		})
		done <- r
	}()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hello asks the node for a reply. Every user may send HELLO, which changes nothing without
// arguments; an error is a reply too.
func (p *Pool) hello(ctx context.Context) error {
	return p.client.Do(ctx, Command{Args: []any{"HELLO"}}).Lost
}

// Explain implements [pool.Explainer]. It returns the error of the last attempt to reach the node,
// if that failed and is less than a minute old. The errors of locks say the same. It is always nil
// for a cluster.
func (p *Pool) Explain() error { return p.link.why() }

// Addr implements [pool.Addressed]: the address that the client dials. With Sentinel it is the
// master's, as far as it is known. Those of a cluster stand in order, with commas between them.
func (p *Pool) Addr() string {
	addrs := p.client.Addrs()
	slices.Sort(addrs)
	return strings.Join(addrs, ",")
}
