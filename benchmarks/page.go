package main

import (
	"fmt"
	"math"
	"strings"
)

// A page is docs/benchmarks.md while it is written.
type page struct {
	*report
	drawn map[string]string // charts by name
	text  strings.Builder
}

// p writes a paragraph.
func (r *page) p(format string, args ...any) { fmt.Fprintf(&r.text, format+"\n\n", args...) }

// figure shows a chart, if it has been drawn.
func (r *page) figure(name, alt string) {
	if r.drawn[name] != "" {
		r.p("![%s](figures/bench-%s.svg)", alt, name)
	}
}

// page is the text of docs/benchmarks.md.
func (r *report) page() string {
	w := &page{report: r, drawn: r.charts()}
	for _, section := range []func(){
		w.opening, w.targets, w.pairs, w.fencing, w.alone, w.waiting, w.processes,
		w.handOver, w.election, w.idle, w.frozen, w.far, w.held, w.better,
	} {
		section()
	}
	return strings.TrimRight(w.text.String(), "\n") + "\n"
}

// opening says how everything was measured, and on what.
func (r *page) opening() {
	r.p("<!-- Written by `cd benchmarks && go run . -all`. Do not edit: change page.go. -->")
	r.p("# Benchmarks")
	pairs, contention := r.config("pairs"), r.config("contention")
	r.p(`All figures of a section are from one run of one program, in which the contenders take
turns: every round measures each of them, for %v (%v under contention), beginning with another
one each time. A figure is the median of the %d rounds (%d under contention), with the least and
the greatest in brackets. Client and servers share the machine, each in a session of its own, as
services are (Linux may divide the processors among sessions). They talk over loopback, so round
trips are short and the processor is the scarce thing; "Far nodes" below puts a network in
between.`,
		pairs.Slice, contention.Contention, pairs.Rounds, contention.ContentionRounds)
	r.p(`Repeat it with

	cd benchmarks && go run . -all

which takes about an hour, needs a redis-server on the PATH, and writes this page, its charts and
[results.json](../benchmarks/results.json), which holds every single value.`)
	r.text.WriteString("| | |\n|---|---|\n")
	for _, k := range machineOrder {
		if v := r.Machine[k]; v != "" {
			fmt.Fprintf(&r.text, "| %s | %s |\n", k, v)
		}
	}
	fmt.Fprintf(&r.text, "| measured | %s |\n\n", r.dates())
	r.p("Contenders use the default options of their libraries and clients, an expiry of %v, and "+
		"unlimited tries; redigo pools keep up to 256 idle connections, rueidislock is given one "+
		"key per lock and NOLOOP tracking. *bare go-redis* is no lock library: `SET NX PX` and a "+
		"compare-and-delete script sent to every node at once, without deadlines, clean-up or "+
		"retries. redislock and rueidislock know one node only.", expiry)
}

// targets compares with what was aimed at.
func (r *page) targets() {
	r.p("## Targets")
	r.p("%s", r.targetTable())
	r.p("The column *%s* is its ratio to the same peer. With one goroutine on one node it is the "+
		"floor: two round trips and nothing else; a lock library has those two to make as well. "+
		"With more goroutines round trips can be shared, and on several nodes the slowest need "+
		"not be waited for, so it is a reference there, which can be beaten.", bare)
	if beyond := r.outOfReach(); beyond != "" {
		r.p("Out of reach on this machine, because the target is below that floor: %s.", beyond)
	}
}

