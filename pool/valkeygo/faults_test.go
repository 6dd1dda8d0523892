package valkeygo_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/valkey-io/valkey-go"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/failover"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pooltest"
	"github.com/redlock-go/redlock/pool/valkeygo"
)

var release = &pool.Script{
	Name: "release",
	Source: `if redis.call('GET', KEYS[1]) == ARGV[1] then ` +
		`return redis.call('DEL', KEYS[1]) end return 0`,
	ID: "6fbe84d1140fd2047394924af9d845b83c070bec",
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

// Package batch knows an error reply by its type where valkey-go has cut "ERR " off.
func TestErrorReplyHasAType(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	_, err := valkeygo.NewPool(newClient(t, options(server.Addr()))).Do(t.Context(), "NOSUCH")
	if typed := (interface{ IsNoScript() bool })(nil); !errors.As(err, &typed) {
		t.Errorf("the error %v is a %T", err, err)
	}
}

// lesson L41
func TestFrozenNode(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	p := valkeygo.NewPool(newClient(t, options(server.Addr())))
	if _, err := p.SetNX(t.Context(), "before", "v", time.Minute); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	server.Freeze()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(50*time.Millisecond, cancel)
			start := time.Now()
			ok, err := p.SetNX(ctx, fmt.Sprint(i), "v", time.Minute)
			if ok || !errors.Is(err, context.Canceled) {
				t.Errorf("SetNX on a frozen node = %v, %v, want %v", ok, err, context.Canceled)
			}
			_, err = p.Eval(ctx, release, []string{fmt.Sprint(i)}, "v")
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Eval on a frozen node: %v, want %v", err, context.Canceled)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("SetNX and Eval with a budget of 50ms took %v", d)
			}
		})
	}
	all.Wait()
	if n := runtime.NumGoroutine() - before; n > 120 { // for 48 batches at most
		t.Errorf("%d goroutines more than before", n)
	}
	server.Thaw()
	if ok, err := p.SetNX(t.Context(), "after", "v", time.Minute); !ok || err != nil {
		t.Errorf("SetNX afterwards = %v, %v, want true", ok, err)
	}
}

// lesson L118: the default node timeout is two seconds at most, however long a lock lives.
func TestUnlockBesideStoppedServersIsSoonOver(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, n)
			pools := make([]pool.Pool, n)
			for i, s := range servers {
				pools[i] = valkeygo.NewPool(newClient(t, options(s.Addr())))
			}
			rl := redlock.New(pools...).With(redlock.WithExpiry(6 * time.Hour))
			m := rl.NewMutex("x")
			if err := m.Lock(); err != nil {
				t.Fatal(err)
			}
			for _, s := range servers {
				s.Freeze()
			}
			start := time.Now()
			_, err := m.Unlock()
			if took := time.Since(start); !errors.Is(err, redlock.ErrNoQuorum) ||
				took > 3*time.Second {
				t.Errorf("Unlock after %v: %v, want %v within 3s", took, err, redlock.ErrNoQuorum)
			}
			for _, s := range servers {
				s.Thaw()
			}
			eventually(t, func() error { return rl.Close() })
		})
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
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	return l.Addr().String()
}

// lesson L42
func TestBrokenNodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, addr, want string }{
		{"refused", redistest.Refused, "refused"},
		{"closed", listen(t, func(net.Conn) {}), ""},
		{"reset", listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
		}), ""},
		{"garbage", listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1000))
			_, _ = c.Write([]byte("what?\r\n"))
		}), ""},
		{"cut reply", listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1000))
			_, _ = c.Write([]byte("$100\r\nabc"))
		}), ""},
		{"unknown host", "not..a..name:6379", "not..a..name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := valkeygo.NewPool(newClient(t, options(c.addr)))
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			check := func(what string, err error) {
				if err == nil || !strings.Contains(err.Error(), c.want) || ctx.Err() != nil {
					t.Errorf("%s: %v, want an error that says %q", what, err, c.want)
				}
			}
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					ok, err := p.SetNX(ctx, "k", "v", time.Minute)
					if check("SetNX", err); ok {
						t.Error("SetNX = true")
					}
					_, err = p.Eval(ctx, release, []string{"k"}, "v")
					check("Eval", err)
					_, err = p.Do(ctx, "PING")
					check("Do", err)
				})
			}
			_, err := p.Subscribe(ctx, "c")
			check("Subscribe", err)
			all.Wait()
		})
	}
}

// lesson L74
func TestANodeThatCannotBeReachedSaysWhy(t *testing.T) {
	for name, c := range map[string]struct{ addr, want string }{
		"wrong port":   {redistest.Refused, redistest.Refused + ": connect: connection refused"},
		"unknown host": {"not..a..name:6379", "not..a..name"},
		"no password":  {redistest.Start(t, 1, redistest.Password("secret"))[0].Addr(), "NOAUTH"},
	} {
		t.Run(name, func(t *testing.T) {
			rl := redlock.New(valkeygo.NewPool(newClient(t, options(c.addr))))
			defer rl.Close()
			if err := rl.NewMutex("x").TryLock(); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("TryLock: %v, want an error that says %q", err, c.want)
			}
			report, err := doctor.Check(t.Context(), rl)
			if err != nil {
				t.Fatal(err)
			}
			if err := report.Nodes[0].Err; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check: %v, want an error that says %q", err, c.want)
			}
		})
	}
}

