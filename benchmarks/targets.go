package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// target is a promise about speed: a figure made from medians of one interleaved run, and its
// limit. Whether it is met is shown, never tested: a busy machine is no bug.
type target struct {
	what    string
	atLeast bool // otherwise at most
	limit   float64
	aim     string // what would be better still
	figure  func(r *report) float64
	bare    func(r *report) float64 // the same figure of the bare client, or nil
	caller  bool                    // one alone on one node: bare is the least that is possible
}

// ok reports whether v meets the target; nothing that was not measured does.
func (t target) ok(v float64) bool {
	if t.atLeast {
		return v >= t.limit
	}
	return v <= t.limit
}

const (
	we   = "redlock goredis"
	bare = "bare go-redis"
)

// ratio is one contender's median over that of another.
func ratio(k key, who, other string) func(*report) float64 {
	return func(r *report) float64 {
		mine, theirs := k, k
		mine.Who, theirs.Who = who, other
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

func atMost(limit float64, what string, figure func(r *report) float64) target {
	return target{what: what, limit: limit, figure: figure}
}

func atLeast(limit float64, what string, figure func(r *report) float64) target {
	return target{what: what, limit: limit, figure: figure, atLeast: true}
}

// pair is about the time of a pair over that of a peer, and tells where the bare client is.
func pair(limit float64, aim string, nodes, goroutines int, peer string) target {
	k := perPair(nodes, goroutines)
	t := atMost(limit, fmt.Sprintf("%s, %s: time per pair / %s", plural(nodes, "node"),
		plural(goroutines, "goroutine"), peer), ratio(k, we, peer))
	t.aim, t.bare = aim, ratio(k, bare, peer)
	t.caller = nodes == 1 && goroutines == 1
	return t
}

func instantly(metric string) func(*report) float64 {
	return value(key{Section: "instant", Who: "redlock", Nodes: 5, Workers: 1, Metric: metric})
}

var targets = slices.Concat([]target{
	pair(0.15, "0.11", 5, 64, "redsync goredis"),
	pair(0.25, "", 5, 64, "redsync rueidis"),
	atMost(90, "5 nodes, 64 goroutines: allocations per pair",
		value(key{Section: "pairs", Who: we, Nodes: 5, Workers: 64, Metric: "allocs/pair"})),
	pair(0.60, "", 5, 1, "redsync goredis"),
	pair(1.0, "0.85", 1, 1, "redsync goredis"),
	pair(0.80, "", 1, 1, "redislock"),
	pair(0.60, "", 1, 64, "rueidislock"),
	atLeast(0.70, "one frozen node of 5, 64 goroutines: throughput / healthy",
		func(r *report) float64 {
			k := key{Section: "frozen", Who: we, Nodes: 5, Workers: 64, Variant: "one frozen",
				Metric: "pairs/s"}
			frozen := r.median(k)
			k.Variant = "healthy"
			return frozen / r.median(k)
		}),
	atMost(1.2, "one frozen node of 5: heap at the end / at the beginning",
		func(r *report) float64 {
			s := r.find(key{Section: "frozen", Who: we, Nodes: 5, Workers: 64, Variant: "one " +
				"frozen",
				Metric: "heap MB over time"})
			if s == nil || len(s.Values) < 4 {
				return math.NaN()
			}
			quarter := len(s.Values) / 4
			return median(s.Values[len(s.Values)-quarter:]) / median(s.Values[:quarter])
		}),
	atMost(8, "5 instant simulated nodes: µs per pair", instantly("µs/pair")),
	atMost(30, "5 instant simulated nodes: allocations per pair", instantly("allocs/pair")),
	atMost(1.25, "5 nodes, 1 goroutine: Lock with fencing / without",
		ratio(fencedLock(""), "redlock fenced", we)),
	atMost(2, "hand-over, 5 nodes: median ms",
		value(key{Section: "handover", Who: we, Nodes: 5, Workers: 2, Metric: "ms"})),
	atMost(50, "1,000 waiters on 5 nodes: commands per turn",
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
}, contentionTargets(), latencyTargets())

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

func contentionTargets() (ts []target) {
	for _, w := range []int{16, 64} {
		of := fmt.Sprintf("5 nodes, %d waiters: ", w)
		ts = append(ts,
			atLeast(0.85, of+"turns per second / 1/(hold + 2 round trips)",
				func(r *report) float64 {
					// A pair of the bare client is two round trips.
					k := perPair(5, 1)
					k.Who = bare
					most := 1e6 / (micros(hold) + r.median(k))
					return r.median(contended(w, "turns/s")) / most
				}),
			atMost(2, of+"p99 wait / (waiters × (hold + 1 ms))", func(r *report) float64 {
				return r.median(contended(w, "p99 wait ms")) / (float64(w) * (millis(hold) + 1))
			}),
			atLeast(0.5, of+"fewest / most turns per waiter", value(contended(w, "fewest/most"))),
			atMost(50, of+"commands per turn", value(contended(w, "commands/turn"))),
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

// targetTable is target, measured, the bare client, ok.
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
		v, verdict, reference := t.figure(r), "**no**", ""
		switch {
		case math.IsNaN(v):
			verdict = "not measured"
		case t.ok(v):
			verdict = "ok"
		}
		if t.bare != nil {
			reference = number(t.bare(r))
		}
		rows = append(rows, []string{t.what, limit, number(v), reference, verdict})
	}
	return table([]string{"", "target", "measured", bare, ""}, rows)
}

// outOfReach says which limits are below what the bare client needs. With one caller on one node
// that is the floor: two round trips, one after the other, and nothing else. With more callers
// round trips can be shared, and with more nodes the slowest need not be waited for.
func (r *report) outOfReach() string {
	var out []string
	for _, t := range targets {
		if t.caller && t.bare(r) > t.limit {
			out = append(out, fmt.Sprintf("%q asks for %s, and %s is at %s", t.what,
				number(t.limit), bare, number(t.bare(r))))
		}
	}
	return strings.Join(out, "; ")
}