// pairs is what a Lock and an Unlock cost.
func (r *page) pairs() {
	nodes := distinct(r.report, "pairs", func(k key) int { return k.Nodes })
	workers := distinct(r.report, "pairs", func(k key) int { return k.Workers })
	var goroutines []string
	for _, w := range workers {
		goroutines = append(goroutines, plural(w, "goroutine"))
	}
	r.p("## Lock and unlock")
	r.p("Goroutines that share one client lock and unlock, each its own name. Time is wall time " +
		"over all pairs, so with more goroutines it is the inverse of throughput.")
	r.figure("goroutines", "Time per pair over goroutines, 5 nodes")
	r.figure("goroutines-1", "Time per pair over goroutines, 1 node")
	r.figure("nodes", "Time per pair over nodes, 64 goroutines")
	for _, n := range nodes {
		at := func(i int) key { return key{Nodes: n, Workers: workers[i]} }
		r.p("**%s**", plural(n, "node"))
		r.p("%s", r.grid("pairs", "µs/pair", goroutines, at))
		if best := r.bestRow("pairs", "µs/pair", len(workers), at); best != "" {
			r.p("redlock goredis over the best peer: %s.", best)
		}
	}
	for _, metric := range []string{"allocs/pair", "CPU µs/pair"} {
		if n := 5; r.find(key{Section: "pairs", Who: we, Nodes: n, Workers: 64,
			Metric: metric}) != nil {
			r.p("**%s: %s**", plural(n, "node"), metric)
			r.p("%s", r.grid("pairs", metric, goroutines,
				func(i int) key { return key{Nodes: n, Workers: workers[i]} }))
		}
	}
	r.p("%s", r.growth(nodes, workers))
}

// fencing is what a token costs.
func (r *page) fencing() {
	r.p("## Fencing")
	r.p("The acquire command becomes a script on two keys. A second round trip is needed only " +
		"when the nodes disagree about the token.")
	r.p("Lock and unlock by themselves, one goroutine on 5 nodes, with and without a token in " +
		"turns, call by call. The figures are medians of the calls of a round.")
	if more := ratio(fencedLock(""), "redlock fenced", we)(r.report); !math.IsNaN(more) {
		r.p("A Lock takes %s times as long with a token.", number(more))
	}
	r.p("%s", r.transposed("fencing", key{Nodes: 5, Workers: 1, Variant: callByCall}, "µs for Lock",
		"µs for Unlock"))
	r.p("The pair, each turn as long as above:")
	r.p("%s", r.grid("fencing", "µs/pair", []string{"1 goroutine", "64 goroutines"},
		func(i int) key { return key{Nodes: 5, Workers: []int{1, 64}[i]} }))
}

// alone is what the library costs without nodes.
func (r *page) alone() {
	r.p("## The library alone")
	r.p("One goroutine on simulated nodes that answer at once, in the same process: what is left " +
		"is the library (and the simulated nodes).")
	var all []string
	simulated := distinct(r.report, "instant", func(k key) int { return k.Nodes })
	for _, n := range simulated {
		all = append(all, plural(n, "node"))
	}
	for _, metric := range []string{"µs/pair", "CPU µs/pair", "allocs/pair", "bytes/pair"} {
		r.p("%s", r.grid("instant", metric, all,
			func(i int) key { return key{Nodes: simulated[i], Workers: 1} }))
	}
}

// waiting is what waiters of a few clients cost, and how fair it is.
func (r *page) waiting() {
	r.p("## Waiting")
	r.p("A median wait near zero is no virtue here: it means that a waiter who has just released " +
		"the lock takes it again at once, again and again, while others wait. Look at the 99th " +
		"percentile and at the fewest and most turns.")
	r.p("%d clients with connections of their own, waiters spread evenly over them, all for one "+
		"name; each holds the lock for %v and wants it again at once. Waits that the end cut off "+
		"count for as long as they lasted. Commands are those that all nodes executed together, "+
		"inside scripts too.", clients, hold)
	waiters := distinct(r.report, "contention", func(k key) int { return k.Workers })
	for _, n := range []int{5, 1} {
		r.figure(fmt.Sprintf("waits-%d", n), "99th percentile of the wait")
		for _, w := range waiters {
			t := r.transposed("contention", key{Nodes: n, Workers: w},
				"turns/s", "p50 wait ms", "p99 wait ms", "fewest turns", "most turns",
				"fewest/most", "commands/turn")
			if t != notMeasured {
				r.p("**%s, %s**", plural(n, "node"), plural(w, "waiter"))
				r.p("%s", t)
			}
		}
	}
	r.figure("crowd", "Commands per turn over waiters")
	crowd := distinct(r.report, "crowd", func(k key) int { return k.Workers })
	var crowds []string
	for _, w := range crowd {
		crowds = append(crowds, plural(w, "waiter"))
	}
	for _, metric := range []string{"commands/turn", "turns/s"} {
		r.p("%s", r.grid("crowd", metric, crowds,
			func(i int) key { return key{Nodes: 5, Workers: crowd[i]} }))
	}
}

