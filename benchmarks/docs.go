package main

import (
	"cmp"
	"fmt"
	"maps"
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

// beaten lists the figures of the other sections in which a peer on the same client, or etcd, is
// better than redlock goredis by more than 3 %.
func (r *report) beaten() [][]string {
	better := map[string]bool{ // larger is better
		"turns/s": true, "passes/s": true, "fewest turns": true, "fewest/most": true,
		"pairs/s": true,
	}
	skip := map[string]bool{"most turns": true, "p50 wait ms": true}
	var rows [][]string
	for _, s := range r.Series {
		c := contenderNamed(s.Who)
		k := s.key
		k.Who = we
		mine := r.find(k)
		if c == nil || !c.peer || c.client != onGoredis && !c.etcd || mine == nil ||
			skip[s.Metric] || inSlices(s.Section) {
			continue
		}
		theirs, ours := median(s.Values), median(mine.Values)
		if behind := theirs < ours/ahead; !better[s.Metric] && behind || better[s.Metric] &&
			theirs > ours*ahead {
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

// dates says when the sections were measured.
func (r *report) dates() string {
	return r.said(func(run *sectionRun) string { return run.Date })
}

// machine says something of the machines that the sections were measured on.
func (r *report) machine(what string) string {
	return r.said(func(run *sectionRun) string { return r.machineOf(run)[what] })
}

// machineOf says where a section was measured.
func (r *report) machineOf(run *sectionRun) map[string]string {
	if run == nil || run.Machine == nil {
		return r.Machine
	}
	return run.Machine
}

// said is what all sections say, or what each says of itself if that differs.
func (r *report) said(of func(*sectionRun) string) string {
	by := map[string][]string{}
	for _, s := range sections {
		if run := r.Runs[s.name]; run != nil {
			by[of(run)] = append(by[of(run)], s.name)
		}
	}
	var out []string
	for _, v := range slices.Sorted(maps.Keys(by)) {
		if len(by) > 1 {
			v = cmp.Or(v, "unknown") + " (" + strings.Join(by[v], ", ") + ")"
		}
		out = append(out, v)
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
