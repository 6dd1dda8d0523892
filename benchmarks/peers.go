package main

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	rsredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	rsrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/redis/rueidis/rueidislock"
)

// expiry is the time to live that every contender gives its locks: redlock's and Redsync's default.
const expiry = 8 * time.Second

// peers are the other libraries, with the options that their own documentation shows, unlimited
// tries, and the default options of their clients.
var peers = []*contender{
	{name: "redsync goredis", peer: true, crews: true, open: func(addrs []string) (locker, error) {
		l := &redsyncLocker{}
		var pools []rsredis.Pool
		for _, a := range addrs {
			c := goredis.NewClient(&goredis.Options{Addr: a})
			l.closers = append(l.closers, func() { c.Close() })
			pools = append(pools, rsgoredis.NewPool(c))
		}
		l.rs = redsync.New(pools...)
		return l, nil
	}},
	{name: "redsync redigo", peer: true, open: func(addrs []string) (locker, error) {
		l := &redsyncLocker{}
		var pools []rsredis.Pool
		for _, a := range addrs {
			p := redigoPool(a)
			l.closers = append(l.closers, func() { p.Close() })
			pools = append(pools, rsredigo.NewPool(p))
		}
		l.rs = redsync.New(pools...)
		return l, nil
	}},
	{name: "redsync rueidis", peer: true, open: func(addrs []string) (locker, error) {
		l := &redsyncLocker{}
		var pools []rsredis.Pool
		for _, a := range addrs {
			c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{a}})
			if err != nil {
				l.Close()
				return nil, err
			}
			l.closers = append(l.closers, c.Close)
			pools = append(pools, rsrueidis.NewPool(rueidiscompat.NewAdapter(c)))
		}
		l.rs = redsync.New(pools...)
		return l, nil
	}},
	{name: "redislock", peer: true, oneNode: true, open: func(addrs []string) (locker, error) {
		c := goredis.NewClient(&goredis.Options{Addr: addrs[0]})
		return &redislockLocker{redislock.New(c), c}, nil
	}},
	{
		name: "rueidislock", peer: true, oneNode: true, crews: true, most: 256,
		open: func(addrs []string) (locker, error) { return openRueidislock(addrs, expiry) },
		hold: func(addrs []string) (holder, error) { return openRueidislock(addrs, heldExpiry) },
	},
	{name: "etcd", peer: true, crews: true, most: 256, etcd: true, open: openEtcd,
		stand: standEtcd},
	{name: "bare go-redis", noWaiter: true, open: func(addrs []string) (locker, error) {
		l := &floor{}
		for _, a := range addrs {
			l.nodes = append(l.nodes, goredis.NewClient(&goredis.Options{Addr: a}))
		}
		return l, nil
	}},
}

// redigoPool keeps as many idle connections as a benchmark has goroutines; with redigo's default,
// none, every command would dial.
func redigoPool(addr string) *redis.Pool {
	return &redis.Pool{
		MaxIdle: 256,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr)
		},
	}
}

type redsyncLocker struct {
	rs      *redsync.Redsync
	closers []func()
}

func (l *redsyncLocker) Lock(ctx context.Context, name string) (func() error, error) {
	m := l.rs.NewMutex(name, redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error { _, err := m.Unlock(); return err }, nil
}

func (l *redsyncLocker) Close() {
	for _, c := range l.closers {
		c()
	}
}

type redislockLocker struct {
	c      *redislock.Client
	client *goredis.Client
}

var redislockRetry = &redislock.Options{
	RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
}

func (l *redislockLocker) Lock(ctx context.Context, name string) (func() error, error) {
	for {
		lock, err := l.c.Obtain(ctx, name, expiry, redislockRetry)
		if err == nil {
			return func() error { return lock.Release(context.Background()) }, nil
		}
		// Without a deadline Obtain gives up after one time to live.
		if ctx.Err() != nil || !errors.Is(err, redislock.ErrNotObtained) {
			return nil, err
		}
	}
}

func (l *redislockLocker) Close() { l.client.Close() }

type rueidislockLocker struct{ l rueidislock.Locker }

func openRueidislock(addrs []string, expiry time.Duration) (*rueidislockLocker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs},
		KeyValidity:    expiry,
		KeyMajority:    1,    // one key on one node: what the others do
		NoLoopTracking: true, // the faster way, for Redis 7.0.5 and later
	})
	return &rueidislockLocker{l}, err
}

func (l *rueidislockLocker) Lock(ctx context.Context, name string) (func() error, error) {
	_, cancel, err := l.l.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return func() error { cancel(); return nil }, nil
}

// Hold locks: rueidislock keeps every lock extended.
func (l *rueidislockLocker) Hold(ctx context.Context, name string) (heldLock, error) {
	held, cancel, err := l.l.WithContext(ctx, name)
	return &rueidislockHeld{held, cancel}, err
}

type rueidislockHeld struct {
	held   context.Context
	cancel context.CancelFunc
}

func (h *rueidislockHeld) Unlock() (bool, error) {
	err := h.held.Err()
	h.cancel()
	return err == nil, err
}

func (l *rueidislockLocker) Close() { l.l.Close() }

// floor is what one would write by hand: SET NX PX and a compare-and-delete script to every node
// at once, one round trip each, and wait for every reply. It has no deadlines, no retries and no
// clean-up.
type floor struct{ nodes []*goredis.Client }

var deleteIfEqual = goredis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (f *floor) Lock(ctx context.Context, name string) (func() error, error) {
	value := rand.Text()
	err := f.all(func(c *goredis.Client) error {
		return c.SetArgs(ctx, name, value, goredis.SetArgs{Mode: "NX", TTL: expiry}).Err()
	})
	return func() error {
		return f.all(func(c *goredis.Client) error {
			return deleteIfEqual.Run(context.Background(), c, []string{name}, value).Err()
		})
	}, err
}

func (f *floor) all(do func(*goredis.Client) error) error {
	if len(f.nodes) == 1 {
		return do(f.nodes[0])
	}
	replies := make(chan error, len(f.nodes))
	for _, c := range f.nodes {
		go func() { replies <- do(c) }()
	}
	var failed error
	for range f.nodes {
		if err := <-replies; err != nil {
			failed = err
		}
	}
	return failed
}

func (f *floor) Close() {
	for _, c := range f.nodes {
		c.Close()
	}
}
