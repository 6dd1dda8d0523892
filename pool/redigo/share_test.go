package redigo_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/redigo"
)

// bench is an embedded node behind a pool, in virtual time. The test decides when the node
// answers which command.
type bench struct {
	*testing.T
	inner *redis.Pool
	pool  *redigo.Pool

	mu    sync.Mutex
	dials int
	seen  []string                 // keys of the SETs that arrived
	peers []net.Conn               // our ends of all connections
	gates map[string]chan struct{} // a SET waits at its gate, if it has one
	cut   map[string]bool          // a SET is not answered: its connection is closed
}

// inBubble runs f in virtual time. The bubble fails if a goroutine is left a minute later.
func inBubble(t *testing.T, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		first, err := m.Dial() // starts the node, which has no Server before
		if err != nil {
			t.Fatal(err)
		}
		_ = first.Close()
		b := &bench{T: t, gates: map[string]chan struct{}{}, cut: map[string]bool{}}
		m.Server().SetPreHook(func(peer *server.Peer, name string, args ...string) bool {
			if name != "SET" {
				return false
			}
			b.mu.Lock()
			b.seen = append(b.seen, args[0])
			gate, cut := b.gates[args[0]], b.cut[args[0]]
			b.mu.Unlock()
			if gate != nil {
				<-gate
			}
			if cut {
				peer.Close()
			}
			return cut
		})
		b.inner = &redis.Pool{MaxIdle: 4, DialContext: func(context.Context) (redis.Conn, error) {
			conn, err := m.Dial()
			b.mu.Lock()
			b.dials++
			b.peers = append(b.peers, conn)
			b.mu.Unlock()
			return redis.NewConn(conn, 0, 0), err
		}}
		b.pool = redigo.NewPool(b.inner)
		f(b)
		_ = b.inner.Close()
		m.Close()
		time.Sleep(time.Minute)
	})
}

// hold makes the node keep SETs of the key waiting until the gate is closed.
func (b *bench) hold(key string) (gate chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gate = make(chan struct{})
	b.gates[key] = gate
	return gate
}

// few is how many commands go by themselves at the same time.
const few = 3

// occupy starts that many commands, which the node keeps waiting until the gate is closed. What
// comes then goes together when they have returned.
func (b *bench) occupy() (gate chan struct{}, slow all) {
	gate = make(chan struct{})
	for i := range few {
		slow = append(slow, b.start(b.Context(), b.slow(i, gate)))
	}
	return gate, slow
}

// slow is the key of a SET that the node keeps waiting until the gate is closed.
func (b *bench) slow(i int, gate chan struct{}) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := fmt.Sprint("slow", i)
	b.gates[key] = gate
	return key
}

// lose cuts all connections.
func (b *bench) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.peers {
		_ = conn.Close()
	}
}

// arrived is how many SETs of the key the node has seen.
func (b *bench) arrived(key string) (n int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.seen {
		if k == key {
			n++
		}
	}
	return n
}

// received is the outcome of a command that was started.
type received struct {
	b     *bench
	key   string
	began time.Time
	times int
	reply any
	err   error
	after time.Duration
}

func (r *received) Receive(reply any, err error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.times, r.reply, r.err, r.after = r.times+1, reply, err, time.Since(r.began)
}

// start starts a SET NX, and returns when all goroutines wait for something.
func (b *bench) start(ctx context.Context, key string) *received {
	r := b.begin(ctx, key)
	synctest.Wait()
	return r
}

func (b *bench) begin(ctx context.Context, key string) *received {
	r := &received{b: b, key: key, began: time.Now()}
	b.pool.Start(ctx, pool.SetNX(key, "value", time.Hour), r)
	return r
}

func (r *received) granted() {
	r.b.Helper()
	synctest.Wait()
	if r.times != 1 || r.reply != true || r.err != nil {
		r.b.Errorf("%s: %d outcomes, the last is %v, %v, want one, true",
			r.key, r.times, r.reply, r.err)
	}
}

type all []*received

func (a all) granted() {
	for _, r := range a {
		r.b.Helper()
		r.granted()
	}
}

// failed checks the error, and whether it says that nothing was sent.
func (r *received) failed(notSent bool) {
	r.b.Helper()
	synctest.Wait()
	if r.times != 1 || r.err == nil || errors.Is(r.err, pool.ErrNotSent) != notSent {
		r.b.Errorf("%s: %d outcomes, the last is %v, %v, want one error that matches ErrNotSent: "+
			"%v",
			r.key, r.times, r.reply, r.err, notSent)
	}
}

