package main

import (
	"fmt"
	"time"
)

// waiting is what waiters of a few clients cost, and how fair it is.
func (r *page) waiting() {
	r.p("## Waiting")
	r.p("%d clients with connections of their own share one lock, and waiters are spread evenly "+
		"over them. Each holds the lock for %v, and wants it again at once. Waits that the end "+
		"cut off count for as long as they lasted. Commands are those of all nodes together, "+
		"inside scripts too.", clients, hold)
	r.p("A median wait near zero is no virtue: a waiter who has just released the lock takes it " +
		"again and again while others wait. Look at the 99th percentile, and at the fewest and " +
		"most turns.")
	waiters := distinct(r.report, "contention", func(k key) int { return k.Workers })
	for _, n := range []int{5, 1} {
		r.figure(fmt.Sprintf("waits-%d", n), "99th percentile of the wait")
		for _, w := range waiters {
			t := r.transposed("contention", key{Nodes: n, Workers: w},
				"turns/s", "p50 wait ms", "p99 wait ms", "fewest turns", "most turns",
				"fewest/most", "commands/turn")
			if t != notMeasured {
				r.p("%s, %s:", on(n), plural(w, "waiter"))
				r.p("%s", t)
			}
		}
	}
	crowd := distinct(r.report, "crowd", func(k key) int { return k.Workers })
	var crowds []string
	for _, w := range crowd {
		crowds = append(crowds, plural(w, "waiter"))
	}
	if len(crowd) == 0 {
		return // not measured yet
	}
	r.p("From few waiters to many, on 5 nodes:")
	r.figure("crowd", "Commands per turn over waiters")
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
	r.p("### Processes")
	r.aboutProcesses()
	for _, kind := range []string{"back", "once"} {
		r.figure("processes-commands-"+kind, "Commands per turn over processes that come "+kind)
		r.figure("processes-waits-"+kind, "Longest wait over processes that come "+kind)
	}
	r.figure("processes-passes", "Grants to another process per second")
	conf := r.config(processPart)
	for _, n := range distinct(r.report, processPart, func(k key) int { return k.Workers }) {
		for _, kind := range []string{againKind, onceKind} {
			r.p("%s, %s:", plural(n, "process"), kind)
			r.p("%s", r.processTable(n, kind, 0))
		}
		if away := conf.FarProcessTrip; away > 0 && n == conf.FarProcesses {
			r.p("%s, %s:", plural(n, "process"), farKind(againKind, away))
			r.p("%s", r.processTable(n, farKind(againKind, away), away))
		}
	}
}

// aboutProcesses says what the tables of processes show.
func (r *page) aboutProcesses() {
	conf := r.config(processPart)
	r.p("Processes share one lock. Each is a client with connections of its own and one waiter, "+
		"and they are spread over %d operating-system processes. Each turn keeps the lock for "+
		"%v.", crewCount, crewHold)
	r.p("Those that *come back* want the lock again as soon as they have released it. They do "+
		"so for %v, or for %v × processes if that is longer. Those that *come once* all want it "+
		"at the same time. When each has had it, as many others come, on the same connections. "+
		"What processes do to give up their wait at the end is not counted.", conf.ProcessSlice,
		conf.ProcessTime)
	r.p("The targets compare figures of more processes with those of %d. These have a slice right "+
		"after each one of more. There are %d such pairs, and the target is the median of their "+
		"ratios.", conf.FewProcesses, conf.ProcessRounds)
	if conf.FarProcessTrip > 0 {
		r.p("Where nodes are *%v away*, a proxy in front of each of them adds that to every round "+
			"trip.", conf.FarProcessTrip)
	}
	r.p("The columns of the tables are these:")
	r.p(`- *turns/s*: grants a second. *of the bound* is its share of 1/(hold + 2 round trips).
  That is measured: one process of *%[1]s*, whose lock nobody else wants, has %[2]s on %[3]s. It
  works right after each slice of redlock. For one node, and for nodes far away, the two round trips
  are a pair of *%[1]s*.
- *passes/s*: grants to another process than the one before. A process that polls often takes its
  own lock again.
- *commands/turn*: commands of all nodes together. *later commands/turn* is that of the second
  half, when the arrival of all processes at once is over.
- *fewest/most*: turns of the process with the fewest over those of the one with the most.
- *longest wait/fair*: the longest wait over the fair share, processes × the mean time of a turn.
- *overtakes*: grants of a Lock that was called when somebody else was in the queue, who was still
  waiting. One is in the queue when a quorum of nodes has said that it has the ticket on which it
  has agreed. [docs/safety.md](safety.md#who-is-next) promises that there are none.
- *p99 ms to the queue*: from when Lock is called until then, 99th percentile.
- *later callers*: grants while somebody waited whose Lock was called at least %[4]v earlier.
  Callers that are not in the queue yet have no place: on a machine with many processes some wait
  for a processor first.
- *CPU ms/turn*: processor time of all clients, and of all servers. They share %[5]s cores.`,
		bare, number(r.bound(crewNodes, 0))+" turns a second", on(crewNodes), slack,
		r.machineOf(r.Runs[processPart])["cores"])
	r.p("*etcd* is concurrency.Mutex on %d members in processes of their own. They sync nothing "+
		"to disk, as the Redis servers do not. Its commands are not counted.", etcdMembers)
}

