package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// columns are the keys of a section without contenders, by nodes, and then as they were measured.
func (r *report) columns(of section, metric string) (out []key) {
	var variants []string
	for _, s := range r.Series {
		k := s.key
		if k.Who = ""; of.own {
			k.Nodes = 0
		}
		if k.Section == of.name && k.Metric == metric && !slices.Contains(out, k) {
			out, variants = append(out, k), append(variants, k.Variant)
		}
	}
	slices.SortFunc(out, func(a, b key) int {
		return cmp.Or(a.Nodes-b.Nodes, slices.Index(variants, a.Variant)-
			slices.Index(variants, b.Variant), a.Workers-b.Workers)
	})
	return out
}

// label is the head of a column.
func (k key) label() string {
	nodes := ""
	if k.Nodes > 0 {
		nodes = fmt.Sprint(k.Nodes, "/")
	}
	return strings.TrimSpace(fmt.Sprint(nodes, k.Workers, " ", k.Variant))
}

// table has the contenders of a section as rows, and below them the ratios of redlock to others in
// the same rounds if it is paired.
func (r *report) table(of section, metric string) string {
	columns := r.columns(of, metric)
	head := []string{metric}
	for _, k := range columns {
		head = append(head, k.label())
	}
	var rows [][]string
	add := func(name string, cell func(key) string) {
		row := []string{name}
		for _, k := range columns {
			row = append(row, cell(k))
		}
		if slices.ContainsFunc(row[1:], func(c string) bool { return c != number(median(nil)) }) {
			rows = append(rows, row)
		}
	}
	for _, w := range r.who(of.name, metric) {
		add(w, func(k key) string { return number(r.median(k.by(w))) })
	}
	for _, c := range ours {
		for _, o := range roster {
			if of.paired && metric != allocs && c.rivals(o) {
				add(c.name+" / "+o.name,
					func(k key) string { return spread(r.ratios(k, c.name, o.name)) })
			}
		}
	}
	return markdown(head, rows)
}

// markdown lays rows out as a Markdown table that also reads well on a terminal.
func markdown(head []string, rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(row, "\t| "))
	}
	_ = w.Flush()
	top, rest, _ := strings.Cut(b.String(), "\n")
	return top + "\n|-" + strings.Repeat("|-:", len(head)-1) + "|\n" + rest
}

// tables are those of all sections.
func (r *report) tables() string {
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n", s.name)
		for _, metric := range s.metrics {
			if len(r.who(s.name, metric)) > 0 {
				fmt.Fprintf(&b, "\n%s", r.table(s, metric))
			}
		}
	}
	return b.String()
}

// tablePage is benchmarks/tables.md. It is for those who look up a number: columns are not aligned.
func (r *report) tablePage() string {
	return "# All figures\n\n<!-- go run . -docs -->\n\nMedians by nodes / callers, processes or " +
		"locks, and ratios of paired slices with their quartiles: " +
		"[benchmarks.md](../docs/benchmarks.md).\n" +
		regexp.MustCompile(` *\| *`).ReplaceAllString(r.tables(), "|")
}
