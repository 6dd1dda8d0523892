package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// bench is an embedded node behind a client, in virtual time. The test decides when
// the node answers which command.
type bench struct {
	*testing.T
	ctx    context.Context
	node   *miniredis.Miniredis
	client *redis.Client
	pool   *goredis.Pool

	mu    sync.Mutex
	seen  []string                 // commands that arrived: "SET key", "PING", …
	gates map[string]chan struct{} // a command waits at its gate, if it has one
	// A command is executed, and its connection closed instead of a reply.
	cut   map[string]bool
	pipes []int // sizes of the pipelines sent
}

// inBubbleHooked is inBubble with a hook that comes after the Pool's own.
func inBubbleHooked(t *testing.T, hook redis.Hook, f func(b *bench)) {
	inBubble(t, redis.Options{}, func(b *bench) {
		b.client.AddHook(hook)
		f(b)
	})
}

// inBubble runs f in virtual time; the bubble fails if a goroutine is left behind.
func inBubble(t *testing.T, opt redis.Options, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		first, err := m.Dial() // starts the node, which has no Server before
		if err != nil {
			t.Fatal(err)
		}
		_ = first.Close()
		opt.Addr = "127.0.0.1:1" // nobody dials it, and nobody resolves it
		var mu sync.Mutex        // guards closed: a client may still dial when it is closed
		closed := false
		opt.Dialer = func(context.Context, string, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if closed {
				return nil, net.ErrClosed
			}
			return m.Dial()
		}
		b := newBench(t, m, opt)
		f(b)
		b.close()
		mu.Lock()
		closed = true
		mu.Unlock()
		m.Close()
		time.Sleep(time.Minute)
	})
}

// inRealTime runs f in real time, for what cannot be in several bubbles: callers that
// wait for a connection meet in variables of the go-redis package.
func inRealTime(t *testing.T, opt redis.Options, f func(b *bench)) {
	m := miniredis.RunT(t)
	opt.Addr = m.Addr()
	b := newBench(t, m, opt)
	f(b)
	b.close()
}

func newBench(t *testing.T, m *miniredis.Miniredis, opt redis.Options) *bench {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(cancel)
	b := &bench{T: t, ctx: ctx, node: m, gates: map[string]chan struct{}{}, cut: map[string]bool{}}
	m.Server().SetPreHook(func(peer *server.Peer, name string, args ...string) bool {
		command := strings.Join(append([]string{strings.ToUpper(name)},
			args[:min(1, len(args))]...), " ")
		b.mu.Lock()
		b.seen = append(b.seen, command)
		gate, cut := b.gates[command], b.cut[command]
		b.mu.Unlock()
		if gate != nil {
			<-gate
		}
		if cut {
			_ = m.Set(args[0], "cut")
			peer.Close()
		}
		return cut
	})
	b.client = redis.NewClient(&opt)
	b.client.AddHook(b)
	b.pool = goredis.NewPool(b.client)
	return b
}

// close opens all gates and closes the client.
func (b *bench) close() {
	for _, gate := range b.gates {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
	if err := b.client.Close(); err != nil {
		b.Error(err)
	}
}

func (b *bench) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (b *bench) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b *bench) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ours(cmds) {
			b.mu.Lock()
			b.pipes = append(b.pipes, len(cmds))
			b.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

// ours tells a pipeline of the adapter's from one with which the client opens a connection.
func ours(cmds []redis.Cmder) bool { return cmds[0].Name() == "set" || cmds[0].Name() == "evalsha" }

// hold makes the node keep SETs of the key waiting until the gate is closed.
func (b *bench) hold(key string) (gate chan struct{}) {
	gate = make(chan struct{})
	b.keep(key, gate)
	return gate
}

// keep is hold with a gate that several keys may share.
func (b *bench) keep(key string, gate chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gates["SET "+key] = gate
}

// few is how many commands go by themselves at the same time.
const few = 3

// occupy sends that many commands, to the keys "slow0" and so on, which the node keeps waiting
// until the gate is closed. What comes then goes as a pipeline when they have returned.
func (b *bench) occupy() (gate chan struct{}, slow outcomesOf) {
	gate = make(chan struct{})
	for i := range few {
		key := fmt.Sprint("slow", i)
		b.keep(key, gate)
		slow = append(slow, b.set(b.ctx, key))
	}
	return gate, slow
}

// arrived is how often a command reached the node.
func (b *bench) arrived(command string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.seen {
		if s == command {
			n++
		}
	}
	return n
}

func (b *bench) pipelines() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pipes)
}

