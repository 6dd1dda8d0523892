package main

import (
	"context"
	"fmt"
	"time"
)

// latency measures Lock and Unlock of one caller when every round trip to a node takes longer,
// and when one node is ten times as far away as the others.
func (s *suite) latency() {
	const nodes = 5
	cs := s.pick(func(c *contender) bool { return !c.oneNode && !c.etcd })
	for _, l := range s.Latencies {
		for _, far := range []bool{false, true} {
			variant := fmt.Sprint(l)
			if far {
				variant += ", one node " + fmt.Sprint(10*l)
			}
			through, end, err := proxies(addrs(s.servers[:nodes]), func(place int) time.Duration {
				if far && place == 0 {
					return 10 * l
				}
				return l
			})
			if err != nil {
				panic(err)
			}
			in := s.enter(cs, through, 1)
			s.say("latency: %d nodes, %s: %s", nodes, variant, list(in))
			const warm = 2 // connections and scripts
			done := map[string]int{}
			turns(in, s.LatencyOps+warm, func(e *entrant) {
				i := done[e.name]
				done[e.name]++
				lock, unlock, err := timed(e.lockers[0], fmt.Sprintf("latency:%s:%d", e.name, i))
				switch {
				case err != nil:
					s.warn("%s, %s: %v", e.name, variant, err)
				case i >= warm:
					k := key{Section: "latency", Who: e.name, Nodes: nodes, Workers: 1,
						Variant: variant}
					k.Metric = "ms for Lock"
					s.report.add(k, millis(lock))
					k.Metric = "ms for Unlock"
					s.report.add(k, millis(unlock))
				}
			})
			leave(in)
			end()
		}
	}
}

func timed(l locker, name string) (lock, unlock time.Duration, err error) {
	start := time.Now()
	release, err := l.Lock(context.Background(), name)
	lock = time.Since(start)
	if err == nil {
		start = time.Now()
		err = release()
		unlock = time.Since(start)
	}
	return lock, unlock, err
}