// processes is what processes that share a lock cost, and how fair it is.
func (r *page) processes() {
	if len(r.who(processPart, "turns/s")) == 0 {
		return // not measured yet
	}
	conf := r.config(processPart)
	r.p("### Processes")
	r.p("Processes that share one lock, each a client with connections of its own and one "+
		"waiter, spread over %d operating-system processes; each turn keeps the lock for %v. "+
		"Those that *come back* want it again as soon as they have released it, for %v. Those "+
		"that *come once* all want it at the same time; when each has had it, as many others "+
		"come, on the same connections. The fair share is the number of processes × the mean "+
		"time of a turn. A grant *overtook* if somebody still waited whose Lock was called at "+
		"least %v earlier: Redlock's do where the nodes do not know that one yet, which takes a "+
		"few round trips. What those who come back do to give up their wait in the end is not "+
		"counted. Processor time is that of all clients and of all servers, which share "+
		"%s cores. *etcd* is concurrency.Mutex on %d members in processes of their own, which "+
		"sync nothing to disk, as the Redis servers do not; its commands are not counted.",
		crewCount, crewHold, conf.ProcessSlice, slack, r.Machine["cores"], etcdMembers)
	for _, kind := range []string{"back", "once"} {
		r.figure("processes-commands-"+kind, "Commands per turn over processes that come "+kind)
		r.figure("processes-waits-"+kind, "Longest wait over processes that come "+kind)
	}
	for _, n := range distinct(r.report, processPart, func(k key) int { return k.Workers }) {
		for _, kind := range []string{againKind, onceKind} {
			r.p("**%s that %s**", plural(n, "process"), kind)
			var rows [][]string
			metrics := []string{"turns/s", "commands/turn", "fewest/most", "longest wait ms",
				"longest wait/fair", "overtakes", "clients' CPU ms/turn", "servers' CPU ms/turn"}
			for _, w := range r.who(processPart, metrics[0]) {
				row, any := []string{w}, false
				for _, m := range metrics {
					k := key{Section: processPart, Who: w, Nodes: crewNodes, Workers: n,
						Variant: kind, Metric: m}
					switch c := contenderNamed(w); {
					case c != nil && c.oneNode:
						k.Nodes = 1
					case c != nil && c.etcd:
						k.Nodes = etcdMembers
					}
					any = any || r.find(k) != nil
					row = append(row, r.cell(k))
				}
				if any {
					rows = append(rows, row)
				}
			}
			r.p("%s", table(append([]string{""}, metrics...), rows))
		}
	}
}

// handOver is how long it takes from one client to the next.
func (r *page) handOver() {
	r.p("### Hand-over")
	r.p("From Unlock returning in one client to Lock returning in another that waits, on an " +
		"otherwise idle machine, with the default delays between tries.")
	r.figure("handover-5", "Hand-over, 5 nodes")
	r.figure("handover-1", "Hand-over, 1 node")
	r.p("%s", r.grid("handover", "ms", []string{"5 nodes", "1 node"},
		func(i int) key { return key{Nodes: []int{5, 1}[i], Workers: 2} }))
}

// election is how long nobody leads.
func (r *page) election() {
	if len(r.who(electionPart, "ms after Resign")) == 0 {
		return // not measured yet
	}
	r.p("### Elections")
	r.p("%d processes stand for election, and each leader makes way for the next one: it resigns, "+
		"or is killed by SIGKILL. The time is that from the call of Resign, or the kill, to the "+
		"return of Campaign in another process. The expiry, or the TTL of the session, is %v, and "+
		"a leader is killed at any time since its last renewal. redlock elects on %s. *etcd* is "+
		"concurrency.Election on %d members in processes of their own, which sync nothing to "+
		"disk. It expires the lease of a session that is gone twice a second.",
		candidateCount, electionExpiry, plural(electionNodes, "node"), etcdMembers)
	r.p("%s", r.transposed(electionPart, key{Nodes: electionNodes, Workers: candidateCount},
		"ms after Resign", "ms after kill -9"))
}

