package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// docs writes the page and its charts, and removes charts that the page does not show any more.
func (r *report) docs(page, figures string) error {
	if err := os.MkdirAll(figures, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(figures, "bench-*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for name, svg := range r.charts() {
		if err := os.WriteFile(filepath.Join(figures, "bench-"+name+".svg"), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(r.page()), 0o644)
}

// charts draws what has been measured, by name. There is no chart of nothing.
func (r *report) charts() map[string]string {
	pairs := func(title, sub, xLabel string, at func(k key) (float64, bool)) string {
		return chart{title, sub, "µs", true}.lines(xLabel, true, r.lines("pairs", "µs/pair", at))
	}
	out := map[string]string{
		"goroutines": pairs("Lock + unlock on 5 nodes", "distinct names, one shared client; time per pair, lower is better", "goroutines",
			func(k key) (float64, bool) { return float64(k.Workers), k.Nodes == 5 }),
		"goroutines-1": pairs("Lock + unlock on one node", "distinct names, one shared client; time per pair, lower is better", "goroutines",
			func(k key) (float64, bool) { return float64(k.Workers), k.Nodes == 1 }),
		"nodes": pairs("How the cost grows with the number of nodes", "64 goroutines, distinct names; time per pair, lower is better", "nodes",
			func(k key) (float64, bool) { return float64(k.Nodes), k.Workers == 64 }),
		"crowd": chart{"What a waiter costs the nodes", "5 nodes, 4 clients, 10 ms holds; commands on all nodes per turn, lower is better", "commands", true}.
			lines("waiters", true, r.lines("crowd", "commands/turn", func(k key) (float64, bool) { return float64(k.Workers), true })),
		"held": chart{"Memory of a held lock", "heap of the client, per lock that is kept extended", "bytes", false}.
			lines("held locks", true, r.lines("held", "heap bytes/lock", func(k key) (float64, bool) { return float64(k.Workers), true })),
		"memory": chart{"Memory while a node is frozen", "one of 5 nodes stopped, 64 busy goroutines; heap after collection", "MB", false}.
			lines("seconds", false, r.overTime(key{Section: "frozen", Who: we, Nodes: 5, Workers: 64, Variant: "one frozen", Metric: "heap MB over time"})),
	}
	for _, kind := range []string{againKind, onceKind} {
		at := func(k key) (float64, bool) { return float64(k.Workers), k.Variant == kind }
		of := "5 nodes, 5 ms holds, processes that " + kind + "; "
		suffix := strings.ReplaceAll(strings.TrimPrefix(kind, "come "), " ", "-")
		out["processes-commands-"+suffix] = chart{"What a turn costs the nodes", of + "commands on all nodes per turn, lower is better", "commands", true}.
			lines("processes", true, r.lines(processPart, "commands/turn", at))
		out["processes-waits-"+suffix] = chart{"The longest wait", of + "over the fair share, processes × mean turn; 1 is fair", "× fair share", true}.
			lines("processes", true, r.lines(processPart, "longest wait/fair", at))
	}
	for _, n := range []int{5, 1} {
		var waits, hand []bar
		for _, w := range r.who("contention", "p99 wait ms") {
			for _, waiters := range distinct(r, "contention", func(k key) int { return k.Workers }) {
				k := key{Section: "contention", Who: w, Nodes: n, Workers: waiters, Metric: "p99 wait ms"}
				if v := r.median(k); !math.IsNaN(v) {
					waits = append(waits, bar{w, fmt.Sprintf("%s, %d waiters", w, waiters), v, false})
				}
			}
			if v := r.median(key{Section: "handover", Who: w, Nodes: n, Workers: 2, Metric: "ms"}); !math.IsNaN(v) {
				hand = append(hand, bar{w, w, v, false})
			}
		}
		on := fmt.Sprintf("%d nodes", n)
		if n == 1 {
			on = "one node"
		}
		out[fmt.Sprintf("waits-%d", n)] = chart{"How long the unlucky wait, on " + on, "99th percentile of the wait, 4 clients, 10 ms holds; lower is better", "ms", false}.bars(waits)
		out[fmt.Sprintf("handover-%d", n)] = chart{"Hand-over on " + on, "from Unlock returning in one client to Lock returning in another, median", "ms", false}.bars(hand)
	}
	var frozen, far []bar
	for _, w := range r.who("frozen", "ms for Lock and Unlock") {
		v := r.median(key{Section: "frozen", Who: w, Nodes: 5, Workers: 1, Variant: "one frozen", Metric: "ms for Lock and Unlock"})
		frozen = append(frozen, bar{w, w, v, v >= millis(r.config("frozen").FrozenPatience)})
	}
	for _, w := range r.who("latency", "ms for Lock") {
		for _, op := range []string{"Lock", "Unlock"} {
			far = append(far, bar{w, w + ", " + op, r.median(key{Section: "latency", Who: w, Nodes: 5, Workers: 1, Variant: "20ms, one node 200ms", Metric: "ms for " + op}), false})
		}
	}
	out["frozen"] = chart{"One of 5 nodes frozen", "one caller's Lock and Unlock; lower is better", "ms", false}.bars(frozen)
	out["latency"] = chart{"Four nodes 20 ms away, one 200 ms", "median of one caller; lower is better", "ms", false}.bars(far)
	maps.DeleteFunc(out, func(_, svg string) bool { return svg == "" })
	return out
}

// lines makes one line per contender from the medians of a metric; at says where a key stands on the x axis, if
// it belongs there.
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
		l.points = append(l.points, point{float64(i+1) * r.config(k.Section).SampleEvery.Seconds(), v})
	}
	return []line{l}
}

