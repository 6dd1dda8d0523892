package main

import (
	"fmt"
	"maps"
	"math"
	"strings"
)

// charts draws what has been measured, by name. There is no chart of nothing.
func (r *report) charts() map[string]string {
	out := make(map[string]string)
	r.costs(out)
	r.crowds(out)
	for _, n := range []int{5, 1} {
		r.turns(out, n)
	}
	r.troubles(out)
	maps.DeleteFunc(out, func(_, svg string) bool { return svg == "" })
	return out
}

// costs draws what a pair, a waiter and a held lock cost.
func (r *report) costs(out map[string]string) {
	pairs := func(title, sub, xLabel string, at func(k key) (float64, bool)) string {
		return chart{title, sub, "µs", true}.lines(xLabel, true, r.lines("pairs", "µs/pair", at))
	}
	maps.Copy(out, map[string]string{
		"goroutines": pairs("Lock + unlock on 5 nodes",
			"distinct names, one shared client; time per pair, lower is better", "goroutines",
			func(k key) (float64, bool) { return float64(k.Workers), k.Nodes == 5 }),
		"goroutines-1": pairs("Lock + unlock on one node",
			"distinct names, one shared client; time per pair, lower is better", "goroutines",
			func(k key) (float64, bool) { return float64(k.Workers), k.Nodes == 1 }),
		"nodes": pairs("How the cost grows with the number of nodes",
			"64 goroutines, distinct names; time per pair, lower is better", "nodes",
			func(k key) (float64, bool) { return float64(k.Nodes), k.Workers == 64 }),
		"crowd": chart{"What a waiter costs the nodes",
			"5 nodes, 4 clients, 10 ms holds; commands on all nodes per turn, lower is better",
			"commands", true}.
			lines("waiters", true, r.lines("crowd", "commands/turn",
				func(k key) (float64, bool) { return float64(k.Workers), true })),
		"held": chart{"Memory of a held lock", "heap of the client, per lock that is kept extended",
			"bytes", false}.
			lines("held locks", true, r.lines("held", "heap bytes/lock",
				func(k key) (float64, bool) { return float64(k.Workers), true })),
		"memory": chart{"Memory while a node is frozen",
			"one of 5 nodes stopped, 64 busy goroutines; heap after collection", "MB", false}.
			lines("seconds", false, r.overTime(key{Section: "frozen", Who: we, Nodes: 5,
				Workers: 64, Variant: "one frozen", Metric: heapOverTime})),
	})
}

// crowds draws how cost, waits and turns that pass on grow with the number of processes.
func (r *report) crowds(out map[string]string) {
	for _, kind := range []string{againKind, onceKind} {
		at := func(k key) (float64, bool) { return float64(k.Workers), k.Variant == kind }
		of := "5 ms holds, processes that " + kind + "; "
		suffix := strings.ReplaceAll(strings.TrimPrefix(kind, "come "), " ", "-")
		out["processes-commands-"+suffix] = chart{"What a turn costs the nodes", of +
			"commands on 5 nodes (rueidislock: 1) per turn, lower is better", "commands", true}.
			lines("processes", true, r.lines(processPart, "commands/turn", at))
		out["processes-waits-"+suffix] = chart{"The longest wait", of +
			"over the fair share, processes × mean turn; 1 is fair", "× fair share", true}.
			lines("processes", true, r.lines(processPart, "longest wait/fair", at))
		if kind == againKind {
			out["processes-passes"] = chart{"How often the lock passes to another process", of +
				"grants to another process per second, higher is better", "passes/s", false}.
				lines("processes", true, r.lines(processPart, "passes/s", at))
		}
	}
}

// turns draws on n nodes how long waiters wait, and how long a hand-over takes.
func (r *report) turns(out map[string]string, n int) {
	var waits, hand []bar
	for _, w := range r.who("contention", "p99 wait ms") {
		for _, waiters := range distinct(r, "contention",
			func(k key) int { return k.Workers }) {
			k := key{Section: "contention", Who: w, Nodes: n, Workers: waiters,
				Metric: "p99 wait ms"}
			if v := r.median(k); !math.IsNaN(v) {
				waits = append(waits,
					bar{w, fmt.Sprintf("%s, %d waiters", w, waiters), v, false})
			}
		}
		if v := r.median(key{Section: "handover", Who: w, Nodes: n, Workers: 2,
			Metric: "ms"}); !math.IsNaN(v) {
			hand = append(hand, bar{w, w, v, false})
		}
	}
	on := fmt.Sprintf("%d nodes", n)
	if n == 1 {
		on = "one node"
	}
	out[fmt.Sprintf("waits-%d", n)] = chart{"How long the unlucky wait, on " + on,
		"99th percentile of the wait, 4 clients, 10 ms holds; lower is better", "ms",
		false}.bars(waits)
	out[fmt.Sprintf("handover-%d", n)] = chart{"Hand-over on " + on,
		"from Unlock returning in one client to Lock returning in another, median", "ms",
		false}.bars(hand)
}

// troubles draws what a frozen and a distant node cost.
func (r *report) troubles(out map[string]string) {
	var frozen, far []bar
	for _, w := range r.who("frozen", "ms for Lock and Unlock") {
		v := r.median(key{Section: "frozen", Who: w, Nodes: 5, Workers: 1, Variant: "one frozen",
			Metric: "ms for Lock and Unlock"})
		frozen = append(frozen, bar{w, w, v, v >= millis(r.config("frozen").FrozenPatience)})
	}
	for _, w := range r.who("latency", "ms for Lock") {
		for _, op := range []string{"Lock", "Unlock"} {
			far = append(far, bar{w, w + ", " + op,
				r.median(key{Section: "latency", Who: w, Nodes: 5, Workers: 1,
					Variant: "20ms, one node 200ms", Metric: "ms for " + op}), false})
		}
	}
	out["frozen"] = chart{"One of 5 nodes frozen", "one caller's Lock and Unlock; lower is better",
		"ms", false}.bars(frozen)
	out["latency"] = chart{"Four nodes 20 ms away, one 200 ms",
		"median of one caller; lower is better", "ms", false}.bars(far)
}

// lines makes one line per contender from the medians of a metric; at says where a key stands on
// the x axis, if it belongs there.
func (r *report) lines(section, metric string, at func(key) (x float64, ok bool)) []line {
	var out []line
	for _, w := range r.who(section, metric) {
		l := line{name: w}
		for _, s := range r.Series {
			if x, ok := at(s.key); ok && s.Section == section && s.Metric == metric && s.Who == w {
				l.points = append(l.points, point{x, median(s.Values)})
			}
		}
		if len(l.points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

func (r *report) overTime(k key) []line {
	s := r.find(k)
	if s == nil {
		return nil
	}
	l := line{name: k.Who}
	for i, v := range s.Values {
		l.points = append(l.points, point{float64(i+1) * r.config(k.Section).SampleEvery.Seconds(),
			v})
	}
	return []line{l}
}