// idle is what waiters cost while nothing happens.
func (r *page) idle() {
	r.p("### Idle waiters")
	idle := r.config("idle").IdleWaiters
	r.p("%d waiters in %d clients wait for a lock that is held all the time. Processor time is "+
		"that of the client process; 100 is one core.", idle, clients-1)
	for _, metric := range []string{"CPU %", "commands/s"} {
		r.p("%s", r.grid("idle", metric, []string{"5 nodes", "1 node"},
			func(i int) key { return key{Nodes: []int{5, 1}[i], Workers: idle} }))
	}
}

// frozen is what one node costs that answers nothing.
func (r *page) frozen() {
	r.p("## A frozen node")
	r.p("One server process is stopped (SIGSTOP): it accepts connections and answers nothing. %v "+
		"is as long as one caller was waited for.", r.config("frozen").FrozenPatience)
	r.figure("frozen", "One caller with one of 5 nodes frozen")
	for _, n := range []int{5, 3} {
		r.p("%s", r.grid("frozen", "pairs/s",
			[]string{fmt.Sprintf("%d nodes, healthy", n), fmt.Sprintf("one of %d frozen", n)},
			func(i int) key {
				return key{Nodes: n, Workers: 64, Variant: []string{"healthy", "one frozen"}[i]}
			}))
	}
	r.p("%s", r.grid("frozen", "ms for Lock and Unlock",
		[]string{"one of 5 frozen", "one of 3 frozen"}, func(i int) key {
			return key{Nodes: []int{5, 3}[i], Workers: 1, Variant: "one frozen"}
		}))
	r.figure("memory", "Heap over time with a frozen node")
}

// far is what a network in between costs.
func (r *page) far() {
	r.p("## Far nodes")
	r.p("An in-process proxy in front of each of 5 nodes adds the given time to every round " +
		"trip. One caller.")
	r.figure("latency", "Lock and Unlock with far nodes")
	variants := distinct(r.report, "latency", func(k key) string { return k.Variant })
	for _, op := range []string{"Lock", "Unlock"} {
		r.p("%s", r.grid("latency", "ms for "+op, variants,
			func(i int) key { return key{Nodes: 5, Workers: 1, Variant: variants[i]} }))
	}
}

// held is what it costs to keep locks.
func (r *page) held() {
	r.p("## Held locks")
	r.p("Locks that are kept extended, with an expiry of %v, watched for %v. Memory is what the "+
		"client process has grown by in the end; the program itself keeps nothing but a pointer "+
		"per lock, in a slice that is there before. Processor time is that of the client "+
		"process; 100 is one core. *lost* locks are those that could not be unlocked in the end; "+
		"*least s left* is the least time that any lock was seen to be valid for, looking 30 "+
		"times: renewed on time, a lock always has two thirds of its validity, %.1f s. *redlock "+
		"simulated* locks on nodes in the same process that answer at once. Their memory is not "+
		"counted: they have had all the keys before.",
		heldExpiry, r.config("held").HeldWatch, onTime)
	if held := distinct(r.report, "held", func(k key) int { return k.Workers }); len(held) > 0 {
		r.figure("held", "Memory per held lock")
		var columns []string
		for _, n := range held {
			columns = append(columns, plural(n, "lock"))
		}
		for _, metric := range []string{"heap bytes/lock", "stack bytes/lock", "goroutines/lock",
			"CPU %", "lost", "least s left"} {
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
			r.p("%s", table(append([]string{metric}, columns...), rows))
		}
	} else {
		r.p("%s", notMeasured)
	}
}

// better is where peers are ahead, and what went wrong.
func (r *page) better() {
	r.p("## Where a peer is better")
	r.p("Every figure of this page in which a peer's median is more than 3 %% better than that " +
		"of redlock goredis on as many nodes.")
	if rows := r.beaten(); len(rows) > 0 {
		r.p("%s", table([]string{"where", "peer", "figure", "peer's", "redlock's"}, rows))
	} else {
		r.p("None in this run.")
	}
	var notes []string
	for _, s := range sections {
		if run := r.Runs[s.name]; run != nil {
			notes = append(notes, run.Notes...)
		}
	}
	if len(notes) > 0 {
		r.p("## What went wrong")
		r.p("- %s", strings.Join(notes, "\n- "))
	}
}
