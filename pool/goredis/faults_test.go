package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/failover"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/pooltest"
)

// The clients of these tests have default options, as most users' clients do.

// lesson L41
func TestFrozenNode(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Hour})
	defer client.Close()
	p := goredis.NewPool(client)
	if _, err := p.SetNX(t.Context(), "before", "v", time.Minute); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	server.Freeze()
	const callers, budget = 200, 50 * time.Millisecond
	var returned atomic.Int32
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), budget)
			defer cancel()
			ok, err := p.SetNX(ctx, fmt.Sprint(i), "v", time.Minute)
			// The last one may be the lone caller, after the thaw.
			if n := returned.Add(1); n < callers && (ok || err == nil) {
				t.Errorf("SetNX on a frozen node = %v, %v, want an error", ok, err)
			}
		})
	}
	// The client's own timeout is not waited for by anybody but the lone caller.
	eventually(t, func() error {
		if n := returned.Load(); n < callers-1 {
			return fmt.Errorf("%d of %d callers have returned", n, callers)
		}
		if n := runtime.NumGoroutine() - before; n > 60 {
			return fmt.Errorf("%d goroutines more than before", n)
		}
		return nil
	})
	server.Thaw()
	all.Wait()
	if ok, err := p.SetNX(t.Context(), "after", "v", time.Minute); !ok || err != nil {
		t.Errorf("SetNX afterwards = %v, %v, want true", ok, err)
	}
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// listen starts a server that treats each connection as serve says.
func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	// Go-redis before v9.23 forgets a connection that it opens while the client is closed.
	over := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); close(over); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served := make(chan struct{})
			wg.Go(func() {
				defer close(served)
				serve(c)
			})
			wg.Go(func() {
				select {
				case <-served:
				case <-over:
				}
				_ = c.Close()
			})
		}
	})
	return l.Addr().String()
}

// lesson L42
func TestBrokenNodes(t *testing.T) {
	t.Parallel()
	dead := listen(t, func(net.Conn) {})
	for _, c := range []struct{ name, addr, want string }{
		{"refused", redistest.Refused, "refused"},
		{"closed", dead, ""},
		{"reset", listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
		}), ""},
		{"garbage", listen(t, func(c net.Conn) {
			for {
				if _, err := c.Read(make([]byte, 1000)); err != nil {
					return
				}
				if _, err := c.Write([]byte("what?\r\n")); err != nil {
					return
				}
			}
		}), ""},
		{"cut reply", listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1000))
			_, _ = c.Write([]byte("$100\r\nabc"))
		}), ""},
		{"unknown host", "not..a..name:6379", "not..a..name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := goredis.NewPool(newClient(t, c.addr, 3))
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			check := func(what string, err error) {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want an error that says %q", what, err, c.want)
				}
			}
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					ok, err := p.SetNX(ctx, "k", "v", time.Minute)
					check("SetNX", err)
					if ok {
						t.Error("SetNX = true")
					}
					_, err = p.Eval(ctx, release, []string{"k"}, "v")
					check("Eval", err)
				})
			}
			_, err := p.Subscribe(ctx, "c")
			check("Subscribe", err)
			wg.Wait()
		})
	}
}

// lesson L43
func TestErrorRepliesSayThemselves(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	p := goredis.NewPool(newClient(t, server.Addr(), 3))
	server.Must("CONFIG", "SET", "min-replicas-to-write", "1")
	if ok, err := p.SetNX(t.Context(), "k", "v", time.Minute); ok || err == nil ||
		!strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("SetNX = %v, %v, want NOREPLICAS", ok, err)
	}
	server.Must("CONFIG", "SET", "min-replicas-to-write", "0")
	server.Must("CONFIG", "SET", "maxmemory", "1")
	if ok, err := p.SetNX(t.Context(), "k", "v", time.Minute); ok || err == nil ||
		!strings.Contains(err.Error(), "OOM") {
		t.Errorf("SetNX = %v, %v, want OOM", ok, err)
	}
}

// A node that was restarted makes old connections fail; the first command must not.
func TestRestartedNode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, 1)[0]
	p := goredis.NewPool(newClient(t, server.Addr(), 3))
	for i := range 5 {
		if ok, err := p.SetNX(t.Context(), "k", "v", time.Minute); !ok || err != nil {
			t.Fatalf("SetNX after restart %d = %v, %v, want true", i, ok, err)
		}
		if n, err := p.Eval(t.Context(), release, []string{"k"}, "v"); n != int64(1) || err != nil {
			t.Fatalf("release after restart %d = %v, %v, want 1", i, n, err)
		}
		server.Restart()
	}
}