// outcome is what a SetNX started with set has returned, and when.
type outcome struct {
	done  chan struct{}
	ok    bool
	err   error
	after time.Duration
}

// set is start, in a bubble: SetNX is waiting for something when set returns.
func (b *bench) set(ctx context.Context, key string) *outcome {
	o := b.start(ctx, key)
	synctest.Wait()
	return o
}

// start calls SetNX in a goroutine.
func (b *bench) start(ctx context.Context, key string) *outcome {
	o := &outcome{done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(o.done)
		o.ok, o.err = b.pool.SetNX(ctx, key, "value", time.Hour)
		o.after = time.Since(start)
	}()
	return o
}

// returned reports whether SetNX has returned.
func (o *outcome) returned() bool {
	synctest.Wait()
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

func (o *outcome) granted(t testing.TB) {
	t.Helper()
	if <-o.done; !o.ok || o.err != nil {
		t.Errorf("SetNX = %v, %v, want true", o.ok, o.err)
	}
}

type outcomesOf []*outcome

func (all outcomesOf) granted(t testing.TB) {
	t.Helper()
	for _, o := range all {
		o.granted(t)
	}
}

func (b *bench) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.ctx, d)
	b.Cleanup(cancel)
	return ctx
}

func TestALoneCommandIsSentAtOnce(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		for i := range 3 {
			o := b.set(b.ctx, strconv.Itoa(i))
			o.granted(t)
			if o.after != 0 {
				t.Errorf("it took %v", o.after)
			}
		}
		if p := b.pipelines(); len(p) > 0 {
			t.Errorf("pipelines of %v were sent, want none", p)
		}
	})
}

func TestCommandsThatArriveTogetherShareAPipeline(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		gate, slow := b.occupy()
		var others outcomesOf
		for i := range 10 {
			others = append(others, b.set(b.ctx, strconv.Itoa(i)))
		}
		taken := b.set(b.ctx, "9")
		if n := b.arrived("SET 0"); n != 0 {
			t.Errorf("a command was sent at once beside %d others, want it to wait", few)
		}
		close(gate)
		append(others, slow...).granted(t)
		if <-taken.done; taken.ok || taken.err != nil {
			t.Errorf("SetNX of a key taken in the same pipeline = %v, %v, want false", taken.ok,
				taken.err)
		}
		if p := b.pipelines(); !slices.Equal(p, []int{11}) {
			t.Errorf("pipelines of %v were sent, want one of 11", p)
		}
	})
}

func TestPipelinesAreBounded(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		b.client.AddHook(hooks{ // the bubble's unbuffered connections take no large pipelines
			process: func(next redis.ProcessHook) redis.ProcessHook { return next },
			pipeline: func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
				return func(ctx context.Context, cmds []redis.Cmder) error {
					if !ours(cmds) {
						return next(ctx, cmds)
					}
					for _, cmd := range cmds {
						cmd.(interface{ SetVal(any) }).SetVal("OK")
					}
					return nil
				}
			},
		})
		gate, all := b.occupy()
		for i := range 600 {
			all = append(all, b.set(b.ctx, strconv.Itoa(i)))
		}
		close(gate)
		all.granted(t)
		if p := b.pipelines(); !slices.Equal(p, []int{256, 256, 88}) {
			t.Errorf("pipelines of %v were sent, want 256, 256, 88", p)
		}
	})
}

func TestAQueuedCommandWhoseContextEndsIsNotSent(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		gate, slow := b.occupy()
		ctx, cancel := context.WithCancel(b.ctx)
		var gone []*outcome
		var stay []*outcome
		for i := range 5 { // the first, the last and some in the middle of the queue leave
			gone = append(gone, b.set(ctx, fmt.Sprint("gone", i)))
			if i < 4 {
				stay = append(stay, b.set(b.ctx, fmt.Sprint("stay", i)))
			}
		}
		cancel()
		for _, o := range gone {
			if !o.returned() || !errors.Is(o.err, context.Canceled) || o.after != 0 {
				t.Errorf("a cancelled call: %v after %v, want %v at once", o.err, o.after,
					context.Canceled)
			}
		}
		time.Sleep(2 * time.Millisecond) // until the others go
		close(gate)
		slow.granted(t)
		for i, o := range stay {
			o.granted(t)
			if n := b.arrived(fmt.Sprint("SET gone", i)); n != 0 {
				t.Errorf("a command was sent after its context had ended")
			}
		}
		if p := b.pipelines(); !slices.Equal(p, []int{4}) {
			t.Errorf("pipelines of %v were sent, want one of 4", p)
		}
	})
}

