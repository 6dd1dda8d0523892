package pooltest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pooltest"
	"github.com/redlock-go/redlock/pool/redigo"
)

func TestAThirdPartyAdapter(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]func(*testing.T) string{
		"embedded": func(t *testing.T) string { return redistest.Embedded(t, 1)[0].Addr() },
		"real":     func(t *testing.T) string { return redistest.Start(t, 1)[0].Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &node{addr: addr(t), idle: make(chan *redistest.Conn, 100)}
			t.Run("two methods", func(t *testing.T) {
				pooltest.Run(t, func(*testing.T) pool.Pool { return n })
			})
			t.Run("subscriber", func(t *testing.T) { // lesson L92
				s := newSubscriber(n)
				pooltest.Run(t, func(*testing.T) pool.Pool { return s })
			})
		})
	}
}

func TestTheExample(t *testing.T) {
	t.Parallel()
	testPool(t)
}

// lesson L92: a Subscriber took 152 lines, and passed less.
func TestAnAdapterIsShort(t *testing.T) {
	for file, limit := range map[string]int{"adapter_test.go": 60, "subscriber_test.go": 70} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(source, []byte("\n")); n >= limit {
			t.Errorf("%s has %d lines, want under %d", file, n, limit)
		}
	}
}

func TestScriptIDs(t *testing.T) { // lesson L38
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) redistest.Node{
		"embedded": func(t *testing.T) redistest.Node { return redistest.Embedded(t, 1)[0] },
		"real":     func(t *testing.T) redistest.Node { return redistest.Start(t, 1)[0] },
	} {
		t.Run(name, func(t *testing.T) {
			n := open(t)
			for _, script := range pooltest.Scripts {
				if id := n.Must("SCRIPT", "LOAD", script.Source); id != script.ID {
					t.Errorf("the ID of %s is %s, want %s", script.Name, script.ID, id)
				}
			}
		})
	}
}

// broken is a good Pool with one of its methods replaced.
type broken struct {
	*redigo.Pool
	set  func(ctx context.Context, key, value string, expiry time.Duration) (bool, error)
	eval func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error)
	sub  func(ctx context.Context, channel string) (pool.Subscription, error)
	do   func(ctx context.Context, args []any) (any, error)

	start func(ctx context.Context, c *pool.Command, to pool.Receiver)

	only []string // groups in which it differs, if not wherever the suite calls the method
}

// starting is a broken Pool that has a Start.
type starting struct{ *broken }

func (s starting) Start(ctx context.Context, c *pool.Command,
	to pool.Receiver) {
	s.start(ctx, c, to)
}

func (b *broken) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	if b.set == nil {
		return b.Pool.SetNX(ctx, key, value, expiry)
	}
	return b.set(ctx, key, value, expiry)
}

func (b *broken) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any,
	error) {
	if b.eval == nil {
		return b.Pool.Eval(ctx, s, keys, args...)
	}
	return b.eval(ctx, s, keys, args)
}

func (b *broken) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	if b.sub == nil {
		return b.Pool.Subscribe(ctx, channel)
	}
	return b.sub(ctx, channel)
}

func (b *broken) Do(ctx context.Context, args ...any) (any, error) {
	if b.do == nil {
		return b.Pool.Do(ctx, args...)
	}
	return b.do(ctx, args)
}

// subscription is a good one with another channel of messages.
type subscription struct {
	pool.Subscription
	messages chan string
}

func (s *subscription) Messages() <-chan string { return s.messages }

// relay passes messages on as f says.
func relay(p pool.Subscriber, ctx context.Context, channel string,
	f func(out chan string, message string)) (pool.Subscription, error) {
	sub, err := p.Subscribe(ctx, channel)
	if err != nil {
		return nil, err
	}
	out := make(chan string, 1)
	go func() {
		for message := range sub.Messages() {
			f(out, message)
		}
	}()
	return &subscription{sub, out}, nil
}

