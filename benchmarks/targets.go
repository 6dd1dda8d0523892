package main

import (
	"fmt"
	"math"
	"slices"
)

// target is a promise about speed: a figure made from one interleaved run, and its limit. Whether
// it is met is shown, never tested: a busy machine is no bug.
type target struct {
	what    string
	atLeast bool // otherwise at most
	limit   float64
	figure  func(r *report) float64
	left    func(r *report) bool // whether what was measured leaves it out; nil: it does not
}

// ok reports whether v meets the target; nothing that was not measured does.
func (t target) ok(v float64) bool {
	if t.atLeast {
		return v >= t.limit
	}
	return v <= t.limit
}

const we = "redlock goredis"

func value(k key) func(*report) float64 {
	return func(r *report) float64 { return r.median(k) }
}

const (
	pairPart   = "pairs"
	endingPart = "ending"
)

func perPair(nodes, goroutines int) key {
	return key{Section: pairPart, Nodes: nodes, Workers: goroutines, Metric: "µs/pair"}
}

func contended(waiters int, metric string) key {
	return key{Section: "contention", Who: we, Nodes: 5, Workers: waiters, Metric: metric}
}

func atMost(limit float64, what string, figure func(r *report) float64) target {
	return target{what: what, limit: limit, figure: figure}
}

func atLeast(limit float64, what string, figure func(r *report) float64) target {
	return target{what: what, limit: limit, figure: figure, atLeast: true}
}

// pair is about the time of a pair over that of another contender.
func pair(limit float64, nodes, goroutines int, who, other string) target {
	return atMost(limit, fmt.Sprintf("%s, %s: time per pair, %s / %s", plural(nodes, "node"),
		plural(goroutines, "goroutine"), who, other),
		ratio(perPair(nodes, goroutines), who, other))
}

func instantly(metric string) func(*report) float64 {
	return value(key{Section: "instant", Who: "redlock", Nodes: 5, Workers: 1, Metric: metric})
}

const (
	onTheRedigo  = "redlock redigo"
	onTheRueidis = "redlock rueidis"
)

var targets = slices.Concat(pairTargets(), []target{
	atLeast(0.70, "one frozen node of 5, 64 goroutines: throughput / healthy",
		func(r *report) float64 {
			k := key{Section: "frozen", Who: we, Nodes: 5, Workers: 64, Variant: "one frozen",
				Metric: "pairs/s"}
			frozen := r.median(k)
			k.Variant = "healthy"
			return frozen / r.median(k)
		}),
	atMost(1.1, "one frozen node of 5: heap at the end / at the beginning", heapGrowth),
	atMost(8, "5 instant simulated nodes: µs per pair", instantly("µs/pair")),
	atMost(30, "5 instant simulated nodes: allocations per pair", instantly("allocs/pair")),
	atMost(1.25, "5 nodes, 1 goroutine: Lock with fencing / without",
		ratio(fencedLock(""), "redlock fenced", we)),
	atMost(2, "hand-over, 5 nodes: median ms",
		value(key{Section: "handover", Who: we, Nodes: 5, Workers: 2, Metric: "ms"})),
	atMost(100, "1,000 waiters on 5 nodes: commands per turn",
		value(key{Section: "crowd", Who: we, Nodes: 5, Workers: 1000, Metric: "commands/turn"})),
	atMost(0, "most held locks on 5 nodes: locks lost", mostHeld(we, "lost")),
	atLeast(onTime-1, "most held locks on 5 nodes: least seconds left of the validity",
		mostHeld(we, "least s left")),
	atMost(0, "most held locks on 5 simulated nodes: locks lost",
		mostHeld("redlock simulated", "lost")),
	atMost(1536, "most held locks on 5 simulated nodes: bytes of heap per lock",
		mostHeld("redlock simulated", "heap bytes/lock")),
	// A constant number of them does not count.
	atMost(0.001, "most held locks on 5 simulated nodes: goroutines per lock",
		mostHeld("redlock simulated", "goroutines/lock")),
}, electionTargets(), contentionTargets(), processTargets(), latencyTargets())