// A node whose round trip takes long makes nobody wait for somebody else's.
func TestALatePipelineDoesNotHoldUpTheNext(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		gate, slow := b.occupy()
		for i := range 5 {
			o, p := b.set(b.ctx, fmt.Sprint("a", i)), b.set(b.ctx, fmt.Sprint("b", i))
			o.granted(t)
			p.granted(t)
			if max(o.after, p.after) > time.Millisecond {
				t.Errorf("commands behind a late one took %v and %v, want 1ms at most", o.after,
					p.after)
			}
		}
		if slow[0].returned() {
			t.Error("a slow command returned")
		}
		close(gate)
		slow.granted(t)
	})
}

// lesson L41: default client options, and a node that does not answer.
func TestAFrozenNodeTiesUpABoundedNumberOfCallers(t *testing.T) {
	inBubble(t, redis.Options{PoolSize: 100}, func(b *bench) {
		gate := b.hold("frozen")
		var all []*outcome
		for range 50 { // new commands keep coming, each with 50 ms of time
			for range 10 {
				all = append(all, b.set(b.within(50*time.Millisecond), "frozen"))
			}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		waiting := 0
		for _, o := range all {
			switch {
			case !o.returned():
				waiting++
			case !errors.Is(o.err, context.DeadlineExceeded):
				t.Errorf("a command to a frozen node: %v, want %v", o.err, context.DeadlineExceeded)
			case o.after != 50*time.Millisecond:
				t.Errorf("a call with 50ms returned after %v", o.after)
			}
		}
		if waiting > 0 {
			t.Errorf("%d of %d callers still wait for a frozen node, want none", waiting, len(all))
		}
		if n := b.arrived("SET frozen"); n != 16+2 { // within 300 ms
			t.Errorf("%d connections wait for a frozen node, want 16, and one more for each 100ms",
				n)
		}
		close(gate)
		for _, o := range all {
			<-o.done
			if o.after > 3*time.Second {
				t.Errorf("a call returned after %v, want no more than the read timeout of 3s",
					o.after)
			}
		}
		b.set(b.ctx, "after").granted(t)
	})
}

// Not even clients that never give up are kept waiting by more and more connections.
func TestConnectionsThatNeverReplyAreBounded(t *testing.T) {
	inBubble(t, redis.Options{PoolSize: 100, ReadTimeout: -1}, func(b *bench) {
		gate := b.hold("frozen")
		var all []*outcome
		for range 1000 {
			all = append(all, b.set(b.within(50*time.Millisecond), "frozen"))
			time.Sleep(10 * time.Millisecond)
		}
		if n := b.arrived("SET frozen"); n != 48 {
			t.Errorf("%d connections wait for a frozen node after 10s, want 48", n)
		}
		close(gate)
		for _, o := range all {
			<-o.done
		}
	})
}

// lesson L58: pipelines that wait for replies on lost connections do not keep a node unasked that
// has come back.
func TestANodeIsAskedBesideLostConnections(t *testing.T) {
	inBubble(t, redis.Options{PoolSize: 100, PipelinePoolSize: 100}, func(b *bench) {
		b.hold("lost")
		var lost []*outcome
		for range 50 {
			lost = append(lost, b.set(b.within(50*time.Millisecond), "lost"))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		for i := range 3 {
			o := b.set(b.within(time.Second), strconv.Itoa(i))
			o.granted(t)
			if o.after > 100*time.Millisecond {
				t.Errorf("a command took %v beside lost connections, want no more than 100ms",
					o.after)
			}
		}
		close(b.gates["SET lost"])
		for _, o := range lost {
			<-o.done
		}
	})
}

// A pipeline that waits for a connection carries in the end the commands of those who
// are still there.
func TestACommandWhoseContextEndsBeforeThereIsAConnectionIsNotSent(t *testing.T) {
	inRealTime(t, redis.Options{PoolSize: 1, PipelinePoolSize: -1}, func(b *bench) {
		for round := range 5 {
			first := strconv.Itoa(round)
			gate := b.hold(first)
			started := b.start(b.ctx, first) // takes off alone, with the only connection
			for b.arrived("SET "+first) == 0 {
				time.Sleep(time.Millisecond)
			}
			short, cancel := context.WithTimeout(b.ctx, 10*time.Millisecond)
			stay, gone := fmt.Sprint("stay", round), fmt.Sprint("gone", round)
			var staying, leaving *outcome
			if round%2 == 0 {
				staying, leaving = b.start(b.ctx, stay), b.start(short, gone)
			} else {
				leaving, staying = b.start(short, gone), b.start(b.ctx, stay)
			}
			<-short.Done()
			cancel()
			close(gate)
			started.granted(t)
			staying.granted(t)
			if <-leaving.done; !errors.Is(leaving.err, context.DeadlineExceeded) {
				t.Errorf("SetNX = %v, %v, want %v", leaving.ok, leaving.err,
					context.DeadlineExceeded)
			}
			if n := b.arrived("SET " + gone); n != 0 {
				t.Errorf("a command was sent after its context had ended")
			}
		}
	})
}

func TestNobodyWaitsForAConnectionThatNobodyNeeds(t *testing.T) {
	inRealTime(t, redis.Options{PoolSize: 1, PipelinePoolSize: -1, PoolTimeout: time.Hour},
		func(b *bench) {
			b.hold("first")
			busy := make(chan error)
			go func() { busy <- b.client.Set(b.ctx, "first", "x", 0).Err() }() // somebody else's
			for b.arrived("SET first") == 0 {
				time.Sleep(time.Millisecond)
			}
			var all []*outcome
			for i := range 5 {
				all = append(all, b.start(b.within(time.Duration(10+i)*time.Millisecond),
					strconv.Itoa(i)))
			}
			for _, o := range all { // long before the connection is free
				if <-o.done; !errors.Is(o.err, context.DeadlineExceeded) || o.after > time.Second {
					t.Errorf("SetNX = %v, %v after %v, want %v", o.ok, o.err, o.after,
						context.DeadlineExceeded)
				}
			}
			told := make(outcomes, 6)
			for i := range cap(told) {
				b.pool.Start(b.within(time.Duration(10+i)*time.Millisecond),
					pool.SetNX("started", "value", time.Hour), told)
			}
			for range cap(told) {
				select {
				case err := <-told:
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("a started SetNX: %v, want %v", err, context.DeadlineExceeded)
					}
				case <-time.After(time.Second):
					t.Error("a started SetNX waits for a connection that nobody needs any more")
				}
			}
			close(b.gates["SET first"])
			if err := <-busy; err != nil {
				t.Error(err)
			}
		})
}

// lesson L15, L93: go-redis by itself would send the SET again and say "taken". Before v9.19 it
// cannot be told not to.
func TestACommandWhoseReplyIsLostIsNotSentAgain(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		b.cut["SET lost"] = true
		lone := b.set(b.ctx, "lost")
		if <-lone.done; lone.err == nil {
			t.Errorf("SetNX = %v, want an error", lone.ok)
		}
		if n := b.arrived("SET lost"); n != 1 {
			t.Errorf("a lone command was sent %d times, want once", n)
		}
		if _, err := b.pool.Do(b.ctx, "SET", "lost", "again"); err == nil {
			t.Error("Do = no error")
		}
		if n := b.arrived("SET lost"); n != 2 {
			t.Errorf("Do sent a command %d times, want once", n-1)
		}
		gate, slow := b.occupy()
		before, lost, after := b.set(b.ctx, "before"), b.set(b.ctx, "lost"), b.set(b.ctx, "after")
		close(gate)
		slow.granted(t)
		for _, o := range []*outcome{before, lost, after} {
			if <-o.done; o.err == nil && o != before {
				t.Errorf("SetNX behind a lost reply = %v, want an error", o.ok)
			}
		}
		if n := b.arrived("SET lost"); n != 3 {
			t.Errorf("a command in a pipeline was sent %d times, want once", n-2)
		}
		if n := b.arrived("SET before"); n != 1 {
			t.Errorf("the command before it was sent %d times, want once", n)
		}
	})
}

