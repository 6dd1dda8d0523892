package main

import (
	"context"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	redlockgoredis "github.com/redlock-go/redlock/pool/goredis"
	redlockredigo "github.com/redlock-go/redlock/pool/redigo"
	redlockrueidis "github.com/redlock-go/redlock/pool/rueidis"
)

// ours is redlock, with its own defaults, unlimited tries, and the options of its clients that the
// adapters' documentation shows.
var ours = []*contender{
	{
		name: we, client: onGoredis, options: goredisOptions, crews: true, stand: standGoredis,
		open: func(addrs []string) (locker, error) { return openGoredis(addrs), nil },
		hold: func(addrs []string) (holder, error) {
			return openGoredis(addrs, redlock.WithExpiry(heldExpiry)), nil
		},
	},
	{
		name: "redlock redigo", client: onRedigo, options: redigoOptions,
		open: func(addrs []string) (locker, error) { return openRedigo(addrs), nil },
		hold: func(addrs []string) (holder, error) {
			return openRedigo(addrs, redlock.WithExpiry(heldExpiry)), nil
		},
	},
	{
		name: "redlock rueidis", client: onRueidis,
		options: "`ForceSingleClient: true`, `DisableCache: true`",
		open:    func(addrs []string) (locker, error) { return openRueidis(addrs) },
		hold: func(addrs []string) (holder, error) {
			return openRueidis(addrs, redlock.WithExpiry(heldExpiry))
		},
	},
	{
		name: "redlock fenced", client: onGoredis, fenced: true,
		options: goredisOptions + ", `WithFencing()`",
		open: func(addrs []string) (locker, error) {
			return openGoredis(addrs, redlock.WithFencing()), nil
		},
	},
}

const goredisOptions = "`DialerRetries: 1`, `ContextTimeoutEnabled: true`, " +
	"`DisableIdentity: true`, `MaintNotificationsConfig` disabled"

// goredisClient has the options that the documentation of our adapter shows.
func goredisClient(addr string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr:                  addr,
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})
}

func openGoredis(addrs []string, opts ...redlock.Option) *redlockLocker {
	l := &redlockLocker{}
	var pools []pool.Pool
	for _, a := range addrs {
		c := goredisClient(a)
		l.closers = append(l.closers, func() { c.Close() })
		pools = append(pools, redlockgoredis.NewPool(c))
	}
	l.open(pools, opts...)
	return l
}

func openRedigo(addrs []string, opts ...redlock.Option) *redlockLocker {
	l := &redlockLocker{}
	var pools []pool.Pool
	for _, a := range addrs {
		p := redigoPool(a)
		l.closers = append(l.closers, func() { p.Close() })
		pools = append(pools, redlockredigo.NewPool(p))
	}
	l.open(pools, opts...)
	return l
}

func openRueidis(addrs []string, opts ...redlock.Option) (*redlockLocker, error) {
	l := &redlockLocker{}
	var pools []pool.Pool
	for _, a := range addrs {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress:       []string{a},
			ForceSingleClient: true,
			DisableCache:      true,
		})
		if err != nil {
			l.close()
			return nil, err
		}
		l.closers = append(l.closers, c.Close)
		pools = append(pools, redlockrueidis.NewPool(c))
	}
	l.open(pools, opts...)
	return l, nil
}

type redlockLocker struct {
	rl      *redlock.Redlock
	pools   []pool.Pool
	opts    []redlock.Option
	place   *place // of its only waiter, or nil if nobody wants to know
	closers []func()
}

// forget makes a client with the same connections.
func (l *redlockLocker) forget() locker {
	l.rl.Close()
	n := &redlockLocker{closers: l.closers, place: l.place}
	n.open(l.pools, l.opts...)
	return n
}

// seen makes a client with the same connections, of whose only waiter the place is known.
func (l *redlockLocker) seen() locker {
	l.rl.Close()
	n := &redlockLocker{closers: l.closers}
	pools, place := see(l.pools)
	n.place = place
	n.open(pools, l.opts...)
	return n
}

// queued returns since when the waiter of the latest Lock was in the queue, or 0.
func (l *redlockLocker) queued() int64 { return l.place.reached() }

func (l *redlockLocker) open(pools []pool.Pool, opts ...redlock.Option) {
	l.pools, l.opts = pools, opts
	l.rl = redlock.New(pools...).With(redlock.WithTries(redlock.Unlimited)).With(opts...)
}

func (l *redlockLocker) Lock(ctx context.Context, name string) (func() error, error) {
	m := l.rl.NewMutex(name)
	if l.place != nil {
		l.place.begin()
	}
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error { _, err := m.Unlock(); return err }, nil
}

func (l *redlockLocker) Hold(ctx context.Context, name string) (heldLock, error) {
	m := l.rl.NewMutex(name)
	_, err := m.Hold(ctx)
	return m, err
}

func (l *redlockLocker) Close() {
	l.rl.Close()
	l.close()
}

func (l *redlockLocker) close() {
	for _, c := range l.closers {
		c()
	}
}
