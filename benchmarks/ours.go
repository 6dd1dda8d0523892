package main

import (
	"context"
	"time"

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
	{name: we, client: onGoredis, most: 1000, holds: true, stand: standGoredis,
		open: openRedlock(dialGoredis)},
	{name: onTheRedigo, client: onRedigo, holds: true, open: openRedlock(dialRedigo)},
	{name: onTheRueidis, client: onRueidis, holds: true, open: openRedlock(dialRueidis)},
	{name: fenced, client: onGoredis, fenced: true,
		open: openRedlock(dialGoredis, redlock.WithFencing())},
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

// A dialer returns a node's adapter, and what closes its client.
type dialer[P any] func(addr string) (P, func())

func dialGoredis(addr string) (pool.Pool, func()) {
	c := goredisClient(addr)
	return redlockgoredis.NewPool(c), func() { _ = c.Close() }
}

func dialRedigo(addr string) (pool.Pool, func()) {
	p := redigoPool(addr)
	return redlockredigo.NewPool(p), func() { _ = p.Close() }
}

func dialRueidis(addr string) (pool.Pool, func()) {
	c := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr},
		ForceSingleClient: true, DisableCache: true}))
	return redlockrueidis.NewPool(c), c.Close
}

// closers close clients.
type closers []func()

func (c closers) Close() {
	for _, f := range c {
		f()
	}
}

// dialAll dials all nodes.
func dialAll[P any](addrs []string, dial dialer[P]) (pools []P, all closers) {
	for _, a := range addrs {
		p, closer := dial(a)
		pools, all = append(pools, p), append(all, closer)
	}
	return pools, all
}

type redlockLocker struct {
	rl      *redlock.Redlock
	pools   []pool.Pool
	opts    []redlock.Option
	clients closers
}

func openRedlock(dial dialer[pool.Pool], opts ...redlock.Option) opener {
	return func(addrs []string, expiry time.Duration) locker {
		pools, clients := dialAll(addrs, dial)
		return (&redlockLocker{pools: pools, clients: clients,
			opts: append([]redlock.Option{redlock.WithExpiry(expiry)}, opts...)}).forget()
	}
}

// forget makes a client with the same connections.
func (l *redlockLocker) forget() locker {
	if l.rl != nil {
		l.rl.Close()
	}
	n := *l
	n.rl = redlock.New(l.pools...).With(redlock.WithTries(redlock.Unlimited)).With(l.opts...)
	return &n
}

func (l *redlockLocker) Lock(ctx context.Context, name string) (func() error, error) {
	m := l.rl.NewMutex(name)
	return unlocker(m), m.LockContext(ctx)
}

func (l *redlockLocker) Hold(ctx context.Context, name string) (func() error, error) {
	m := l.rl.NewMutex(name)
	_, err := m.Hold(ctx)
	return unlocker(m), err
}

// unlocker returns what unlocks a mutex of redlock or Redsync.
func unlocker(m interface{ Unlock() (bool, error) }) func() error {
	return func() error { _, err := m.Unlock(); return err }
}

func (l *redlockLocker) Close() {
	l.rl.Close()
	l.clients.Close()
}
