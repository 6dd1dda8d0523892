package valkeygo_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/valkey-io/valkey-go"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/lone"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/valkeygo"
)

// watched makes connections that count what callers write, and that take nothing when told to.
type watched struct {
	carried atomic.Int64
	full    atomic.Bool
	next    dialFn
}

// watch lets a client dial by the watched.
func (w *watched) watch(o *client.ClientOption) {
	if w.next = o.DialCtxFn; w.next == nil {
		w.next = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn,
			error) {
			if c != nil {
				return (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", addr)
			}
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn,
		error) {
		conn, err := w.next(ctx, addr, d, c)
		if err != nil {
			return nil, err
		}
		void, _ := net.Pipe() // which nobody reads
		return &watchedConn{conn, w, void}, nil
	}
}

type watchedConn struct {
	net.Conn
	*watched
	void net.Conn
}

func (c *watchedConn) Write(b []byte) (int, error) {
	if lone.Sends() {
		c.carried.Add(1)
	}
	if c.full.Load() {
		return c.void.Write(b)
	}
	return c.Conn.Write(b)
}

func (c *watchedConn) SetDeadline(t time.Time) error {
	_ = c.void.SetDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c *watchedConn) Close() error {
	_ = c.void.Close()
	return c.Conn.Close()
}

// wrapper is a client with hooks.
type wrapper struct{ client.Client }

func TestALoneCallerSendsItsOwnCommands(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*client.ClientOption)
		ends   bool // the context may
		wrap   bool
		want   int64 // writes for Lock, Extend and Unlock
	}{
		// The first writes HELLO as well. The scripts, which the node does not know, go by
		// another goroutine afterwards.
		{name: "without a context", want: 4},
		{name: "with a context that may end", ends: true, want: 2}, // that of Unlock does not
		{name: "behind a wrapper", wrap: true, want: 0},
		{name: "RESP2", change: modes["RESP2"], want: 4},
		{name: "DisableAutoPipelining", change: modes["DisableAutoPipelining"], want: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w watched
			inBubble(t, func(o *client.ClientOption) {
				if w.watch(o); c.change != nil {
					c.change(o)
				}
			}, func(b *bench) {
				if c.wrap {
					b.pool = valkeygo.NewPool(wrapper{b.client})
				}
				b.start(b.Context(), "before").granted()
				rl := redlock.New(b.pool)
				m, ctx := rl.NewMutex("x"), context.Background()
				if c.ends {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					defer cancel()
				}
				err := m.LockContext(ctx)
				synctest.Wait() // until nothing is under way
				_, extendErr := m.ExtendContext(ctx)
				synctest.Wait()
				_, unlockErr := m.UnlockContext(ctx)
				err = errors.Join(err, extendErr, unlockErr, rl.Close())
				if n := w.carried.Load(); n != c.want || err != nil {
					t.Errorf("callers wrote %d times, want %d; %v", n, c.want, err)
				}
			})
		})
	}
}

// What a lone caller sends itself ends with the node timeout, wherever the client is held up.
func TestWhatALoneCallerSendsEndsInTime(t *testing.T) {
	for name, mode := range modes {
		for _, c := range []struct {
			name  string
			known bool // there is a connection for what callers send
			fault func(*bench, *watched)
		}{
			{"a node that does not reply", true, freeze},
			{"a new connection to it", false, freeze},
			{"a connection that takes nothing", true, func(_ *bench, w *watched) {
				w.full.Store(true)
			}},
			{"a new one that takes nothing", false, func(_ *bench, w *watched) {
				w.full.Store(true)
			}},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				for _, few := range []bool{false, true} {
					var w watched
					// Valkey-go writes to a connection with AlwaysPipelining by itself.
					carried := &w.carried
					if c.known && name == "AlwaysPipelining" {
						carried = nil
					}
					inBubble(t, func(o *client.ClientOption) {
						if w.watch(o); mode != nil {
							mode(o)
						}
					}, func(b *bench) {
						fault, repair := func() { c.fault(b, &w) }, func() {
							w.full.Store(false)
							b.thaw()
						}
						b.testEndsInTime(c.known, few, carried, fault, repair)
						if carried != nil && carried.Load() == 0 {
							t.Error("no command was sent by its caller")
						}
					})
				}
			})
		}
	}
}

// freeze makes the node keep all commands waiting.
func freeze(b *bench, _ *watched) {
	b.hold("free", "EVALSHA", "EVAL", "HELLO", "PING")
}

// thaw ends that.
func (b *bench) thaw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gate := b.gates["free"]; gate != nil {
		close(gate)
	}
	clear(b.gates)
}

// testEndsInTime makes calls fail one after the other, or few of them at the same time.
func (b *bench) testEndsInTime(known, few bool, carried *atomic.Int64, fault, repair func()) {
	const nodeTimeout = 200 * time.Millisecond
	b.start(b.Context(), "before").granted()
	rl := redlock.New(b.pool).With(redlock.WithNodeTimeout(nodeTimeout))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	held, free := rl.NewMutex("held"), rl.NewMutex("free")
	if err := held.LockContext(ctx); err != nil { // not by its caller
		b.Fatal(err)
	}
	if known {
		if _, err := held.Extend(); err != nil {
			b.Fatal(err)
		}
	}
	synctest.Wait()
	fault()
	if few {
		lone.FewFailInTime(b, nodeTimeout, rl, "free", carried)
	} else {
		lone.FailInTime(b, nodeTimeout, lone.Unlock(held), lone.TryLock(free))
	}
	repair()
	if err := rl.Close(); err != nil {
		b.Error(err)
	}
}