// defects are mistakes that adapters made or could make, and the group of
// subtests that must find each of them.
var defects = map[string]func(p *redigo.Pool, b *broken){
	"SetNX/rounds the expiry up": func(p *redigo.Pool, b *broken) {
		b.set = func(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
			return p.SetNX(ctx, key, value, expiry+time.Millisecond-1)
		}
	},
	"SetNX/cuts the expiry to seconds": func(p *redigo.Pool, b *broken) {
		b.set = func(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
			return p.SetNX(ctx, key, value,
				max(expiry.Truncate(time.Second), min(expiry, time.Second)))
		}
	},
	"SetNX/sets a key that never expires": func(p *redigo.Pool, b *broken) {
		b.set = func(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
			if expiry < time.Millisecond {
				reply, err := p.Do(ctx, "SET", key, value, "NX")
				return reply == "OK", err
			}
			return p.SetNX(ctx, key, value, expiry)
		}
	},
	"SetNX/overwrites": func(p *redigo.Pool, b *broken) {
		b.set = func(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
			_, err := p.Do(ctx, "SET", key, value, "PX", expiry.Milliseconds())
			return err == nil, err
		}
	},
	"SetNX/reports a taken key as an error": func(p *redigo.Pool, b *broken) {
		b.set = func(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
			ok, err := p.SetNX(ctx, key, value, expiry)
			if !ok && err == nil {
				err = redis.ErrNil
			}
			return ok, err
		}
	},
	"SetNX/trims values": func(p *redigo.Pool, b *broken) {
		b.set = func(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
			return p.SetNX(ctx, key, strings.TrimSpace(value), expiry)
		}
	},
	"SetNX/ends keys at a zero byte": func(p *redigo.Pool, b *broken) {
		b.set = func(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
			key, _, _ = strings.Cut(key, "\x00")
			return p.SetNX(ctx, key, value, expiry)
		}
	},
	"Context/SetNX ignores the context": func(p *redigo.Pool, b *broken) {
		b.set = func(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
			return p.SetNX(context.WithoutCancel(ctx), key, value, expiry)
		}
	},
	"Context/Eval sends, then looks at the context": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			reply, err := p.Eval(context.WithoutCancel(ctx), s, keys, args...)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return reply, err
		}
	},
	"Concurrency/hands out other callers' replies": func(p *redigo.Pool, b *broken) {
		replies := make(chan any, 1)
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			reply, err := p.Eval(ctx, s, keys, args...)
			select {
			case replies <- reply:
				time.Sleep(time.Millisecond)
				return <-replies, err
			case other := <-replies:
				replies <- reply
				return other, err
			}
		}
	},
	"Eval/returns int": mapReply(func(reply any) any {
		if n, ok := reply.(int64); ok {
			return int(n)
		}
		return reply
	}),
	"Eval/returns bytes": mapReply(func(reply any) any {
		if s, ok := reply.(string); ok && s != "" && len(s) != 40 {
			return []byte(s)
		}
		return reply
	}),
	"Eval/takes an empty string for null": mapReply(func(reply any) any {
		if reply == "" {
			return nil
		}
		return reply
	}),
	"Eval/takes 1 for true": mapReply(func(reply any) any {
		if reply == int64(1) {
			return true
		}
		return reply
	}),
	"Eval/returns null as an error": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			reply, err := p.Eval(ctx, s, keys, args...)
			if reply == nil && err == nil {
				err = redis.ErrNil
			}
			return reply, err
		}
	},
	"Eval/returns null of a known script as an error": func(p *redigo.Pool, b *broken) {
		var known sync.Map
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			reply, err := p.Eval(ctx, s, keys, args...)
			if _, before := known.Swap(s.ID, true); before && reply == nil && err == nil {
				err = redis.ErrNil
			}
			return reply, err
		}
	},
	"Eval/swallows errors": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			reply, _ := p.Eval(ctx, s, keys, args...)
			return reply, nil
		}
	},
	"Eval/hides what the error was": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			reply, err := p.Eval(ctx, s, keys, args...)
			if err != nil {
				err = errors.New("something went wrong")
			}
			return reply, err
		}
	},
	"Eval/does not know EVAL": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			all := []any{"EVALSHA", s.ID, len(keys)}
			for _, key := range keys {
				all = append(all, key)
			}
			return p.Do(ctx, append(all, args...)...)
		}
	},
	"Eval/adds a prefix in place": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			for i := range keys {
				keys[i] = "prefix:" + keys[i]
			}
			return p.Eval(ctx, s, keys, args...)
		}
	},
	"Eval/adds a prefix in place and takes it away": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			for i := range keys {
				keys[i] = "prefix:" + keys[i]
			}
			defer func() {
				for i := range keys {
					keys[i] = strings.TrimPrefix(keys[i], "prefix:")
				}
			}()
			return p.Eval(ctx, s, keys, args...)
		}
	},
	"Eval/appends to the arguments": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			return p.Eval(ctx, s, keys, append(args, "more")[:len(args)]...)
		}
	},
	"Do/returns a map of its own": func(p *redigo.Pool, b *broken) {
		b.do = mapped(p, func(pairs []any) any {
			return map[string]string{pairs[0].(string): pairs[1].(string)}
		})
	},
	"Do/returns pairs": func(p *redigo.Pool, b *broken) {
		b.do = mapped(p, func(pairs []any) any { return []any{pairs[:2], pairs[2:4], pairs[4:]} })
	},
	"Start/Start/tells outcomes with a lock held": func(p *redigo.Pool, b *broken) {
		var mu sync.Mutex
		b.start = func(ctx context.Context, c *pool.Command, to pool.Receiver) {
			mu.Lock()
			defer mu.Unlock()
			go func() {
				reply, err := c.Run(ctx, p)
				mu.Lock()
				defer mu.Unlock()
				to.Receive(reply, err)
			}()
		}
	},
	"Start/Start/calls with a lock held": func(p *redigo.Pool, b *broken) {
		var mu sync.Mutex
		b.start = func(ctx context.Context, c *pool.Command, to pool.Receiver) {
			mu.Lock()
			defer mu.Unlock()
			reply, err := c.Run(ctx, p)
			to.Receive(reply, err)
		}
	},
	"Start/tells outcomes twice": func(p *redigo.Pool, b *broken) {
		b.start = func(ctx context.Context, c *pool.Command, to pool.Receiver) {
			reply, err := c.Run(ctx, p)
			to.Receive(reply, err)
			to.Receive(reply, err)
		}
	},
	"Start/adds a prefix in place": func(p *redigo.Pool, b *broken) {
		b.start = func(ctx context.Context, c *pool.Command, to pool.Receiver) {
			args := c.Args()
			if c.Script() == nil {
				args[1] = "prefix:" + args[1].(string)
				ok, err := p.SetNX(ctx, args[1].(string), args[2].(string),
					time.Duration(args[5].(int64))*time.Millisecond)
				to.Receive(ok, err)
				return
			}
			reply, err := c.Run(ctx, p)
			to.Receive(reply, err)
		}
	},
	"Start/answers a SET as the node does": func(p *redigo.Pool, b *broken) {
		b.start = func(ctx context.Context, c *pool.Command, to pool.Receiver) {
			reply, err := c.Run(ctx, p)
			if reply == true {
				reply = "OK"
			}
			to.Receive(reply, err)
		}
	},
	"Eval/sends again what failed": func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			if s.Name == "count" {
				_, _ = p.Eval(ctx, s, keys, args...)
			}
			return p.Eval(ctx, s, keys, args...)
		}
	},
	"Subscribe/returns before the node confirmed": func(p *redigo.Pool, b *broken) {
		b.sub = func(ctx context.Context, channel string) (pool.Subscription, error) {
			out := make(chan string, 16)
			inner := make(chan pool.Subscription, 1)
			go func() {
				time.Sleep(300 * time.Millisecond) // more than a busy machine takes to publish
				sub, err := p.Subscribe(context.WithoutCancel(ctx), channel)
				if err != nil {
					return
				}
				inner <- sub
				for message := range sub.Messages() {
					out <- message
				}
			}()
			return &lateSubscription{inner, out}, ctx.Err()
		}
	},
	"Subscribe/takes channels for patterns": func(p *redigo.Pool, b *broken) {
		b.sub = func(ctx context.Context, channel string) (pool.Subscription, error) {
			if strings.HasSuffix(channel, "*") {
				channel = strings.TrimSuffix(channel, "*") + "other"
			}
			return p.Subscribe(ctx, channel)
		}
	},
	"Subscribe/trims messages": func(p *redigo.Pool, b *broken) {
		b.sub = func(ctx context.Context, channel string) (pool.Subscription, error) {
			return relay(p, ctx, channel,
				func(out chan string, m string) { out <- strings.TrimSpace(m) })
		}
	},
	"Subscribe/delivers twice": func(p *redigo.Pool, b *broken) {
		b.sub = func(ctx context.Context, channel string) (pool.Subscription, error) {
			return relay(p, ctx, channel, func(out chan string, m string) { out <- m; out <- m })
		}
	},
	"Subscribe/drops messages": func(p *redigo.Pool, b *broken) {
		b.sub = func(ctx context.Context, channel string) (pool.Subscription, error) {
			kept := make(chan string, 100)
			sub, err := relay(p, ctx, channel, func(_ chan string, m string) {
				select {
				case kept <- m:
				default:
				}
			})
			return &subscription{sub, kept}, err
		}
	},
	"Subscribe/ends with the context": func(p *redigo.Pool, b *broken) {
		b.sub = func(ctx context.Context, channel string) (pool.Subscription, error) {
			sub, err := p.Subscribe(ctx, channel)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = sub.Close() })
			}
			return sub, err
		}
	},
	"Subscribe/never unsubscribes": func(p *redigo.Pool, b *broken) {
		b.sub = func(ctx context.Context, channel string) (pool.Subscription, error) {
			sub, err := p.Subscribe(ctx, channel)
			if err != nil {
				return nil, err
			}
			return &deafSubscription{sub}, nil
		}
	},
}