// pairTargets are about Lock and Unlock, each against contenders on the same client.
func pairTargets() []target {
	return []target{
		atMost(0, "times and processor times per pair in which a peer on the same client is ahead",
			losses),
		pair(0.11, 5, 64, we, "redsync goredis"),
		pair(1.25, 5, 64, we, batcher),
		pair(1.15, 1, 1, we, bare),
		pair(1.15, 1, 1, onTheRedigo, bareOnRedigo),
		pair(0.30, 5, 64, onTheRueidis, "redsync rueidis"),
		pair(0.70, 1, 64, onTheRueidis, "rueidislock"),
		pair(ahead, 1, 1, onTheRueidis, "redsync rueidis"),
		pair(ahead, 1, 1, onTheRueidis, "rueidislock"),
		pair(ahead, 1, 8, onTheRueidis, "redsync rueidis"),
		pair(ahead, 1, 8, onTheRueidis, "rueidislock"),
		atMost(90, "5 nodes, 64 goroutines: allocations per pair",
			value(key{Section: pairPart, Who: we, Nodes: 5, Workers: 64, Metric: "allocs/pair"})),
	}
}

// mostHeld is a figure of the most locks that were held at a time.
func mostHeld(who, metric string) func(*report) float64 {
	return func(r *report) float64 {
		k := key{Section: "held", Who: who, Nodes: 5, Metric: metric}
		for _, s := range r.Series {
			if s.Section == k.Section && s.Who == who {
				k.Workers = max(k.Workers, s.Workers)
			}
		}
		return r.median(k)
	}
}

func electionTargets() []target {
	k := key{Section: electionPart, Who: we, Nodes: electionNodes, Workers: candidateCount}
	resigned, killed := k, k
	resigned.Metric, killed.Metric = afterResign, afterKill
	return []target{
		atMost(2, "election: median ms after Resign", value(resigned)),
		atMost(millis(electionExpiry)+20, "election: most ms after kill -9",
			func(r *report) float64 {
				if s := r.find(killed); s != nil {
					return slices.Max(s.Values)
				}
				return math.NaN()
			}),
	}
}

func contentionTargets() (ts []target) {
	for _, w := range []int{16, 64} {
		of := fmt.Sprintf("5 nodes, %d waiters: ", w)
		ts = append(ts,
			atLeast(0.85, of+"turns per second / 1/(hold + 2 round trips)",
				func(r *report) float64 {
					return r.median(contended(w, "turns/s")) / r.mostTurns(5, hold)
				}),
			atMost(2, of+"p99 wait / (waiters × (hold + 1 ms))", func(r *report) float64 {
				return r.median(contended(w, "p99 wait ms")) / (float64(w) * (millis(hold) + 1))
			}),
			atLeast(0.5, of+"fewest / most turns per waiter", value(contended(w, "fewest/most"))),
			atMost(100, of+"commands per turn", value(contended(w, "commands/turn"))),
		)
	}
	return ts
}

func latencyTargets() (ts []target) {
	for _, who := range []string{we, "redlock fenced"} {
		for _, variant := range []string{"20ms", "20ms, one node 200ms"} {
			for _, op := range []string{"Lock", "Unlock"} {
				k := key{Section: "latency", Who: who, Nodes: 5, Workers: 1, Variant: variant,
					Metric: "ms for " + op}
				ts = append(ts, atMost(1.1, who+", every node "+variant+" away: "+op+" / 20 ms",
					func(r *report) float64 { return r.median(k) / 20 }))
			}
		}
	}
	return ts
}

// targetTable is target, measured, ok.
func (r *report) targetTable() string {
	var rows [][]string
	for _, t := range targets {
		if t.left != nil && t.left(r) {
			continue
		}
		limit := "≤ " + number(t.limit)
		if t.atLeast {
			limit = "≥ " + number(t.limit)
		}
		v, verdict := t.figure(r), "**no**"
		switch {
		case math.IsNaN(v):
			verdict = "not measured"
		case t.ok(v):
			verdict = "ok"
		}
		rows = append(rows, []string{t.what, limit, number(v), verdict})
	}
	return table([]string{"", "target", "measured", ""}, rows)
}
