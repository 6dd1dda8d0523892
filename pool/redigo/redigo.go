// Package redigo makes a redlock node of a redigo connection pool.
//
//	node := redigo.NewPoolAt("10.0.0.1:6379", &redis.Pool{
//		MaxIdle:     8,
//		IdleTimeout: time.Minute,
//		DialContext: func(ctx context.Context) (redis.Conn, error) {
//			return redis.DialContext(ctx, "tcp", "10.0.0.1:6379")
//		},
//	})
//
// TLS and authentication are the pool's. Each command is sent at most once.
//
// Concurrent callers share round trips: see [batch.Batcher]. Up to three commands are sent at once,
// each on a connection of its own. Those that arrive while so many are under way go together, on
// one connection. In a group of one node, up to six connections are in use. Where that takes
// longer than a millisecond, commands go on another one, of up to 16. Where none of those brings a
// reply, there is one more every 100 ms, up to 48.
//
// Releases that go together are one EVALSHA with the keys of their locks: MONITOR, and a connection
// of one's own type, see one command for several locks. A Pool whose server has refused keys of
// several slots sends each release by itself: see OneServer of [batch.Batcher].
//
// A connection to a server that refuses a lock because it is a replica, or loads its data, is
// closed. So behind one address, the next one may reach the new master.
//
// SetNX and Eval return as soon as their contexts end. A connection may still bring
// replies when the contexts of all that share it have ended. It is closed within 10 ms then.
//
// Locks leave one connection of a MaxActive above 1 to [Pool.Do], and so to doctor.Check. What
// would need one more waits, and goes with others. If somebody else uses the pool, too, and it has
// reached MaxActive, commands are not sent and fail. With Wait they wait for a connection. A
// subscription's connection does not count.
//
// A server with the setting timeout closes connections that idle, and a command on such a one
// fails. So NewPool gives a pool without TestOnBorrow of either kind a TestOnBorrowContext, which
// sends a PING on a connection that has idled for a second. A function of one's own may do without
// the PING, or send more of them: a node that was restarted has closed the others, too.
//
// Set DialContext rather than Dial, and TestOnBorrowContext rather than TestOnBorrow: the older
// ones know no context, and can make [Pool.Do] return late, with the context's error and nothing
// sent. A connection of one's own type has DoContext and ReceiveContext, as those of redigo do: see
// [redis.ConnWithContext].
package redigo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Pool is one node, made by [NewPool]. It is safe for concurrent use. It implements [pool.Pool],
// [pool.Starter], [pool.Carrier], [pool.Subscriber], [pool.Doer] and [pool.Addressed].
type Pool struct {
	*calls
	pool *redis.Pool
	addr string
	hub  pubsub.Hub

	mu    sync.Mutex                  // guards conns
	conns map[*batch.Call]*connection // that are in use, by the first call that each of them has

	tests  bool         // the pool's TestOnBorrowContext is that of NewPool
	used   atomic.Int64 // when a connection was last returned to the pool, see clock.Ticks
	taking sync.Mutex   // held by a caller who takes an idle connection for its own command
}

// mayBeClosed is after what time a server may close a connection that idles. It is the shortest
// that a server can be told.
const mayBeClosed = time.Second

// calls share round trips, and make the Pool a [pool.Pool] and a [pool.Starter].
type calls = batch.Batcher

var errNoArgs = errors.New("redigo: Do was given no command")

// NewPool returns the node behind p, which stays the caller's to close, after the last use of the
// node. It does not connect, looks at MaxActive only now, and sets TestOnBorrowContext unless the
// pool has a test. So call it before the pool is used. Make one Pool of a redigo pool, not several:
// callers share round trips within a Pool. Of a nil pool it makes nil, which redlock.New refuses.
func NewPool(p *redis.Pool) *Pool {
	if p == nil {
		return nil
	}
	node := &Pool{pool: p, conns: map[*batch.Call]*connection{}}
	o := batch.Options{OneServer: true, Abandon: node.abandon}
	if p.MaxActive > 0 {
		o.MaxSends = max(p.MaxActive-1, 1)
	}
	node.calls = batch.New(node.send, o)
	if p.TestOnBorrow == nil && p.TestOnBorrowContext == nil {
		p.TestOnBorrowContext, node.tests = test, true
	}
	node.hub.Dial = node.dial
	return node
}

// test tries a connection that a server may have closed because it was idle.
func test(ctx context.Context, conn redis.Conn, idleSince time.Time) error {
	if time.Since(idleSince) < mayBeClosed {
		return nil
	}
	if only, ok := ctx.(idleOnly); ok {
		ctx = only.call
	}
	if _, err := redis.DoContext(conn, ctx, "PING"); !isRefusal(err) || pool.IsNoMaster(err) {
		return err
	}
	return nil // the user may not send PING
}

// NewPoolAt is NewPool for a node whose address, "10.0.0.1:6379", is to appear in errors and
// reports. Redigo's pool does not tell what it dials.
func NewPoolAt(addr string, p *redis.Pool) *Pool {
	node := NewPool(p)
	if node != nil {
		node.addr = addr
	}
	return node
}

// Addr implements [pool.Addressed]. It is "" for a Pool of NewPool.
func (p *Pool) Addr() string { return p.addr }

// Carry implements [pool.Carrier]. The caller sends the command itself if the pool has
// DialContext and a connection that was in use within the last second. It must have no TestOnBorrow
// of the user's, of either kind, nor Wait with a MaxActive. A DialContext that ignores its context
// holds up the caller if the connection goes in that moment. On loopback a lone lock and its
// release took 1.1 times as long as two bare commands of the client. By another goroutine it was
// 1.5 times.
func (p *Pool) Carry(ctx context.Context, c *pool.Command, to pool.Receiver) {
	if p.ready() {
		batch.StartCarried(ctx, p.calls, c, to)
	} else {
		p.Start(ctx, c, to)
	}
}

// ready reports whether GetContext returns without waiting for the network, or for others. The
// connection that was used last need not be tested then.
func (p *Pool) ready() bool {
	r, idle := p.pool, time.Duration(clock.NowTicks()-p.used.Load())
	return r.IdleCount() > 0 && r.DialContext != nil && p.tests && idle < mayBeClosed &&
		(!r.Wait || r.MaxActive <= 0)
}

// Do implements [pool.Doer]. It does not share a round trip with others.
func (p *Pool) Do(ctx context.Context, args ...any) (any, error) {
	if len(args) == 0 {
		return nil, errNoArgs
	}
	conn, err := p.pool.GetContext(ctx)
	if err != nil {
		return nil, pool.NotSent(err)
	}
	// A failed command has already closed the connection; what returning it
	// to its pool says is of no interest then.
	defer func() { _ = conn.Close() }()
	// A pool with Dial instead of DialContext, or an old-style TestOnBorrow, may have
	// kept us past the context's end. DoContext would still start to write, and close the
	// connection.
	if ctx.Err() != nil {
		return nil, pool.NotSent(ctx.Err())
	}
	reply, err := redis.DoContext(conn, ctx, fmt.Sprint(args[0]), args[1:]...)
	if pool.IsNoMaster(err) {
		_, _ = redis.ReceiveContext(conn, past) // closes it, see breakOff
	}
	return text(reply), err
}

// text turns the bulk strings of a reply, which redigo gives as []byte, into strings.
func text(reply any) any {
	switch r := reply.(type) {
	case []byte:
		return string(r)
	case []any:
		for i := range r {
			r[i] = text(r[i])
		}
	}
	return reply
}
