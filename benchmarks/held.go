package main

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
)

// held measures what locks cost that are kept extended: memory, goroutines, processor.
func (s *suite) held() {
	for _, c := range pick(waiting) {
		nodes := 5
		if c.oneNode {
			nodes = 1
		}
		for _, n := range s.HeldReal {
			in := s.enter([]*contender{c}, addrs(s.servers[:nodes]), 1)
			for _, e := range in {
				if h, ok := e.lockers[0].(holder); ok {
					s.say("held: %d locks on %d nodes: %s", n, nodes, e.name)
					s.keep(h, key{Section: "held", Who: e.name, Nodes: nodes, Workers: n})
				}
			}
			leave(in)
		}
	}
	for _, n := range s.HeldSim {
		s.say("held: %d locks on 5 simulated nodes", n)
		l := &redlockLocker{rl: redlock.New(sim.NewNodes(5).Instants("bench")...)}
		s.keep(l, key{Section: "held", Who: "redlock simulated", Nodes: 5, Workers: n})
		l.Close()
	}
}

// keep holds k.Workers locks for a while.
func (s *suite) keep(h holder, k key) {
	before, goroutines := settled(), runtime.NumGoroutine()
	releases := make([]func() error, k.Workers)
	var failed atomic.Int64
	each(k.Workers, func(i int) {
		ctx, cancel := context.WithCancel(context.Background()) // not with a deadline: it would end the hold
		hurry := time.AfterFunc(grace, cancel)
		release, err := h.Hold(ctx, "held:"+strconv.Itoa(i))
		hurry.Stop()
		if err != nil {
			cancel()
			failed.Add(1)
			release = func() error { return nil }
		}
		releases[i] = release
	})
	holding, during := settled(), runtime.NumGoroutine()
	start, cpu := time.Now(), usage().cpu
	time.Sleep(s.HeldWatch)
	busy := float64(usage().cpu-cpu) / float64(time.Since(start))
	each(k.Workers, func(i int) {
		if err := releases[i](); err != nil {
			failed.Add(1)
		}
	})
	if n := failed.Load(); n > 0 {
		s.warn("%s: %d of %d held locks failed", k.Who, n, k.Workers)
	}
	for metric, v := range map[string]float64{
		"bytes/lock":      (holding - before) / float64(k.Workers),
		"goroutines/lock": float64(during-goroutines) / float64(k.Workers),
		"CPU %":           100 * busy,
	} {
		k.Metric = metric
		s.report.add(k, v)
	}
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

// settled is the memory in use, heap and stacks, after what is garbage has gone.
func settled() float64 {
	runtime.GC()
	runtime.GC()
	m := usage().mem
	return float64(m.HeapAlloc + m.StackInuse)
}
