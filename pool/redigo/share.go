package redigo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
)

// send sends the calls in one round trip, and answers them.
func (p *Pool) send(ctx context.Context, calls []*batch.Call) {
	var inner redis.Conn
	var err error
	if calls[0].Carried() {
		if inner = p.takeIdle(ctx); inner == nil {
			calls[0].HandOver()
			return
		}
	} else if inner, err = p.pool.GetContext(ctx); err != nil {
		for _, c := range calls {
			c.Answer(nil, pool.NotSent(err))
		}
		return
	}
	conn := &connection{Conn: inner}
	defer conn.giveBack()
	p.mu.Lock()
	p.conns[calls[0]] = conn
	p.mu.Unlock()
	defer p.forget(calls)
	err = conn.write(calls)
	for _, c := range calls {
		if !c.Answered() {
			err = conn.read(c, err)
		}
	}
	if err == nil {
		p.used.Store(clock.NowTicks())
	}
}

// takeIdle returns an idle connection, or nil: its caller does not dial. Callers take connections
// one at a time. Two that found the same one idle would have GetContext dial for the second.
func (p *Pool) takeIdle(ctx context.Context) redis.Conn {
	if !p.taking.TryLock() {
		return nil
	}
	defer p.taking.Unlock()
	if p.pool.IdleCount() == 0 {
		return nil
	}
	conn, err := p.pool.GetContext(idleOnly{past, ctx}) // fails if there is none any more
	if err != nil {
		return nil
	}
	return conn
}

// idleOnly is a context that is over for those who dial, and not for the test of a connection that
// has been idle for long: see test.
type idleOnly struct {
	context.Context
	call context.Context
}

// abandon closes the connection of calls for which nobody waits any more.
func (p *Pool) abandon(calls []*batch.Call) {
	if conn := p.forget(calls); conn != nil {
		go conn.breakOff() // to close TLS can take seconds
	}
}

// forget returns the connection of the calls, once.
func (p *Pool) forget(calls []*batch.Call) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn := p.conns[calls[0]]
	delete(p.conns, calls[0])
	return conn
}

// connection is one of the redigo pool's, in the hands of one batch.
type connection struct {
	redis.Conn
	owed    int  // replies that have not been received
	refused bool // the server is not the master, or not yet

	mu       sync.Mutex // guards what follows, and is held while breakOff uses Conn
	returned bool       // to the pool
}

// write sends the calls, and answers those that were not sent. The error is the connection's.
func (c *connection) write(calls []*batch.Call) (err error) {
	for _, call := range calls {
		// A pool with Dial instead of DialContext, or an old-style TestOnBorrow, may have kept us
		// past the context's end.
		if ended := call.Context().Err(); ended != nil {
			call.Answer(nil, pool.NotSent(ended))
			continue
		}
		if err != nil {
			call.Answer(nil, pool.NotSent(err))
			continue
		}
		args := call.Args()
		c.owed++
		err = c.Send(args[0].(string), args[1:]...)
	}
	if err != nil {
		return err
	}
	return c.Flush()
}

// read answers a call that was sent on a connection with the given error, and returns the
// connection's error.
func (c *connection) read(call *batch.Call, err error) error {
	var reply any
	if err == nil {
		reply, err = c.Receive()
		if err == nil || isRefusal(err) {
			c.owed--
			c.refused = c.refused || pool.IsNoMaster(err)
			call.Answer(text(reply), err)
			return nil
		}
	}
	// The connection is broken: perhaps because nobody waits any more.
	if ended := call.Context().Err(); ended != nil {
		call.Answer(nil, ended)
	} else {
		call.Answer(nil, err)
	}
	return err
}

// isRefusal reports whether an error is a server's reply. It stands by itself because what
// [errors.As] writes to is allocated, which a reply without an error need not pay for.
func isRefusal(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused)
}

// past is a deadline that has passed.
var past, _ = context.WithDeadline(context.Background(), time.Unix(0, 0))

// breakOff makes Send, Flush and Receive return with an error. It uses that redigo closes a
// connection when the deadline of a command has passed: the connections of a [redis.Pool] have no
// other method that may be called while another one is under way.
func (c *connection) breakOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.returned {
		_, _ = redis.ReceiveContext(c.Conn, past)
	}
}

// giveBack returns the connection to its pool. It closes one that may still bring replies, for
// which Close would wait, and one to a server that is not the master.
func (c *connection) giveBack() {
	if c.owed > 0 || c.refused {
		c.breakOff()
	}
	c.mu.Lock()
	c.returned = true
	c.mu.Unlock()
	_ = c.Close() // a broken connection has been closed before; what that says is of no interest
}
