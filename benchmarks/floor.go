package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
)

// floor is what a lock cannot cost less than with a client: no deadlines, no retries, no clean-up.
var floor = []*contender{
	{
		name: bare, client: onGoredis, bare: true, options: goredisOptions,
		open: func(addrs []string) (locker, error) {
			return openBare(addrs, func(addr string) bareNode {
				return bareGoredis{goredisClient(addr)}
			}), nil
		},
	},
	{
		name: bareOnRedigo, client: onRedigo, bare: true, options: redigoOptions,
		open: func(addrs []string) (locker, error) {
			return openBare(addrs, func(addr string) bareNode {
				return bareRedigo{redigoPool(addr)}
			}), nil
		},
	},
	{
		name: batcher, client: onGoredis, bare: true, options: goredisOptions,
		open: func(addrs []string) (locker, error) { return openBatcher(addrs) },
	},
}

const (
	bare         = "bare go-redis"
	bareOnRedigo = "bare redigo"
	batcher      = "bare batcher"
)

const deleteText = `if redis.call('GET', KEYS[1]) == ARGV[1] then ` +
	`return redis.call('DEL', KEYS[1]) end return 0`

var errNotGranted = errors.New("not granted")

// bareNode is a node behind a client.
type bareNode interface {
	set(ctx context.Context, name, value string) error
	remove(name, value string) error
	Close() error
}

// bareLocker is what one would write by hand: SET NX PX and a compare-and-delete script to every
// node at once, one round trip each, and a wait for every reply.
type bareLocker struct{ nodes []bareNode }

func openBare(addrs []string, node func(addr string) bareNode) *bareLocker {
	l := &bareLocker{}
	for _, a := range addrs {
		l.nodes = append(l.nodes, node(a))
	}
	return l
}

func (l *bareLocker) Lock(ctx context.Context, name string) (func() error, error) {
	value := rand.Text()
	err := l.all(func(n bareNode) error { return n.set(ctx, name, value) })
	return func() error {
		return l.all(func(n bareNode) error { return n.remove(name, value) })
	}, err
}

func (l *bareLocker) all(do func(bareNode) error) error {
	if len(l.nodes) == 1 {
		return do(l.nodes[0])
	}
	replies := make(chan error, len(l.nodes))
	for _, n := range l.nodes {
		go func() { replies <- do(n) }()
	}
	var failed error
	for range l.nodes {
		if err := <-replies; err != nil {
			failed = err
		}
	}
	return failed
}

func (l *bareLocker) Close() {
	for _, n := range l.nodes {
		_ = n.Close()
	}
}

type bareGoredis struct{ *goredis.Client }

var deleteOnGoredis = goredis.NewScript(deleteText)

func (c bareGoredis) set(ctx context.Context, name, value string) error {
	return c.SetArgs(ctx, name, value, goredis.SetArgs{Mode: "NX", TTL: expiry}).Err()
}

func (c bareGoredis) remove(name, value string) error {
	return deleteOnGoredis.Run(context.Background(), c, []string{name}, value).Err()
}

type bareRedigo struct{ *redis.Pool }

var deleteOnRedigo = redis.NewScript(1, deleteText)

func (p bareRedigo) set(ctx context.Context, name, value string) error {
	return p.with(ctx, func(c redis.Conn) error {
		_, err := redis.String(c.Do("SET", name, value, "NX", "PX", expiry.Milliseconds()))
		return err
	})
}

func (p bareRedigo) remove(name, value string) error {
	return p.with(context.Background(), func(c redis.Conn) error {
		_, err := deleteOnRedigo.Do(c, name, value)
		return err
	})
}

func (p bareRedigo) with(ctx context.Context, f func(redis.Conn) error) error {
	c, err := p.GetContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// batchLocker is the floor of what shares round trips. It has a goroutine for each node, which
// sends all that waits as one pipeline. A caller goes on when a majority has answered.
type batchLocker struct {
	nodes  []*batchNode
	remove string // the hash of the script
	ended  sync.WaitGroup
}

func openBatcher(addrs []string) (*batchLocker, error) {
	l := &batchLocker{}
	for _, a := range addrs {
		n := &batchNode{client: goredisClient(a), wake: make(chan struct{}, 1)}
		hash, err := n.client.ScriptLoad(context.Background(), deleteText).Result()
		if err != nil {
			_ = n.client.Close()
			l.Close()
			return nil, err
		}
		l.nodes, l.remove = append(l.nodes, n), hash
		l.ended.Go(n.serve)
	}
	return l, nil
}

func (l *batchLocker) Lock(_ context.Context, name string) (func() error, error) {
	value := rand.Text()
	err := l.ask("set", name, value, "nx", "px", expiry.Milliseconds())
	return func() error { return l.ask("evalsha", l.remove, 1, name, value) }, err
}

// ask sends a command to every node.
func (l *batchLocker) ask(command ...any) error {
	q := &question{command: command, majority: int32(len(l.nodes)/2 + 1),
		decided: make(chan struct{})}
	for _, n := range l.nodes {
		n.add(q)
	}
	<-q.decided
	if q.granted.Load() < q.majority {
		return errNotGranted
	}
	return nil
}

func (l *batchLocker) Close() {
	for _, n := range l.nodes {
		close(n.wake)
	}
	l.ended.Wait()
	for _, n := range l.nodes {
		_ = n.client.Close()
	}
}

// question is a command that callers wait for.
type question struct {
	command          []any
	majority         int32
	granted, refused atomic.Int32
	decided          chan struct{} // closed when a majority has said the same
}

func (q *question) answer(err error) {
	votes := &q.granted
	if err != nil {
		votes = &q.refused
	}
	if votes.Add(1) == q.majority {
		close(q.decided)
	}
}

type batchNode struct {
	client *goredis.Client
	wake   chan struct{} // closed by Close
	mu     sync.Mutex    // guards next
	next   []*question
}

func (n *batchNode) add(q *question) {
	n.mu.Lock()
	n.next = append(n.next, q)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// serve sends what waits, until wake is closed.
func (n *batchNode) serve() {
	ctx := context.Background()
	var now []*question
	for range n.wake {
		n.mu.Lock()
		now, n.next = n.next, now[:0]
		n.mu.Unlock()
		if len(now) == 0 {
			continue
		}
		pipe := n.client.Pipeline()
		for _, q := range now {
			pipe.Do(ctx, q.command...)
		}
		replies, _ := pipe.Exec(ctx)
		for i, r := range replies {
			now[i].answer(r.Err())
		}
	}
}
