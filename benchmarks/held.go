package main

import (
	"context"
	"math"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// heldExpiry is the time to live of the locks that are kept extended.
const heldExpiry = 10 * time.Second

// onTime is how many seconds a lock is still valid for when it is renewed: two thirds of the
// expiry without the drift.
const onTime = 2. / 3 * (10*0.99 - 0.002)

// held measures what locks cost that are kept extended: memory, goroutines, processor; and
// whether they are kept.
func (s *suite) held() {
	for _, c := range s.pick(func(c *contender) bool { return c.hold != nil }) {
		nodes := 5
		if c.oneNode {
			nodes = 1
		}
		for _, n := range s.HeldReal {
			s.flush()
			h, err := c.hold(addrs(s.servers[:nodes]))
			if err != nil {
				s.warn("%s on %d nodes: %v", c.name, nodes, err)
				continue
			}
			s.say("held: %d locks on %d nodes: %s", n, nodes, c.name)
			s.keepAll(h, names("held", n),
				key{Section: "held", Who: c.name, Nodes: nodes, Workers: n})
		}
	}
	for _, n := range s.HeldSim {
		s.say("held: %d locks on 5 simulated nodes", n)
		nodes, keys := sim.NewNodes(5), names("held", n)
		for _, node := range nodes {
			for _, k := range keys {
				// Expired at once, but the node has the memory for it now, and keep counts what
				// is added.
				node.Set(k, "", time.Nanosecond)
			}
		}
		rl := redlock.New(nodes.Instants("bench")...).
			With(redlock.WithExpiry(heldExpiry), redlock.WithTries(redlock.Unlimited))
		h := &redlockLocker{rl: rl}
		s.keepAll(h, keys, key{Section: "held", Who: "redlock simulated", Nodes: 5, Workers: n})
	}
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = prefix + ":" + strconv.Itoa(i)
	}
	return out
}

// keepAll measures h while it holds a lock of each name, and closes it. A contender that hangs
// costs its own figures, and not the run.
func (s *suite) keepAll(h holder, names []string, k key) {
	type outcome struct {
		figures map[string]float64
		failed  int64
	}
	ended := make(chan outcome, 1)
	go func() {
		figures, failed := keep(h, names, s.HeldWatch)
		h.Close()
		ended <- outcome{figures, failed}
	}()
	select {
	case o := <-ended:
		if o.failed > 0 {
			s.warn("%s: %d of %d locks to hold were not granted", k.Who, o.failed, len(names))
		}
		for metric, v := range o.figures {
			k.Metric = metric
			if !math.IsNaN(v) {
				s.report.add(k, v)
			}
		}
	case <-time.After(s.HeldWatch + s.HeldPatience):
		s.warn("%s: hung: %d locks were not held and released within %v", k.Who, len(names),
			s.HeldWatch+s.HeldPatience)
	}
}

// keep holds a lock of each name for a while. It returns figures by their metric, and how many
// locks were not granted.
func keep(h holder, names []string, watch time.Duration) (figures map[string]float64,
	refused int64) {
	ctx := context.Background() // one that can end would cost every lock
	locks := make([]heldLock, len(names))
	each(1000, func(i int) { // connections, scripts, stacks
		if lock, err := h.Hold(ctx, "warm:"+strconv.Itoa(i)); err == nil {
			_, _ = lock.Unlock()
		}
	})
	before, goroutines := settled(), runtime.NumGoroutine()
	var failed, lost atomic.Int64
	each(len(names), func(i int) {
		lock, err := h.Hold(ctx, names[i])
		if err != nil {
			failed.Add(1)
			return
		}
		locks[i] = lock
	})
	least := heldExpiry.Seconds()
	start, cpu, looking := time.Now(), usage().cpu, time.Duration(0)
	for time.Since(start) < watch {
		time.Sleep(watch / 30)
		look := usage().cpu
		least = min(least, leastLeft(locks))
		looking += usage().cpu - look
	}
	busy := float64(usage().cpu-cpu-looking) / float64(time.Since(start))
	goroutines = runtime.NumGoroutine() - goroutines
	after := settled()
	each(len(locks), func(i int) {
		if locks[i] == nil {
			return
		}
		if _, err := locks[i].Unlock(); err != nil {
			lost.Add(1)
		}
	})
	n := float64(len(names))
	return map[string]float64{
		"heap bytes/lock":  (after.heap - before.heap) / n,
		"stack bytes/lock": (after.stack - before.stack) / n,
		"goroutines/lock":  float64(goroutines) / n,
		"CPU %":            100 * busy,
		"lost":             float64(lost.Load()),
		"least s left":     least,
	}, failed.Load()
}

// leastLeft is the least time, in seconds, that one of the locks may still be trusted for, at
// most 0 for one that is lost. It is NaN if they do not tell.
func leastLeft(locks []heldLock) float64 {
	least, now := math.Inf(1), time.Now()
	for _, l := range locks {
		m, ok := l.(*redlock.Mutex)
		if !ok {
			return math.NaN()
		}
		least = min(least, max(0, m.Until().Sub(now).Seconds()))
	}
	return least
}

// each calls f for 0 to n-1, 64 at a time.
func each(n int, f func(int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

type memory struct{ heap, stack float64 }

// settled is the memory in use. The heap is what the collector found alive, and not what is
// allocated: while locks are renewed, the garbage of the last milliseconds is a large part of
// that.
func settled() memory {
	least := memory{math.Inf(1), math.Inf(1)}
	for range 3 {
		runtime.GC()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		least.heap = min(least.heap, float64(live[0].Value.Uint64()))
		least.stack = min(least.stack, float64(usage().mem.StackInuse))
	}
	return least
}
