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
// TLS and authentication are the pool's. Each command takes a connection of the pool for
// itself and is sent at most once. A caller whose context ends returns at once, and the
// connection, which may still bring the reply, is closed.
//
// Set DialContext rather than Dial, and TestOnBorrowContext rather than
// TestOnBorrow: the older ones know no context and can make a call return late, with the context's
// error and nothing sent. Without TestOnBorrowContext, each connection that a restarted node
// has closed fails one command.
package redigo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pubsub"
)

// Pool is one node. It is safe for concurrent use. It implements [pool.Pool],
// [pool.Subscriber], [pool.Doer] and [pool.Addressed].
type Pool struct {
	pool *redis.Pool
	addr string
	hub  pubsub.Hub
}

var (
	errNilPool = errors.New("redigo: NewPool was given a nil pool")
	errNoArgs  = errors.New("redigo: Do was given no command")
)

// NewPool returns the node behind p, which stays the caller's to close, after the last use of
// the node. It does not connect. With a nil pool, every method returns an error.
func NewPool(p *redis.Pool) *Pool {
	node := &Pool{pool: p}
	node.hub.Dial = node.dial
	return node
}

// NewPoolAt is NewPool for a node whose address, "10.0.0.1:6379", is to appear in errors and reports. Redigo's pool does not
// tell what it dials.
func NewPoolAt(addr string, p *redis.Pool) *Pool {
	node := NewPool(p)
	node.addr = addr
	return node
}

// Addr implements [pool.Addressed]. It is "" for a Pool of NewPool.
func (p *Pool) Addr() string { return p.addr }

// SetNX implements [pool.Pool].
func (p *Pool) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	reply, err := p.do(ctx, "SET", key, value, "NX", "PX", expiry.Milliseconds())
	switch {
	case err != nil:
		return false, err
	case reply == nil:
		return false, nil
	case reply == "OK":
		return true, nil
	}
	return false, fmt.Errorf("redigo: SET NX was answered by %T %v, not by OK or null", reply, reply)
}

// Eval implements [pool.Pool].
func (p *Pool) Eval(ctx context.Context, script *pool.Script, keys []string, args ...any) (any, error) {
	all := make([]any, 0, 2+len(keys)+len(args))
	all = append(all, script.ID, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	all = append(all, args...)
	reply, err := p.do(ctx, "EVALSHA", all...)
	if pool.IsNoScript(err) {
		all[0] = script.Source
		reply, err = p.do(ctx, "EVAL", all...)
	}
	return reply, err
}

// Do implements [pool.Doer].
func (p *Pool) Do(ctx context.Context, args ...any) (any, error) {
	if len(args) == 0 {
		return nil, errNoArgs
	}
	return p.do(ctx, fmt.Sprint(args[0]), args[1:]...)
}

func (p *Pool) do(ctx context.Context, name string, args ...any) (reply any, err error) {
	if p.pool == nil {
		return nil, pool.NotSent(errNilPool)
	}
	conn, err := p.pool.GetContext(ctx)
	if err != nil {
		return nil, pool.NotSent(err)
	}
	// A failed command has already closed the connection; what returning it
	// to its pool says is of no interest then.
	defer func() { _ = conn.Close() }()
	// A pool with Dial instead of DialContext, or an old-style TestOnBorrow, may have
	// kept us past the context's end; DoContext would start to write all the same, and
	// close the connection.
	if ctx.Err() != nil {
		return nil, pool.NotSent(ctx.Err())
	}
	reply, err = redis.DoContext(conn, ctx, name, args...)
	if err != nil {
		return nil, err
	}
	return text(reply), nil
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
