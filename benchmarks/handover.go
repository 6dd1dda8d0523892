package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const handOverPart = "handover"

// handOver measures the time from Unlock returning in one client to Lock returning in another
// that waits for it.
func (s *suite) handOver() {
	for _, n := range []int{5, 1} {
		for _, away := range s.HandOverTrips {
			behind(away, addrs(s.servers[:n]), func(nodes []string) {
				s.handOvers(nodes, key{Section: handOverPart, Nodes: n, Workers: 2,
					Variant: far(away)})
			})
		}
	}
}

func (s *suite) handOvers(nodes []string, k key) {
	in := s.enter(s.pick(waiting), nodes, 2)
	defer leave(in)
	s.say("handover: %d nodes, %s", k.Nodes, k.Variant)
	turns(in, 1, func(e *entrant) { _, _ = handOver(e.lockers[0], e.lockers[1]) }) // connects
	turns(in, s.HandOvers, func(e *entrant) {
		d, err := handOver(e.lockers[0], e.lockers[1])
		if err != nil {
			s.warn("%s, hand-over on %d nodes, %s: %v", e.name, k.Nodes, k.Variant, err)
			return
		}
		s.report.put(k.by(e.name), "ms", millis(d))
	})
}

func handOver(from, to locker) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	unlock, err := from.Lock(ctx, "baton")
	if err != nil {
		return 0, err
	}
	var granted time.Time
	failed := make(chan error, 1)
	go func() {
		next, err := to.Lock(ctx, "baton")
		granted = time.Now()
		if err == nil {
			err = next()
		}
		failed <- err
	}()
	// Long enough to be waiting, and to be anywhere between two polls if it polls.
	time.Sleep(100*time.Millisecond + rand.N(200*time.Millisecond))
	err = unlock()
	released := time.Now()
	err = errors.Join(err, <-failed)
	return granted.Sub(released), err
}
