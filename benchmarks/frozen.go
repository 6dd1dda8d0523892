package main

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"
)

// frozen measures what one node that accepts connections and answers nothing does to the others'
// speed.
func (s *suite) frozen() {
	cs := s.pick(func(c *contender) bool { return waiting(c) && !c.oneNode })
	for _, n := range []int{5, 3} {
		in := s.enter(cs, addrs(s.servers[:n]), 1)
		s.say("frozen: one node of %d: %s", n, list(in))
		turns(in, s.Rounds, func(e *entrant) {
			k := key{Section: "frozen", Who: e.name, Nodes: n, Workers: 64, Variant: "healthy",
				Metric: "pairs/s"}
			r := drive(e, workload{goroutines: 64, slice: s.Slice, ends: true})
			s.report.add(k, float64(r.pairs)/r.elapsed.Seconds())
			k.Variant = "one frozen"
			s.freeze()
			r = drive(e, workload{goroutines: 64, slice: s.Slice, ends: true, atEnd: s.thaw})
			s.report.add(k, float64(r.pairs)/r.elapsed.Seconds())
			if r.err != nil {
				s.warn("%s, one of %d nodes frozen: %v", e.name, n, r.err)
			}
		})
		turns(in, 1, func(e *entrant) {
			s.freeze()
			s.single(e, n)
		})
		leave(in)
	}
	s.frozenMemory()
}

func (s *suite) freeze() { s.servers[0].Freeze() }

func (s *suite) thaw() {
	s.servers[0].Thaw()
	s.servers[0].Must("PING")
}

// single measures one Lock and one Unlock while a node is frozen, and thaws it when they are done
// or patience ends.
func (s *suite) single(e *entrant, nodes int) {
	type times struct {
		lock, unlock time.Duration
		err          error
	}
	done := make(chan times, 1)
	start := time.Now()
	go func() {
		var t times
		unlock, err := e.lockers[0].Lock(context.Background(), "single")
		t.lock = time.Since(start)
		if err == nil {
			locked := time.Now()
			err = unlock()
			t.unlock = time.Since(locked)
		}
		t.err = err
		done <- t
	}()
	k := key{Section: "frozen", Who: e.name, Nodes: nodes, Workers: 1, Variant: "one frozen",
		Metric: "ms for Lock and Unlock"}
	select {
	case t := <-done:
		s.report.add(k, millis(t.lock+t.unlock))
		if t.err != nil {
			s.warn("%s, one of %d nodes frozen, one caller: %v", e.name, nodes, t.err)
		}
		s.thaw()
	case <-time.After(s.FrozenPatience):
		s.report.add(k, millis(s.FrozenPatience)) // at least
		s.thaw()
		<-done
	}
}

// frozenMemory watches the heap, and the goroutines, of 64 busy callers with a frozen node of five.
func (s *suite) frozenMemory() {
	in := s.enter(s.pick(func(c *contender) bool { return c.name == we }),
		addrs(s.servers[:5]), 1)
	defer leave(in)
	for _, e := range in {
		s.say("frozen: memory over %v: %s", s.FrozenWatch, e.name)
		s.connectAll(e)
		s.freeze()
		over := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			k := key{Section: "frozen", Who: e.name, Nodes: 5, Workers: 64, Variant: "one frozen"}
			tick := time.NewTicker(s.SampleEvery)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				k.Metric = heapOverTime
				s.report.add(k, settled().heap/1e6)
				k.Metric = "goroutines over time"
				s.report.add(k, float64(runtime.NumGoroutine()))
			}
		})
		drive(e, workload{goroutines: 64, slice: s.FrozenWatch, ends: true,
			atEnd: func() { close(over); s.thaw() }})
		wg.Wait()
	}
}

const heapOverTime = "heap MB over time"

// connectAll lets the client open all the connections that it may keep. It opens them when a node
// stands still for a moment, and their buffers would look like growth.
func (s *suite) connectAll(e *entrant) {
	for _, node := range s.servers[:5] {
		node.Freeze()
		drive(e, workload{goroutines: 64, slice: s.Slice / 5, ends: true, atEnd: func() {
			node.Thaw()
			node.Must("PING")
		}})
	}
}

// heapGrowth is the heap in the last third of the time that a node is frozen over that in the first
// third. Each is the median of what the collector has found alive. So moments do not count in which
// another node lags as well, and the client keeps what that has yet to answer.
func heapGrowth(r *report) float64 {
	s := r.find(key{Section: "frozen", Who: we, Nodes: 5, Workers: 64, Variant: "one frozen",
		Metric: heapOverTime})
	if s == nil || len(s.Values) < 3 {
		return math.NaN()
	}
	third := len(s.Values) / 3
	return median(s.Values[len(s.Values)-third:]) / median(s.Values[:third])
}