func mapReply(f func(any) any) func(*redigo.Pool, *broken) {
	return func(p *redigo.Pool, b *broken) {
		b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
			reply, err := p.Eval(ctx, s, keys, args...)
			return f(reply), err
		}
	}
}

type lateSubscription struct {
	inner chan pool.Subscription
	out   chan string
}

func (s *lateSubscription) Messages() <-chan string { return s.out }
func (s *lateSubscription) Close() error {
	select {
	case sub := <-s.inner:
		return sub.Close()
	default:
		return nil
	}
}

type deafSubscription struct{ pool.Subscription }

func (s *deafSubscription) Close() error { return nil }

// TestDefects runs the suite in a process of its own for each defect, because it must
// fail there. A real server costs a third of what scripts cost an embedded one; the gate runs it on
// both.
func TestDefects(t *testing.T) {
	if name := os.Getenv("POOLTEST_DEFECT"); name != "" {
		addr := redistest.Nodes(t, 1)[0].Addr()
		pooltest.Run(t, func(t *testing.T) pool.Pool {
			dial := func(ctx context.Context) (redis.Conn, error) {
				return redis.DialContext(ctx, "tcp", addr)
			}
			p := &redis.Pool{DialContext: dial, MaxIdle: 32} // fewer would dial for most commands
			t.Cleanup(func() { _ = p.Close() })
			b := &broken{Pool: redigo.NewPool(p)}
			switch {
			case defects[name] != nil:
				defects[name](b.Pool, b)
				pooltest.Hurry()
			case tolerated[name] != nil:
				tolerated[name](b.Pool, b)
			default:
				watch(t, b)
			}
			if b.start != nil {
				return starting{b}
			}
			return b
		})
		return
	}
	t.Parallel()
	if out, err := runDefect("none", []string{".*"}); err != nil {
		t.Fatalf("without a defect the suite fails: %v\n%s", err, out)
	}
	for defect := range defects {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			group := defect[:strings.LastIndex(defect, "/")]
			out, err := runDefect(defect, []string{group})
			if err == nil {
				t.Errorf("the suite did not find it:\n%s", out)
			}
			if !strings.Contains(out, "--- FAIL: TestDefects/"+group+"/") {
				t.Errorf("the suite broke instead of failing: %v\n%s", err, out)
			}
		})
	}
}

