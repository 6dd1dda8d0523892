package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

const handOverPart = "handover"

// handOver measures the time from Unlock returning in one client to Lock returning in another
// that waits for it.
func (s *suite) handOver() {
	for _, n := range []int{5, 1} {
		if !slices.Contains(s.Nodes, n) {
			continue
		}
		for _, away := range s.HandOverTrips {
			err := behind(away, addrs(s.servers[:n]), func(nodes []string) error {
				s.handOvers(nodes, key{Section: handOverPart, Nodes: n, Workers: 2,
					Variant: far(away)})
				return nil
			})
			if err != nil {
				panic(err)
			}
		}
	}
}

func (s *suite) handOvers(nodes []string, k key) {
	in := s.enter(s.pick(waiting), nodes, 2)
	defer leave(in)
	s.say("handover: %d nodes, %s: %s", k.Nodes, k.Variant, list(in))
	warm := map[string]bool{}
	turns(in, s.HandOvers+1, func(e *entrant) {
		d, err := handOver(e.lockers[0], e.lockers[1])
		k.Who = e.name
		switch {
		case err != nil:
			s.warn("%s, hand-over on %d nodes, %s: %v", e.name, k.Nodes, k.Variant, err)
		case warm[e.name]: // the first one opens connections
			s.report.put(k, "ms", millis(d))
		}
		warm[e.name] = true
	})
}

func handOver(from, to locker) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	unlock, err := from.Lock(ctx, "baton")
	if err != nil {
		return 0, err
	}
	type grant struct {
		at  time.Time
		err error
	}
	granted := make(chan grant, 1)
	go func() {
		next, err := to.Lock(ctx, "baton")
		at := time.Now()
		if err == nil {
			err = next()
		}
		granted <- grant{at, err}
	}()
	// Long enough to be waiting, and to be anywhere between two polls if it polls.
	time.Sleep(100*time.Millisecond + rand.N(200*time.Millisecond))
	err = unlock()
	released := time.Now()
	g := <-granted
	if err == nil {
		err = g.err
	}
	return g.at.Sub(released), err
}
