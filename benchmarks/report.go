package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// report is everything that was measured. It is what the JSON file holds, and all that the tables,
// charts and docs are made from.
type report struct {
	Machine map[string]string      // of the last run
	Runs    map[string]*sectionRun // by section
	Series  []*series
}

// sectionRun is how a section came about. Sections can be measured one at a time.
type sectionRun struct {
	Date    string
	Machine map[string]string `json:",omitempty"` // nil: that of the report
	Config  config
	Notes   []string // what went wrong
}

// config returns that of a section, or the usual one if it was not measured.
func (r *report) config(section string) config {
	if run := r.Runs[section]; run != nil {
		return run.Config
	}
	return full
}

// key says what was measured. Fields that do not apply are zero.
type key struct {
	Section string // pairs, contention, …
	Who     string // the contender
	Nodes   int
	Workers int    // goroutines or waiters
	Variant string // "1 frozen", "20 ms", …
	Metric  string // with its unit: "µs/pair"
}

// series is one measurement, one value per round.
type series struct {
	key
	Values []float64
}

func (r *report) find(k key) *series {
	for _, s := range r.Series {
		if s.key == k {
			return s
		}
	}
	return nil
}

func (r *report) add(k key, values ...float64) {
	s := r.find(k)
	if s == nil {
		s = &series{key: k}
		r.Series = append(r.Series, s)
	}
	s.Values = append(s.Values, values...)
}

// median returns NaN if k was not measured.
func (r *report) median(k key) float64 {
	if s := r.find(k); s != nil {
		return median(s.Values)
	}
	return math.NaN()
}

// inSlices reports whether a section is measured in many rounds of short slices.
func inSlices(section string) bool {
	switch section {
	case pairPart, endingPart, randomPart, "fencing", "instant":
		return true
	}
	return false
}

// cell is a measurement for a table: the median, and in brackets the quartiles of many rounds, or
// the least and the greatest of a few.
func (r *report) cell(k key) string {
	s := r.find(k)
	if s == nil {
		return "–"
	}
	if inSlices(k.Section) {
		return spread(s.Values)
	}
	if len(s.Values) == 1 {
		return number(s.Values[0])
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(s.Values)), number(slices.Min(s.Values)),
		number(slices.Max(s.Values)))
}

// distinct returns the values that get has over all series of the section, sorted.
func distinct[T cmp.Ordered](r *report, section string, get func(key) T) []T {
	seen := map[T]bool{}
	var out []T
	for _, s := range r.Series {
		if v := get(s.key); s.Section == section && !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

// who returns the contenders of the section that measured metric, in the order of the roster.
func (r *report) who(section, metric string) []string {
	seen := map[string]int{}
	for _, s := range r.Series {
		if s.Section == section && s.Metric == metric {
			seen[s.Who] = rank(s.Who)
		}
	}
	out := make([]string, 0, len(seen))
	for w := range seen {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(seen[a]-seen[b],
			strings.Compare(a, b))
	})
	return out
}

// missing names the figures that the page promises and that were not measured.
func (r *report) missing() []string {
	var out []string
	for _, t := range targets {
		if t.left != nil && t.left(r) {
			continue
		}
		if v := t.figure(r); math.IsNaN(v) || math.IsInf(v, 0) {
			out = append(out, "the target "+t.what)
		}
	}
	for _, s := range r.Series {
		c := contenderNamed(s.Who)
		pairs := s.Section == pairPart || s.Section == endingPart
		if !pairs || s.Metric != times[0] || c == nil || !c.ours() {
			continue
		}
		compared := func(o *contender) bool { return len(r.ratios(s.key, s.Who, o.name)) > 0 }
		if !slices.ContainsFunc(peersOf(c), compared) {
			out = append(out, fmt.Sprintf("any peer of %s on %s with %s", s.Who,
				plural(s.Nodes, "node"), plural(s.Workers, "goroutine")))
		}
	}
	return out
}

// number prints three significant digits, whole numbers whole.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 100, v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func load(path string) (*report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	return r, json.Unmarshal(b, r)
}

// with returns the report with those sections of an earlier one that were not measured in it. A
// section is kept or replaced as a whole: all of its figures are of one run.
func (r *report) with(old *report) *report {
	out := &report{Machine: r.Machine, Runs: maps.Clone(r.Runs), Series: slices.Clone(r.Series)}
	if old == nil {
		return out
	}
	for _, section := range sectionNames() {
		run := old.Runs[section]
		if run == nil || out.Runs[section] != nil {
			continue
		}
		if run.Machine == nil && !maps.Equal(old.Machine, r.Machine) {
			run.Machine = old.Machine
		}
		out.Runs[section] = run
		for _, s := range old.Series {
			if s.Section == section {
				out.Series = append(out.Series, s)
			}
		}
	}
	return out
}

// notMeasured stands for a table without rows.
const notMeasured = "Not measured.\n"

// wordy reports whether a cell is text, which stands on the left.
func wordy(cell string) bool {
	first, _ := utf8.DecodeRuneInString(strings.Trim(cell, "*`"))
	return unicode.IsLetter(first)
}

// table lays rows out as a Markdown table that also reads well on a terminal.
func table(head []string, rows [][]string) string {
	if len(rows) == 0 {
		return notMeasured
	}
	width := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, c := range row {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	line := func(row []string) {
		for i, c := range row {
			fmt.Fprintf(&b, "| %s%s ", c, strings.Repeat(" ", width[i]-len([]rune(c))))
		}
		b.WriteString("|\n")
	}
	line(head)
	for i, w := range width {
		if i == 0 || slices.ContainsFunc(rows, func(row []string) bool { return wordy(row[i]) }) {
			fmt.Fprintf(&b, "|%s", strings.Repeat("-", w+2))
		} else {
			fmt.Fprintf(&b, "|%s:", strings.Repeat("-", w+1))
		}
	}
	b.WriteString("|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}
