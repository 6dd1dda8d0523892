package main

import (
	"fmt"
	"strings"
)

// A page is docs/benchmarks.md while it is written.
type page struct {
	*report
	drawn map[string]string // charts by name
	text  strings.Builder
}

// p writes a paragraph.
func (r *page) p(format string, args ...any) {
	r.text.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), "\n") + "\n\n")
}

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
		w.opening, w.targets, w.pairs, w.ending, w.random, w.fencing, w.alone, w.waiting,
		w.processes, w.handOver, w.election, w.idle, w.frozen, w.far, w.held, w.better,
	} {
		section()
	}
	return strings.TrimRight(w.text.String(), "\n") + "\n"
}

// opening says how everything was measured, and on what.
func (r *page) opening() {
	r.p("<!-- Written by `cd benchmarks && go run . -all`. Do not edit: change page.go. -->")
	r.p("# Benchmarks")
	r.p("What locks cost beside other libraries for Redis, on redis-servers that the program " +
		"starts itself. [Where a peer is better](#where-a-peer-is-better) says where redlock is " +
		"behind.")
	r.method()
	r.p(`Repeat it with

	cd benchmarks && go run . -all

which takes about %.0f minutes, and needs a redis-server on the PATH. It writes this page, its
charts and [results.json](../benchmarks/results.json), which holds every single value.`,
		full.estimate(sections).Minutes())
	r.p("The figures are from this machine, with these versions. Where sections are from another " +
		"one, the table says so:")
	r.text.WriteString("| | |\n|---|---|\n")
	for _, k := range machineOrder {
		if v := r.machine(k); v != "" {
			fmt.Fprintf(&r.text, "| %s | %s |\n", k, v)
		}
	}
	fmt.Fprintf(&r.text, "| measured | %s |\n\n", r.dates())
	r.contenders()
}

// method says how to read the figures.
func (r *page) method() {
	pairs, conf := r.config(pairPart), r.config("contention")
	r.p("## How to read the figures")
	r.p("A virtual machine may be half as fast in one run as in the next. So contenders are " +
		"compared only with what others did in the same moments.")
	r.p("*Paired slices* are used for Lock and unlock, and for Fencing. Each round measures all "+
		"contenders in turn, for %v each. Every round begins with another contender, and every "+
		"other round goes backwards. A ratio is made of two slices of the same round. The page "+
		"shows the median of %d rounds, with the quartiles in brackets: half of the rounds lie "+
		"between these. With more than 64 goroutines a slice is twice as long, in half as many "+
		"rounds.%s A ratio below 1 says that redlock needs less. One round says little, and a "+
		"median up to %s does not say that a peer is ahead.",
		pairs.PairSlice, pairs.PairRounds, moreRounds(pairs), number(ahead))
	r.p("The other sections need longer turns, such as %v for waiters. They show the median of a "+
		"few rounds, with the least and the greatest in brackets.", conf.Contention)
	r.p("Time is wall time over all pairs of a Lock and an Unlock. With more goroutines it is " +
		"the inverse of throughput. Processor time (CPU) is that of the client's process.")
	r.p("Client and servers share the machine, each in a session of its own, as services are. " +
		"They talk over loopback: round trips are short, and processors are scarce. " +
		"[Far nodes](#far-nodes) puts a network in between.")
	r.p("Callers of a node share round trips: up to three commands are under way by themselves, " +
		"or three batches of a group of one node. The others wait, and go together as the next " +
		"batch. The peers send each command by itself.")
}

// moreRounds says what is measured in more rounds than the rest.
func moreRounds(c config) string {
	times := 0
	for _, l := range c.legs() {
		if l == (leg{1, fewGoroutines}) {
			times++
		}
	}
	if times < 2 {
		return ""
	}
	return fmt.Sprintf(" On one node, a lone caller's time depends on how processors wake, and "+
		"that of a few callers differs little between contenders. Up to %d callers have %d times "+
		"as many rounds there, spread over minutes, unless their contexts may end.",
		fewGoroutines, times)
}

// contenders says what takes part, and with which options.
func (r *page) contenders() {
	r.p("## Contenders")
	r.p("All locks expire after %v, and tries are unlimited. Peers have the options that their "+
		"documentation shows. redlock has those that the documentation of its adapters shows. "+
		"redigo keeps no idle connection by default, and each command would dial:",
		expiry)
	var rows [][]string
	for _, c := range roster {
		rows = append(rows, []string{c.name, c.client, c.options})
	}
	r.p("%s", table([]string{"contender", "client", "options"}, rows))
	r.p("`DisableIdentity` and `MaintNotificationsConfig` save round trips when go-redis " +
		"connects, and change nothing after that. What was measured before 2026-11-26 is " +
		"without them.")
	r.p("redlock is compared with the peers on the same client. That of rueidis has an adapter " +
		"of its own, so its peers meet *redlock rueidis*. redislock and rueidislock know one " +
		"node only. etcd takes part where processes wait and where they elect.")
	r.p("Three contenders are no lock libraries, and show what a client costs at least. *bare* "+
		"sends `SET NX PX` and a compare-and-delete script to every node at once, and waits for "+
		"every reply. *%s* has a goroutine for each node, which sends all that waits as one "+
		"pipeline; a caller goes on when a majority has answered. None of them has a deadline, a "+
		"retry or a clean-up.", batcher)
	r.p("Where pairs are measured, goroutines call Lock without a context that can end, in every " +
		"library. One section is about contexts that may end.")
}

