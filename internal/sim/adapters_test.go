package sim_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	goredis9 "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/redigo"
)

// The second ring: the adapters, with the clients they adapt at (nearly) their default options, over a network in
// memory with delays, partitions and losses, to embedded nodes. What the first ring assumes of a Pool,
// the whole stack has to keep.
func TestSchedulesThroughTheAdapters(t *testing.T) {
	n := 40
	if *count > 0 {
		n = *count
	}
	grants := 0
	for i := range uint64(n) {
		s := setup{Seed: *first + i, Nodes: 3, Clients: 3, Workers: 1, Cycles: 3, Faults: partition}
		if i%4 == 0 {
			s.Faults = 0
		}
		h := newHistory(s)
		synctest.Test(t, func(t *testing.T) { throughAdapters(t, h) })
		require.Empty(t, h.violations, "seed %d: %s", s.Seed, some(h.violations))
		grants += h.grants
	}
	t.Logf("%d schedules, %d grants", n, grants)
	assert.NotZero(t, grants)
}

func throughAdapters(t *testing.T, h *history) {
	h.start = time.Now()
	w := &world{history: h}
	servers := make([]*miniredis.Miniredis, h.Nodes)
	for i := range servers {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		first, err := m.Dial() // starts it
		require.NoError(t, err)
		_ = first.Close()
		servers[i] = m
	}
	var all sync.WaitGroup
	for c := range h.Clients {
		var closers []func() error
		pools := make([]pool.Pool, h.Nodes)
		for i, m := range servers {
			dial := func() net.Conn {
				client, server := newWire(w.traffic(c, i, 0), w.traffic(c, i, 1))
				go m.Server().ServeConn(server)
				return client
			}
			switch c {
			case 2:
				p := &redis.Pool{DialContext: func(context.Context) (redis.Conn, error) {
					return redis.NewConn(dial(), 3*time.Second, 3*time.Second), nil
				}}
				pools[i], closers = redigo.NewPool(p), append(closers, p.Close)
			default:
				client := goredis9.NewClient(&goredis9.Options{
					Addr: "127.0.0.1:1", Protocol: 2 + c,
					// It would hold a mutex during I/O, which no bubble can look through.
					MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
					Dialer:                   func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
				})
				pools[i], closers = goredis.NewPool(client), append(closers, client.Close)
			}
		}
		all.Go(func() {
			rl := redlock.New(pools...).With(redlock.WithExpiry(2*time.Second), redlock.WithTries(redlock.Unlimited), redlock.WithFencing())
			for cycle := range int64(h.Cycles) {
				time.Sleep(h.dice().between(0, time.Second, "idle", int64(c), cycle))
				w.turn(t, rl, fmt.Sprintf("c%d", c), int64(c), cycle)
			}
			ctx, stop := context.WithTimeout(context.Background(), time.Minute)
			defer stop()
			assert.NoError(t, rl.CloseContext(ctx))
			for _, end := range closers {
				assert.NoError(t, end())
			}
		})
	}
	all.Wait()
	time.Sleep(time.Minute) // what is under way lands, and expires
	for i, m := range servers {
		if m.Exists("lock") {
			h.violate("I8 no leaks", "node %d still holds the lock", i)
		}
		m.Close()
	}
	h.finish()
	time.Sleep(time.Minute)
}

// turn locks, holds and unlocks once.
func (w *world) turn(t *testing.T, rl *redlock.Redlock, owner string, client, cycle int64) {
	m := rl.NewMutex("lock")
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if err := m.LockContext(ctx); err != nil {
		w.violate("I9 liveness", "%s: %v", owner, err)
		return
	}
	now := w.now()
	l := &lease{owner: owner, name: "lock", value: m.Value(), token: m.FencingToken(), from: now, first: now}
	l.prolong(m.Until().Sub(w.start))
	w.mu.Lock()
	w.leases = append(w.leases, l)
	w.grants++
	w.mu.Unlock()
	time.Sleep(w.dice().between(0, 500*time.Millisecond, "work", client, cycle))
	if _, err := m.ExtendContext(ctx); err == nil {
		l.prolong(m.Until().Sub(w.start))
	}
	time.Sleep(w.dice().between(0, 500*time.Millisecond, "work", client, cycle, 1))
	l.end(w.now())
	_, err := m.Unlock()
	if err != nil && w.Faults == 0 {
		w.violate("I12 bounded", "%s: %v", owner, err)
	}
}

// traffic returns what becomes of the bytes between a client and a node in one direction: 0 for
// requests, 1 for replies. For ten seconds they are delayed, or lost, now and then.
func (w *world) traffic(client, node int, direction int64) func() (time.Duration, bool) {
	d, cl, nd := w.dice(), int64(client), int64(node)
	return func() (time.Duration, bool) {
		now := w.now()
		id := []int64{cl, nd, direction, int64(now)}
		delay := d.between(20*time.Microsecond, 500*time.Microsecond, "wire", id...)
		if w.Faults == 0 || now > 10*time.Second {
			return delay, false
		}
		if d.chance(0.1, "slow wire", id...) {
			delay += d.between(0, 300*time.Millisecond, "slower wire", id...)
		}
		window := int64(now / time.Second)
		lost := d.chance(0.1, "wire cut", cl, nd, direction, window) || d.chance(0.02, "loss", id...)
		return delay, lost
	}
}