func (b *bench) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	b.Cleanup(cancel)
	return ctx
}

func TestCommandsThatArriveTogetherShareAConnection(t *testing.T) {
	inBubble(t, func(b *bench) {
		gate, all := b.occupy()
		for i := range 20 { // the unbuffered connection takes no large batch
			all = append(all, b.start(b.Context(), fmt.Sprint(i)))
		}
		if n := b.arrived("0"); n != 0 {
			t.Errorf("a command was sent at once beside %d others, want it to wait", few)
		}
		close(gate)
		all.granted()
		if b.dials != few {
			t.Errorf("there were %d connections, want %d", b.dials, few)
		}
		time.Sleep(20 * time.Millisecond) // so that the large batch is forgotten
		taken := b.start(b.Context(), "5")
		synctest.Wait()
		if taken.reply != false || taken.err != nil {
			t.Errorf("SetNX of a key that is taken = %v, %v, want false", taken.reply, taken.err)
		}
	})
}

// lesson L15: of a batch whose connection is lost, what was answered counts, and nothing is sent
// again.
func TestAConnectionThatIsLostWithinABatch(t *testing.T) {
	inBubble(t, func(b *bench) {
		gate, slow := b.occupy()
		b.cut["cut"] = true
		before := b.start(b.Context(), "before")
		cut := b.start(b.Context(), "cut")
		after := b.start(b.Context(), "after")
		close(gate)
		append(slow, before).granted()
		cut.failed(false)
		after.failed(false)
		for _, key := range []string{"before", "cut"} {
			if n := b.arrived(key); n != 1 {
				t.Errorf("%s was sent %d times, want once", key, n)
			}
		}
		b.start(b.Context(), "later").granted()
		if n := b.inner.ActiveCount(); n != few-1 {
			t.Errorf("the pool has %d connections, want %d", n, few-1)
		}
	})
}

// lesson L41: a node that does not answer keeps connections no longer than 10 ms after nobody
// waits any more.
func TestConnectionsEndWithTheContextsOfTheirCommands(t *testing.T) {
	for _, deadlines := range []bool{true, false} { // or else contexts that are cancelled
		inBubble(t, func(b *bench) {
			const lasts = 300 * time.Millisecond
			ctx, cancel := context.WithCancel(b.Context())
			if deadlines {
				ctx, cancel = context.WithTimeout(b.Context(), lasts)
			} else {
				time.AfterFunc(lasts, cancel)
			}
			defer cancel()
			gate, begun := b.hold("frozen"), time.Now()
			var all []*received
			for range 50 {
				for range 10 {
					all = append(all, b.start(ctx, "frozen"))
				}
				time.Sleep(5 * time.Millisecond)
			}
			if n := b.inner.ActiveCount(); n > 16+2 {
				t.Errorf("%d connections wait for a frozen node", n)
			}
			time.Sleep(lasts - time.Since(begun) + 10*time.Millisecond)
			synctest.Wait()
			for _, r := range all {
				if r.times != 1 || !errors.Is(r.err, ctx.Err()) {
					t.Errorf("%d outcomes 10 ms after the end, the last is %v", r.times, r.err)
				}
			}
			if n := b.inner.ActiveCount(); n > 0 {
				t.Errorf("%d connections are left", n)
			}
			close(gate)
			time.Sleep(20 * time.Millisecond) // so that the large batch is forgotten
			b.start(b.Context(), "after").granted()
		})
	}
}

// A command whose context ends before there is a connection is not sent. Those of others are.
func TestASlowDialHoldsUpNobodyElse(t *testing.T) {
	inBubble(t, func(b *bench) {
		dial := b.inner.DialContext
		slow := false
		b.inner.DialContext = func(ctx context.Context) (redis.Conn, error) {
			if slow {
				time.Sleep(20 * time.Millisecond) // and does not look at the context
			}
			return dial(ctx)
		}
		gate, first := b.occupy()
		slow = true
		short := b.start(b.within(10*time.Millisecond), "short")
		long := b.start(b.within(time.Second), "long")
		begun := time.Now()
		_, err := b.pool.SetNX(b.within(5*time.Millisecond), "caller", "v", time.Hour)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 5*time.Millisecond {
			t.Errorf("SetNX with 5ms: %v after %v", err, time.Since(begun))
		}
		time.Sleep(30 * time.Millisecond)
		short.failed(true)
		long.granted()
		if n := b.arrived("short") + b.arrived("caller"); n > 0 {
			t.Errorf("%d commands were sent whose contexts had ended", n)
		}
		close(gate)
		first.granted()
	})
}