// lesson L91
func TestClusterSentinelAndRingAreNodes(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		servers := redistest.StartCluster(t, 3)
		var addrs []string
		for _, s := range servers {
			addrs = append(addrs, s.Addr())
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		defer client.Close()
		p := goredis.NewPool(client)
		pooltest.Run(t, func(*testing.T) pool.Pool { return p })

		// So set up, go-redis sends clones of a command that is for all masters. It cannot put
		// their replies together for a command of the adapter's, which says so.
		client.SetCommandInfoResolver(client.NewDynamicResolver())
		if reply, err := p.Do(t.Context(), "FLUSHALL"); reply != nil || err == nil ||
			!strings.Contains(err.Error(), "neither a reply nor an error") {
			t.Errorf("FLUSHALL on all masters = %v, %v", reply, err)
		}
		for _, s := range servers {
			if n := s.Must("DBSIZE"); n != int64(0) {
				t.Errorf("a master has %v keys after FLUSHALL", n)
			}
		}
		for i := range 30 {
			if ok, err := p.SetNX(t.Context(), fmt.Sprint(i), "v", time.Minute); !ok || err != nil {
				t.Errorf("SetNX = %v, %v, want true", ok, err)
			}
			if n, err := p.Eval(t.Context(), release, []string{fmt.Sprint(i)},
				"v"); n != int64(1) || err != nil {
				t.Errorf("release = %v, %v, want 1", n, err)
			}
		}
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		master := redistest.Start(t, 1)[0]
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "main", SentinelAddrs: []string{redistest.StartSentinel(t, master)},
		})
		defer client.Close()
		p := goredis.NewPool(client)
		pooltest.Run(t, func(*testing.T) pool.Pool { return p })
	})
	t.Run("ring", func(t *testing.T) {
		t.Parallel()
		addrs := map[string]string{}
		for i, server := range redistest.Start(t, 2) {
			addrs[fmt.Sprint("shard", i)] = server.Addr()
		}
		client := redis.NewRing(&redis.RingOptions{Addrs: addrs})
		defer client.Close()
		p := goredis.NewPool(client)
		pooltest.Run(t, func(*testing.T) pool.Pool { return p })
		if _, err := p.Subscribe(t.Context(), "c"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Subscribe: %v, want %v", err, errors.ErrUnsupported)
		}
	})
}

func TestSubscriptionsLeaveNothing(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	p := goredis.NewPool(newClient(t, server.Addr(), 3))
	if _, err := p.Do(t.Context(), "PING"); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for range 2 {
		var subs []pool.Subscription
		for i := range 20 {
			sub, err := p.Subscribe(t.Context(), fmt.Sprint(i%10))
			if err != nil {
				t.Fatal(err)
			}
			subs = append(subs, sub)
		}
		if n := strings.Count(server.Must("CLIENT", "LIST", "TYPE", "pubsub").(string),
			"\n"); n != 1 {
			t.Errorf("%d connections for Pub/Sub, want 1", n)
		}
		for _, sub := range subs {
			_ = sub.Close()
		}
		end := time.Now().Add(10 * time.Second)
		for server.Must("CLIENT", "LIST", "TYPE", "pubsub") != "" ||
			runtime.NumGoroutine() > before {
			if time.Now().After(end) {
				t.Fatalf("%d goroutines, %d before; connections: %v", runtime.NumGoroutine(),
					before,
					server.Must("CLIENT", "LIST", "TYPE", "pubsub"))
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// A lost connection is opened again by the hub alone, which tells its subscribers, and not
// by go-redis as well.
func TestALostSubscriptionDialsOnce(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	var dials atomic.Int32
	client := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", server.Addr()) // as go-redis's own
		if err == nil {
			dials.Add(1)
		}
		return conn, err
	}})
	defer client.Close()
	sub, err := goredis.NewPool(client).Subscribe(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for i := range int32(5) {
		server.Must("CLIENT", "KILL", "TYPE", "pubsub")
		select {
		case <-sub.Messages():
		case <-time.After(10 * time.Second):
			t.Fatal("the connection was not opened again")
		}
		if n := dials.Load(); n != i+2 {
			t.Fatalf("%d connections were opened after %d losses, want %d", n, i+1, i+2)
		}
	}
}

// lesson L60: what one channel is denied, the others on the connection are not, also where the
// user may not even PING or UNSUBSCRIBE.
func TestADeniedChannelIsItsOwnError(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			server := redistest.Start(t, 1)[0]
			server.Must("ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "&app:*",
				"+@all", "-unsubscribe", "-ping")
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app",
				Password: "secret", Protocol: protocol})
			defer client.Close()
			p := goredis.NewPool(client)
			receives := func(sub pool.Subscription, want string) {
				t.Helper()
				select {
				case got := <-sub.Messages():
					if got != want {
						t.Errorf("message %q, want %q", got, want)
					}
				case <-time.After(10 * time.Second):
					t.Fatalf("message %q did not arrive", want)
				}
			}
			ours, err := p.Subscribe(t.Context(), "app:ours")
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			id := server.Must("CLIENT", "LIST", "TYPE", "pubsub")
			for i := range 10 {
				if _, err := p.Subscribe(t.Context(), "others"); err == nil ||
					!strings.Contains(err.Error(), "NOPERM") {
					t.Errorf("Subscribe to a denied channel: %v, want NOPERM", err)
				}
				other, err := p.Subscribe(t.Context(), fmt.Sprint("app:", i))
				if err != nil {
					t.Fatal(err)
				}
				server.Must("PUBLISH", fmt.Sprint("app:", i), "hello")
				receives(other, "hello")
				_ = other.Close() // UNSUBSCRIBE is denied
				server.Must("PUBLISH", "app:ours", fmt.Sprint(i))
				receives(ours, fmt.Sprint(i))
			}
			words := func(list any) string { return strings.Fields(list.(string))[0] }
			if now := server.Must("CLIENT", "LIST", "TYPE", "pubsub"); words(now) != words(id) {
				t.Errorf("the connection was %s and is %s, want the same one", words(id),
					words(now))
			}
		})
	}
}

