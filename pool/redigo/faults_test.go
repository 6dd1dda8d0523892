package redigo_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/failover"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/redigo"
)

var release = &pool.Script{
	Name: "release",
	Source: `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) ` +
		`end return 0`,
	ID: "6fbe84d1140fd2047394924af9d845b83c070bec",
}

// lesson L41: redigo's Do would wait for ever.
func TestFrozenNode(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	p := redigo.NewPool(newPool(t, server.Addr()))
	if _, err := p.SetNX(t.Context(), "before", "v", time.Minute); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	server.Freeze()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			// No deadline: redigo sees those by itself.
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(50*time.Millisecond, cancel)
			start := time.Now()
			ok, err := p.SetNX(ctx, fmt.Sprint(i), "v", time.Minute)
			if ok || !errors.Is(err, context.Canceled) {
				t.Errorf("SetNX on a frozen node = %v, %v, want %v", ok, err, context.Canceled)
			}
			if _, err := p.Eval(ctx, release, []string{fmt.Sprint(i)}, "v"); !errors.Is(err,
				context.Canceled) {
				t.Errorf("Eval on a frozen node: %v, want %v", err, context.Canceled)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("SetNX and Eval with a budget of 50ms took %v", d)
			}
		})
	}
	wg.Wait()
	end := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
	server.Thaw()
	if ok, err := p.SetNX(t.Context(), "after", "v", time.Minute); !ok || err != nil {
		t.Errorf("SetNX afterwards = %v, %v, want true", ok, err)
	}
}

// A pool that is used up must not keep a caller past its context, or let its command
// through when a connection comes free later.
func TestUsedUpPool(t *testing.T) {
	m := miniredis.RunT(t)
	gate, arrived := make(chan struct{}), make(chan struct{})
	var late atomic.Int32
	m.Server().SetPreHook(func(_ *server.Peer, name string, args ...string) bool {
		switch {
		case name == "SET" && args[0] == "first":
			close(arrived)
			<-gate
		case name == "SET" && args[0] == "late":
			late.Add(1)
		}
		return false
	})
	inner := newPool(t, m.Addr())
	inner.MaxActive, inner.Wait = 1, true
	p := redigo.NewPool(inner)
	first := make(chan error)
	go func() {
		_, err := p.SetNX(context.Background(), "first", "v", time.Minute)
		first <- err
	}()
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if ok, err := p.SetNX(ctx, "late", "v", time.Minute); ok ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("SetNX with a used up pool = %v, %v, want %v", ok, err, context.DeadlineExceeded)
	}
	sub, err := p.Subscribe(t.Context(), "c") // has a connection of its own
	if err != nil {
		t.Errorf("Subscribe with a used up pool: %v", err)
	} else {
		_ = sub.Close()
	}
	close(gate)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if ok, err := p.SetNX(t.Context(), "k", "v", time.Minute); !ok || err != nil {
		t.Errorf("SetNX afterwards = %v, %v, want true", ok, err)
	}
	if n := late.Load(); n != 0 {
		t.Error("a command was sent after its context had ended")
	}
}

// Dial knows no context: it may return long after the context has ended.
func TestSlowDial(t *testing.T) {
	addr := redistest.Embedded(t, 1)[0].Addr()
	ctx, cancel := context.WithCancel(t.Context())
	inner := &redis.Pool{MaxIdle: 1, Dial: func() (redis.Conn, error) {
		cancel()
		return redis.Dial("tcp", addr)
	}}
	defer inner.Close()
	p := redigo.NewPool(inner)
	if ok, err := p.SetNX(ctx, "k", "v", time.Minute); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("SetNX = %v, %v, want %v", ok, err, context.Canceled)
	}
	end := time.Now().Add(10 * time.Second)
	for ; inner.IdleCount() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d idle connections, want the new one, on which nothing was sent",
				inner.IdleCount())
		}
	}
	if reply, err := p.Do(t.Context(), "EXISTS", "k"); reply != int64(0) || err != nil {
		t.Errorf("EXISTS = %v, %v: a command was sent after its context had ended", reply, err)
	}
	sub, err := p.Subscribe(t.Context(), "c")
	if err != nil {
		t.Fatalf("Subscribe with Dial: %v", err)
	}
	_ = sub.Close()
}

// lesson L42
func TestBrokenNodes(t *testing.T) {
	for _, c := range []struct{ name, addr, want string }{
		{"refused", redistest.Refused, "refused"},
		{"closed", answer(t, ""), ""},
		{"garbage", answer(t, "what?\r\n"), ""},
		{"cut reply", answer(t, "$100\r\nabc"), ""},
		{"unknown host", "not..a..name:6379", "not..a..name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := redigo.NewPool(newPool(t, c.addr))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			ok, err := p.SetNX(ctx, "k", "v", time.Minute)
			if ok || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("SetNX = %v, %v, want an error that says %q", ok, err, c.want)
			}
			if reply, err := p.Eval(ctx, release, []string{"k"}, "v"); err == nil || reply != nil {
				t.Errorf("Eval = %v, %v, want an error", reply, err)
			}
			if _, err := p.Subscribe(ctx, "c"); err == nil || ctx.Err() != nil {
				t.Errorf("Subscribe: %v, want an error at once", err)
			}
		})
	}
}