// A node whose connection takes no more bytes keeps a batch no longer than somebody waits.
func TestAWriteThatBlocksEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers []net.Conn
		inner := &redis.Pool{DialContext: func(context.Context) (redis.Conn, error) {
			ours, theirs := net.Pipe()
			peers = append(peers, theirs)
			return redis.NewConn(ours, 0, 0), nil
		}}
		b := &bench{T: t, pool: redigo.NewPool(inner)}
		r := b.start(b.within(50*time.Millisecond), "k")
		time.Sleep(60 * time.Millisecond)
		r.failed(false)
		if !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", r.err)
		}
		if n := inner.ActiveCount(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		_ = inner.Close()
		time.Sleep(time.Second)
		if len(peers) != 1 {
			t.Errorf("there were %d connections", len(peers))
		}
	})
}

// A panic of the client is the failure of the commands that it was sending.
func TestAPanicIsAFailure(t *testing.T) {
	inBubble(t, func(b *bench) {
		dial := b.inner.DialContext
		b.inner.DialContext = func(context.Context) (redis.Conn, error) { panic("no such luck") }
		_, err := b.pool.SetNX(b.Context(), "caller", "v", time.Hour)
		started := b.start(b.Context(), "started")
		for _, err := range []error{err, started.err} {
			var why *pool.PanicError
			if !errors.As(err, &why) || !strings.Contains(err.Error(), "no such luck") {
				t.Errorf("a client that panics: %v", err)
			}
		}
		b.inner.DialContext = dial
		b.start(b.Context(), "after").granted()

		// A panic in the middle of a batch leaves no connection with replies that nobody reads.
		b.inner.DialContext = func(ctx context.Context) (redis.Conn, error) {
			conn, err := dial(ctx)
			return panicking{conn.(redis.ConnWithContext)}, err
		}
		before := b.inner.ActiveCount()
		gate, slow := b.occupy() // one of them takes the connection that is idle
		batch := all{
			b.start(b.Context(), "one"),
			b.start(b.Context(), "panic"),
			b.start(b.Context(), "two"),
		}
		time.Sleep(time.Millisecond)
		for _, r := range batch {
			var why *pool.PanicError
			if synctest.Wait(); r.times != 1 || !errors.As(r.err, &why) {
				t.Errorf("%s: %d outcomes, %v, want the panic", r.key, r.times, r.err)
			}
		}
		close(gate)
		slow.granted()
		if n, want := b.inner.ActiveCount(), before+few-1; n != want {
			t.Errorf("the pool has %d connections, want %d, without that of the batch", n, want)
		}
	})
}

// Of a batch, what comes after a command that cannot be written is certainly not sent.
func TestAConnectionThatCannotBeWritten(t *testing.T) {
	inBubble(t, func(b *bench) {
		dial := b.inner.DialContext
		gate, slow := b.occupy()
		b.inner.DialContext = func(ctx context.Context) (redis.Conn, error) {
			conn, err := dial(ctx)
			return failing{conn.(redis.ConnWithContext)}, err
		}
		begun := []*received{b.begin(b.Context(), "one"), b.begin(b.Context(), "fails")}
		after := []*received{b.begin(b.Context(), "two"), b.begin(b.Context(), "three")}
		time.Sleep(time.Millisecond)
		for _, r := range begun {
			r.failed(false)
		}
		for _, r := range after {
			r.failed(true)
			if err := r.failure(); !errors.Is(err, errUnwritten) {
				t.Errorf("%s: %v, want the error of the connection", r.key, err)
			}
		}
		close(gate)
		slow.granted()
		if n := b.inner.ActiveCount(); n != few {
			t.Errorf("the pool has %d connections, want those of the first commands", n)
		}
	})
}

var errUnwritten = errors.New("cannot be written")

// failing is a connection that cannot send one key.
type failing struct{ redis.ConnWithContext }

