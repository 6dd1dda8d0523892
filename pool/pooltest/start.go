package pooltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// started is a Pool whose commands are not called but started.
type started struct {
	pool.Pool
	starter pool.Starter
	t       *testing.T
}

func (s *started) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool,
	error) {
	reply, err := s.run(ctx, pool.SetNX(key, value, expiry))
	ok, isBool := reply.(bool)
	if err == nil && !isBool {
		s.t.Errorf("a started SetNX was answered by %T %v, want a bool", reply, reply)
	}
	return ok && err == nil, err
}

func (s *started) Eval(ctx context.Context, script *pool.Script, keys []string, args ...any) (any,
	error) {
	return s.run(ctx, pool.Eval(script, keys, args...))
}

// Start starts a command as the calls do.
func (s *started) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	s.starter.Start(ctx, c, to)
}

// Do is the Pool's, if it has one.
func (s *started) Do(ctx context.Context, args ...any) (any, error) {
	d, ok := s.Pool.(pool.Doer)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return d.Do(ctx, args...)
}

// run starts a command and waits for its outcome.
func (s *started) run(ctx context.Context, c *pool.Command) (any, error) {
	r := &receiver{t: s.t, done: make(chan struct{})}
	s.starter.Start(ctx, c, r)
	select {
	case <-r.done:
		return r.reply, r.err
	case <-time.After(limit):
		return nil, errNotTold
	}
}

// carried starts commands by Carry.
type carried struct{ carrier pool.Carrier }

func (c carried) Start(ctx context.Context, command *pool.Command, to pool.Receiver) {
	c.carrier.Carry(ctx, command, to)
}

var errNotTold = fmt.Errorf("pooltest: the outcome of a command was not told to its receiver "+
	"within %v", limit)

// receiver is told an outcome, once.
type receiver struct {
	t     *testing.T
	times atomic.Int64
	reply any
	err   error
	done  chan struct{}
}

func (r *receiver) Receive(reply any, err error) {
	if r.times.Add(1) > 1 {
		r.t.Errorf("Receive was called again, with %v, %v", reply, err)
		return
	}
	r.reply, r.err = reply, err
	close(r.done)
}

var startTests = []test{
	// The next command of a lock is sent when the outcome of the last is told.
	{"may be called by Receive", func(s *suite) { // lesson L94
		const chains, length = 8, 25
		ends := make(chan error, chains)
		for i := range chains {
			starter, k := s.pool.(pool.Starter), s.key(strconv.Itoa(i))
			n := 0
			var next func()
			next = func() {
				starter.Start(s.ctx, pool.Eval(count, []string{k}),
					receive(func(reply any, err error) {
						n++
						if err == nil && reply != int64(n) {
							err = fmt.Errorf("count = %T %v, want %d", reply, reply, n)
						}
						if err != nil || n == length {
							ends <- err
							return
						}
						next()
					}))
			}
			go next() // which may wait for ever for that lock
		}
		end := time.After(arrival)
		for range chains {
			select {
			case err := <-ends:
				if err != nil {
					s.Error(err)
				}
			case <-end:
				s.Fatal("a command that Receive started has no outcome: Start may wait for a " +
					"lock that is held during Receive")
			}
		}
	}},

	// Adapters may put releases together, which a node executes as one command.
	{"tells the outcome of each of many releases", func(s *suite) {
		type lock struct {
			holds string // the key, before
			waits bool   // somebody is in the queue
			want  any    // or a negative number, if nil
			after any    // whether the key has the value, as the script same says it
		}
		cases := []lock{
			{holds: "v", want: int64(1), after: int64(-1)},
			{holds: "w", want: nil, after: int64(0)},
			{holds: "v", want: int64(1), after: int64(-1)},
			{holds: "", want: int64(0), after: int64(-1)},
			{holds: "v", waits: true, want: int64(2), after: int64(0)}, // it is kept for them
		}
		const many = 100
		var told sync.WaitGroup
		replies := make([]any, many)
		keys := make([][]string, many)
		for i := range keys {
			key := s.key(strconv.Itoa(i))
			keys[i] = []string{key, key + ":queue"}
			l := cases[i%len(cases)]
			if l.holds != "" {
				s.lock(key, l.holds, expiry)
			}
			if l.waits {
				s.eval(queue, keys[i][1:], "somebody")
			}
		}
		for i := range keys {
			told.Add(1)
			command := pool.Eval(scripts.Release, keys[i], "v", expiry.Milliseconds())
			command.Joint = scripts.Releases
			s.pool.(pool.Starter).Start(s.ctx, command,
				receive(func(reply any, err error) {
					defer told.Done()
					replies[i] = reply
					if err != nil {
						s.Errorf("release %d: %v", i, err)
					}
				}))
		}
		told.Wait()
		for i, reply := range replies {
			l := cases[i%len(cases)]
			if ms, isInt := reply.(int64); l.want == nil && isInt && ms < 0 {
				l.want = ms
			}
			s.want(fmt.Sprint("release ", i), reply, l.want)
			s.want(fmt.Sprint("the key of release ", i), s.eval(same, keys[i][:1], "v"), l.after)
		}
	}},

	// A lock starts one Command on all its nodes at the same time.
	{"does not change the command", func(s *suite) { // lesson L94
		starter := s.pool.(pool.Starter)
		script := s.script("join", "return KEYS[1] .. ' ' .. ARGV[1]")
		eval, set := pool.Eval(script, []string{s.key("k")}, "x"),
			pool.SetNX(s.key("k"), "v", expiry)
		sent := slices.Concat(eval.Args(), set.Args())
		var granted atomic.Int64
		var told sync.WaitGroup
		for range 32 {
			told.Add(2)
			starter.Start(s.ctx, eval, receive(func(reply any, err error) {
				defer told.Done()
				if want := s.key("k") + " x"; reply != want || err != nil {
					s.Errorf("a command that was started more than once = %v, %v, want %q", reply,
						err, want)
				}
			}))
			starter.Start(s.ctx, set, receive(func(reply any, err error) {
				defer told.Done()
				if err != nil {
					s.Error(err)
				}
				if reply == true {
					granted.Add(1)
				}
			}))
		}
		told.Wait()
		s.want("the grants of a SET NX that was started 32 times", granted.Load(), int64(1))
		if now := slices.Concat(eval.Args(), set.Args()); !slices.Equal(now, sent) {
			s.Errorf("Start changed the arguments %v to %v", sent, now)
		}
	}},

	{"tells the outcome once when the context has ended", func(s *suite) {
		starter := s.pool.(pool.Starter)
		for i := range 50 {
			ctx, cancel := context.WithTimeout(s.ctx, time.Duration(i)*20*time.Microsecond)
			var times atomic.Int64
			done := make(chan struct{}, 2)
			starter.Start(ctx, pool.Eval(echo, nil, "x"), receive(func(any, error) {
				times.Add(1)
				done <- struct{}{}
			}))
			select {
			case <-done:
			case <-time.After(limit):
				s.Fatal(errNotTold)
			}
			cancel()
			s.want("echo afterwards", s.eval(echo, nil, "y"), "y")
			s.want("the number of outcomes", times.Load(), int64(1))
		}
	}},
}

// receive is a pool.Receiver.
type receive func(reply any, err error)

func (r receive) Receive(reply any, err error) { r(reply, err) }
