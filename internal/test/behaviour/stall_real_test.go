package behaviour_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/redigo"
)

var (
	stalls = flag.Int("stalls", 2, "how often, with each client, a server stalls for a second; "+
		"20 servers do so at a time")
	burst = flag.Int("burst", 400, "how many TryLocks and how many Unlocks there are around a "+
		"hiccup")
)

// lesson L97: a healthy server that stalls for a second while 100 commands and more wait on it
// keeps no key of those who locked and unlocked meanwhile. The keys would live for ten minutes.
func TestAStalledServerKeepsNoKey(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	const callers, stall = 100, time.Second
	opts := []redlock.Option{redlock.WithExpiry(10 * time.Minute),
		redlock.WithNodeTimeout(400 * time.Millisecond)}
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			atATime := min(*stalls, 20)
			servers := redistest.Start(t, 2+atATime)
			rls := make([]*redlock.Redlock, atATime)
			for i := range rls {
				var pools []pool.Pool
				for _, s := range []*redistest.Server{servers[0], servers[1], servers[2+i]} {
					pools = append(pools, newPool(t, s.Addr()))
				}
				rls[i] = redlock.New(pools...).With(opts...)
			}
			var worst, failed atomic.Int64
			for round := range (*stalls + atATime - 1) / atATime {
				var all sync.WaitGroup
				for i, rl := range rls {
					s := servers[2+i]
					s.Freeze()
					for c := range callers {
						all.Go(func() {
							m := rl.NewMutex(fmt.Sprintf("%d-%d-%d", i, round, c))
							end := time.Now().Add(stall)
							for ; time.Now().Before(end); time.Sleep(stall / 5) {
								if m.TryLock() == nil {
									_, _ = m.Unlock()
								} else {
									// The machine is busy, or so is one of two healthy servers.
									failed.Add(1)
								}
							}
						})
					}
				}
				all.Wait()
				for i := range rls {
					servers[2+i].Thaw()
				}
				for i := range rls {
					s := servers[2+i]
					s.Must("PING")
					answered := time.Now()
					eventually(t, "no key on the server that stalled",
						func() bool { return s.Must("DBSIZE") == int64(0) })
					worst.Store(max(worst.Load(), int64(time.Since(answered))))
				}
			}
			t.Logf("%d stalls: no key later than %v after the server answered; %d TryLocks failed",
				*stalls, time.Duration(worst.Load()), failed.Load())
			if *stalls > 2 { // else a busy machine is no reason to fail
				assert.Less(t, time.Duration(worst.Load()), 2*time.Second)
			}
			for _, rl := range rls {
				mustClose(t, rl)
			}
		})
	}
}

// lesson L58: a hiccup of all servers that is shorter than the node timeout fails no TryLock and
// no Unlock.
func TestAHiccupOfAllServersFailsNobody(t *testing.T) {
	redistest.Require(t)
	const hiccup, nodeTimeout = 150 * time.Millisecond, 400 * time.Millisecond
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			servers := redistest.Start(t, 3)
			var pools []pool.Pool
			for _, s := range servers {
				p := newPool(t, s.Addr())
				// Which opens a connection for each command otherwise, however many those are.
				if client == "redigo" {
					inner := &redis.Pool{MaxIdle: 64, MaxActive: 64, Wait: true,
						DialContext: func(ctx context.Context) (redis.Conn, error) {
							return redis.DialContext(ctx, "tcp", s.Addr())
						}}
					t.Cleanup(func() { _ = inner.Close() })
					p = redigo.NewPool(inner)
				}
				pools = append(pools, p)
			}
			patient := redlock.New(pools...).With(redlock.WithExpiry(time.Minute),
				redlock.WithNodeTimeout(20*time.Second))
			rl := patient.With(redlock.WithNodeTimeout(nodeTimeout))
			defer mustClose(t, patient)
			names, ops := 0, larger(*burst)
			// trial makes TryLocks and Unlocks, as many of each, within twice the hiccup, and
			// returns how many fail.
			trial := func(pause func()) (locks, unlocks int64) {
				held, free := make([]*redlock.Mutex, ops), make([]*redlock.Mutex, ops)
				for i := range held {
					names++
					held[i] = rl.NewMutex(fmt.Sprint("held", names),
						redlock.WithNodeTimeout(20*time.Second))
					free[i] = rl.NewMutex(fmt.Sprint("free", names))
					require.NoError(t, held[i].Lock())
					held[i] = rl.NewMutex(held[i].Name(), redlock.WithValue(held[i].Value()))
				}
				var all sync.WaitGroup
				var failedLocks, failedUnlocks atomic.Int64
				start := time.Now()
				all.Go(pause)
				for i := range held {
					after := time.Duration(i) * 2 * hiccup / time.Duration(ops)
					time.Sleep(time.Until(start.Add(after)))
					all.Go(func() {
						if free[i].TryLock() != nil {
							failedLocks.Add(1)
						}
					})
					all.Go(func() {
						if _, err := held[i].Unlock(); err != nil {
							failedUnlocks.Add(1)
						}
					})
				}
				all.Wait()
				for _, m := range free {
					_, _ = patient.NewMutex(m.Name(), redlock.WithValue(m.Value())).Unlock()
				}
				return failedLocks.Load(), failedUnlocks.Load()
			}
			for try := 1; ; try++ {
				var stood time.Duration
				locks, unlocks := trial(func() {
					time.Sleep(hiccup / 2)
					start := time.Now()
					for _, s := range servers {
						s.Freeze()
					}
					time.Sleep(time.Until(start.Add(hiccup)))
					for _, s := range servers {
						s.Thaw()
					}
					stood = time.Since(start)
				})
				t.Logf("a hiccup of %v: %d TryLocks and %d Unlocks of %d failed", stood, locks,
					unlocks, ops)
				if locks+unlocks == 0 {
					break
				}
				if try == 5 {
					if locks, unlocks = trial(func() {}); locks+unlocks > 0 || stood > 2*hiccup {
						redistest.SkipBusy(t, "without a hiccup %d TryLocks and %d Unlocks failed",
							locks, unlocks)
					}
					require.FailNow(t, "commands fail because of a hiccup that is shorter than "+
						"the node timeout")
				}
			}
		})
	}
}
