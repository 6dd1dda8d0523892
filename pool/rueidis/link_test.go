package rueidis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	client "github.com/redis/rueidis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/rueidis"
)

// bench is an embedded node behind a client, in virtual time. The test decides when the node
// answers which command, and how long it takes to connect.
type bench struct {
	*testing.T
	client client.Client
	pool   *rueidis.Pool

	mu    sync.Mutex
	seen  map[string]int           // commands by name, SETs also by key
	gates map[string]chan struct{} // a command waits at its gate, if it has one
	cut   map[string]bool          // a command is not answered: its connection is closed
	deny  string                   // a command that is answered by NOPERM
	slow  time.Duration            // a connection takes that long
	conns []net.Conn               // that were made
	dials int
}

// inBubble runs f in virtual time. The bubble fails if a goroutine is left a minute later.
func inBubble(t *testing.T, change func(*client.ClientOption), f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		first, err := m.Dial() // starts the node, which has no Server before
		if err != nil {
			t.Fatal(err)
		}
		_ = first.Close()
		b := &bench{T: t, seen: map[string]int{}}
		b.gates, b.cut = map[string]chan struct{}{}, map[string]bool{}
		m.Server().SetPreHook(b.arrive)
		o := options("node:6379")
		o.DialCtxFn = b.dial(m)
		if change != nil {
			change(&o)
		}
		b.client, _ = client.NewClient(o)
		b.pool = rueidis.NewPool(b.client)
		f(b)
		b.client.Close()
		m.Close()
		time.Sleep(time.Minute)
	})
}

// dialFn is what rueidis calls to connect.
type dialFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

func (b *bench) dial(m *miniredis.Miniredis) dialFn {
	return func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		b.mu.Lock()
		slow := b.slow
		b.dials++
		b.mu.Unlock()
		select {
		case <-time.After(slow):
			c, err := m.Dial()
			b.mu.Lock()
			defer b.mu.Unlock()
			b.conns = append(b.conns, c)
			return c, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// cutOff makes the node lose the connections on which these commands arrive.
func (b *bench) cutOff(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range names {
		b.cut[n] = true
	}
}

// connections is how many there have been.
func (b *bench) connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dials
}

// arrive is called by the node for each command.
func (b *bench) arrive(peer *server.Peer, name string, args ...string) bool {
	if name == "SET" {
		name = args[0]
	}
	b.mu.Lock()
	b.seen[name]++
	gate, cut, deny := b.gates[name], b.cut[name], b.deny == name
	b.mu.Unlock()
	if gate != nil {
		<-gate
	}
	switch {
	case cut:
		peer.Close()
	case deny:
		peer.WriteError("NOPERM this user has no permissions to run the '" + name + "' command")
	}
	return cut || deny
}

// hold makes the node keep the commands waiting until the gate is closed.
func (b *bench) hold(names ...string) (gate chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gate = make(chan struct{})
	for _, n := range names {
		b.gates[n] = gate
	}
	return gate
}

// few is how many commands go by themselves at the same time.
const few = 3

// occupy starts that many commands, which the node keeps waiting until the gate is closed. What
// comes then goes together when they have returned.
func (b *bench) occupy() (gate chan struct{}, slow all) {
	gate = b.hold("slow0", "slow1", "slow2")
	for i := range few {
		slow = append(slow, b.start(b.Context(), fmt.Sprint("slow", i)))
	}
	return gate, slow
}

// arrived is how many commands of the name, or SETs of the key, the node has seen.
func (b *bench) arrived(name string) int {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[name]
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
	return b.startCommand(ctx, key, pool.SetNX(key, "value", time.Hour))
}

func (b *bench) startCommand(
	ctx context.Context, key string, command *pool.Command,
) *received {
	r := &received{b: b, key: key, began: time.Now()}
	b.pool.Start(ctx, command, r)
	synctest.Wait()
	return r
}

func (r *received) granted() {
	r.b.Helper()
	synctest.Wait()
	if r.times != 1 || r.reply != true || r.err != nil {
		r.b.Errorf("%s: %d outcomes, the last is %v, %v, want true", r.key, r.times, r.reply, r.err)
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
		r.b.Errorf("%s: %d outcomes, the last is %v, %v, want an error that matches ErrNotSent: %v",
			r.key, r.times, r.reply, r.err, notSent)
	}
}

func (b *bench) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	b.Cleanup(cancel)
	return ctx
}

// modes are the ways in which rueidis uses a connection.
var modes = map[string]func(*client.ClientOption){
	"alone":                 nil,
	"AlwaysPipelining":      func(o *client.ClientOption) { o.AlwaysPipelining = true },
	"DisableAutoPipelining": func(o *client.ClientOption) { o.DisableAutoPipelining = true },
	"RESP2":                 func(o *client.ClientOption) { o.AlwaysRESP2 = true },
}

