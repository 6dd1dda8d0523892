package chaos

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// link is one client's way to one server, which can be cut in either direction without
// root: what is cut vanishes, and nobody is told.
type link struct {
	noRequests, noReplies atomic.Bool
	refused               atomic.Bool // connections: nobody listens
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for l.refused.Load() || l.noRequests.Load() || l.noReplies.Load() {
		if l.refused.Load() {
			return nil, errors.New("refused")
		}
		select { // as TCP does, which sends its SYN again
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &linkConn{c, l}, nil
}

type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) Write(p []byte) (int, error) {
	if c.link.noRequests.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *linkConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.link.noReplies.Load() {
			return n, err
		}
	}
}

// client is one owner with a way of its own to every server.
type client struct {
	*redlock.Redlock
	links   []*link
	clients []*goredislib.Client
}

// newClient gives a client with go-redis's default options, whose keys do not expire while a test
// looks at them, if it does not say otherwise. It reaches only the servers in reach, or all if
// none are given.
func newClient(t *testing.T, servers []*redistest.Server, reach ...int) *client {
	t.Helper()
	c := &client{}
	pools := make([]pool.Pool, len(servers))
	for i, s := range servers {
		l := &link{}
		c.links = append(c.links, l)
		r := goredislib.NewClient(&goredislib.Options{Addr: s.Addr(), Dialer: l.dial})
		t.Cleanup(func() { _ = r.Close() })
		c.clients = append(c.clients, r)
		pools[i] = goredis.NewPool(r)
	}
	c.Redlock = redlock.New(pools...).With(redlock.WithExpiry(time.Minute))
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, l := range c.links {
			l.refused.Store(true) // so that no dial goes on
		}
		_ = c.CloseContext(ctx) // what is cut off for good is not waited for
	})
	if len(reach) > 0 {
		c.requests(false)
		for _, i := range reach {
			c.links[i].noRequests.Store(false)
		}
	}
	return c
}

// idle waits until no command is under way: each has its reply, and the next one finds a
// connection.
func (c *client) idle(t *testing.T) {
	t.Helper()
	for _, r := range c.clients {
		eventually(t, "the client's connections to be idle", func() bool {
			stats := r.PoolStats()
			return stats.IdleConns > 0 && stats.IdleConns == stats.TotalConns
		})
	}
}

// requests opens or cuts the way to all servers.
func (c *client) requests(open bool) {
	for _, l := range c.links {
		l.noRequests.Store(!open)
	}
}

// replies opens or cuts the way back from all servers.
func (c *client) replies(open bool) {
	for _, l := range c.links {
		l.noReplies.Store(!open)
	}
}
