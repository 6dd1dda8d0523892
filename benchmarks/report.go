package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// report is everything that was measured. It is what the JSON file holds, and all that the tables,
// charts and pages are made from.
type report struct {
	Runs   map[string]*sectionRun // by section
	Series []*series
}

// sectionRun is how a section came about. Sections can be measured one at a time.
type sectionRun struct {
	Date    string
	Machine map[string]string
	Notes   []string // what went wrong
}

// key says what was measured. Fields that do not apply are zero.
type key struct {
	Section string // pairs, processes, …
	Who     string // the contender
	Nodes   int    // 0 finds the greatest number
	Workers int    // goroutines, processes or locks
	Variant string // "one frozen", "5ms away", …
	Metric  string // with its unit: "µs/pair"
}

func (k key) by(who string) key {
	k.Who = who
	return k
}

// series is one measurement, one value per round.
type series struct {
	key
	Values []float64
}

func (r *report) find(k key) (found *series) {
	for _, s := range r.Series {
		if s.key == k {
			return s
		}
		any := s.key
		if any.Nodes = 0; any == k && (found == nil || s.Nodes > found.Nodes) {
			found = s
		}
	}
	return found
}

// put adds values of a metric.
func (r *report) put(k key, metric string, values ...float64) {
	k.Metric = metric
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

// who returns the contenders of the section that measured metric, in the order of the roster.
func (r *report) who(section, metric string) (out []string) {
	for _, s := range r.Series {
		if s.Section == section && s.Metric == metric && !slices.Contains(out, s.Who) {
			out = append(out, s.Who)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
}

// missing returns the names of figures that the page needs but that have not been measured.
func (r *report) missing() (out []string) {
	for _, h := range headlines {
		if math.IsNaN(r.median(h.by(we))) {
			out = append(out, h.what)
		}
	}
	return out
}

// said is what the sections say, once each.
func (r *report) said(of func(*sectionRun) string) string {
	var out []string
	for _, s := range sections {
		if run := r.Runs[s.name]; run != nil && !slices.Contains(out, of(run)) {
			out = append(out, of(run))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// dates says when the sections were measured.
func (r *report) dates() string {
	return r.said(func(run *sectionRun) string { return run.Date })
}

// machine says something of the machines that the sections were measured on.
func (r *report) machine(what string) string {
	return r.said(func(run *sectionRun) string { return run.Machine[what] })
}

// notes are what went wrong, without what single nodes said of it.
func (r *report) notes() (out []string) {
	for _, s := range sections {
		if run := r.Runs[s.name]; run != nil {
			for _, note := range run.Notes {
				what, _, _ := strings.Cut(note, " (node ")
				out = append(out, what)
			}
		}
	}
	return out
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
	out := &report{Runs: maps.Clone(r.Runs), Series: slices.Clone(r.Series)}
	if old == nil {
		return out
	}
	for _, s := range old.Series {
		if r.Runs[s.Section] == nil && sectionNamed(s.Section) != nil {
			out.Runs[s.Section] = old.Runs[s.Section]
			out.Series = append(out.Series, s)
		}
	}
	return out
}

// quantile returns the q-quantile (0 to 1) of the values by linear interpolation, or NaN if there
// are none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	at := q * float64(len(s)-1)
	lo := int(at)
	if lo+1 == len(s) {
		return s[lo]
	}
	return s[lo] + (at-float64(lo))*(s[lo+1]-s[lo])
}

func median(values []float64) float64 { return quantile(values, 0.5) }

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