func TestCommandsThatArriveTogetherShareARoundTrip(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		before := runtime.NumGoroutine()
		gate, all := b.occupy()
		for i := range 300 {
			all = append(all, b.start(b.Context(), fmt.Sprint(i)))
		}
		if n := b.arrived("0"); n != 0 {
			t.Errorf("a command was sent at once beside %d others, want it to wait", few)
		}
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("%d goroutines for 303 commands", n)
		}
		close(gate)
		time.Sleep(time.Millisecond) // the last 44 commands wait for more
		all.granted()
		if n := b.connections(); n != 1 {
			t.Errorf("there were %d connections, want 1", n)
		}
		time.Sleep(20 * time.Millisecond) // so that the large batch is forgotten
		if taken := b.start(b.Context(), "5"); taken.reply != false || taken.err != nil {
			t.Errorf("SetNX of a key that is taken = %v, %v, want false", taken.reply, taken.err)
		}
	})
}

// What rueidis has queued behind a command whose time is up goes out afterwards, and once.
func TestCommandsBehindOneThatTakesTooLong(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, func(b *bench) {
				// With a deadline, or rueidis gives the connection to goroutines of its own.
				b.start(b.within(time.Second), "before").granted()
				gate := b.hold("slow")
				slow := b.start(b.within(50*time.Millisecond), "slow")
				var behind all
				for i := range 2 + few { // two by themselves, and the others together
					behind = append(behind, b.start(b.within(time.Second), fmt.Sprint(i)))
				}
				done := make(chan error)
				go func() {
					_, err := b.pool.Do(b.within(time.Second), "GET", "x")
					done <- err
				}()
				time.Sleep(100 * time.Millisecond)
				slow.failed(false)
				close(gate)
				behind.granted()
				if err := <-done; err != nil {
					t.Errorf("Do: %v", err)
				}
				for _, r := range append(behind, slow) {
					if n := b.arrived(r.key); n != 1 {
						t.Errorf("%s arrived %d times, want once", r.key, n)
					}
				}
				if n := b.arrived("GET"); n != 1 {
					t.Errorf("GET arrived %d times, want once", n)
				}
			})
		})
	}
}

// hasty is a client whose SETs fail early, though they went out.
type hasty struct{ client.Client }

func (h hasty) Do(ctx context.Context, c client.Completed) client.RedisResult {
	if c.Commands()[0] != "SET" {
		return h.Client.Do(ctx, c)
	}
	h.Client.Do(ctx, c)
	soon, cancel := context.WithTimeout(ctx, 0)
	defer cancel()
	return h.Client.Do(soon, h.B().Ping().Build())
}

func TestAWrapperThatFailsEarlyIsCalledOnce(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.start(b.Context(), "before").granted()
		b.pool = rueidis.NewPool(hasty{b.client})
		_, err := b.pool.SetNX(b.within(time.Second), "x", "value", time.Hour)
		if n := b.arrived("x"); n != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetNX: %v, and arrived %d times, want DeadlineExceeded, and once", err, n)
		}
	})
}

// lesson L41: the end of a context is heard at once, and a node that does not answer is sent
// nothing more than a question whether it does.
func TestANodeThatDoesNotAnswerIsSentNothingElse(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, func(b *bench) {
				b.start(b.Context(), "before").granted()
				asked := b.hold("GET")
				ctx, cancel := context.WithCancel(b.Context())
				time.AfterFunc(20*time.Millisecond, cancel)
				began := time.Now()
				_, err := b.pool.Do(ctx, "GET", "x")
				if took := time.Since(began); err == nil || took != 20*time.Millisecond {
					t.Errorf("Do that is cancelled after 20ms: %v after %v", err, took)
				}
				synctest.Wait()
				close(asked)
				b.start(b.Context(), "between").granted()

				gate, before := b.hold("lost", "HELLO"), runtime.NumGoroutine()
				lost := b.start(b.within(50*time.Millisecond), "lost")
				time.Sleep(101 * time.Millisecond)
				lost.failed(false)
				for range 100 {
					later := b.start(b.within(50*time.Millisecond), "later")
					cancelled, cancel := context.WithCancel(b.Context())
					time.AfterFunc(20*time.Millisecond, cancel)
					began := time.Now()
					_, err := b.pool.SetNX(cancelled, "later", "v", time.Hour)
					took := time.Since(began)
					if !errors.Is(err, context.Canceled) || took != 20*time.Millisecond {
						t.Errorf("SetNX that is cancelled after 20ms: %v after %v", err, took)
					}
					began = time.Now()
					_, err = b.pool.Do(b.within(20*time.Millisecond), "GET", "x")
					took = time.Since(began)
					if !errors.Is(err, context.DeadlineExceeded) || took != 20*time.Millisecond {
						t.Errorf("Do with 20ms: %v after %v", err, took)
					}
					time.Sleep(61 * time.Millisecond)
					later.failed(true)
				}
				if n := runtime.NumGoroutine() - before; n > 60 {
					t.Errorf("%d goroutines more than before", n)
				}
				if n := b.arrived("later"); n > 0 {
					t.Errorf("%d commands were sent to a node that does not answer", n)
				}
				_, set := b.pool.SetNX(b.within(20*time.Millisecond), "later", "v", time.Hour)
				_, do := b.pool.Do(b.within(20*time.Millisecond), "GET", "x")
				_, sub := b.pool.Subscribe(b.within(20*time.Millisecond), "c")
				for _, err := range []error{set, do, sub} {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
				why := b.pool.Explain()
				if why == nil || !strings.Contains(why.Error(), "no reply within 1s") {
					t.Errorf("Explain: %v", why)
				}
				time.Sleep(time.Hour)
				if err := b.pool.Explain(); err != nil {
					t.Errorf("Explain after an hour: %v", err)
				}
				close(gate)
				b.start(b.Context(), "after").granted()
				if err := b.pool.Explain(); err != nil {
					t.Errorf("Explain: %v, want nil: the node has answered", err)
				}
			})
		})
	}
}

