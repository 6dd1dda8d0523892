package main

import (
	"context"
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

// peers are the other libraries, and what one would write by hand. They have the options that their
// own documentation shows, unlimited tries, and the default options of their clients.
var peers = []*contender{
	{name: "redsync goredis", client: onGoredis, peer: true, most: 1000,
		open: openRedsync(redsyncGoredis)},
	{name: "redsync redigo", client: onRedigo, peer: true, open: openRedsync(redsyncRedigo)},
	{name: "redsync rueidis", client: onRueidis, peer: true, open: openRedsync(redsyncRueidis)},
	{name: "redislock", client: onGoredis, peer: true, oneNode: true, open: openRedislock},
	{name: "rueidislock", client: onRueidis, peer: true, oneNode: true, most: 256,
		holds: true, open: openRueidislock},
	{name: "etcd", client: "etcd", peer: true, stand: standEtcd},
	{name: bare, client: onGoredis, bare: true, open: openBare},
}

// The clients.
const (
	onGoredis = "go-redis"
	onRedigo  = "redigo"
	onRueidis = "rueidis"
)

func openRedsync(dial dialer[rsredis.Pool]) opener {
	return func(addrs []string, _ time.Duration) locker {
		pools, clients := dialAll(addrs, dial)
		return &redsyncLocker{redsync.New(pools...), clients}
	}
}

func redsyncGoredis(addr string) (rsredis.Pool, func()) {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	return rsgoredis.NewPool(c), func() { _ = c.Close() }
}

func redsyncRedigo(addr string) (rsredis.Pool, func()) {
	p := redigoPool(addr)
	return rsredigo.NewPool(p), func() { _ = p.Close() }
}

func redsyncRueidis(addr string) (rsredis.Pool, func()) {
	c := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}}))
	return rsrueidis.NewPool(rueidiscompat.NewAdapter(c)), c.Close
}

func openRedislock(addrs []string, _ time.Duration) locker {
	c := goredis.NewClient(&goredis.Options{Addr: addrs[0]})
	return &redislockLocker{redislock.New(c), c}
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
	rs *redsync.Redsync
	closers
}

func (l *redsyncLocker) Lock(ctx context.Context, name string) (func() error, error) {
	m := l.rs.NewMutex(name, redsync.WithTries(math.MaxInt))
	return unlocker(m), m.LockContext(ctx)
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

func openRueidislock(addrs []string, expiry time.Duration) locker {
	return &rueidislockLocker{must(rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs},
		KeyValidity:    expiry,
		KeyMajority:    1,    // one key on one node: what the others do
		NoLoopTracking: true, // the faster way, for Redis 7.0.5 and later
	}))}
}

// Lock extends the lock until it is unlocked.
func (l *rueidislockLocker) Lock(ctx context.Context, name string) (func() error, error) {
	held, cancel, err := l.l.WithContext(ctx, name)
	return func() error { defer cancel(); return held.Err() }, err
}

func (l *rueidislockLocker) Hold(ctx context.Context, name string) (func() error, error) {
	return l.Lock(ctx, name)
}

func (l *rueidislockLocker) Close() { l.l.Close() }