// An error tells whether the command may have been sent.
func TestACommandThatWasNotSentSaysSo(t *testing.T) {
	inBubble(t, redis.Options{PoolSize: 100, ReadTimeout: time.Minute}, func(b *bench) {
		gate := b.hold("busy")
		busy := b.set(b.ctx, "busy")
		time.Sleep(2 * time.Millisecond)
		sent := b.set(b.within(200*time.Millisecond), "busy")
		for range 20 { // so that no other batch may go
			b.set(b.within(time.Second), "busy")
			time.Sleep(2 * time.Millisecond)
		}
		queued := make(outcomes, 1)
		b.pool.Start(b.within(time.Millisecond), pool.SetNX("queued", "v", time.Hour), queued)
		dead, cancel := context.WithCancel(b.ctx)
		cancel()
		ended := b.set(dead, "ended")
		<-sent.done
		<-ended.done
		for what, err := range map[string]error{"queued": <-queued, "ended": ended.err} {
			if !errors.Is(err, pool.ErrNotSent) {
				t.Errorf("%s: %v does not match ErrNotSent", what, err)
			}
		}
		if sent.err == nil || errors.Is(sent.err, pool.ErrNotSent) {
			t.Errorf("given up: %v", sent.err)
		}
		close(gate)
		<-busy.done
		b.mu.Lock()
		b.cut["SET cut"], b.cut["EVALSHA "+release.ID] = true, true
		b.mu.Unlock()
		for range 2 {
			cut := b.set(b.ctx, "cut")
			if <-cut.done; cut.err == nil || errors.Is(cut.err, pool.ErrNotSent) {
				t.Errorf("a lost reply: %v", cut.err)
			}
		}
		if _, err := b.pool.Eval(b.ctx, release, []string{"k"}, "v"); err == nil ||
			errors.Is(err, pool.ErrNotSent) {
			t.Errorf("a lost reply: %v", err)
		}
	})
	refused := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("refused")
		}})
	defer refused.Close()
	if _, err := goredis.NewPool(refused).SetNX(t.Context(), "k", "v", time.Hour); !errors.Is(err,
		pool.ErrNotSent) || err.Error() != "refused" {
		t.Errorf("refused: %v", err)
	}
}

// A server of a cluster counts its own subscribers only, where it says how many have heard a
// message. Those who wait keep their places nevertheless, and the next is told at once.
func TestProcessesQueueOnClusters(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, s := range redistest.StartCluster(t, 3) {
		addrs = append(addrs, s.Addr())
	}
	const processes = 6
	var all sync.WaitGroup
	var mu sync.Mutex // guards turns
	var turns []int
	cluster := func() *redis.ClusterClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	looker := cluster()
	holder := redlock.New(goredis.NewPool(cluster())).NewMutex("x", redlock.WithExpiry(time.Hour))
	if err := holder.Lock(); err != nil {
		t.Fatal(err)
	}
	for i := range processes {
		rl := redlock.New(goredis.NewPool(cluster())).With(
			redlock.WithRetryDelay(time.Minute), redlock.WithTries(redlock.Unlimited))
		defer rl.Close()
		all.Go(func() {
			m := rl.NewMutex("x", redlock.WithExpiry(time.Hour),
				redlock.WithNodeTimeout(5*time.Second))
			if err := m.Lock(); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			turns = append(turns, i)
			mu.Unlock()
			if _, err := m.Unlock(); err != nil {
				t.Error(err)
			}
		})
		end := time.Now().Add(30 * time.Second)
		for looker.ZCard(t.Context(), "x:{x}:redlock:queue").Val() <= int64(i) {
			if time.Now().After(end) {
				t.Fatalf("process %d does not queue", i)
			}
			time.Sleep(time.Millisecond)
		}
	}
	released := time.Now()
	if _, err := holder.Unlock(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if took := time.Since(released); took > 20*time.Second || !slices.IsSorted(turns) {
		t.Errorf("turns of %v in %v", turns, took)
	}
}

// lesson L148
func TestFailoverBehindOneAddress(t *testing.T) {
	failover.Follow(t, func(t *testing.T, addr string) pool.Pool {
		return goredis.NewPool(newClient(t, addr, 3))
	})
}