// So does its attempt to connect, which leaves the other connection alone.
func TestALoneCallerConnectsInTime(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.start(b.Context(), "before").granted()
		b.mu.Lock()
		b.slow = time.Hour
		b.mu.Unlock()
		rl := redlock.New(b.pool).With(redlock.WithNodeTimeout(200 * time.Millisecond))
		began := time.Now()
		err := rl.NewMutex("x").TryLock()
		if took := time.Since(began); !errors.Is(err, redlock.ErrNoQuorum) ||
			took > 201*time.Millisecond {
			t.Errorf("TryLock: %v after %v, want ErrNoQuorum after 200ms", err, took)
		}
		ctx, cancel := context.WithCancel(b.Context()) // so its caller does not send it
		defer cancel()
		if err := rl.NewMutex("y").TryLockContext(ctx); err != nil {
			t.Errorf("TryLock on the other connection: %v", err)
		}
		if err := rl.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Somebody else's attempt to connect does not hold up a lone caller either.
func TestALoneCallerWaitsForNobodyElse(t *testing.T) {
	inBubble(t, modes["AlwaysPipelining"], func(b *bench) {
		b.start(b.Context(), "before").granted()
		rl := redlock.New(b.pool)
		m := rl.NewMutex("x")
		err := m.Lock()
		_, unlockErr := m.Unlock() // from now on, the node knows the script
		if err := errors.Join(err, unlockErr, m.Lock()); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.slow = time.Hour
		_ = b.conns[0].Close() // of all others
		b.mu.Unlock()
		synctest.Wait()
		var all sync.WaitGroup
		all.Go(func() {
			_ = b.client.Do(b.within(time.Minute), b.client.B().Ping().Build())
		})
		synctest.Wait()
		began := time.Now()
		_, err = m.Unlock()
		if took := time.Since(began); took != 0 || err != nil {
			t.Errorf("Unlock: %v after %v", err, took)
		}
		if n := b.connections(); n != 3 {
			t.Errorf("there were %d connections, want 3", n)
		}
		all.Wait()
		if err := rl.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A few callers send their own commands at the same time. Those who find no connection wait for
// one, but not beyond their time.
func TestAFewCallersSendTheirOwnCommands(t *testing.T) {
	const callers = 3
	for size, want := range map[int]int64{0: callers, 1: 1, 2: 2} {
		var w watched
		inBubble(t, func(o *client.ClientOption) {
			o.BlockingPoolSize = size
			w.watch(o)
		}, func(b *bench) {
			b.start(b.Context(), "before").granted()
			rl := redlock.New(b.pool).With(redlock.WithNodeTimeout(time.Second))
			gate := b.hold("x")
			began := time.Now()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					if err := rl.NewMutex("x").TryLock(); !errors.Is(err, redlock.ErrNoQuorum) {
						t.Errorf("TryLock: %v, want ErrNoQuorum", err)
					}
					if took := time.Since(began); took > 1010*time.Millisecond {
						t.Errorf("TryLock took %v", took)
					}
				})
			}
			synctest.Wait()
			if n := w.carried.Load(); n != 2*want { // HELLO, and the command
				t.Errorf("with %d connections, callers wrote %d times, want %d", size, n, 2*want)
			}
			all.Wait()
			close(gate)
			if err := rl.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A context without a deadline bounds nothing: another goroutine waits for the node.
func TestCarryWithoutADeadlineDoesNotBlock(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.start(b.Context(), "before").granted()
		gate := b.hold("x")
		time.AfterFunc(time.Second, func() { close(gate) })
		r := &received{b: b, key: "x", began: time.Now()}
		b.pool.Carry(b.Context(), pool.SetNX("x", "value", time.Hour), r)
		if took := time.Since(r.began); took != 0 {
			t.Errorf("Carry blocked for %v", took)
		}
		time.Sleep(time.Second)
		r.granted()
	})
}

// What a lone caller sends ends in time on sockets too. Bounds are wide: a test runs on busy
// machines.
func TestWhatALoneCallerSendsEndsInTimeOnSockets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		known bool // there is a connection for what callers send
		fault func(*redistest.Server)
		want  bool // the caller writes
	}{
		{"frozen", true, (*redistest.Server).Freeze, true},
		{"a new connection to a frozen node", false, (*redistest.Server).Freeze, true},
		{"stopped", true, (*redistest.Server).Stop, true},
		{"a new connection to a stopped node", false, (*redistest.Server).Stop, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, 1)[0]
			var w watched
			o := options(server.Addr())
			w.watch(&o)
			p := valkeygo.NewPool(newClient(t, o))
			if _, err := p.Do(t.Context(), "PING"); err != nil {
				t.Fatal(err)
			}
			rl := redlock.New(p).With(redlock.WithNodeTimeout(100*time.Millisecond),
				redlock.WithExpiry(time.Minute))
			held := rl.NewMutex("held")
			lock := func() error { return held.LockContext(t.Context()) } // not by its caller
			if c.known {
				lock = held.Lock
			}
			if err := lock(); err != nil {
				t.Fatal(err)
			}
			before := w.carried.Load()
			c.fault(server)
			lone.FailOnSockets(t, lone.Unlock(held), lone.TryLock(rl.NewMutex("free")))
			if c.want && w.carried.Load() == before {
				t.Error("no command was sent by its caller")
			}
			_ = rl.Close() // nobody answers what is pending
		})
	}
}