func (c failing) Send(name string, args ...any) error {
	if slices.Contains(args, any("fails")) {
		return errUnwritten
	}
	return c.ConnWithContext.Send(name, args...)
}

// panicking is a connection that cannot send one key.
type panicking struct{ redis.ConnWithContext }

func (c panicking) Send(name string, args ...any) error {
	if slices.Contains(args, any("panic")) {
		panic("no such luck")
	}
	return c.ConnWithContext.Send(name, args...)
}

// failure returns what the command failed with, once.
func (r *received) failure() error {
	r.b.Helper()
	synctest.Wait()
	if r.times != 1 || r.err == nil {
		r.b.Errorf("%s: %d outcomes, the last is %v, %v, want an error", r.key, r.times, r.reply,
			r.err)
	}
	return r.err
}

// A pool that is bounded fails nothing: what needs one more connection waits. One is left for Do.
func TestABoundedPoolIsNotUsedUp(t *testing.T) {
	for most := 1; most <= 24; most++ {
		inBubble(t, func(b *bench) {
			b.inner.MaxActive = most
			b.pool = redigo.NewPool(b.inner)
			gate, slow := b.occupy()
			for i := range 40 {
				slow = append(slow, b.start(b.Context(), b.slow(few+i, gate)))
				time.Sleep(time.Millisecond)
			}
			if n, want := b.inner.ActiveCount(), min(max(most-1, 1), 16); n != want {
				t.Errorf("%d of %d connections are used, want %d", n, most, want)
			}
			if _, err := b.pool.Do(b.Context(), "PING"); err != nil && most > 1 {
				t.Errorf("with %d connections: Do: %v", most, err)
			}
			close(gate)
			slow.granted()
		})
	}
}

// A pool that may have no more connections fails what needs one, and says that nothing was sent.
// What shares the connections that there are is not affected.
func TestAPoolThatIsUsedUpAndDoesNotWait(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.inner.MaxActive = few + 1
		gate, slow := b.occupy()
		next := b.start(b.Context(), "next")
		if n := b.arrived("next"); n != 0 {
			t.Error("the next command did not wait for its turn")
		}
		mine := b.inner.Get() // somebody else's
		defer mine.Close()
		time.Sleep(time.Millisecond)
		next.failed(true)
		if err := next.failure(); !errors.Is(err, redis.ErrPoolExhausted) {
			t.Errorf("the error is %v, want %v", err, redis.ErrPoolExhausted)
		}
		shares := all{b.start(b.Context(), "a"), b.start(b.Context(), "b")}
		close(gate)
		append(slow, shares...).granted()
		if n := b.arrived("next"); n != 0 {
			t.Error("a command was sent that has an outcome which says that it was not")
		}
	})
}

// A pool that waits for a connection keeps nobody longer than their contexts, and each hears of the
// end of its own.
func TestAPoolThatIsUsedUpAndWaits(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.inner.MaxActive, b.inner.Wait = 1, true
		gate := b.hold("first")
		first := b.start(b.Context(), "first")
		canceled, cancel := context.WithCancel(b.Context())
		never, stop := context.WithCancel(b.Context())
		late := b.start(b.within(20*time.Millisecond), "late")
		given := b.start(canceled, "given up")
		for range 3 { // batches
			time.Sleep(2 * time.Millisecond)
			b.start(b.within(time.Second), "stays")
		}
		more := b.start(never, "more")
		cancel()
		time.Sleep(30 * time.Millisecond)
		ends := map[*received]error{late: context.DeadlineExceeded, given: context.Canceled}
		for r, want := range ends {
			r.failed(true)
			if err := r.failure(); !errors.Is(err, want) || r.after > 30*time.Millisecond {
				t.Errorf("%s: %v after %v, want %v", r.key, err, r.after, want)
			}
		}
		close(gate)
		first.granted()
		more.granted()
		if n := b.arrived("late") + b.arrived("given up"); n != 0 {
			t.Errorf("%d commands were sent that have outcomes which say that they were not", n)
		}
		if n := b.arrived("stays"); n != 3 {
			t.Errorf("%d of 3 commands were sent when there was a connection", n)
		}
		if b.dials != 1 {
			t.Errorf("there were %d connections, want 1", b.dials)
		}
		stop()
	})
}