// targets compares with what was aimed at.
func (r *page) targets() {
	r.p("## Targets")
	r.p("What is aimed at, and what was measured. Ratios of pairs are medians of paired slices.")
	r.p("%s", r.targetTable())
}

// frozen is what one node costs that answers nothing.
func (r *page) frozen() {
	r.p("## A frozen node")
	r.p("One server process is stopped (SIGSTOP): it accepts connections and answers nothing. %v "+
		"is as long as one caller was waited for.", r.config("frozen").FrozenPatience)
	r.figure("frozen", "One caller with one of 5 nodes frozen")
	for _, n := range []int{5, 3} {
		r.p("Pairs that 64 goroutines do a second, with one of %s frozen:", on(n))
		r.p("%s", r.grid("frozen", "pairs/s",
			[]string{fmt.Sprintf("%d nodes, healthy", n), fmt.Sprintf("one of %d frozen", n)},
			func(i int) key {
				return key{Nodes: n, Workers: 64, Variant: []string{"healthy", "one frozen"}[i]}
			}))
	}
	r.p("One Lock and Unlock:")
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
		r.p("%s alone:", op)
		r.p("%s", r.grid("latency", "ms for "+op, variants,
			func(i int) key { return key{Nodes: 5, Workers: 1, Variant: variants[i]} }))
	}
}

// held is what it costs to keep locks.
func (r *page) held() {
	held := distinct(r.report, "held", func(k key) int { return k.Workers })
	if len(held) == 0 {
		return // not measured yet
	}
	r.p("## Held locks")
	r.p("Locks that are kept extended, with an expiry of %v, are watched for %v. The tables show:",
		heldExpiry, r.config("held").HeldWatch)
	r.p(`- *heap* and *stack*: by how much the memory of the client's process has grown in the end.
  The program itself keeps nothing but a pointer for each lock, in a slice that is there before.
- *CPU %%*: processor time of the client's process; 100 is one core.
- *lost*: locks that could not be unlocked in the end.
- *least s left*: the least time that any lock was seen to be valid for, in 30 looks. Renewed on
  time, a lock always has two thirds of its validity, %.1f s.`, onTime)
	r.p("*redlock simulated* locks on nodes in the same process that answer at once. Their " +
		"memory is not counted: they have had all the keys before.")
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
}

// better is where peers are ahead, and what went wrong.
func (r *page) better() {
	r.p("## Where a peer is better")
	duels := r.compared()
	compared := len(duels)
	switch t := r.lostTable(duels); {
	case compared == 0:
	case t == "":
		r.p("Lock and unlock: in none of %d comparisons of time or processor time with a peer on "+
			"the same client is the median ratio above %s.", compared, number(ahead))
	default:
		r.p("Lock and unlock: %d of %d comparisons of time and processor time with peers on the "+
			"same client have a median ratio above %s.", len(lost(duels)), compared, number(ahead))
		r.p("%s", t)
	}
	if t := r.lostTable(r.comparedIn(endingPart)); t != "" {
		r.p("Callers whose contexts may end, by the same measure:")
		r.p("%s", t)
	}
	if t := r.lostTable(r.duels(randomPart, inAPair, peersOf)); t != "" {
		r.p("Callers who come at random times, by the same measure:")
		r.p("%s", t)
	}
	if rows := r.beaten(); len(rows) > 0 {
		r.p("The other sections: figures in which redlock goredis is more than 3 %% behind a " +
			"peer on go-redis, or etcd, on as many nodes. The median wait is left out: see " +
			"[Waiting](#waiting).")
		r.p("%s", table([]string{"where", "peer", "figure", "peer's", "redlock's"}, rows))
	} else {
		r.p("The other sections: no peer on go-redis, nor etcd, is more than 3 %% better.")
	}
	var notes []string
	for _, s := range sections {
		if run := r.Runs[s.name]; run != nil {
			notes = append(notes, run.Notes...)
		}
	}
	if len(notes) > 0 {
		r.p("## What went wrong")
		r.p("The program noted this while it measured:")
		r.p("- %s", strings.Join(notes, "\n- "))
	}
}