// hooks wraps what a client does, for the tests of hooks.
type hooks struct {
	process  func(next redis.ProcessHook) redis.ProcessHook
	pipeline func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook
}

func (h hooks) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h hooks) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h.process(next) }
func (h hooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return h.pipeline(next)
}

// A client that is bounded fails nothing: what needs one more connection waits. One is left.
func TestABoundedClientIsNotUsedUp(t *testing.T) {
	for most := 1; most <= 6; most++ {
		inBubble(t, redis.Options{MaxActiveConns: most, PoolSize: 20}, func(b *bench) {
			gate, slow := b.occupy()
			for i := range 40 {
				key := fmt.Sprint("more", i)
				b.keep(key, gate)
				slow = append(slow, b.set(b.ctx, key))
				time.Sleep(time.Millisecond)
			}
			// Counted by the node: since v9.23 the client has a second pool, for pipelines.
			if n, want := b.node.CurrentConnectionCount(), max(most-1, 1); n != want {
				t.Errorf("%d of %d connections are used, want %d", n, most, want)
			}
			if _, err := b.pool.Do(b.ctx, "PING"); err != nil && most > 1 {
				t.Errorf("with %d connections: Do: %v", most, err)
			}
			close(gate)
			slow.granted(t)
		})
	}
}

