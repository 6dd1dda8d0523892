package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	idlePart    = "idle"
	idleClients = 4 // one of which holds the lock
	idleWaiters = 1000
)

// idle measures what waiters cost while nothing happens: somebody holds the lock all the time.
func (s *suite) idle() {
	for _, n := range []int{5, 1} {
		in := s.enter(s.pick(waiting), addrs(s.servers[:n]), idleClients)
		for _, e := range in {
			s.say("idle: %d waiters on %d nodes: %s", idleWaiters, n, e.name)
			s.wait(e, n)
		}
		leave(in)
	}
}

// wait lets waiters wait for a lock that the first client holds, for less than its expiry.
func (s *suite) wait(e *entrant, nodes int) {
	unlock, err := e.lockers[0].Lock(context.Background(), "idle")
	if err != nil {
		s.warn("%s, idle waiters on %d nodes: %v", e.name, nodes, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var granted atomic.Int64
	for w := range idleWaiters {
		wg.Go(func() {
			if pair(ctx, e.lockers[1+w%(idleClients-1)], "idle") == nil {
				granted.Add(1)
			}
		})
	}
	time.Sleep(s.IdleWatch / 2) // until all of them wait
	sent, start, cpu := commands(s.servers[:nodes]), time.Now(), cpuTime()
	time.Sleep(s.IdleWatch)
	used, elapsed := cpuTime()-cpu, time.Since(start)
	perSecond := float64(commands(s.servers[:nodes])-sent) / elapsed.Seconds()
	if n := granted.Load(); n > 0 {
		s.warn("%s: %d waiters on %d nodes were granted a lock that was held", e.name, n, nodes)
	}
	cancel()
	wg.Wait()
	_ = unlock()
	k := key{Section: idlePart, Who: e.name, Nodes: nodes, Workers: idleWaiters}
	s.report.put(k, busy, 100*float64(used)/float64(elapsed))
	s.report.put(k, "commands/s", perSecond)
}
