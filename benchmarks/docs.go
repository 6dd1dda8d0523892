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
		if err := os.WriteFile(filepath.Join(figures, "bench-"+name+".svg"), []byte(svg),
			0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(r.page()), 0o644)
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

// bestRow is the row of a grid of smaller-is-better figures that compares redlock with the best
// peer.
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
	better := map[string]bool{ // larger is better
		"turns/s": true, "fewest turns": true, "fewest/most": true, "pairs/s": true,
	}
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
		if ahead := theirs < ours/1.03; !better[s.Metric] && ahead || better[s.Metric] &&
			theirs > ours*1.03 {
			where := fmt.Sprintf("%s: %s, %s", s.Section, plural(s.Nodes, "node"),
				plural(s.Workers, "worker"))
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
		out = append(out, fmt.Sprintf("- %s: from %d to %d nodes × %s (1 goroutine) and × %s (64 "+
			"goroutines); from %d to %d goroutines on 5 nodes × %s per pair.",
			w, n0, n1, number(at(w, n1, 1)/at(w, n0, 1)), number(at(w, n1, 64)/at(w, n0, 64)), g0,
			g1, number(at(w, 5, g1)/at(w, 5, g0))))
	}
	return "How the time per pair grows:\n\n" + strings.Join(out, "\n")
}
