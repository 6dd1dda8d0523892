package main

import (
	"context"
	"time"
)

const (
	frozenPart     = "frozen"
	pairsPerSecond = "pairs/s"
	onePair        = "ms for Lock and Unlock"
	isHealthy      = "healthy"
	isFrozen       = "one frozen"
)

// frozen measures what one node that accepts connections and answers nothing does to the others'
// speed.
func (s *suite) frozen() {
	in := s.enter(s.pick(func(c *contender) bool { return waiting(c) && !c.oneNode }),
		addrs(s.servers), 1)
	defer leave(in)
	s.say("frozen: one node of %d", len(s.servers))
	k := key{Section: frozenPart, Nodes: len(s.servers)}
	turns(in, s.FrozenRounds, func(e *entrant) {
		k.Who, k.Workers, k.Variant = e.name, 64, isHealthy
		l := workload{goroutines: 64, slice: s.FrozenSlice, ends: true}
		r := drive(e, l)
		s.report.put(k, pairsPerSecond, float64(r.pairs)/r.elapsed.Seconds())
		k.Variant, l.atEnd = isFrozen, s.thaw
		s.servers[0].Freeze()
		r = drive(e, l)
		s.report.put(k, pairsPerSecond, float64(r.pairs)/r.elapsed.Seconds())
		if r.err != nil {
			s.warn("%s, one node frozen: %v", e.name, r.err)
		}
	})
	turns(in, 1, func(e *entrant) {
		k.Who, k.Workers, k.Variant = e.name, 1, isFrozen
		s.servers[0].Freeze()
		s.single(e, k)
	})
}

func (s *suite) thaw() {
	s.servers[0].Thaw()
	s.servers[0].Must("PING")
}

// single measures one Lock and one Unlock while a node is frozen, and thaws it when they are done
// or patience ends.
func (s *suite) single(e *entrant, k key) {
	var err error
	done, start := make(chan struct{}), time.Now()
	go func() {
		defer close(done)
		err = pair(context.Background(), e.lockers[0], "single")
	}()
	took := s.FrozenPatience // at least
	select {
	case <-done:
		took = time.Since(start)
	case <-time.After(s.FrozenPatience):
	}
	s.thaw()
	<-done
	s.report.put(k, onePair, millis(took))
	if err != nil {
		s.warn("%s, one node frozen, one caller: %v", e.name, err)
	}
}