// TestOnBorrowContext finds a connection that a restarted node has closed, and so does that of
// NewPool, if the connection has idled for a second. Without it, the connection fails the commands
// that share it, and no others.
//
// lesson L149
func TestStaleConnections(t *testing.T) {
	for _, c := range []struct {
		name  string
		test  func(context.Context, redis.Conn, time.Time) error
		idle  time.Duration
		fails bool
	}{
		{"none of the user's", nil, 0, true},
		{"none of the user's, idle", nil, time.Second, false},
		{"the user's", func(ctx context.Context, c redis.Conn, _ time.Time) error {
			_, err := redis.DoContext(c, ctx, "PING")
			return err
		}, 0, false},
		{"the user's, of nothing", func(context.Context, redis.Conn, time.Time) error {
			return nil
		}, time.Minute, true},
	} {
		inBubble(t, func(b *bench) {
			b.inner.MaxIdle = 8
			if c.test != nil {
				b.inner.TestOnBorrowContext = c.test
			}
			gate := b.hold("slow")
			var slow []*received
			for range 3 {
				slow = append(slow, b.start(b.Context(), "slow"))
				time.Sleep(2 * time.Millisecond)
			}
			close(gate)
			for _, r := range slow {
				synctest.Wait()
				if r.times != 1 || r.err != nil {
					t.Fatalf("slow: %d outcomes, %v", r.times, r.err)
				}
			}
			stale := b.inner.IdleCount()
			if stale != 3 {
				t.Fatalf("the pool has %d idle connections, want 3", stale)
			}
			b.lose()
			time.Sleep(c.idle)
			fails := 0
			for i := range 10 {
				r := b.start(b.Context(), fmt.Sprint("after", i))
				if synctest.Wait(); r.err != nil {
					r.failed(false)
					fails++
				} else {
					r.granted()
				}
			}
			if want := map[bool]int{true: stale}[c.fails]; fails != want {
				t.Errorf("%s: %d commands failed, want %d", c.name, fails, want)
			}
		})
	}
}

// lesson L149: a server with the setting timeout closes what idles, and its locks are granted.
func TestServerThatClosesIdleConnections(t *testing.T) {
	t.Parallel()
	for _, carry := range []bool{false, true} {
		server := redistest.Start(t, 1, redistest.Args("--timeout", "1"))[0]
		p := redigo.NewPool(newPool(t, server.Addr()))
		for i := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			told := make(outcome, 1)
			c := pool.SetNX(fmt.Sprint(i), "v", time.Minute)
			if carry {
				p.Carry(ctx, c, told)
			} else {
				p.Start(ctx, c, told)
			}
			if err := <-told; err != nil {
				t.Errorf("carry %v, %d: %v", carry, i, err)
			}
			cancel()
			err := redistest.Poll(func() error { // one connection is that of the test
				if n := strings.Count(server.Must("CLIENT", "LIST").(string), "\n"); n > 1 {
					return fmt.Errorf("there are %d connections", n)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// outcome is told the error of a command.
type outcome chan error

func (o outcome) Receive(_ any, err error) { o <- err }

var fresh = &pool.Script{
	Name:   "fresh",
	Source: "return redis.call('INCR', KEYS[1])",
	ID:     "61636018f4e6b5817b89791bbed242f93fa089e3",
}

// lesson L39: the calls of a batch whose script the node does not know send it. The others of the
// batch are not sent again.
func TestAnUnknownScriptWithinABatch(t *testing.T) {
	inBubble(t, func(b *bench) {
		gate, slow := b.occupy()
		var runs []*received
		for range 3 {
			r := &received{b: b, key: "fresh", began: time.Now()}
			b.pool.Start(b.Context(), pool.Eval(fresh, []string{"n"}), r)
			runs = append(runs, r)
		}
		other := b.start(b.Context(), "other")
		close(gate)
		append(slow, other).granted()
		var replies []int64
		for _, r := range runs {
			synctest.Wait()
			n, ok := r.reply.(int64)
			if r.times != 1 || !ok || r.err != nil {
				t.Errorf("Eval: %d outcomes, the last is %v, %v", r.times, r.reply, r.err)
			}
			replies = append(replies, n)
		}
		slices.Sort(replies)
		if !slices.Equal(replies, []int64{1, 2, 3}) {
			t.Errorf("the script was run with results %v, want each run once", replies)
		}
		if n := b.arrived("other"); n != 1 {
			t.Errorf("another command of the batch was sent %d times", n)
		}
	})
}
