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
)

// heldExpiry is the time to live of the locks that are kept extended.
const heldExpiry = 10 * time.Second

const (
	heldPart          = "held"
	bytesPerLock      = "bytes/lock"
	goroutinesPerLock = "goroutines/lock"
	busy              = "CPU %"
)

// held measures what locks cost that are kept extended: memory, goroutines, processor; and
// whether they are kept.
func (s *suite) held() {
	for _, c := range s.pick(func(c *contender) bool { return c.holds }) {
		nodes := 5
		if c.oneNode {
			nodes = 1
		}
		for _, n := range []int{1000, 10000} {
			s.flush()
			l := c.open(addrs(s.servers[:nodes]), heldExpiry)
			s.say("held: %d locks on %d nodes: %s", n, nodes, c.name)
			s.keepAll(l.(holder), n, key{Section: heldPart, Who: c.name, Nodes: nodes, Workers: n})
		}
	}
}

// keepAll measures h while it holds n locks, and closes it. A contender that hangs costs its own
// figures, and not the run.
func (s *suite) keepAll(h holder, n int, k key) {
	var figures map[string]float64
	var failed int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		figures, failed = keep(h, n, s.HeldWatch)
		h.Close()
	}()
	select {
	case <-done:
	case <-time.After(s.HeldWatch + s.HeldPatience):
		s.warn("%s: hung: %d locks were not held and released within %v", k.Who, n,
			s.HeldWatch+s.HeldPatience)
		return
	}
	if failed > 0 {
		s.warn("%s: %d of %d locks were not held to the end", k.Who, failed, n)
	}
	for metric, v := range figures {
		s.report.put(k, metric, v)
	}
}

// keep holds n locks for a while. It returns figures by their metric, and how many locks were not
// granted, or were lost.
func keep(h holder, n int, watch time.Duration) (figures map[string]float64, failures int64) {
	ctx := context.Background() // one that can end would cost every lock
	unlock := make([]func() error, n)
	each(64, 1000, func(i int) { // connections, scripts, stacks
		if unlock, err := h.Hold(ctx, "warm:"+strconv.Itoa(i)); err == nil {
			_ = unlock()
		}
	})
	before, goroutines := settled(), runtime.NumGoroutine()
	var failed atomic.Int64
	each(64, n, func(i int) {
		release, err := h.Hold(ctx, "held:"+strconv.Itoa(i))
		if unlock[i] = release; err != nil {
			unlock[i] = func() error { return err }
		}
	})
	start, cpu := time.Now(), cpuTime()
	time.Sleep(watch)
	used := float64(cpuTime()-cpu) / float64(time.Since(start))
	goroutines = runtime.NumGoroutine() - goroutines
	after := settled()
	each(64, n, func(i int) {
		if unlock[i]() != nil {
			failed.Add(1)
		}
	})
	return map[string]float64{
		bytesPerLock:      (after - before) / float64(n),
		goroutinesPerLock: float64(goroutines) / float64(n),
		busy:              100 * used,
	}, failed.Load()
}

// each calls f for 0 to n-1, as many at a time as most.
func each(most, n int, f func(int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range most {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// settled is the memory in use, of heap and stacks. The heap is what the collector found alive, and
// not what is allocated: while locks are renewed, the garbage of the last milliseconds is a large
// part of that.
func settled() float64 {
	least := math.Inf(1)
	for range 3 {
		runtime.GC()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"},
			{Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(live)
		least = min(least, float64(live[0].Value.Uint64()+live[1].Value.Uint64()))
	}
	return least
}