// lesson L3: a program starts while a node is down, and uses it when it is up.
func TestANodeThatIsDownAtTheStart(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	server.Stop()
	p := valkeygo.NewPool(newClient(t, options(server.Addr())))
	if _, err := p.SetNX(t.Context(), "k", "v", time.Minute); !errors.Is(err, pool.ErrNotSent) {
		t.Errorf("SetNX on a node that is down: %v", err)
	}
	if p.Explain() == nil {
		t.Error("Explain says nothing of a node that is down")
	}
	server.Restart()
	if ok, err := p.SetNX(t.Context(), "k", "v", time.Minute); !ok || err != nil {
		t.Errorf("SetNX = %v, %v, want true", ok, err)
	}
	if err := p.Explain(); err != nil {
		t.Errorf("Explain: %v, want nil", err)
	}
}

// lesson L43
func TestErrorRepliesSayThemselves(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	p := valkeygo.NewPool(newClient(t, options(server.Addr())))
	server.Must("CONFIG", "SET", "min-replicas-to-write", "1")
	refused := func(want string) {
		t.Helper()
		ok, err := p.SetNX(t.Context(), "k", "v", time.Minute)
		if ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SetNX = %v, %v, want %s", ok, err, want)
		}
	}
	refused("NOREPLICAS")
	server.Must("CONFIG", "SET", "min-replicas-to-write", "0")
	server.Must("CONFIG", "SET", "maxmemory", "1")
	refused("OOM")
}

// A connection that a restarted node has closed is noticed with AlwaysPipelining.
func TestRestartedNode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, 1)[0]
	o := options(server.Addr())
	o.AlwaysPipelining = true
	p := valkeygo.NewPool(newClient(t, o))
	for i := range 5 {
		// The end of the connection may be on its way.
		eventually(t, func() error {
			ok, err := p.SetNX(t.Context(), "k", "v", time.Minute)
			if err == nil && !ok {
				t.Fatalf("SetNX after restart %d = %v, want true", i, ok)
			}
			return err
		})
		if n, err := p.Eval(t.Context(), release, []string{"k"}, "v"); n != int64(1) || err != nil {
			t.Fatalf("release after restart %d = %v, %v, want 1", i, n, err)
		}
		server.Restart()
	}
}

func TestSubscriptionsLeaveNothing(t *testing.T) {
	for _, resp2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("AlwaysRESP2 %v", resp2), func(t *testing.T) {
			server := redistest.Start(t, 1)[0]
			o := options(server.Addr())
			o.AlwaysRESP2 = resp2
			p := valkeygo.NewPool(newClient(t, o))
			if _, err := p.Do(t.Context(), "PING"); err != nil {
				t.Fatal(err)
			}
			connections := func(of ...string) int {
				list := server.Must(append([]string{"CLIENT", "LIST"}, of...)...).(string)
				return strings.Count(list, "\n")
			}
			goroutines, idle := runtime.NumGoroutine(), connections()
			for range 2 {
				var subs []pool.Subscription
				for i := range 20 {
					sub, err := p.Subscribe(t.Context(), fmt.Sprint(i%10))
					if err != nil {
						t.Fatal(err)
					}
					subs = append(subs, sub)
				}
				if n := connections("TYPE", "pubsub"); n != 1 {
					t.Errorf("%d connections for Pub/Sub, want 1", n)
				}
				for _, sub := range subs {
					_ = sub.Close()
				}
				eventually(t, func() error {
					if g, c := runtime.NumGoroutine(), connections(); g > goroutines || c > idle {
						return fmt.Errorf("%d goroutines, %d before; %d connections, %d before",
							g, goroutines, c, idle)
					}
					return nil
				})
			}
		})
	}
}

// lesson L60: what one channel is denied, the others on the connection are not, also where the
// user may not even PING or UNSUBSCRIBE.
func TestADeniedChannelIsItsOwnError(t *testing.T) {
	for _, resp2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("AlwaysRESP2 %v", resp2), func(t *testing.T) {
			server := redistest.Start(t, 1)[0]
			server.Must("ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "&app:*",
				"+@all", "-unsubscribe", "-ping")
			o := options(server.Addr())
			o.Username, o.Password, o.AlwaysRESP2 = "app", "secret", resp2
			p := valkeygo.NewPool(newClient(t, o))
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
				_, err := p.Subscribe(t.Context(), "others")
				if err == nil || !strings.Contains(err.Error(), "NOPERM") {
					t.Errorf("Subscribe to a denied channel: %v, want NOPERM", err)
				}
				other, err := p.Subscribe(t.Context(), fmt.Sprint("app:", i))
				if err != nil {
					t.Fatal(err)
				}
				server.Must("PUBLISH", fmt.Sprint("app:", i), "hello")
				receives(other, "hello")
				_ = other.Close() // UNSUBSCRIBE is denied
				again, err := p.Subscribe(t.Context(), fmt.Sprint("app:", i))
				if err != nil {
					t.Fatal(err)
				}
				_ = again.Close()
				server.Must("PUBLISH", "app:ours", fmt.Sprint(i))
				receives(ours, fmt.Sprint(i))
			}
			first := func(list any) string { return strings.Fields(list.(string))[0] }
			if now := server.Must("CLIENT", "LIST", "TYPE", "pubsub"); first(now) != first(id) {
				t.Errorf("the connection was %s and is %s, want the same one", first(id),
					first(now))
			}
		})
	}
}