// runDefect runs groups of the suite on a Pool with a defect, and returns what go test says.
func runDefect(defect string, groups []string) (string, error) {
	var patterns []string
	for _, group := range groups {
		patterns = append(patterns, "^TestDefects$/^"+strings.ReplaceAll(group, "/", "$/^")+"$")
	}
	cmd := exec.Command(os.Args[0], "-test.run="+strings.Join(patterns, "|"), "-test.failfast",
		"-test.timeout=60s", "-test.v")
	cmd.Env = append(os.Environ(), "POOLTEST_DEFECT="+defect)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mapped returns a Do that makes of a reply of keys and values what f does.
func mapped(p *redigo.Pool, f func(pairs []any) any) func(ctx context.Context, args []any) (any,
	error) {
	return func(ctx context.Context, args []any) (any, error) {
		reply, err := p.Do(ctx, args...)
		if pairs, ok := reply.([]any); ok && err == nil {
			reply = f(pairs)
		}
		return reply, err
	}
}

var errUnsupported = fmt.Errorf("the client cannot: %w", errors.ErrUnsupported)

// tolerated are differences between clients that the suite allows, and what it says of them, if it
// leaves something out.
var (
	tolerated = map[string]func(p *redigo.Pool, b *broken){
		"cuts off ERR": func(p *redigo.Pool, b *broken) { // as rueidis and valkey-go
			b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any,
				error) {
				reply, err := p.Eval(ctx, s, keys, args...)
				if err != nil {
					err = errors.New(strings.TrimPrefix(err.Error(), "ERR "))
				}
				if ctx.Err() != nil {
					err = ctx.Err()
				}
				return reply, err
			}
		},
		"returns a map[string]any": func(p *redigo.Pool, b *broken) {
			b.only = callMap
			b.do = mapped(p, func(pairs []any) any {
				m := map[string]any{}
				for i := 0; i < len(pairs); i += 2 {
					m[pairs[i].(string)] = pairs[i+1]
				}
				return m
			})
		},
		"returns a map[string]string": func(p *redigo.Pool, b *broken) {
			b.only = callMap
			b.do = mapped(p, func(pairs []any) any {
				m := map[string]string{}
				for i := 0; i < len(pairs); i += 2 {
					m[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
				}
				return m
			})
		},
		"returns a map[any]any": func(p *redigo.Pool, b *broken) {
			b.only = callMap
			b.do = mapped(p, func(pairs []any) any {
				m := map[any]any{}
				for i := 0; i < len(pairs); i += 2 {
					m[pairs[i]] = pairs[i+1]
				}
				return m
			})
		},
		"cannot subscribe": func(_ *redigo.Pool, b *broken) {
			b.sub = func(context.Context, string) (pool.Subscription, error) {
				return nil,
					errUnsupported
			}
		},
		"cannot send commands": func(_ *redigo.Pool, b *broken) {
			b.do = func(context.Context, []any) (any, error) { return nil, errUnsupported }
		},
		"kills nobody": func(p *redigo.Pool, b *broken) { // another server's connections
			b.do = func(ctx context.Context, args []any) (any, error) {
				if len(args) > 1 && args[0] == "CLIENT" {
					return int64(0), ctx.Err()
				}
				return p.Do(ctx, args...)
			}
		},
		"sees no subscribers": func(p *redigo.Pool, b *broken) { // who are on another server
			b.only = callSubscribe
			b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any,
				error) {
				reply, err := p.Eval(ctx, s, keys, args...)
				if s.Name == "publish" && err == nil {
					reply = int64(0)
				}
				return reply, err
			}
		},
	}
	says = map[string]string{
		"cannot subscribe":     "the Pool cannot do it: the client cannot: unsupported operation",
		"cannot send commands": "the Pool cannot do it: the client cannot: unsupported operation",
		"kills nobody":         "CLIENT KILL TYPE pubsub found no connection",
		"sees no subscribers":  "cannot see who is subscribed",
	}
)

