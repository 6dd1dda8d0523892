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

// The contenders that are redlock.
const (
	we           = "redlock goredis"
	onTheRedigo  = "redlock redigo"
	onTheRueidis = "redlock rueidis"
	fenced       = "redlock fenced"
)

// ours is redlock, with its own defaults, unlimited tries, and the options of its clients that the
// adapters' documentation shows.
var ours = []*contender{
	{
		name: we, client: onGoredis, crews: true, stand: standGoredis,
		open: func(addrs []string) (locker, error) { return openGoredis(addrs), nil },
		hold: func(addrs []string) (holder, error) {
			return openGoredis(addrs, redlock.WithExpiry(heldExpiry)), nil
		},
	},
	{
		name: onTheRedigo, client: onRedigo,
		open: func(addrs []string) (locker, error) { return openRedigo(addrs), nil },
		hold: func(addrs []string) (holder, error) {
			return openRedigo(addrs, redlock.WithExpiry(heldExpiry)), nil
		},
	},
	{
		name: onTheRueidis, client: onRueidis,
		open: func(addrs []string) (locker, error) { return openRueidis(addrs) },
		hold: func(addrs []string) (holder, error) {
			return openRueidis(addrs, redlock.WithExpiry(heldExpiry))
		},
	},
	{
		name: fenced, client: onGoredis, fenced: true,
		open: func(addrs []string) (locker, error) {
			return openGoredis(addrs, redlock.WithFencing()), nil
		},
	},
}

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
	for _, a := range addrs {
		c := goredisClient(a)
		l.closers = append(l.closers, func() { c.Close() })
		l.pools = append(l.pools, redlockgoredis.NewPool(c))
	}
	return l.open(opts...)
}

func openRedigo(addrs []string, opts ...redlock.Option) *redlockLocker {
	l := &redlockLocker{}
	for _, a := range addrs {
		p := redigoPool(a)
		l.closers = append(l.closers, func() { p.Close() })
		l.pools = append(l.pools, redlockredigo.NewPool(p))
	}
	return l.open(opts...)
}

func openRueidis(addrs []string, opts ...redlock.Option) (*redlockLocker, error) {
	l := &redlockLocker{}
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
		l.pools = append(l.pools, redlockrueidis.NewPool(c))
	}
	return l.open(opts...), nil
}

type redlockLocker struct {
	rl      *redlock.Redlock
	pools   []pool.Pool
	opts    []redlock.Option
	closers []func()
}

// forget makes a client with the same connections.
func (l *redlockLocker) forget() locker {
	l.rl.Close()
	return (&redlockLocker{closers: l.closers, pools: l.pools}).open(l.opts...)
}

func (l *redlockLocker) open(opts ...redlock.Option) *redlockLocker {
	l.opts = opts
	l.rl = redlock.New(l.pools...).With(redlock.WithTries(redlock.Unlimited)).With(opts...)
	return l
}

func (l *redlockLocker) Lock(ctx context.Context, name string) (func() error, error) {
	m := l.rl.NewMutex(name)
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
