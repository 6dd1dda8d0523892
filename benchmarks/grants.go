package main

import (
	"cmp"
	"slices"
	"time"
)

// grants are the turns of clients.
type grants struct {
	grants, fewest, most int // in all, and of one client
	held                 time.Duration
	longest, p99         time.Duration // a wait, finished or cut off by the end
}

// count looks at the turns until end.
func count(clients [][]turn, end time.Time) (g grants) {
	until := end.UnixNano()
	var waits []float64
	g.fewest = -1
	for _, turns := range clients {
		n := 0
		for _, t := range turns {
			if t.Asked >= until {
				continue
			}
			granted := until
			if t.Granted != 0 && t.Granted < until {
				granted = t.Granted
				g.held += time.Duration(min(t.Released, until) - t.Granted)
				n++
			}
			waits = append(waits, float64(granted-t.Asked))
		}
		g.grants += n
		g.most = max(g.most, n)
		if g.fewest < 0 || n < g.fewest {
			g.fewest = n
		}
	}
	if len(waits) > 0 {
		g.longest, g.p99 = time.Duration(slices.Max(waits)), time.Duration(quantile(waits, .99))
	}
	return g
}

// slack is what the clocks of two processes may differ by. A turn is taken to be shorter by that at
// both ends.
const slack = time.Millisecond

// within is when a turn certainly held, or nothing.
func (t turn) within() (from, to int64, ok bool) {
	from, to = t.Granted+int64(slack), t.Released-int64(slack)
	return from, to, t.Granted != 0 && from < to
}

// atOnce is how many held at a time, at most.
func atOnce(clients [][]turn) (most int) {
	type edge struct {
		at   int64
		step int
	}
	var edges []edge
	for _, t := range slices.Concat(clients...) {
		if from, to, ok := t.within(); ok {
			edges = append(edges, edge{from, 1}, edge{to, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), a.step-b.step)
	})
	n := 0
	for _, e := range edges {
		n += e.step
		most = max(most, n)
	}
	return most
}

// overlap reports whether one of a held beside one of b.
func overlap(a, b [][]turn) bool {
	for _, x := range slices.Concat(a...) {
		from, to, held := x.within()
		for _, y := range slices.Concat(b...) {
			start, end, ok := y.within()
			if held && ok && from < end && start < to {
				return true
			}
		}
	}
	return false
}