// processTable has the contenders of a number of processes, on nodes that are so far away.
func (r *page) processTable(processes int, kind string, away time.Duration) string {
	metrics := []string{"turns/s", ofTheBound, "passes/s", "commands/turn", laterCommands,
		"fewest/most", "longest wait ms", "longest wait/fair", overtakes, toTheQueue, calledLater,
		"clients' CPU ms/turn", "servers' CPU ms/turn"}
	var rows [][]string
	for _, w := range r.who(processPart, metrics[0]) {
		nodes := crewNodes
		switch c := contenderNamed(w); {
		case c != nil && c.oneNode:
			nodes = 1
		case c != nil && c.etcd:
			nodes = etcdMembers
		}
		k := key{Section: processPart, Who: w, Nodes: nodes, Workers: processes, Variant: kind,
			Metric: metrics[0]}
		if r.find(k) == nil {
			continue
		}
		row := []string{w}
		share := number(r.median(k) / r.bound(nodes, away))
		if nodes == etcdMembers {
			share = "–"
		}
		for _, m := range metrics {
			if k.Metric = m; m != ofTheBound || r.find(k) != nil {
				row = append(row, r.cell(k))
			} else {
				row = append(row, share)
			}
		}
		rows = append(rows, row)
	}
	return table(append([]string{""}, metrics...), rows)
}

// handOver is how long it takes from one client to the next.
func (r *page) handOver() {
	r.p("### Hand-over")
	r.p("The time from Unlock returning in one client to Lock returning in another that waits. " +
		"The machine does nothing else, and delays between tries are the defaults:")
	r.figure("handover-5", "Hand-over, 5 nodes")
	r.figure("handover-1", "Hand-over, 1 node")
	r.p("%s", r.grid("handover", "ms", []string{"5 nodes", "1 node"},
		func(i int) key { return key{Nodes: []int{5, 1}[i], Workers: 2} }))
}

// election is how long nobody leads.
func (r *page) election() {
	if len(r.who(electionPart, afterResign)) == 0 {
		return // not measured yet
	}
	r.p("### Elections")
	r.p("%d processes stand for election, and each leader makes way for the next one: it resigns, "+
		"or is killed by SIGKILL. The time is that from the call of Resign, or the kill, to the "+
		"return of Campaign in another process. The expiry, or the TTL of the session, is %v. A "+
		"leader is killed at any time since its last renewal.", candidateCount, electionExpiry)
	r.p("redlock elects on %s. *etcd* is concurrency.Election on %d members in processes of their "+
		"own, which sync nothing to disk. It expires the lease of a session that is gone twice a "+
		"second.", on(electionNodes), etcdMembers)
	r.p("%s", r.transposed(electionPart, key{Nodes: electionNodes, Workers: candidateCount},
		afterResign, afterKill))
}

// idle is what waiters cost while nothing happens.
func (r *page) idle() {
	r.p("### Idle waiters")
	idle := r.config("idle").IdleWaiters
	r.p("%d waiters in %d clients wait for a lock that is held all the time. Processor time is "+
		"that of the client's process; 100 is one core. Commands are those of all nodes together:",
		idle, clients-1)
	for _, metric := range []string{"CPU %", "commands/s"} {
		r.p("%s", r.grid("idle", metric, []string{"5 nodes", "1 node"},
			func(i int) key { return key{Nodes: []int{5, 1}[i], Workers: idle} }))
	}
}
