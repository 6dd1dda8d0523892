package main

import (
	"fmt"
	"slices"
	"time"
)

// processKey is a figure of redlock's processes.
func processKey(processes int, kind, metric string) key {
	return key{Section: processPart, Who: we, Nodes: crewNodes, Workers: processes, Variant: kind,
		Metric: metric}
}

// processTargets are about the queue of processes.
func processTargets() (ts []target) {
	for _, kind := range []string{againKind, onceKind} {
		named := func(p int) string { return fmt.Sprintf("%d processes that %s: ", p, kind) }
		for _, p := range []int{64, 256} {
			of := named(p)
			at := func(metric string) key { return processKey(p, kind, metric) }
			ts = append(ts, sized(p,
				atMost(150, of+"commands per turn", value(at("commands/turn"))),
				atMost(2, of+"longest wait / fair share", value(at("longest wait/fair"))),
				atMost(0, of+"overtakes", value(at(overtakes))),
				atLeast(1, of+"turns per second / redsync goredis",
					ratio(at("turns/s"), we, "redsync goredis")))...)
			if kind == againKind {
				ts = append(ts, sized(p, atLeast(0.5, of+"fewest / most turns of a process",
					value(at("fewest/most"))))...)
			}
		}
		for _, p := range []int{4, 16, 64, 256} {
			ts = append(ts, sized(p, atLeast(0.8, named(p)+
				"turns per second / those of one bare process",
				value(processKey(p, kind, ofTheBound))))...)
		}
		commands := "commands/turn"
		if kind == againKind {
			// While 256 have 4 turns each, 64 have 14: the arrival of 256 weighs more.
			commands = laterCommands
		}
		ts = append(ts, grown(256, atMost(1.2, "processes that "+kind+": "+commands+
			" of 256 / of 64", value(processKey(256, kind, overFew(commands)))))...)
		ts = append(ts, grown(1000, atLeast(0.75, "processes that "+kind+
			": turns per second of 1,000 / of 64",
			value(processKey(1000, kind, overFew("turns/s")))))...)
	}
	return ts
}

// sized makes targets of a number of processes, which a run may leave out.
func sized(processes int, ts ...target) []target {
	for i := range ts {
		ts[i].left = func(r *report) bool {
			return !slices.Contains(r.config(processPart).Processes, processes)
		}
	}
	return ts
}

// grown makes targets of a number of processes beside 64. A run may leave out either.
func grown(processes int, ts ...target) []target {
	for i, t := range sized(processes, ts...) {
		ts[i].left = func(r *report) bool {
			return t.left(r) || r.config(processPart).FewProcesses != 64
		}
	}
	return ts
}

// boundKey is that of the turns of one process of the bare client.
func boundKey(nodes int) key {
	k := processKey(1, againKind, "turns/s")
	k.Who, k.Nodes = bare, nodes
	return k
}

// bound is how many turns a second processes may have on nodes that are so far away: what one of
// the bare client has, or else what a pair of it leaves time for.
func (r *report) bound(nodes int, away time.Duration) float64 {
	if k := boundKey(nodes); away == 0 && r.find(k) != nil {
		return r.median(k)
	}
	return r.mostTurns(nodes, crewHold+2*away)
}

// mostTurns is how many turns a second are possible on n nodes: one takes as long as the lock is
// held, and two round trips. A pair of the bare client is two round trips.
func (r *report) mostTurns(n int, held time.Duration) float64 {
	k := perPair(n, 1)
	k.Who = bare
	return 1e6 / (micros(held) + r.median(k))
}