// A connection that takes longer than anybody waits is made nevertheless, for those who come later.
func TestASlowConnectionIsMade(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.cutOff("cut")
		b.mu.Lock()
		b.slow = 300 * time.Millisecond
		b.mu.Unlock()
		b.start(b.within(time.Second), "cut").failed(false)
		for range 5 {
			b.start(b.within(50*time.Millisecond), "early")
			time.Sleep(50 * time.Millisecond)
		}
		queue := b.start(b.within(30*time.Millisecond), "early") // lets the next two be one batch
		short := b.start(b.within(40*time.Millisecond), "early")
		long := b.start(b.within(time.Second), "long")
		time.Sleep(51 * time.Millisecond)
		queue.failed(true)
		short.failed(true)
		long.granted()
		if n := b.arrived("early"); n > 0 {
			t.Errorf("%d commands were sent whose contexts had ended", n)
		}
		b.start(b.within(50*time.Millisecond), "late").granted()
		if n := b.connections(); n != 2 {
			t.Errorf("there were %d connections, want 2", n)
		}
	})
}

// lesson L15: of a batch whose connection is lost, what was answered counts, and nothing is sent
// again.
func TestAConnectionThatIsLostWithinABatch(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, func(b *bench) {
				gate, slow := b.occupy()
				b.cutOff("cut")
				before, cut := b.start(b.Context(), "before"), b.start(b.Context(), "cut")
				after := b.start(b.Context(), "after")
				close(gate)
				slow.granted()
				for _, r := range (all{before, cut, after}) {
					if synctest.Wait(); r.times != 1 {
						t.Errorf("%s: %d outcomes", r.key, r.times)
					}
				}
				cut.failed(false)
				after.failed(false)
				for _, key := range []string{"before", "cut", "after"} {
					if n := b.arrived(key); n > 1 {
						t.Errorf("%s was sent %d times", key, n)
					}
				}
				b.start(b.Context(), "later").granted()
			})
		})
	}
}

// forgetful is a wrapper that loses the replies of a batch.
type forgetful struct{ client.Client }

func (f forgetful) DoMulti(ctx context.Context, cmds ...client.Completed) []client.RedisResult {
	return f.Client.DoMulti(ctx, cmds...)[:1]
}

// A reply that a wrapper does not pass on is a failure, and not that somebody else has the key.
func TestAReplyThatIsMissingIsAFailure(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.pool = rueidis.NewPool(forgetful{b.client})
		gate, slow := b.occupy()
		told, lost := b.start(b.Context(), "told"), b.start(b.Context(), "lost")
		close(gate)
		slow.granted()
		told.granted()
		lost.failed(false)
	})
}

// panicking is a client that panics when it sends one key.
type panicking struct{ client.Client }

func (p panicking) Do(ctx context.Context, cmd client.Completed) client.RedisResult {
	return p.DoMulti(ctx, cmd)[0]
}

func (p panicking) DoMulti(ctx context.Context, cmds ...client.Completed) []client.RedisResult {
	for _, c := range cmds {
		if words := c.Commands(); len(words) > 1 && words[1] == "panic" {
			panic("no such luck")
		}
	}
	return p.Client.DoMulti(ctx, cmds...)
}

func (p panicking) Dedicate() (client.DedicatedClient, func()) { panic("no such luck") }

