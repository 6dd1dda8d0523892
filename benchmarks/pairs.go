package main

import (
	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// pairs measures lock + unlock of distinct names, by goroutines that share one client.
func (s *suite) pairs() {
	for _, n := range s.Nodes {
		for _, g := range s.Goroutines {
			s.race("pairs", s.pick(everybody), n, g)
		}
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
	for round := range s.Rounds + 1 {
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
		for k, v := range took {
			if round > 0 { // the first one opens connections
				s.report.add(k, median(v))
			}
		}
	}
}

const callByCall = "call by call"

func fencedLock(who string) key {
	return key{Section: "fencing", Who: who, Nodes: 5, Workers: 1, Variant: callByCall,
		Metric: "µs for Lock"}
}

func (s *suite) race(section string, cs []*contender, nodes, goroutines int) {
	in := s.enter(cs, addrs(s.servers[:nodes]), 1)
	defer leave(in)
	s.say("%s: %d nodes, %d goroutines: %s", section, nodes, goroutines, list(in))
	// First for connections and scripts.
	turns(in, 1, func(e *entrant) { drive(e.lockers[0], goroutines, s.Slice/5, nil) })
	turns(in, s.Rounds, func(e *entrant) {
		r := drive(e.lockers[0], goroutines, s.Slice, nil)
		if r.err != nil {
			s.warn("%s, %d nodes, %d goroutines: %v", e.name, nodes, goroutines, r.err)
		}
		s.addRun(key{Section: section, Who: e.name, Nodes: nodes, Workers: goroutines}, r)
	})
}

func (s *suite) addRun(k key, r run) {
	if r.pairs == 0 {
		s.warn("%s, %d nodes, %d goroutines: not one pair in %v", k.Who, k.Nodes, k.Workers,
			r.elapsed)
		return
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
}

// instant measures what the library itself costs: its nodes are simulated and answer at once.
func (s *suite) instant() {
	for _, n := range s.Nodes {
		s.say("instant: %d simulated nodes", n)
		l := &redlockLocker{rl: redlock.New(sim.NewNodes(n).Instants("bench")...)}
		for range s.Rounds {
			s.addRun(key{Section: "instant", Who: "redlock", Nodes: n, Workers: 1},
				drive(l, 1, s.Slice/2, nil))
		}
		l.Close()
	}
}
