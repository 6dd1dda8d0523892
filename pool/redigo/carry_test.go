package redigo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/lone"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool/redigo"
)

// spied counts the commands that are sent by callers.
type spied struct {
	redis.ConnWithContext
	carried *atomic.Int64
}

func (s spied) Send(name string, args ...any) error {
	if lone.Sends() {
		s.carried.Add(1)
	}
	return s.ConnWithContext.(redis.Conn).Send(name, args...)
}

// spy counts those of the connections that the pool dials from now on.
func (b *bench) spy() *atomic.Int64 {
	var carried atomic.Int64
	dial := b.inner.DialContext
	b.inner.DialContext = func(ctx context.Context) (redis.Conn, error) {
		conn, err := dial(ctx)
		return spied{conn.(redis.ConnWithContext), &carried}, err
	}
	return &carried
}

func TestALoneCallerSendsItsOwnCommands(t *testing.T) {
	test := func(redis.Conn, time.Time) error { return nil }
	for _, c := range []struct {
		name   string
		change func(*redis.Pool)
		want   int64 // of two Locks and Unlocks
	}{
		// The first one dials. The script of the first Unlock is not known.
		{"over an idle connection", func(*redis.Pool) {}, 3},
		{"also one of a few", func(p *redis.Pool) { p.MaxActive = 8 }, 3},
		{"never without one", func(p *redis.Pool) { p.MaxIdle = 0 }, 0},
		{"never one that is tested", func(p *redis.Pool) { p.TestOnBorrow = test }, 0},
		{"never one that is tested", func(p *redis.Pool) {
			p.TestOnBorrowContext = func(context.Context, redis.Conn, time.Time) error {
				return nil
			}
		}, 0},
		{"never one that is waited for", func(p *redis.Pool) { p.MaxActive, p.Wait = 8, true }, 0},
		{"never where a dial has no context", func(p *redis.Pool) {
			dial := p.DialContext
			p.DialContext = nil
			p.Dial = func() (redis.Conn, error) { return dial(context.Background()) }
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				carried := b.spy()
				b.inner.TestOnBorrowContext = nil // that of NewPool
				c.change(b.inner)
				b.pool = redigo.NewPool(b.inner)
				rl := redlock.New(b.pool)
				m := rl.NewMutex("x")
				for range 2 {
					err := m.Lock()
					synctest.Wait() // until nothing is under way
					_, unlockErr := m.Unlock()
					synctest.Wait()
					if err := errors.Join(err, unlockErr); err != nil {
						t.Error(err)
					}
				}
				if n := carried.Load(); n != c.want {
					t.Errorf("%d commands were sent by their caller, want %d", n, c.want)
				}
				if err := rl.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What a lone caller sends itself ends with the node timeout, wherever the client is held up.
func TestWhatALoneCallerSendsEndsInTime(t *testing.T) {
	const nodeTimeout = 200 * time.Millisecond
	for _, c := range []struct {
		name  string
		fault func(b *bench)
	}{
		{"a node that does not reply", func(b *bench) { b.hold("free") }},
		// The pool says that it has an idle connection, and dials nevertheless.
		{"a dial that does not return", func(b *bench) {
			time.Sleep(2 * time.Minute)
			b.inner.IdleTimeout = time.Minute
			gate := b.hold("dial")
			b.inner.DialContext = func(ctx context.Context) (redis.Conn, error) {
				if ctx.Err() == nil { // later on it is not looked at, as in a handshake of TLS
					<-gate
				}
				return nil, errors.New("no connection")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				rl := redlock.New(b.pool).With(redlock.WithNodeTimeout(nodeTimeout))
				if err := rl.NewMutex("held").Lock(); err != nil {
					t.Fatal(err)
				}
				c.fault(b)
				lone.FailInTime(t, nodeTimeout, lone.TryLock(rl.NewMutex("free")))
				b.open()
				if err := rl.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A few callers take idle connections, each another one. Those who find none do not dial.
func TestAFewCallersSendTheirOwnCommands(t *testing.T) {
	const callers, nodeTimeout = 3, 200 * time.Millisecond
	for idle := range callers + 1 {
		inBubble(t, func(b *bench) {
			b.inner.MaxIdle = callers
			carried := b.spy()
			b.idle(idle)
			dial := b.inner.DialContext
			b.inner.DialContext = func(ctx context.Context) (redis.Conn, error) {
				// One whose idle connection somebody else has just taken is told so: see takeIdle.
				if lone.Sends() && ctx.Err() == nil {
					t.Error("a caller dials")
				}
				return dial(ctx)
			}
			rl := redlock.New(b.pool).With(redlock.WithNodeTimeout(nodeTimeout))
			b.hold("first")
			b.hold("free")
			first := make(chan error)
			go func() { first <- rl.NewMutex("first").TryLock() }()
			synctest.Wait() // until it is sent
			if n := carried.Load(); n != int64(min(1, idle)) {
				t.Errorf("%d commands were sent by the first caller on %d connections", n, idle)
			}
			// How many of the others find one is a matter of luck: what is handed over takes some.
			lone.FewFailInTime(t, nodeTimeout, rl, "free", nil)
			if n := carried.Load(); n > int64(idle) {
				t.Errorf("%d commands were sent by their caller on %d connections", n, idle)
			}
			if err := <-first; !errors.Is(err, redlock.ErrNoQuorum) {
				t.Errorf("the first caller: %v", err)
			}
			b.open()
			if err := rl.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A second caller may find connections that have been idle for longer than a server may allow. It
// tests one, and leaves the others as they are.
func TestACallerTestsAnIdleConnection(t *testing.T) {
	const idle = 4
	inBubble(t, func(b *bench) {
		b.inner.MaxIdle, b.inner.TestOnBorrowContext = idle, nil // that of NewPool
		b.pool = redigo.NewPool(b.inner)
		carried := b.spy()
		b.idle(idle)
		time.Sleep(2 * time.Second)
		b.inner.DialContext = func(context.Context) (redis.Conn, error) {
			t.Error("a caller dials")
			return nil, errors.New("no connection")
		}
		rl := redlock.New(b.pool)
		if err := rl.NewMutex("fresh").Lock(); err != nil {
			t.Fatal(err)
		}
		b.hold("first")
		first := make(chan error)
		go func() { first <- rl.NewMutex("first").TryLock() }()
		synctest.Wait()
		before := carried.Load()
		if err := rl.NewMutex("second").Lock(); err != nil {
			t.Error(err)
		}
		if carried.Load() == before {
			t.Error("the second caller did not send its own command")
		}
		if n := b.inner.IdleCount(); n != idle-1 {
			t.Errorf("%d connections are left idle, want %d", n, idle-1)
		}
		b.open()
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := rl.Close(); err != nil {
			t.Error(err)
		}
	})
}

// idle makes the pool have so many idle connections.
func (b *bench) idle(n int) {
	var conns []redis.Conn
	for range n {
		conns = append(conns, b.inner.Get())
	}
	for _, c := range conns {
		_ = c.Close()
	}
}

// open lets the node answer everything.
func (b *bench) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, gate := range b.gates {
		close(gate)
		delete(b.gates, key)
	}
}

// The same on sockets. The bound is wide: a test runs on busy machines.
func TestWhatALoneCallerSendsToAFrozenServerEndsInTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, 1)[0]
	inner := &redis.Pool{MaxIdle: 4, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", server.Addr())
	}}
	defer inner.Close()
	rl := redlock.New(redigo.NewPool(inner)).
		With(redlock.WithNodeTimeout(100*time.Millisecond), redlock.WithExpiry(time.Minute))
	held := rl.NewMutex("held")
	if err := held.Lock(); err != nil {
		t.Fatal(err)
	}
	server.Freeze()
	defer server.Thaw()
	lone.FailOnSockets(t, lone.Unlock(held), lone.TryLock(rl.NewMutex("free")))
	_ = rl.Close() // nobody answers what is pending
}