// lesson L74
func TestANodeThatCannotBeReachedSaysWhy(t *testing.T) {
	for name, c := range map[string]struct{ addr, want string }{
		"wrong port":   {redistest.Refused, redistest.Refused + ": connect: connection refused"},
		"unknown host": {"not..a..name:6379", "not..a..name"},
	} {
		t.Run(name, func(t *testing.T) {
			rl := redlock.New(redigo.NewPool(newPool(t, c.addr)))
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

// answer starts a server that gives each connection one answer and closes it.
func answer(t *testing.T, text string) (addr string) {
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
				_, _ = c.Read(make([]byte, 1000))
				_, _ = c.Write([]byte(text))
				_ = c.Close()
			})
		}
	})
	return l.Addr().String()
}

// lesson L15: a command whose reply is lost is not sent again.
func TestALostReply(t *testing.T) {
	m := miniredis.RunT(t)
	var sent atomic.Int32
	m.Server().SetPreHook(func(peer *server.Peer, name string, _ ...string) bool {
		if name == "SET" {
			sent.Add(1)
			peer.Close()
		}
		return name == "SET"
	})
	p := redigo.NewPool(newPool(t, m.Addr()))
	if ok, err := p.SetNX(t.Context(), "k", "v", time.Minute); ok || err == nil {
		t.Errorf("SetNX = %v, %v, want an error", ok, err)
	}
	if n := sent.Load(); n != 1 {
		t.Errorf("the command was sent %d times, want once", n)
	}
}

func TestSubscriptionsLeaveNothing(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	p := redigo.NewPool(newPool(t, server.Addr()))
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

// lesson L60: what one channel is denied, the others on the connection are not, also where the
// user may not even PING or UNSUBSCRIBE.
func TestADeniedChannelIsItsOwnError(t *testing.T) {
	t.Run("RESP2", func(t *testing.T) {
		server := redistest.Start(t, 1)[0]
		server.Must("ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "&app:*",
			"+@all", "-unsubscribe", "-ping")
		inner := &redis.Pool{MaxIdle: 4, DialContext: func(ctx context.Context) (redis.Conn,
			error) {
			return redis.DialContext(ctx, "tcp", server.Addr(), redis.DialUsername("app"),
				redis.DialPassword("secret"))
		}}
		defer inner.Close()
		p := redigo.NewPool(inner)
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
			t.Errorf("the connection was %s and is %s, want the same one", words(id), words(now))
		}
	})
}

func TestBadUseIsAnError(t *testing.T) {
	ctx := t.Context()
	var misuse *redlock.OptionError
	for _, p := range []*redigo.Pool{redigo.NewPool(nil), redigo.NewPoolAt("10.0.0.1:6379", nil)} {
		err := redlock.New(p).NewMutex("x").TryLock()
		if !errors.As(err, &misuse) || misuse.Value != "pool 0 is nil" {
			t.Errorf("TryLock with a nil pool: %v", err)
		}
	}
	empty := redigo.NewPool(&redis.Pool{})
	if _, err := empty.SetNX(ctx, "k", "v", time.Second); err == nil {
		t.Error("SetNX without Dial: no error")
	}
	if _, err := empty.Subscribe(ctx, "c"); err == nil || !strings.Contains(err.Error(), "Dial") {
		t.Errorf("Subscribe without Dial: %v", err)
	}
}

func BenchmarkPair(b *testing.B) {
	server := redistest.Start(b, 1)[0]
	inner := newPool(b, server.Addr())
	inner.MaxIdle = 64
	p := redigo.NewPool(inner)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, n := range []int{1, 64} {
		for _, c := range []struct {
			name string
			pair func(key string) error
		}{
			{"redigo", func(key string) error {
				if ok, err := p.SetNX(ctx, key, "value", 10*time.Second); !ok || err != nil {
					return fmt.Errorf("%v %w", ok, err)
				}
				_, err := p.Eval(ctx, release, []string{key}, "value")
				return err
			}},
			{"client", func(key string) error {
				conn := inner.Get()
				defer conn.Close()
				if _, err := conn.Do("SET", key, "value", "NX", "PX", 10_000); err != nil {
					return err
				}
				_, err := conn.Do("EVALSHA", release.ID, 1, key, "value")
				return err
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						for key := fmt.Sprint("bench:", i); left.Add(-1) >= 0; {
							if err := c.pair(key); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// An error tells whether the command may have been sent.
func TestACommandThatWasNotSentSaysSo(t *testing.T) {
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(peer *server.Peer, name string, _ ...string) bool {
		if name == "SET" || name == "EVALSHA" {
			peer.Close()
		}
		return name == "SET" || name == "EVALSHA"
	})
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	refused := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("refused") }}
	for _, c := range []struct {
		what    string
		pool    *redigo.Pool
		ctx     context.Context
		notSent bool
	}{
		{"refused", redigo.NewPool(refused), t.Context(), true},
		{"ended", redigo.NewPool(newPool(t, m.Addr())), dead, true},
		{"a lost reply", redigo.NewPool(newPool(t, m.Addr())), t.Context(), false},
	} {
		_, set := c.pool.SetNX(c.ctx, "k", "v", time.Minute)
		_, eval := c.pool.Eval(c.ctx, release, []string{"k"}, "v")
		for _, err := range []error{set, eval} {
			if err == nil || errors.Is(err, pool.ErrNotSent) != c.notSent {
				t.Errorf("%s: %v, want that it matches ErrNotSent: %v", c.what, err, c.notSent)
			}
		}
	}
}

// lesson L148
func TestFailoverBehindOneAddress(t *testing.T) {
	failover.Follow(t, func(t *testing.T, addr string) pool.Pool {
		return redigo.NewPool(newPool(t, addr))
	})
}
