package main

import (
	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// pairs measures lock + unlock of distinct names, by goroutines that share one client.
func (s *suite) pairs() {
	for _, n := range s.Nodes {
		for _, g := range s.Goroutines {
			s.race(pairPart, s.pick(everybody), n, g)
		}
	}
}

// ending measures the same where contexts may end. Then the library keeps a promise that costs a
// goroutine more: a Lock returns with its context, whatever the client does.
func (s *suite) ending() {
	for _, g := range s.EndingGoroutines {
		s.race(endingPart, s.pick(everybody), 1, g)
	}
}

// fencing compares redlock with and without a fencing token.
func (s *suite) fencing() {
	cs := s.pick(func(c *contender) bool { return c.fenced || c.name == we })
	for _, g := range []int{1, 64} {
		s.race("fencing", cs, 5, g)
	}
	in := s.enter(cs, addrs(s.servers[:5]), 1)
	defer leave(in)
	s.say("fencing: 5 nodes, call by call: %s", list(in))
	for round := range s.PairRounds + 1 {
		took := map[key][]float64{}
		turns(in, s.FencingCalls, func(e *entrant) {
			k := fencedLock(e.name)
			lock, unlock, err := timed(e.lockers[0], "fencing:"+e.name)
			if err != nil {
				s.warn("%s, call by call: %v", e.name, err)
				return
			}
			took[k] = append(took[k], micros(lock))
			k.Metric = "µs for Unlock"
			took[k] = append(took[k], micros(unlock))
		})
		if round == 0 || len(took) < 2*len(in) {
			continue // it opens connections, or one has failed
		}
		for k, v := range took {
			s.report.add(k, median(v))
		}
	}
}

const callByCall = "call by call"

func fencedLock(who string) key {
	return key{Section: "fencing", Who: who, Nodes: 5, Workers: 1, Variant: callByCall,
		Metric: "µs for Lock"}
}

// race compares contenders in rounds of short slices, one of each contender in a round. One that
// fails is out of the race: the values of a series are those of the first rounds, without a gap.
func (s *suite) race(section string, cs []*contender, nodes, goroutines int) {
	in := s.enter(cs, addrs(s.servers[:nodes]), 1)
	defer leave(in)
	s.say("%s: %d nodes, %d goroutines: %s", section, nodes, goroutines, list(in))
	l := workload{goroutines: goroutines, slice: s.PairSlice, ends: section == endingPart}
	if goroutines > 64 {
		l.slice *= 2 // or few pairs of each goroutine end in it
	}
	// First for connections and scripts.
	turns(in, 1, func(e *entrant) { drive(e, l) })
	l.warm = l.slice
	out := map[*entrant]bool{}
	turns(in, s.PairRounds, func(e *entrant) {
		if out[e] {
			return
		}
		r := drive(e, l)
		if r.err != nil {
			s.warn("%s, %d nodes, %d goroutines: %v", e.name, nodes, goroutines, r.err)
		}
		out[e] = !s.addRun(key{Section: section, Who: e.name, Nodes: nodes, Workers: goroutines}, r)
	})
}

// addRun reports a slice, unless nothing came of it.
func (s *suite) addRun(k key, r run) bool {
	if r.pairs == 0 || r.hung {
		s.warn("%s, %d nodes, %d goroutines: not one pair in %v", k.Who, k.Nodes, k.Workers,
			r.elapsed)
		return false
	}
	n := float64(r.pairs)
	for metric, v := range map[string]float64{
		"µs/pair":     micros(r.elapsed) / n,
		"allocs/pair": float64(r.mallocs) / n,
		"bytes/pair":  float64(r.bytes) / n,
		"CPU µs/pair": micros(r.cpu) / n,
	} {
		k.Metric = metric
		s.report.add(k, v)
	}
	return true
}

// instant measures what the library itself costs: its nodes are simulated and answer at once.
func (s *suite) instant() {
	for _, n := range s.Nodes {
		s.say("instant: %d simulated nodes", n)
		e := &entrant{lockers: []locker{
			&redlockLocker{rl: redlock.New(sim.NewNodes(n).Instants("bench")...)}}}
		for range s.PairRounds {
			s.addRun(key{Section: "instant", Who: "redlock", Nodes: n, Workers: 1},
				drive(e, workload{goroutines: 1, slice: s.PairSlice}))
		}
		e.leave()
	}
}
