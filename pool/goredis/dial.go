package goredis

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// go-redis tries to connect several times, and says to its log alone what is in the way: a
// command whose context ends meanwhile fails with the context's error. So a Pool remembers the
// last failure, and says it beside that error.

// stale is how old a failure can be and still be told. It is longer than a usual DialTimeout.
const stale = time.Minute

// dials is what is known of a client's attempts to connect. It is a hook of the client.
type dials struct {
	last atomic.Pointer[failure] // nil after a success
	// The client has one server, which has been reached if it replies.
	single bool
}

type failure struct {
	addr string
	at   time.Time
	err  error
}

// DialHook notes how each attempt ends.
func (d *dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			d.note(addr, err)
		} else if f := d.last.Load(); f != nil && f.addr == addr {
			d.last.CompareAndSwap(f, nil)
		}
		return conn, err
	}
}

func (d *dials) note(addr string, err error) {
	if err == context.Canceled {
		return // it would say nothing
	}
	if !d.single && errors.Is(err, context.Canceled) {
		return // nobody waits for it, and a reply would not show that the server can be reached
	}
	d.last.Store(&failure{addr, time.Now(), err})
}

// ProcessHook leaves commands as they are.
func (*dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook leaves pipelines as they are.
func (*dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// replied notes that a server has replied, if err is nil or an error reply.
func (d *dials) replied(err error) {
	if f := d.last.Load(); f != nil && d.single {
		if refused := redis.Error(nil); err == nil || errors.As(err, &refused) {
			d.last.CompareAndSwap(f, nil)
		}
	}
}

// failed returns the error of the last attempt to connect, or nil if that succeeded or was long
// ago.
func (d *dials) failed() error {
	if f := d.last.Load(); f != nil && time.Since(f.at) < stale {
		return &connectError{f.err}
	}
	return nil
}

// connectError is why the last attempt to connect failed.
type connectError struct{ err error }

func (e *connectError) Error() string { return "last attempt to connect: " + e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// watched has the dials of each client that has been watched, by weak pointers to them. A client
// is given the hook once, however many Pools are made of it, and is forgotten when it is
// collected.
var watched sync.Map

// watch returns what is known of the client's attempts to connect, from now on.
func watch(client redis.UniversalClient) *dials {
	d := &dials{}
	switch c := client.(type) {
	case *redis.Client:
		d.single = true
		d, _ = once(c, d, func() { c.AddHook(d) })
	case *redis.ClusterClient: // has no connections of its own
		d, _ = once(c, d, func() { c.OnNewNode(d.add) })
	case *redis.Ring:
		var first bool
		if d, first = once(c, d, func() { c.OnNewNode(d.add) }); first {
			for _, shard := range c.GetShardClients() {
				d.add(shard)
			}
		}
	}
	return d
}

// add watches one of the clients that a Cluster or Ring client is made of.
func (d *dials) add(c *redis.Client) { once(c, d, func() { c.AddHook(d) }) }

// once calls begin for a client that it has not seen, and returns d, or what it returned before.
func once[Client any](c *Client, d *dials, begin func()) (_ *dials, first bool) {
	key := weak.Make(c)
	known, seen := watched.LoadOrStore(key, d)
	if !seen {
		runtime.AddCleanup(c, func(key weak.Pointer[Client]) { watched.Delete(key) }, key)
		begin()
	}
	return known.(*dials), !seen
}
