package main

import "math"

// pairs is what a Lock and an Unlock cost.
func (r *page) pairs() {
	nodes := distinct(r.report, pairPart, func(k key) int { return k.Nodes })
	workers := distinct(r.report, pairPart, func(k key) int { return k.Workers })
	r.p("## Lock and unlock")
	r.p("Goroutines that share one client lock and unlock, each its own name.")
	r.figure("goroutines", "Time per pair over goroutines, 5 nodes")
	r.figure("goroutines-1", "Time per pair over goroutines, 1 node")
	r.figure("nodes", "Time per pair over nodes, 64 goroutines")
	for _, n := range nodes {
		r.p("### %s", on(n))
		r.costs(pairPart, n, workers, rivalsOf)
	}
	const n = 5
	if t := r.grid(pairPart, "allocs/pair", goroutines(workers),
		func(i int) key { return key{Nodes: n, Workers: workers[i]} }); t != notMeasured {
		r.p("Allocations of a pair on %s:", on(n))
		r.p("%s", t)
	}
}

// costs are the time and the processor time of a pair on so many nodes: over those of rivals, and
// by themselves.
func (r *page) costs(
	section string, nodes int, workers []int, rivals func(*contender) []*contender,
) {
	for i, metric := range times {
		k := key{Section: section, Nodes: nodes, Metric: metric}
		if t := r.ratioTable(k, workers, rivals); t != "" {
			r.p("%s over that of another contender on the same client:", timeNames[i])
			r.p("%s", t)
		}
	}
	for i, metric := range times {
		r.p("%s of a pair:", timeNames[i])
		r.p("%s", r.grid(section, metric, goroutines(workers),
			func(i int) key { return key{Nodes: nodes, Workers: workers[i]} }))
	}
}

// ending is what callers wait for whose contexts may end.
func (r *page) ending() {
	workers := distinct(r.report, endingPart, func(k key) int { return k.Workers })
	if len(workers) == 0 {
		return // not measured yet
	}
	r.p("### Callers whose contexts may end")
	r.p("Above, a caller of one node may send its own command, where its client keeps to " +
		"deadlines. A context that may be cancelled ends a Lock whatever the client does, and so " +
		"another goroutine sends its command. Here all goroutines share such a context, in every " +
		"library. It does not end. There is 1 node.")
	r.costs(endingPart, 1, workers, peersOf)
}

// random is what callers who come at random times wait for.
func (r *page) random() {
	workers := distinct(r.report, randomPart, func(k key) int { return k.Workers })
	if len(workers) == 0 {
		return // not measured yet
	}
	conf := r.config(randomPart)
	r.p("### Callers who come at random times")
	r.p("The callers above come back at once, so they come together. Most programs' callers do "+
		"not. Here each of them rests before every pair, for a random time of %v on average. The "+
		"figures are the time in Lock and Unlock, from %d paired slices of %v. An in-process "+
		"proxy puts nodes away.", conf.RandomRest, conf.RandomRounds, conf.RandomSlice)
	for _, n := range distinct(r.report, randomPart, func(k key) int { return k.Nodes }) {
		for _, v := range distinct(r.report, randomPart, func(k key) string { return k.Variant }) {
			k := key{Section: randomPart, Nodes: n, Variant: v, Metric: inAPair}
			r.p("%s, %s, over the time of another contender on the same client:", on(n), v)
			r.p("%s", r.ratioTable(k, workers, peersOf))
			r.p("%s", r.grid(randomPart, inAPair, goroutines(workers),
				func(i int) key { return key{Nodes: n, Variant: v, Workers: workers[i]} }))
		}
	}
}

// on is a number of nodes.
func on(nodes int) string { return plural(nodes, "node") }

// fencing is what a token costs.
func (r *page) fencing() {
	if len(r.who("fencing", times[0])) == 0 {
		return // not measured yet
	}
	r.p("## Fencing")
	r.p("The acquire command becomes a script on two keys. A second round trip is needed only " +
		"when the nodes disagree about the token.")
	k := fencedLock("")
	if v := r.ratios(k, "redlock fenced", we); len(v) > 0 {
		unlock := k
		unlock.Metric = "µs for Unlock"
		r.p("One goroutine on 5 nodes locks with and without a token in turns, call by call. A "+
			"Lock takes %s times as long with a token, and an Unlock %s times. The figures are "+
			"medians of the calls of a round:", spread(v),
			spread(r.ratios(unlock, "redlock fenced", we)))
		r.p("%s", r.transposed("fencing", key{Nodes: 5, Workers: 1, Variant: callByCall},
			"µs for Lock", "µs for Unlock"))
	}
	for i, metric := range times {
		r.p("%s of a pair, in slices as above:", timeNames[i])
		r.p("%s", r.grid("fencing", metric, []string{"1 goroutine", "64 goroutines"},
			func(i int) key { return key{Nodes: 5, Workers: []int{1, 64}[i]} }))
	}
	for _, g := range []int{1, 64} {
		k := key{Section: "fencing", Nodes: 5, Workers: g, Metric: times[0]}
		if more := r.ratios(k, "redlock fenced", we); !math.IsNaN(median(more)) {
			r.p("With %s, a pair with a token takes %s times as long.", plural(g, "goroutine"),
				spread(more))
		}
	}
}

// alone is what the library costs without nodes.
func (r *page) alone() {
	r.p("## The library alone")
	r.p("One goroutine locks on simulated nodes that answer at once, in the same process. What " +
		"is left is the library, and the simulated nodes:")
	var all []string
	simulated := distinct(r.report, "instant", func(k key) int { return k.Nodes })
	for _, n := range simulated {
		all = append(all, on(n))
	}
	var rows [][]string
	for _, metric := range []string{"µs/pair", "CPU µs/pair", "allocs/pair", "bytes/pair"} {
		row := []string{metric}
		for _, n := range simulated {
			row = append(row, r.cell(key{Section: "instant", Who: "redlock", Nodes: n, Workers: 1,
				Metric: metric}))
		}
		rows = append(rows, row)
	}
	r.p("%s", table(append([]string{"redlock"}, all...), rows))
}