// The groups of the suite that call a method of the Pool, or call it for something. See watch.
var (
	callEval = []string{
		"SetNX", "Eval", "Context", "Concurrency", "Do", "Subscribe", "Start/Start", "Carry/Carry",
	}
	callDo        = []string{"Eval", "Do", "Subscribe", "Start/Eval", "Carry/Eval"}
	callMap       = []string{"Do"}
	callSubscribe = []string{"Subscribe"}
)

// watch fails a test that calls a method and is in none of its groups.
func watch(t *testing.T, b *broken) {
	called := func(method string, groups []string) {
		if !slices.ContainsFunc(groups, func(group string) bool {
			return strings.HasPrefix(t.Name(), "TestDefects/"+group+"/")
		}) {
			t.Errorf("it calls %s, and is not among those that do", method)
		}
	}
	p := b.Pool
	b.eval = func(ctx context.Context, s *pool.Script, keys []string, args []any) (any, error) {
		called("Eval", callEval)
		if s.Name == "publish" {
			called("Eval to publish", callSubscribe)
		}
		return p.Eval(ctx, s, keys, args...)
	}
	b.do = func(ctx context.Context, args []any) (any, error) {
		called("Do", callDo)
		reply, err := p.Do(ctx, args...)
		if _, ok := reply.([]any); ok {
			called("Do for a map", callMap)
		}
		return reply, err
	}
	b.sub = func(ctx context.Context, channel string) (pool.Subscription, error) {
		called("Subscribe", callSubscribe)
		return p.Subscribe(ctx, channel)
	}
}

// A difference is tried where the suite calls the method that differs.
//
// lesson L91
func TestDifferencesThatAreAllowed(t *testing.T) {
	t.Parallel()
	for name, differ := range tolerated {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b broken
			differ(nil, &b)
			groups := callDo
			switch {
			case b.only != nil:
				groups = b.only
			case b.eval != nil:
				groups = callEval
			case b.sub != nil:
				groups = callSubscribe
			}
			out, err := runDefect(name, groups)
			if err != nil {
				t.Errorf("the suite fails: %v\n%s", err, out)
			}
			if !strings.Contains(out, says[name]) {
				t.Errorf("the suite does not say %q", says[name])
			}
		})
	}
}
