// Package failover is what the tests of adapters share about an address behind which another server
// takes the place of the master.
package failover

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
)

// callers is how many commands are under way at the same time before the failover, so that there
// are several connections.
const callers = 8

// Follow proves that a pool gets to the new master, although the old one lives on as a replica and
// keeps its connections. Each of those may fail once.
func Follow(t *testing.T, newPool func(t *testing.T, addr string) pool.Pool) {
	t.Helper()
	servers := redistest.Start(t, 2)
	a := newAddress(t, servers[0].Addr())
	set := setters(newPool(t, a.listener.Addr().String()))
	var all sync.WaitGroup
	for way := range set {
		for i := range callers {
			all.Go(func() {
				if err := set[way](t.Context(), fmt.Sprint(way, i)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	a.leadsTo(servers[1].Addr())
	makeReplica(t, servers[0], servers[1])
	failed := 0
	for way := range set {
		for ; ; failed++ {
			err := set[way](t.Context(), "after "+way)
			if err == nil {
				break
			}
			if !pool.IsNoMaster(err) {
				t.Errorf("%s: a command failed by %v", way, err)
			}
			if failed > 2*callers {
				t.Fatalf("%s: %d commands have failed, the last by %v", way, failed, err)
			}
		}
		if got := servers[1].Must("GET", "after "+way); got != "v" {
			t.Errorf("%s: the new master has %v under the key, want v", way, got)
		}
	}
	t.Logf("%d commands have failed", failed)
}

// setters are the ways to set a key.
func setters(p pool.Pool) map[string]func(ctx context.Context, key string) error {
	type setter = func(ctx context.Context, key string) error
	bound := func(send func(context.Context, *pool.Command) error) setter {
		return func(ctx context.Context, key string) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			c := pool.SetNX(key, "v", time.Minute)
			c.Alone = true
			return send(ctx, c)
		}
	}
	set := map[string]setter{
		"Run": bound(func(ctx context.Context, c *pool.Command) error {
			_, err := c.Run(ctx, p)
			return err
		}),
	}
	if p, ok := p.(pool.Carrier); ok {
		set["Carry"] = bound(func(ctx context.Context, c *pool.Command) error {
			told := make(receiver, 1)
			p.Carry(ctx, c, told)
			return <-told
		})
	}
	return set
}

// makeReplica makes a server a replica of another, and returns when it has loaded what that has.
func makeReplica(t *testing.T, server, master *redistest.Server) {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr(), ":")
	server.Must("REPLICAOF", host, port)
	err := redistest.Poll(func() error {
		if _, err := server.Do("SET", "x", "v"); !pool.IsNoMaster(err) ||
			strings.HasPrefix(err.Error(), "LOADING") {
			return fmt.Errorf("SET on the replica: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// receiver is told an outcome.
type receiver chan error

// Receive implements [pool.Receiver].
func (r receiver) Receive(_ any, err error) { r <- err }

// address is one that leads to a server.
type address struct {
	listener net.Listener
	to       atomic.Pointer[string]
}

func newAddress(t *testing.T, to string) *address {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &address{listener: l}
	a.leadsTo(to)
	var ends sync.WaitGroup
	ends.Go(func() { a.serve(&ends) })
	t.Cleanup(func() {
		_ = l.Close()
		ends.Wait()
	})
	return a
}

// leadsTo lets connections that are made from now on reach a server.
func (a *address) leadsTo(server string) { a.to.Store(&server) }

func (a *address) serve(ends *sync.WaitGroup) {
	for {
		client, err := a.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", *a.to.Load())
		if err != nil {
			_ = client.Close()
			continue
		}
		both := func(to, from net.Conn) func() {
			return func() {
				_, _ = io.Copy(to, from)
				_ = to.Close()
				_ = from.Close()
			}
		}
		ends.Go(both(client, server))
		ends.Go(both(server, client))
	}
}
