package main

import (
	"fmt"
	"slices"
	"time"
)

const (
	pairPart   = "pairs"
	endingPart = "ending"
	randomPart = "random"
	fencePart  = "fencing"

	perPair = "µs/pair"
	cpuPair = "CPU µs/pair"
	allocs  = "allocs/pair"
	inAPair = "µs in a pair"
)

// times are the figures of a pair that contenders are compared by.
var times = []string{perPair, cpuPair}

// pairs measures lock + unlock of distinct names, by goroutines that share one client.
func (s *suite) pairs() {
	for _, n := range []int{1, 5} {
		for _, g := range s.Goroutines {
			s.race(pairPart, s.pick(everybody), n, g)
			// With a few callers of one node, contenders are close: a ratio of 40 rounds came to
			// 0.90 in one run and to 1.11 in another. So they race there again, minutes later.
			if n > 1 && g <= 8 {
				s.race(pairPart, s.pick(everybody), 1, g)
			}
		}
	}
}

// ending measures the same where contexts may end. Then the library keeps a promise that costs a
// goroutine more: a Lock returns with its context, whatever the client does.
func (s *suite) ending() { s.race(endingPart, s.pick(everybody), 1, 8) }

// fencing compares redlock with and without a fencing token.
func (s *suite) fencing() {
	cs := s.pick(func(c *contender) bool { return c.fenced || c.name == we })
	for _, g := range []int{1, 64} {
		s.race(fencePart, cs, 5, g)
	}
}

// race compares contenders in as many rounds of short slices as the goroutines need. With more than
// 64, few pairs of each would end in a short slice. For a lone caller, slices must not be shorter
// either: caller and server wake each other across two processors at first, and take turns on one
// later. A pair takes 150 µs in the one state, and 40 in the other.
func (s *suite) race(section string, cs []*contender, nodes, goroutines int) {
	rounds, slice := s.PairRounds, s.PairSlice
	if goroutines > 64 {
		rounds, slice = (rounds+1)/2, 2*slice
	}
	k := key{Section: section, Nodes: nodes, Workers: goroutines}
	s.slices(k, cs, addrs(s.servers[:nodes]), rounds,
		workload{goroutines: goroutines, slice: slice, warm: slice, ends: section == endingPart})
}

// random measures how long a Lock and an Unlock take callers who come at random times: those of
// pairs come back at once, and so together.
func (s *suite) random() {
	for _, n := range []int{1, 5} {
		for _, away := range []time.Duration{0, 500 * time.Microsecond} {
			behind(away, addrs(s.servers[:n]), func(nodes []string) {
				for _, g := range s.RandomCallers {
					s.slices(key{Section: randomPart, Nodes: n, Workers: g, Variant: far(away)},
						s.pick(waiting), nodes, s.RandomRounds,
						workload{goroutines: g, slice: s.RandomSlice, rest: s.RandomRest})
				}
			})
		}
	}
}

// far says how far away nodes are.
func far(away time.Duration) string {
	if away == 0 {
		return "on loopback"
	}
	return fmt.Sprint(away, " away")
}

// slices drives contenders in rounds, one slice of each in a round. One that fails is out of the
// race: the values of a series are those of the first rounds, without a gap.
func (s *suite) slices(k key, cs []*contender, nodes []string, rounds int, l workload) {
	in := s.enter(slices.DeleteFunc(slices.Clone(cs), func(c *contender) bool {
		k.Who = c.name
		return s.out[k]
	}), nodes, 1)
	defer leave(in)
	s.say("%s: %d nodes, %d goroutines, %s", k.Section, k.Nodes, k.Workers, k.Variant)
	first := l
	first.warm = 0
	turns(in, 1, func(e *entrant) { drive(e, first) }) // for connections and scripts
	turns(in, rounds, func(e *entrant) {
		k := k
		if k.Who = e.name; s.out[k] {
			return
		}
		r := drive(e, l)
		if r.err != nil {
			s.warn("%s, %d nodes, %d goroutines: %v", e.name, k.Nodes, k.Workers, r.err)
		}
		s.out[k] = !s.addRun(k, r, l.rest > 0)
	})
}

// addRun reports a slice, unless nothing came of it.
func (s *suite) addRun(k key, r result, rested bool) bool {
	if r.pairs == 0 || r.hung {
		s.warn("%s, %d nodes, %d goroutines: not one pair in %v", k.Who, k.Nodes, k.Workers,
			r.elapsed)
		return false
	}
	n := float64(r.pairs)
	if rested {
		s.report.put(k, inAPair, micros(r.spent)/n)
		return true
	}
	s.report.put(k, perPair, micros(r.elapsed)/n)
	s.report.put(k, cpuPair, micros(r.cpu)/n)
	s.report.put(k, allocs, float64(r.mallocs)/n)
	return true
}