// A hook may look at a command when that is long over: no other one takes its place.
func TestAHookMayKeepCommands(t *testing.T) {
	var mu sync.Mutex // guards kept
	var kept []redis.Cmder
	keep := func(cmds ...redis.Cmder) {
		mu.Lock()
		defer mu.Unlock()
		if cmds[0].Name() == "set" { // not how the client opens a connection
			kept = append(kept, cmds...)
		}
	}
	inBubbleHooked(t, hooks{
		process: func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				keep(cmd)
				return next(ctx, cmd)
			}
		},
		pipeline: func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
			return func(ctx context.Context, cmds []redis.Cmder) error {
				keep(cmds...)
				return next(ctx, cmds)
			}
		},
	}, func(b *bench) {
		var keys []string
		for _, together := range []int{1, 3, 1, 5, 3, 1} {
			told := make(outcomes, together)
			for range together {
				keys = append(keys, fmt.Sprint("key", len(keys)))
				b.pool.Start(b.ctx, pool.SetNX(keys[len(keys)-1], "v", time.Hour), told)
			}
			for range together {
				if err := <-told; err != nil {
					t.Error(err)
				}
			}
		}
		if len(kept) != len(keys) {
			t.Fatalf("the hook has seen %d commands, want %d", len(kept), len(keys))
		}
		for _, cmd := range kept { // in any order: several are sent at a time
			key, reply := cmd.Args()[1].(string), cmd.(interface{ Val() any }).Val()
			if i := slices.Index(keys, key); i < 0 || reply != "OK" {
				t.Errorf("a command is about %v now, with the reply %v", key, reply)
			} else {
				keys = slices.Delete(keys, i, i+1)
			}
		}
	})
}

var errHook = errors.New("hook")

// lesson L39
func TestErrorsWrappedByAHook(t *testing.T) {
	wrap := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%w: %w", errHook, err)
	}
	script := &pool.Script{Source: "return 7", ID: "c0ffee0000000000000000000000000000000000"}
	inBubble(t, redis.Options{}, func(b *bench) {
		b.client.AddHook(hooks{
			process: func(next redis.ProcessHook) redis.ProcessHook {
				return func(ctx context.Context,
					cmd redis.Cmder) error {
					return wrap(next(ctx, cmd))
				}
			},
			pipeline: func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
				return func(ctx context.Context, cmds []redis.Cmder) error {
					err := next(ctx, cmds)
					for _, cmd := range cmds {
						cmd.SetErr(wrap(cmd.Err()))
					}
					return wrap(err)
				}
			},
		})
		check := func() {
			if reply, err := b.pool.Eval(b.ctx, script, nil); reply != int64(7) || err != nil {
				t.Errorf("Eval of an unknown script = %v, %v, want 7", reply, err)
			}
			if ok, err := b.pool.SetNX(b.ctx, "taken", "v", time.Hour); ok || err != nil {
				t.Errorf("SetNX of a taken key = %v, %v, want false", ok, err)
			}
		}
		b.set(b.ctx, "taken").granted(t)
		gate, slow := b.occupy()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(check)
		}
		synctest.Wait()
		close(gate)
		slow.granted(t)
		wg.Wait()
		check()
		if len(b.pipelines()) == 0 {
			t.Error("there was no pipeline")
		}
	})
}