// grid is a table of the contenders (rows) over columns, one metric.
func (r *report) grid(section, metric string, columns []string, at func(column int) key) string {
	var rows [][]string
	for _, w := range r.who(section, metric) {
		row, any := []string{w}, false
		for i := range columns {
			k := at(i)
			k.Section, k.Who, k.Metric = section, w, metric
			any = any || r.find(k) != nil
			row = append(row, r.cell(k))
		}
		if any {
			rows = append(rows, row)
		}
	}
	return table(append([]string{metric}, columns...), rows)
}

// bestRow is the row of a grid of smaller-is-better figures that compares redlock with the best peer.
func (r *report) bestRow(section, metric string, n int, at func(int) key) string {
	var parts []string
	for i := range n {
		k := at(i)
		k.Section, k.Metric, k.Who = section, metric, we
		mine := r.median(k)
		if who, v := r.best(k); !math.IsNaN(v) && !math.IsNaN(mine) {
			parts = append(parts, fmt.Sprintf("%s × %s", number(mine/v), who))
		}
	}
	return strings.Join(parts, ", ")
}

// beaten lists where a peer's median is better than redlock's by more than 3 %.
func (r *report) beaten() [][]string {
	better := map[string]bool{"turns/s": true, "fewest turns": true, "fewest/most": true, "pairs/s": true} // larger is better
	skip := map[string]bool{"most turns": true, "bytes/pair": true}
	var rows [][]string
	for _, s := range r.Series {
		c := contenderNamed(s.Who)
		k := s.key
		k.Who = we
		mine := r.find(k)
		if c == nil || !c.peer || mine == nil || skip[s.Metric] {
			continue
		}
		theirs, ours := median(s.Values), median(mine.Values)
		if ahead := theirs < ours/1.03; !better[s.Metric] && ahead || better[s.Metric] && theirs > ours*1.03 {
			where := fmt.Sprintf("%s: %s, %s", s.Section, plural(s.Nodes, "node"), plural(s.Workers, "worker"))
			if s.Variant != "" {
				where += ", " + s.Variant
			}
			rows = append(rows, []string{where, s.Who, s.Metric, number(theirs), number(ours)})
		}
	}
	return rows
}