// A panic of the client is the failure of the commands that it was sending.
func TestAPanicIsAFailure(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.pool = rueidis.NewPool(panicking{b.client})
		_, setErr := b.pool.SetNX(b.Context(), "panic", "v", time.Hour)
		_, doErr := b.pool.Do(b.Context(), "GET", "panic")
		_, subErr := b.pool.Subscribe(b.within(time.Minute), "c")
		started := b.start(b.Context(), "panic")
		for _, err := range []error{setErr, doErr, subErr, started.err} {
			var why *pool.PanicError
			if !errors.As(err, &why) || !strings.Contains(err.Error(), "no such luck") {
				t.Errorf("a client that panics: %v", err)
			}
		}
		gate, slow := b.occupy()
		one, panics := b.start(b.Context(), "one"), b.start(b.Context(), "panic")
		close(gate)
		slow.granted()
		for _, r := range (all{one, panics}) {
			var why *pool.PanicError
			if synctest.Wait(); r.times != 1 || !errors.As(r.err, &why) {
				t.Errorf("%s: %d outcomes, %v, want the panic", r.key, r.times, r.err)
			}
		}
		b.start(b.Context(), "after").granted()
	})
}

// lesson L96: without a PING now and then, a quiet connection would be given up every eleven
// seconds.
func TestAQuietSubscriptionKeepsItsConnection(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, func(b *bench) {
				sub, err := b.pool.Subscribe(b.Context(), "c")
				if err != nil {
					t.Fatal(err)
				}
				before := b.connections()
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := b.connections() - before; n != 0 {
					t.Errorf("%d connections in a quiet minute, want none", n)
				}
				select {
				case message := <-sub.Messages():
					t.Errorf("message %q, want none", message)
				default:
				}
				_ = sub.Close()
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// lesson L41: Subscribe returns with its context, also when the node does not answer.
func TestSubscribeOnANodeThatDoesNotAnswer(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, func(b *bench) {
				for _, what := range []string{"HELLO", "PING", "SUBSCRIBE"} {
					gate := b.hold(what)
					began := time.Now()
					_, err := b.pool.Subscribe(b.within(50*time.Millisecond), "c")
					took := time.Since(began)
					if !errors.Is(err, context.DeadlineExceeded) || took != 50*time.Millisecond {
						t.Errorf("no reply to %s: %v after %v", what, err, took)
					}
					close(gate)
					time.Sleep(10 * time.Second)
				}
			})
		})
	}
}

// An error tells whether the command may have been sent.
func TestACommandThatWasNotSentSaysSo(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, func(b *bench) {
				b.cutOff("cut", "EVALSHA")
				dead, cancel := context.WithCancel(b.Context())
				cancel()
				b.start(dead, "ended").failed(true)
				b.start(b.Context(), "cut").failed(false)
				_, err := b.pool.Eval(b.Context(), release, []string{"k"}, "v")
				if err == nil || errors.Is(err, pool.ErrNotSent) {
					t.Errorf("a lost reply: %v", err)
				}
				b.cutOff("HELLO")
				b.start(b.Context(), "no connection").failed(true)
				_, err = b.pool.Do(b.Context(), "GET", "no connection")
				if !errors.Is(err, pool.ErrNotSent) {
					t.Errorf("Do without a connection: %v", err)
				}
				if n := b.arrived("no connection") + b.arrived("ended"); n > 0 {
					t.Errorf("%d commands were sent that say that they were not", n)
				}
				b.client.Close()
				b.start(b.Context(), "closed").failed(true)
			})
		})
	}
}

// lesson L60: a denied UNSUBSCRIBE is not taken for the denial of a SUBSCRIBE that follows it.
func TestADeniedUnsubscribe(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, func(b *bench) {
				b.deny = "UNSUBSCRIBE"
				gate := b.hold("UNSUBSCRIBE")
				first, err := b.pool.Subscribe(b.Context(), "c")
				if err != nil {
					t.Fatal(err)
				}
				_ = first.Close()
				if b.arrived("UNSUBSCRIBE") == 0 {
					t.Error("there is no UNSUBSCRIBE")
				}
				time.AfterFunc(time.Millisecond, func() { close(gate) })
				again, err := b.pool.Subscribe(b.Context(), "c")
				if err != nil {
					t.Fatal(err)
				}
				_ = again.Close()
			})
		})
	}
}

// That a connection was lost while nobody used it does not mean that the node cannot be reached.
func TestAConnectionThatIsLostWhileIdle(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, func(b *bench) {
				b.start(b.Context(), "before").granted()
				b.mu.Lock()
				for _, c := range b.conns {
					_ = c.Close()
				}
				b.mu.Unlock()
				b.pool = rueidis.NewPool(b.client) // which has not reached the node
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				defer cancel()
				b.start(ctx, "after").granted()
			})
		})
	}
}