// A user needs no right for the connection, and the adapter leaves nothing in the log of denials.
func TestAConnectionNeedsNoRights(t *testing.T) {
	for _, resp2 := range []bool{false, true} {
		server := redistest.Start(t, 1)[0]
		server.Must("ACL", "SETUSER", "app", "on", ">secret", "-@all", "+set", "+get", "+del",
			"+eval",
			"+evalsha", "+pttl", "~app:*", "resetchannels")
		o := options(server.Addr())
		o.Username, o.Password, o.AlwaysRESP2 = "app", "secret", resp2
		o.ClientSetInfo = client.DisableClientSetInfo // denied, which valkey-go ignores, and logged
		p := valkeygo.NewPool(newClient(t, o))
		for range 3 {
			if ok, err := p.SetNX(t.Context(), "app:k", "v", time.Minute); !ok || err != nil {
				t.Errorf("SetNX = %v, %v, want true", ok, err)
			}
			if n, err := p.Eval(t.Context(), release, []string{"app:k"}, "v"); n != int64(1) ||
				err != nil {
				t.Errorf("release = %v, %v, want 1", n, err)
			}
		}
		if denials := server.Must("ACL", "LOG").([]any); len(denials) > 0 {
			t.Errorf("AlwaysRESP2 %v: the server denied %v", resp2, denials)
		}
	}
}

// lesson L91
func TestAClusterIsANode(t *testing.T) {
	servers := redistest.StartCluster(t, 3)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	c := newClient(t, client.ClientOption{InitAddress: addrs, DisableCache: true})
	p := valkeygo.NewPool(c)
	for _, a := range addrs {
		if !strings.Contains(p.Addr(), a) {
			t.Errorf("the address is %q, without %q", p.Addr(), a)
		}
	}
	pooltest.Run(t, func(*testing.T) pool.Pool { return p })

	for _, s := range servers {
		s.Must("CONFIG", "RESETSTAT")
	}
	var all sync.WaitGroup
	for i := range 300 { // to all masters, in batches
		all.Go(func() {
			k := fmt.Sprint(i)
			if ok, err := p.SetNX(t.Context(), k, "v", time.Minute); !ok || err != nil {
				t.Errorf("SetNX = %v, %v, want true", ok, err)
			}
			if n, err := p.Eval(t.Context(), release, []string{k}, "v"); n != int64(1) ||
				err != nil {
				t.Errorf("release = %v, %v, want 1", n, err)
			}
		})
	}
	all.Wait()
	for _, s := range servers {
		if errors := s.Must("INFO", "errorstats").(string); strings.Contains(errors, "MOVED") {
			t.Errorf("commands went to the wrong server: %s", errors)
		}
	}

	// The loss of a master is that of its locks alone.
	servers[0].Must("CONFIG", "SET", "cluster-require-full-coverage", "no")
	servers[1].Must("CONFIG", "SET", "cluster-require-full-coverage", "no")
	servers[2].Kill()
	lost := 0
	for i := range 100 {
		k := fmt.Sprint("lost:", i)
		slot := servers[0].Must("CLUSTER", "KEYSLOT", k).(int64)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		ok, err := p.SetNX(ctx, k, "v", time.Minute)
		if isLost := slot >= 2*16384/3; isLost {
			lost++
			if err == nil {
				t.Errorf("SetNX on a master that is down = %v", ok)
			}
		} else if !ok || err != nil {
			t.Errorf("SetNX beside a master that is down = %v, %v, want true", ok, err)
		}
		cancel()
	}
	if lost == 0 || lost == 100 {
		t.Errorf("%d of 100 keys are on one master of three", lost)
	}
}

// lesson L91
func TestSentinelIsANode(t *testing.T) {
	master := redistest.Start(t, 1)[0]
	sentinel := redistest.StartSentinel(t, master)
	o := client.ClientOption{InitAddress: []string{sentinel}, DisableCache: true}
	o.Sentinel.MasterSet = "main"
	p := valkeygo.NewPool(newClient(t, o))
	if addr := p.Addr(); addr != master.Addr() {
		t.Errorf("the address is %q, want the master's, %q", addr, master.Addr())
	}
	pooltest.Run(t, func(*testing.T) pool.Pool { return p })
}

// lesson L148
func TestFailoverBehindOneAddress(t *testing.T) {
	failover.Follow(t, func(t *testing.T, addr string) pool.Pool {
		return valkeygo.NewPool(newClient(t, options(addr)))
	})
}