func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (r *report) page() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n\n", args...) }
	charts := r.charts()
	figure := func(name, alt string) {
		if charts[name] != "" {
			p("![%s](figures/bench-%s.svg)", alt, name)
		}
	}
	nodes := distinct(r, "pairs", func(k key) int { return k.Nodes })
	workers := distinct(r, "pairs", func(k key) int { return k.Workers })
	var goroutines []string
	for _, w := range workers {
		goroutines = append(goroutines, plural(w, "goroutine"))
	}

	p("<!-- Written by `cd benchmarks && go run . -all`. Do not edit: change benchmarks/docs.go. -->")
	p("# Benchmarks")
	pairs, contention := r.config("pairs"), r.config("contention")
	p(`All figures of a section are from one run of one program, in which the contenders take turns: every round measures each of
them, for %v (%v under contention), beginning with another one each time. A figure is the median of the %d rounds (%d under contention),
with the least and the greatest in brackets. Client and servers share the machine, each in a session of its own, as services are
(Linux may divide the processors among sessions). They talk over loopback, so round trips are short
and the processor is the scarce thing; "Far nodes" below puts a network in between.`,
		pairs.Slice, contention.Contention, pairs.Rounds, contention.ContentionRounds)
	p(`Repeat it with

	cd benchmarks && go run . -all

which takes about an hour, needs a redis-server on the PATH, and writes this page, its charts and
[results.json](../benchmarks/results.json), which holds every single value.`)
	b.WriteString("| | |\n|---|---|\n")
	for _, k := range machineOrder {
		if v := r.Machine[k]; v != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", k, v)
		}
	}
	fmt.Fprintf(&b, "| measured | %s |\n\n", r.dates())
	p("Contenders use the default options of their libraries and clients, an expiry of %v, and unlimited tries; redigo pools keep up to 256 idle "+
		"connections, rueidislock is given one key per lock and NOLOOP tracking. *bare go-redis* is no lock library: `SET NX PX` and a compare-and-delete "+
		"script sent to every node at once, without deadlines, clean-up or retries. redislock and rueidislock know one node only.", expiry)

	p("## Targets")
	p("%s", r.targetTable())
	p("The column *%s* is its ratio to the same peer. With one goroutine on one node it is the floor: two round trips and nothing else; a lock library "+
		"has those two to make as well. With more goroutines round trips can be shared, and on several nodes the slowest need not be waited for, "+
		"so it is a reference there, which can be beaten.", bare)
	if beyond := r.outOfReach(); beyond != "" {
		p("Out of reach on this machine, because the target is below that floor: %s.", beyond)
	}

	p("## Lock and unlock")
	p("Goroutines that share one client lock and unlock, each its own name. Time is wall time over all pairs, so with more goroutines it is the inverse of throughput.")
	figure("goroutines", "Time per pair over goroutines, 5 nodes")
	figure("goroutines-1", "Time per pair over goroutines, 1 node")
	figure("nodes", "Time per pair over nodes, 64 goroutines")
	for _, n := range nodes {
		at := func(i int) key { return key{Nodes: n, Workers: workers[i]} }
		p("**%s**", plural(n, "node"))
		p("%s", r.grid("pairs", "µs/pair", goroutines, at))
		if best := r.bestRow("pairs", "µs/pair", len(workers), at); best != "" {
			p("redlock goredis over the best peer: %s.", best)
		}
	}
	for _, metric := range []string{"allocs/pair", "CPU µs/pair"} {
		if n := 5; r.find(key{Section: "pairs", Who: we, Nodes: n, Workers: 64, Metric: metric}) != nil {
			p("**%s: %s**", plural(n, "node"), metric)
			p("%s", r.grid("pairs", metric, goroutines, func(i int) key { return key{Nodes: n, Workers: workers[i]} }))
		}
	}
	p("%s", r.growth(nodes, workers))

	p("## Fencing")
	p("The acquire command becomes a script on two keys. A second round trip is needed only when the nodes disagree about the token.")
	p("Lock and unlock by themselves, one goroutine on 5 nodes, with and without a token in turns, call by call. The figures are medians of the calls of a round.")
	if more := ratio(fencedLock(""), "redlock fenced", we)(r); !math.IsNaN(more) {
		p("A Lock takes %s times as long with a token.", number(more))
	}
	p("%s", r.transposed("fencing", key{Nodes: 5, Workers: 1, Variant: callByCall}, "µs for Lock", "µs for Unlock"))
	p("The pair, each turn as long as above:")
	p("%s", r.grid("fencing", "µs/pair", []string{"1 goroutine", "64 goroutines"}, func(i int) key { return key{Nodes: 5, Workers: []int{1, 64}[i]} }))

	p("## The library alone")
	p("One goroutine on simulated nodes that answer at once, in the same process: what is left is the library (and the simulated nodes).")
	var all []string
	simulated := distinct(r, "instant", func(k key) int { return k.Nodes })
	for _, n := range simulated {
		all = append(all, plural(n, "node"))
	}
	for _, metric := range []string{"µs/pair", "CPU µs/pair", "allocs/pair", "bytes/pair"} {
		p("%s", r.grid("instant", metric, all, func(i int) key { return key{Nodes: simulated[i], Workers: 1} }))
	}

	p("## Waiting")
	p("A median wait near zero is no virtue here: it means that a waiter who has just released the lock takes it again at once, again and again, while " +
		"others wait. Look at the 99th percentile and at the fewest and most turns.")
	p("%d clients with connections of their own, waiters spread evenly over them, all for one name; each holds the lock for %v and wants it again at once. "+
		"Waits that the end cut off count for as long as they lasted. Commands are those that all nodes executed together, inside scripts too.", clients, hold)
	waiters := distinct(r, "contention", func(k key) int { return k.Workers })
	for _, n := range []int{5, 1} {
		figure(fmt.Sprintf("waits-%d", n), "99th percentile of the wait")
		for _, w := range waiters {
			t := r.transposed("contention", key{Nodes: n, Workers: w},
				"turns/s", "p50 wait ms", "p99 wait ms", "fewest turns", "most turns", "fewest/most", "commands/turn")
			if t != notMeasured {
				p("**%s, %s**", plural(n, "node"), plural(w, "waiter"))
				p("%s", t)
			}
		}
	}
	figure("crowd", "Commands per turn over waiters")
	crowd := distinct(r, "crowd", func(k key) int { return k.Workers })
	var crowds []string
	for _, w := range crowd {
		crowds = append(crowds, plural(w, "waiter"))
	}
	for _, metric := range []string{"commands/turn", "turns/s"} {
		p("%s", r.grid("crowd", metric, crowds, func(i int) key { return key{Nodes: 5, Workers: crowd[i]} }))
	}

	r.processTables(p, figure)

	p("### Hand-over")
	p("From Unlock returning in one client to Lock returning in another that waits, on an otherwise idle machine, with the default delays between tries.")
	figure("handover-5", "Hand-over, 5 nodes")
	figure("handover-1", "Hand-over, 1 node")
	p("%s", r.grid("handover", "ms", []string{"5 nodes", "1 node"}, func(i int) key { return key{Nodes: []int{5, 1}[i], Workers: 2} }))

	p("### Idle waiters")
	idle := r.config("idle").IdleWaiters
	p("%d waiters in %d clients wait for a lock that is held all the time. Processor time is that of the client process; 100 is one core.", idle, clients-1)
	for _, metric := range []string{"CPU %", "commands/s"} {
		p("%s", r.grid("idle", metric, []string{"5 nodes", "1 node"}, func(i int) key { return key{Nodes: []int{5, 1}[i], Workers: idle} }))
	}

	p("## A frozen node")
	p("One server process is stopped (SIGSTOP): it accepts connections and answers nothing. %v is as long as one caller was waited for.", r.config("frozen").FrozenPatience)
	figure("frozen", "One caller with one of 5 nodes frozen")
	for _, n := range []int{5, 3} {
		p("%s", r.grid("frozen", "pairs/s", []string{fmt.Sprintf("%d nodes, healthy", n), fmt.Sprintf("one of %d frozen", n)}, func(i int) key {
			return key{Nodes: n, Workers: 64, Variant: []string{"healthy", "one frozen"}[i]}
		}))
	}
	p("%s", r.grid("frozen", "ms for Lock and Unlock", []string{"one of 5 frozen", "one of 3 frozen"}, func(i int) key {
		return key{Nodes: []int{5, 3}[i], Workers: 1, Variant: "one frozen"}
	}))
	figure("memory", "Heap over time with a frozen node")

	p("## Far nodes")
	p("An in-process proxy in front of each of 5 nodes adds the given time to every round trip. One caller.")
	figure("latency", "Lock and Unlock with far nodes")
	variants := distinct(r, "latency", func(k key) string { return k.Variant })
	for _, op := range []string{"Lock", "Unlock"} {
		p("%s", r.grid("latency", "ms for "+op, variants, func(i int) key { return key{Nodes: 5, Workers: 1, Variant: variants[i]} }))
	}

	p("## Held locks")
	p("Locks that are kept extended, with an expiry of %v, watched for %v. Memory is what the client process has grown by in the end; "+
		"the program itself keeps nothing but a pointer per lock, in a slice that is there before. Processor time is that of the client process; 100 is one core. "+
		"*lost* locks are those that could not be unlocked in the end; *least s left* is the least time that any lock was seen to be valid for, looking 30 times: "+
		"renewed on time, a lock always has two thirds of its validity, %.1f s. "+
		"*redlock simulated* locks on nodes in the same process that answer at once. Their memory is not counted: they have had all the keys before.",
		heldExpiry, r.config("held").HeldWatch, onTime)
	if held := distinct(r, "held", func(k key) int { return k.Workers }); len(held) > 0 {
		figure("held", "Memory per held lock")
		var columns []string
		for _, n := range held {
			columns = append(columns, plural(n, "lock"))
		}
		for _, metric := range []string{"heap bytes/lock", "stack bytes/lock", "goroutines/lock", "CPU %", "lost", "least s left"} {
			var rows [][]string
			for _, w := range r.who("held", metric) {
				row := []string{w}
				for _, n := range held {
					k := key{Section: "held", Who: w, Nodes: 5, Workers: n, Metric: metric}
					if r.find(k) == nil {
						k.Nodes = 1
					}
					row = append(row, r.cell(k))
				}
				rows = append(rows, row)
			}
			p("%s", table(append([]string{metric}, columns...), rows))
		}
	} else {
		p("%s", notMeasured)
	}

	p("## Where a peer is better")
	p("Every figure of this page in which a peer's median is more than 3 %% better than that of redlock goredis on as many nodes.")
	if rows := r.beaten(); len(rows) > 0 {
		p("%s", table([]string{"where", "peer", "figure", "peer's", "redlock's"}, rows))
	} else {
		p("None in this run.")
	}
	var notes []string
	for _, s := range sections {
		if run := r.Runs[s.name]; run != nil {
			notes = append(notes, run.Notes...)
		}
	}
	if len(notes) > 0 {
		p("## What went wrong")
		p("- %s", strings.Join(notes, "\n- "))
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// dates says when the sections were measured, shortly if they were on one day.
func (r *report) dates() string {
	on := map[string][]string{}
	for _, s := range sections {
		if run := r.Runs[s.name]; run != nil {
			on[run.Date] = append(on[run.Date], s.name)
		}
	}
	var out []string
	for _, day := range slices.Sorted(maps.Keys(on)) {
		if len(on) > 1 {
			day += " (" + strings.Join(on[day], ", ") + ")"
		}
		out = append(out, day)
	}
	return strings.Join(out, ", ")
}

// transposed is a table of contenders (rows) over metrics.
func (r *report) transposed(section string, k key, metrics ...string) string {
	var rows [][]string
	for _, w := range r.who(section, metrics[0]) {
		row, any := []string{w}, false
		for _, m := range metrics {
			k.Section, k.Who, k.Metric = section, w, m
			any = any || r.find(k) != nil
			row = append(row, r.cell(k))
		}
		if any {
			rows = append(rows, row)
		}
	}
	return table(append([]string{""}, metrics...), rows)
}

// growth says in words how the cost of a pair grows.
func (r *report) growth(nodes, workers []int) string {
	if len(nodes) < 2 || len(workers) < 2 {
		return ""
	}
	n0, n1 := nodes[0], nodes[len(nodes)-1]
	g0, g1 := workers[0], workers[len(workers)-1]
	at := func(who string, n, g int) float64 {
		k := perPair(n, g)
		k.Who = who
		return r.median(k)
	}
	var out []string
	for _, w := range r.who("pairs", "µs/pair") {
		if c := contenderNamed(w); c == nil || c.oneNode {
			continue
		}
		out = append(out, fmt.Sprintf("- %s: from %d to %d nodes × %s (1 goroutine) and × %s (64 goroutines); from %d to %d goroutines on 5 nodes × %s per pair.",
			w, n0, n1, number(at(w, n1, 1)/at(w, n0, 1)), number(at(w, n1, 64)/at(w, n0, 64)), g0, g1, number(at(w, 5, g1)/at(w, 5, g0))))
	}
	return "How the time per pair grows:\n\n" + strings.Join(out, "\n")
}

// processTables is the part of the page about processes that share a lock.
func (r *report) processTables(p func(format string, args ...any), figure func(name, alt string)) {
	if len(r.who(processPart, "turns/s")) == 0 {
		return // not measured yet
	}
	conf := r.config(processPart)
	p("### Processes")
	p("Processes that share one lock, each a client with connections of its own and one waiter, spread over %d operating-system processes; "+
		"each turn keeps the lock for %v. Those that *come back* want it again as soon as they have released it, for %v. Those that *come once* all want it at "+
		"the same time; when each has had it, as many others come, on the same connections. The fair share is the number of processes × the mean time of a turn. "+
		"A grant *overtook* if somebody still waited whose Lock was called at least %v earlier. Processor time is that of all clients and of all servers, "+
		"which share %s cores.", crewCount, crewHold, conf.ProcessSlice, slack, r.Machine["cores"])
	for _, kind := range []string{"back", "once"} {
		figure("processes-commands-"+kind, "Commands per turn over processes that come "+kind)
		figure("processes-waits-"+kind, "Longest wait over processes that come "+kind)
	}
	for _, n := range distinct(r, processPart, func(k key) int { return k.Workers }) {
		for _, kind := range []string{againKind, onceKind} {
			p("**%s that %s**", plural(n, "process"), kind)
			var rows [][]string
			metrics := []string{"turns/s", "commands/turn", "fewest/most", "longest wait ms", "longest wait/fair", "overtakes", "clients' CPU ms/turn", "servers' CPU ms/turn"}
			for _, w := range r.who(processPart, metrics[0]) {
				row, any := []string{w}, false
				for _, m := range metrics {
					k := key{Section: processPart, Who: w, Nodes: crewNodes, Workers: n, Variant: kind, Metric: m}
					if c := contenderNamed(w); c != nil && c.oneNode {
						k.Nodes = 1
					}
					any = any || r.find(k) != nil
					row = append(row, r.cell(k))
				}
				if any {
					rows = append(rows, row)
				}
			}
			p("%s", table(append([]string{""}, metrics...), rows))
		}
	}
}
