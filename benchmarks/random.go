package main

import (
	"fmt"
	"time"
)

const (
	randomPart = "random"
	inAPair    = "µs in a pair"
)

// random measures how long a Lock and an Unlock take callers who come at random times: those of
// pairs come back at once, and so together.
func (s *suite) random() {
	for _, n := range []int{1, 5} {
		for _, away := range s.RandomTrips {
			nodes, end := addrs(s.servers[:n]), func() {}
			if away > 0 {
				var err error
				trip := func(int) time.Duration { return away }
				if nodes, end, err = proxies(nodes, trip); err != nil {
					panic(err)
				}
			}
			for _, callers := range s.RandomCallers {
				s.atRandom(nodes, away, callers)
			}
			end()
		}
	}
}

// atRandom lets callers come at random times, to nodes that are so far away.
func (s *suite) atRandom(nodes []string, away time.Duration, callers int) {
	in := s.enter(s.pick(waiting), nodes, 1)
	defer leave(in)
	s.say("random: %d nodes, %d callers, %v away: %s", len(nodes), callers, away, list(in))
	l := workload{goroutines: callers, slice: s.RandomSlice, rest: s.RandomRest}
	turns(in, 1, func(e *entrant) { drive(e, l) }) // for connections and scripts
	turns(in, s.RandomRounds, func(e *entrant) {
		r := drive(e, l)
		if r.err != nil || r.pairs == 0 {
			s.warn("%s, %d nodes, %d callers, %v away: %v", e.name, len(nodes), callers, away,
				r.err)
			return
		}
		s.report.add(key{Section: randomPart, Who: e.name, Nodes: len(nodes), Workers: callers,
			Variant: farAway(away), Metric: inAPair}, micros(r.spent)/float64(r.pairs))
	})
}

// farAway says how far away nodes are.
func farAway(away time.Duration) string {
	if away == 0 {
		return "on loopback"
	}
	return fmt.Sprint(away, " away")
}
