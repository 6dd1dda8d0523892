package main

import "math"

// target is a promise about speed: a figure made from medians of one interleaved run, and its limit. Whether it is met is
// shown, never tested: a busy machine is no bug.
type target struct {
	what    string
	atLeast bool // otherwise at most
	limit   float64
	aim     string // what would be better still
	figure  func(r *report) float64
}

// ok reports whether v meets the target; nothing that was not measured does.
func (t target) ok(v float64) bool {
	if t.atLeast {
		return v >= t.limit
	}
	return v <= t.limit
}

const we = "redlock goredis"

// ratio is redlock's median over that of another.
func ratio(k key, other string) func(*report) float64 {
	return func(r *report) float64 {
		mine, theirs := k, k
		mine.Who, theirs.Who = we, other
		return r.median(mine) / r.median(theirs)
	}
}

func value(k key) func(*report) float64 {
	return func(r *report) float64 { return r.median(k) }
}

func perPair(nodes, goroutines int) key {
	return key{Section: "pairs", Nodes: nodes, Workers: goroutines, Metric: "µs/pair"}
}

func contended(waiters int, metric string) key {
	return key{Section: "contention", Who: we, Nodes: 5, Workers: waiters, Metric: metric}
}

var targets = append(append([]target{
	{"5 nodes, 64 goroutines: time per pair / redsync goredis", false, 0.15, "0.11", ratio(perPair(5, 64), "redsync goredis")},
	{"5 nodes, 64 goroutines: time per pair / redsync rueidis", false, 0.25, "", ratio(perPair(5, 64), "redsync rueidis")},
	{"5 nodes, 64 goroutines: allocations per pair", false, 90, "fewer", value(key{Section: "pairs", Who: we, Nodes: 5, Workers: 64, Metric: "allocs/pair"})},
	{"5 nodes, 1 goroutine: time per pair / redsync goredis", false, 0.60, "", ratio(perPair(5, 1), "redsync goredis")},
	{"1 node, 1 goroutine: time per pair / redsync goredis", false, 1.0, "0.85", ratio(perPair(1, 1), "redsync goredis")},
	{"1 node, 1 goroutine: time per pair / redislock", false, 0.80, "", ratio(perPair(1, 1), "redislock")},
	{"1 node, 64 goroutines: time per pair / rueidislock", false, 0.60, "", ratio(perPair(1, 64), "rueidislock")},
	{"one frozen node of 5, 64 goroutines: throughput / healthy", true, 0.70, "", func(r *report) float64 {
		k := key{Section: "frozen", Who: we, Nodes: 5, Workers: 64, Variant: "one frozen", Metric: "pairs/s"}
		frozen := r.median(k)
		k.Variant = "healthy"
		return frozen / r.median(k)
	}},
	{"one frozen node of 5: heap at the end / at the beginning", false, 1.2, "", func(r *report) float64 {
		s := r.find(key{Section: "frozen", Who: we, Nodes: 5, Workers: 64, Variant: "one frozen", Metric: "heap MB over time"})
		if s == nil || len(s.Values) < 4 {
			return math.NaN()
		}
		quarter := len(s.Values) / 4
		return median(s.Values[len(s.Values)-quarter:]) / median(s.Values[:quarter])
	}},
	{"5 instant simulated nodes: µs per pair", false, 8, "", value(key{Section: "instant", Who: "redlock", Nodes: 5, Workers: 1, Metric: "µs/pair"})},
	{"5 instant simulated nodes: allocations per pair", false, 30, "", value(key{Section: "instant", Who: "redlock", Nodes: 5, Workers: 1, Metric: "allocs/pair"})},
	{"hand-over, 5 nodes: median ms", false, 2, "", value(key{Section: "handover", Who: we, Nodes: 5, Workers: 2, Metric: "ms"})},
	{"1,000 waiters on 5 nodes: commands per turn", false, 50, "", value(key{Section: "crowd", Who: we, Nodes: 5, Workers: 1000, Metric: "commands/turn"})},
}, contentionTargets()...), latencyTargets()...)

func contentionTargets() (ts []target) {
	for _, w := range []int{16, 64} {
		of := "5 nodes, " + number(float64(w)) + " waiters: "
		ts = append(ts,
			target{of + "turns per second / 1/(hold + 2 round trips)", true, 0.85, "", func(r *report) float64 {
				// A pair of the bare client is two round trips.
				k := perPair(5, 1)
				k.Who = "bare go-redis"
				most := 1e6 / (micros(hold) + r.median(k))
				return r.median(contended(w, "turns/s")) / most
			}},
			target{of + "p99 wait / (waiters × (hold + 1 ms))", false, 2, "", func(r *report) float64 {
				return r.median(contended(w, "p99 wait ms")) / (float64(w) * (millis(hold) + 1))
			}},
			target{of + "fewest / most turns per waiter", true, 0.5, "", value(contended(w, "fewest/most"))},
			target{of + "commands per turn", false, 50, "", value(contended(w, "commands/turn"))},
		)
	}
	return ts
}

func latencyTargets() (ts []target) {
	for _, who := range []string{we, "redlock fenced"} {
		for _, variant := range []string{"20ms", "20ms, one node 200ms"} {
			for _, op := range []string{"Lock", "Unlock"} {
				ts = append(ts, target{who + ", every node " + variant + " away: " + op + " / 20 ms", false, 1.1, "",
					func(r *report) float64 {
						return r.median(key{Section: "latency", Who: who, Nodes: 5, Workers: 1, Variant: variant, Metric: "ms for " + op}) / 20
					}})
			}
		}
	}
	return ts
}

// targetTable is target, measured, ok.
func (r *report) targetTable() string {
	var rows [][]string
	for _, t := range targets {
		limit := "≤ " + number(t.limit)
		if t.atLeast {
			limit = "≥ " + number(t.limit)
		}
		if t.aim != "" {
			limit += " (aim: " + t.aim + ")"
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
