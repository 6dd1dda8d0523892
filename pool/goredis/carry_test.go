package goredis_test

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

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/lone"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool/goredis"
)

// strict are options with which a lone caller sends its own commands. The client's own timeouts
// end nothing.
func strict() redis.Options {
	return redis.Options{
		ContextTimeoutEnabled: true, ReadTimeout: time.Hour, DialTimeout: time.Hour,
		PoolTimeout: time.Hour, DialerRetries: 1,
	}
}

// carriers counts the commands that were sent by callers.
func carriers(count *atomic.Int64) redis.Hook {
	return hooks{process: func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if ours([]redis.Cmder{cmd}) && lone.Sends() {
				count.Add(1)
			}
			return next(ctx, cmd)
		}
	}, pipeline: func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }}
}

func TestALoneCallerSendsItsOwnCommands(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*redis.Options)
		ends   bool  // the context may
		want   int64 // of Lock, Extend and Unlock
	}{
		{"without a context", func(*redis.Options) {}, false, 3},
		// That of Unlock does not.
		{"with a context that may end", func(*redis.Options) {}, true, 1},
		{"without the option", func(o *redis.Options) { o.ContextTimeoutEnabled = false },
			false, 0},
		{"without deadlines", func(o *redis.Options) { o.ReadTimeout = -2 }, false, 0},
		{"with a function of the user's", func(o *redis.Options) {
			o.CredentialsProvider = func() (string, string) { return "", "" }
		}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := strict()
			c.change(&opt)
			inBubble(t, opt, func(b *bench) {
				var carried atomic.Int64
				b.client.AddHook(carriers(&carried))
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
				if n := carried.Load(); n != c.want || err != nil {
					t.Errorf("%d commands were sent by their caller, want %d; %v", n, c.want, err)
				}
			})
		})
	}
}

// What a lone caller sends itself ends with the node timeout, wherever the client is held up.
func TestWhatALoneCallerSendsEndsInTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*bench, *faulty)
	}{
		{"a node that does not reply", func(b *bench, f *faulty) { f.mute.Store(true) }},
		{"a new connection to it", func(b *bench, f *faulty) { f.mute.Store(true); f.drop(b) }},
		{"a connection that takes nothing", func(b *bench, f *faulty) { f.full.Store(true) }},
		{"a new one that takes nothing", func(b *bench, f *faulty) {
			f.full.Store(true)
			f.drop(b)
		}},
		{"a dial that does not return", func(b *bench, f *faulty) {
			f.stuck.Store(true)
			f.drop(b)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, strict(), func(b *bench) { testEndsInTime(b, c.fault, false) })
			inBubble(t, strict(), func(b *bench) { testEndsInTime(b, c.fault, true) })
		})
	}
}

func testEndsInTime(b *bench, fault func(*bench, *faulty), few bool) {
	const nodeTimeout = 200 * time.Millisecond
	f := &faulty{repaired: make(chan struct{})}
	b.client.AddHook(dialHook(f.dial))
	var carried atomic.Int64
	b.client.AddHook(carriers(&carried))
	rl := redlock.New(b.pool).With(redlock.WithNodeTimeout(nodeTimeout))
	held, free := rl.NewMutex("held"), rl.NewMutex("free")
	if err := held.Lock(); err != nil {
		b.Fatal(err)
	}
	fault(b, f)
	if few {
		lone.FewFailInTime(b, nodeTimeout, rl, "free", &carried)
	} else {
		lone.FailInTime(b, nodeTimeout, lone.Unlock(held), lone.TryLock(free))
		if n := carried.Load(); n != 3 {
			b.Errorf("%d commands were sent by their caller, want 3", n)
		}
	}
	f.repair()
	if err := rl.Close(); err != nil {
		b.Error(err)
	}
}

// faulty makes connections that fail when they are told to.
type faulty struct {
	mute, full, stuck atomic.Bool
	repaired          chan struct{}

	mu    sync.Mutex
	conns []net.Conn
}

func (f *faulty) dial(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if f.stuck.Load() {
			<-f.repaired
		}
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.conns = append(f.conns, conn)
		void, _ := net.Pipe() // which nobody reads
		return &faultyConn{conn, f, void}, nil
	}
}

// drop closes the connections. The client finds out by a command.
func (f *faulty) drop(b *bench) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	if _, err := b.pool.Do(b.ctx, "PING"); err == nil {
		b.Error("PING on a closed connection succeeds")
	}
}

func (f *faulty) repair() {
	f.mute.Store(false)
	f.full.Store(false)
	f.stuck.Store(false)
	close(f.repaired)
}

type faultyConn struct {
	net.Conn
	*faulty
	void net.Conn
}

func (c *faultyConn) Write(b []byte) (int, error) {
	switch {
	case c.full.Load():
		return c.void.Write(b)
	case c.mute.Load():
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *faultyConn) SetWriteDeadline(t time.Time) error {
	_ = c.void.SetWriteDeadline(t)
	return c.Conn.SetWriteDeadline(t)
}

// The same on sockets. Bounds are wide: a test runs on busy machines.
func TestWhatALoneCallerSendsEndsInTimeOnSockets(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, 1)[0]
	mute := listen(t, func(c net.Conn) { // takes what comes, and says nothing
		for buf := make([]byte, 1000); ; {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	})
	for _, c := range []struct {
		name   string
		addr   string
		secure bool
		frozen bool
	}{
		{"frozen", server.Addr(), false, true},
		{"mute", mute, false, false},
		{"mute with TLS", mute, true, false},
		{"refused", redistest.Refused, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := strict()
			opt.Addr = c.addr
			if c.secure {
				opt.TLSConfig = &tls.Config{}
			}
			client := redis.NewClient(&opt)
			defer client.Close()
			var carried atomic.Int64
			client.AddHook(carriers(&carried))
			rl := redlock.New(goredis.NewPool(client)).
				With(redlock.WithNodeTimeout(100*time.Millisecond), redlock.WithExpiry(time.Minute))
			held := rl.NewMutex("held")
			calls := []lone.Call{lone.TryLock(rl.NewMutex("free"))}
			if c.frozen {
				if err := held.Lock(); err != nil {
					t.Fatal(err)
				}
				server.Freeze()
				defer server.Thaw()
				calls = append(calls, lone.Unlock(held))
			}
			lone.FailOnSockets(t, calls...)
			if carried.Load() == 0 {
				t.Error("no command was sent by its caller")
			}
			_ = rl.Close() // nobody answers what is pending
		})
	}
}
