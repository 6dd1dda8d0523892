package main

import (
	"slices"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// pairs measures lock + unlock of distinct names, by goroutines that share one client.
func (s *suite) pairs() {
	for _, l := range s.legs() {
		s.race(pairPart, s.pick(everybody), l.nodes, l.goroutines)
	}
}

// leg is a part of the race of pairs.
type leg struct{ nodes, goroutines int }

// legs are those of the whole race. With a few callers of one node, contenders are close: a ratio
// of 40 rounds came to 0.90 in one run and to 1.11 in another. So they race there again after each
// leg on several nodes with as many callers. Then they have more rounds, spread over minutes.
func (c config) legs() (legs []leg) {
	for _, n := range c.Nodes {
		for _, g := range c.Goroutines {
			legs = append(legs, leg{n, g})
			if one := (leg{1, g}); n > 1 && g <= fewGoroutines && slices.Contains(legs, one) {
				legs = append(legs, one)
			}
		}
	}
	return legs
}

// fewGoroutines is the greatest number of callers with more rounds on one node.
const fewGoroutines = 8

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

// slices returns in how many rounds so many goroutines are compared, and how long a slice is. With
// more than 64, few pairs of each goroutine would end in a short one.
//
// For a lone caller, slices must not be shorter either. Caller and server wake each other across
// two processors at first, and take turns on one later. A pair takes 150 µs in the one state, and
// 40 in the other. In slices of 15 ms, the ratio of goredis to redislock came to 0.99 to 1.04. In
// those of 30 ms it came to 0.55 in one run and to 1.26 in another, in those of 60 ms to 0.68, 0.72
// and 0.73.
func (c config) slices(goroutines int) (rounds int, slice time.Duration) {
	if goroutines > 64 {
		return (c.PairRounds + 1) / 2, 2 * c.PairSlice
	}
	return c.PairRounds, c.PairSlice
}

// race compares contenders in rounds of short slices, one of each contender in a round. One that
// fails is out of the race: the values of a series are those of the first rounds, without a gap.
func (s *suite) race(section string, cs []*contender, nodes, goroutines int) {
	k := key{Section: section, Nodes: nodes, Workers: goroutines}
	in := s.enter(s.report.inRace(cs, k), addrs(s.servers[:nodes]), 1)
	defer leave(in)
	s.say("%s: %d nodes, %d goroutines: %s", section, nodes, goroutines, list(in))
	rounds, slice := s.slices(goroutines)
	l := workload{goroutines: goroutines, slice: slice, ends: section == endingPart}
	// First for connections and scripts.
	turns(in, 1, func(e *entrant) { drive(e, l) })
	l.warm = l.slice
	out := map[*entrant]bool{}
	turns(in, rounds, func(e *entrant) {
		if out[e] {
			return
		}
		r := drive(e, l)
		if r.err != nil {
			s.warn("%s, %d nodes, %d goroutines: %v", e.name, nodes, goroutines, r.err)
		}
		k.Who = e.name
		out[e] = !s.addRun(k, r)
	})
}

// inRace returns the contenders that have not failed in an earlier leg: they have as many rounds
// behind them as any.
func (r *report) inRace(cs []*contender, k key) []*contender {
	k.Metric = times[0]
	rounds := func(c *contender) int {
		k.Who = c.name
		if s := r.find(k); s != nil {
			return len(s.Values)
		}
		return 0
	}
	most := 0
	for _, c := range cs {
		most = max(most, rounds(c))
	}
	return slices.DeleteFunc(slices.Clone(cs), func(c *contender) bool { return rounds(c) < most })
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