func TestAHookThatDoesNotLetCommandsPass(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		var err error
		b.client.AddHook(hooks{
			process: func(next redis.ProcessHook) redis.ProcessHook {
				return func(ctx context.Context, cmd redis.Cmder) error {
					if cmd.Name() == "set" && cmd.Args()[1] == "k" {
						return err
					}
					return next(ctx, cmd)
				}
			},
			pipeline: func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
				return func(ctx context.Context, cmds []redis.Cmder) error {
					if !ours(cmds) {
						return next(ctx, cmds)
					}
					return err
				}
			},
		})
		for _, err = range []error{errHook, nil} {
			_ = b.client.FlushAll(b.ctx).Err()
			if ok, got := b.pool.SetNX(b.ctx, "k", "v", time.Hour); ok || got == nil ||
				err != nil && !errors.Is(got, err) {
				t.Errorf("SetNX = %v, %v, want the hook's error or one for want of a reply", ok,
					got)
			}
			gate, _ := b.occupy()
			all := []*outcome{b.set(b.ctx, "a"), b.set(b.ctx, "b")}
			close(gate)
			for _, o := range all {
				if <-o.done; o.ok || o.err == nil || err != nil && !errors.Is(o.err, err) {
					t.Errorf("SetNX in a pipeline = %v, %v, want the hook's error or one for "+
						"want of a reply", o.ok, o.err)
				}
			}
		}
	})
}

func TestAPanicInAHookLeavesNobodyWaiting(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		b.client.AddHook(hooks{
			process: func(next redis.ProcessHook) redis.ProcessHook {
				return func(ctx context.Context, cmd redis.Cmder) error {
					if cmd.Args()[1] == "panic" {
						panic("hook")
					}
					return next(ctx, cmd)
				}
			},
			pipeline: func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
				return func(ctx context.Context, cmds []redis.Cmder) error {
					if !ours(cmds) {
						return next(ctx, cmds)
					}
					panic("hook")
				}
			},
		})
		lone := b.set(b.ctx, "panic")
		if <-lone.done; lone.err == nil || !strings.Contains(lone.err.Error(), "panicked: hook") {
			t.Errorf("SetNX whose hook panicked = %v, %v, want an error that says so", lone.ok,
				lone.err)
		}
		b.set(b.ctx, "after").granted(t)

		gate, slow := b.occupy()
		crew := []*outcome{b.set(b.ctx, "one"), b.set(b.ctx, "two")}
		close(gate)
		slow.granted(t)
		for _, o := range crew {
			if <-o.done; o.ok || o.err == nil ||
				!strings.Contains(o.err.Error(), "panicked: hook") {
				t.Errorf("SetNX in a pipeline whose hook panicked = %v, %v, want an error that "+
					"says so", o.ok, o.err)
			}
		}
		var started received
		b.pool.Start(b.ctx, pool.SetNX("panic", "v", time.Hour), &started)
		synctest.Wait()
		if started.err == nil || !strings.Contains(started.err.Error(), "panicked: hook") {
			t.Errorf("a started SetNX whose hook panicked = %v, %v, want an error that says so",
				started.reply, started.err)
		}
		b.set(b.ctx, "later").granted(t)
	})
}

// A command is made once for all nodes, and a hook that changes what it is given changes it for
// one of them.
func TestAHookMayChangeArguments(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		b.client.AddHook(hooks{
			process: func(next redis.ProcessHook) redis.ProcessHook {
				return func(ctx context.Context, cmd redis.Cmder) error {
					if args := cmd.Args(); args[0] == "SET" {
						args[1] = "tenant:" + args[1].(string)
					}
					return next(ctx, cmd)
				}
			},
			pipeline: func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
				return next
			},
		})
		set := pool.SetNX("k", "v", time.Hour)
		for _, granted := range []bool{true, false} {
			var r received
			b.pool.Start(b.ctx, set, &r)
			synctest.Wait()
			if r.reply != granted || r.err != nil {
				t.Errorf("SetNX of the same key = %v, %v, want %v", r.reply, r.err, granted)
			}
		}
	})
}

// received is the outcome of a command that was started.
type received struct {
	reply any
	err   error
}

func (r *received) Receive(reply any, err error) { r.reply, r.err = reply, err }

// outcomes are the errors of commands that were started.
type outcomes chan error

func (o outcomes) Receive(_ any, err error) { o <- err }

// lesson L62: a nil client of a type is a nil client.
func TestBadUseIsAnError(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{
		"nil": nil, "Client": (*redis.Client)(nil), "ClusterClient": (*redis.ClusterClient)(nil),
		"Ring": (*redis.Ring)(nil),
	} {
		t.Run(name, func(t *testing.T) {
			var misuse *redlock.OptionError
			err := redlock.New(goredis.NewPool(client)).NewMutex("x").TryLock()
			if !errors.As(err, &misuse) || misuse.Value != "pool 0 is nil" {
				t.Errorf("TryLock with a nil client: %v", err)
			}
		})
	}
}
