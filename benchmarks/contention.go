package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

const (
	clients = 4                     // processes, as far as locking is concerned
	hold    = 10 * time.Millisecond // how long each turn keeps the lock
)

// contention measures many waiters for one name.
func (s *suite) contention() {
	for _, n := range []int{5, 1} {
		if !slices.Contains(s.Nodes, n) {
			continue
		}
		for _, w := range s.Waiters {
			s.contend("contention", s.pick(waiting), n, w, s.ContentionRounds)
		}
	}
}

// crowd measures how the work for the nodes grows with the number of waiters.
func (s *suite) crowd() {
	cs := s.pick(func(c *contender) bool {
		return c.name == we || c.name == "redsync goredis"
	})
	for _, w := range s.CrowdWaiters {
		s.contend("crowd", cs, 5, w, 1)
	}
}

func (s *suite) contend(section string, cs []*contender, nodes, waiters, rounds int) {
	in := s.enter(cs, addrs(s.servers[:nodes]), clients)
	defer leave(in)
	s.say("%s: %d nodes, %d waiters: %s", section, nodes, waiters, list(in))
	turns(in, rounds, func(e *entrant) {
		c := compete(e.lockers, s.servers[:nodes], waiters, s.Contention)
		if c.err != nil {
			s.warn("%s, %d waiters on %d nodes: %v", e.name, waiters, nodes, c.err)
		}
		if c.overlaps > 0 {
			s.warn("%s, %d waiters on %d nodes: %d OVERLAPS of two holders", e.name, waiters, nodes,
				c.overlaps)
		}
		k := key{Section: section, Who: e.name, Nodes: nodes, Workers: waiters}
		for metric, v := range map[string]float64{
			"turns/s":       float64(c.granted) / c.elapsed.Seconds(),
			"p50 wait ms":   quantile(c.waits, 0.50),
			"p99 wait ms":   quantile(c.waits, 0.99),
			"fewest turns":  float64(slices.Min(c.turns)),
			"most turns":    float64(slices.Max(c.turns)),
			"fewest/most":   float64(slices.Min(c.turns)) / float64(max(1, slices.Max(c.turns))),
			"commands/turn": float64(c.commands) / float64(max(1, c.granted)),
		} {
			k.Metric = metric
			s.report.add(k, v)
		}
	})
}

// competition is what happened to the waiters.
type competition struct {
	granted  int64
	elapsed  time.Duration
	waits    []float64 // ms; one cut off by the end counts for as long as it lasted
	turns    []int     // per waiter
	commands int64     // executed by all nodes
	overlaps int64     // two holders at a time
	err      error
}

// compete lets the waiters, spread evenly over the lockers, take turns for d. Each wants the lock
// again as soon as it has released it.
func compete(lockers []locker, servers []*redistest.Server, waiters int,
	d time.Duration) competition {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var (
		c              = competition{turns: make([]int, waiters)}
		waits          = make([][]float64, waiters)
		granted        atomic.Int64
		inside, beside atomic.Int64
		failed         atomic.Pointer[error]
		wg             sync.WaitGroup
	)
	before, start := commands(servers), time.Now()
	for w := range waiters {
		l := lockers[w%len(lockers)]
		wg.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				unlock, err := l.Lock(ctx, "contended")
				waits[w] = append(waits[w], millis(time.Since(asked)))
				if err != nil {
					if ctx.Err() == nil {
						failed.CompareAndSwap(nil, &err)
					}
					continue
				}
				if inside.Add(1) > 1 {
					beside.Add(1)
				}
				preciseSleep(hold)
				inside.Add(-1)
				granted.Add(1)
				c.turns[w]++
				if err := unlock(); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	time.Sleep(d)
	c.granted, c.elapsed, c.commands = granted.Load(), time.Since(start), commands(servers)-before
	cancel()
	wg.Wait()
	c.waits, c.overlaps = slices.Concat(waits...), beside.Load()
	if err := failed.Load(); err != nil {
		c.err = *err
	}
	return c
}

// handOver measures the time from Unlock returning in one client to Lock returning in another
// that waits for it.
func (s *suite) handOver() {
	for _, n := range []int{5, 1} {
		if !slices.Contains(s.Nodes, n) {
			continue
		}
		in := s.enter(s.pick(waiting), addrs(s.servers[:n]), 2)
		s.say("handover: %d nodes: %s", n, list(in))
		warm := map[string]bool{}
		turns(in, s.HandOvers+1, func(e *entrant) {
			d, err := handOver(e.lockers[0], e.lockers[1])
			switch {
			case err != nil:
				s.warn("%s, hand-over on %d nodes: %v", e.name, n, err)
			case warm[e.name]: // the first one opens connections
				s.report.add(key{Section: "handover", Who: e.name, Nodes: n, Workers: 2,
					Metric: "ms"}, millis(d))
			}
			warm[e.name] = true
		})
		leave(in)
	}
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
