package main

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// pageText is docs/benchmarks.md without its figures.
//
//go:embed page.tmpl
var pageText string

// headline is a row of the page's table.
type headline struct {
	what string
	key  // without a contender
}

var headlines = []headline{
	{"1 node, 1 caller: µs for Lock and Unlock", pairOn(1, 1, perPair)},
	{"1 node, 64 callers: µs for Lock and Unlock", pairOn(1, 64, perPair)},
	{"5 nodes, 1 caller: µs for Lock and Unlock", pairOn(5, 1, perPair)},
	{"5 nodes, 64 callers: µs for Lock and Unlock", pairOn(5, 64, perPair)},
	{"– µs of processor time", pairOn(5, 64, cpuPair)},
	{"– allocations", pairOn(5, 64, allocs)},
	{"hand-over: ms", key{Section: handOverPart, Workers: 2, Variant: far(0), Metric: "ms"}},
	{"64 processes: turns a second", sharing(64, perSecond)},
	{"– commands for a turn", sharing(64, perTurn)},
	{"– ms of the longest wait", sharing(64, longestWait)},
	{"1,000 waiters: % of a core", waitersOf(busy)},
	{"– commands a second", waitersOf("commands/s")},
	{"one of 5 nodes frozen: ms for Lock and Unlock", key{Section: frozenPart, Nodes: 5,
		Workers: 1, Variant: isFrozen, Metric: onePair}},
	{"10,000 held locks: % of a core", keeping(busy)},
	{"– bytes for each", keeping(bytesPerLock)},
	{"next leader: ms after Resign", leading(afterResign)},
	{"– ms after kill -9, expiry 2 s", leading(afterKill)},
}

func pairOn(nodes, callers int, metric string) key {
	return key{Section: pairPart, Nodes: nodes, Workers: callers, Metric: metric}
}

func sharing(processes int, metric string) key {
	return key{Section: processPart, Workers: processes, Variant: againKind, Metric: metric}
}

func waitersOf(metric string) key { return key{Section: idlePart, Workers: 1000, Metric: metric} }

func keeping(metric string) key { return key{Section: heldPart, Workers: 10000, Metric: metric} }

func leading(metric string) key {
	return key{Section: electionPart, Workers: candidateCount, Metric: metric}
}

// headTable is the table of the page.
func (r *report) headTable() string {
	who := []string{we, "redsync goredis", "redislock", "rueidislock", "etcd"}
	var rows [][]string
	for _, h := range headlines {
		row := []string{h.what}
		for _, w := range who {
			row = append(row, number(r.median(h.by(w))))
		}
		rows = append(rows, row)
	}
	return markdown(append([]string{""}, who...), rows)
}

// page is the text of docs/benchmarks.md.
func (r *report) page() (string, error) {
	charts := r.charts()
	t := template.Must(template.New("page").Funcs(template.FuncMap{
		"table": r.headTable, "better": r.better, "notes": r.notes, "dates": r.dates,
		"machine": r.machine, "losses": r.losses, "family": r.familyTable,
		"sharing": func(who string, processes int, metric string) string {
			return number(r.median(sharing(processes, metric).by(who)))
		},
		"ratio": func(section, who, other string, nodes, callers int) string {
			k := pairOn(nodes, callers, perPair)
			k.Section = section
			return number(median(r.ratios(k, who, other)))
		},
		"figure": func(name, alt string) string {
			if charts[name] == "" {
				return ""
			}
			return fmt.Sprintf("![%s](figures/bench-%s.svg)", alt, name)
		},
	}).Parse(pageText))
	var b strings.Builder
	err := t.Execute(&b, full)
	return b.String(), err
}

// docs writes the page with its charts into dir, and the tables. It removes charts that the page
// does not show any more.
func (r *report) docs(dir, tables string) error {
	text, err := r.page()
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "figures", "bench-*.svg"))
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	files := map[string]string{filepath.Join(dir, "benchmarks.md"): text, tables: r.tablePage()}
	for name, svg := range r.charts() {
		files[filepath.Join(dir, "figures", "bench-"+name+".svg")] = svg
	}
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(name, []byte(content), 0o644))
	}
	return err
}

// charts draws what has been measured, by name. There is no chart of nothing.
func (r *report) charts() map[string]string {
	const pairs = "distinct names, one shared client; time for both"
	const sharers = "processes that want the lock again at once and hold it for 5 ms; "
	out := map[string]string{
		"goroutines": lineChart("Lock and Unlock on 5 nodes", pairs, "µs", "callers",
			r.lines(pairOn(5, 0, perPair))),
		"goroutines-1": lineChart("Lock and Unlock on one node", pairs, "µs", "callers",
			r.lines(pairOn(1, 0, perPair))),
		"processes-commands": lineChart("What a turn costs the nodes",
			sharers+"5 nodes (rueidislock: 1)", "commands", "processes",
			r.lines(sharing(0, perTurn))),
		"processes-waits": lineChart("The longest wait",
			sharers+"waits that the end cut off count", "ms", "processes",
			r.lines(sharing(0, longestWait))),
		"handover": barChart("Hand-over on 5 nodes",
			"from Unlock returning in one client to Lock returning in another, median", "ms",
			r.bars(key{Section: handOverPart, Nodes: 5, Workers: 2, Metric: "ms"})),
		"frozen": barChart("One of 5 nodes frozen", "one caller's Lock and Unlock", "ms",
			r.bars(key{Section: frozenPart, Nodes: 5, Workers: 1, Metric: onePair})),
	}
	maps.DeleteFunc(out, func(_, svg string) bool { return svg == "" })
	return out
}

// lines makes one line per contender over workers, from the medians of a metric.
func (r *report) lines(k key) (out []line) {
	for _, w := range r.who(k.Section, k.Metric) {
		l := line{name: w}
		for _, c := range r.columns(*sectionNamed(k.Section), k.Metric) {
			v := r.median(c.by(w))
			if c.Nodes == k.Nodes && c.Variant == k.Variant && !math.IsNaN(v) {
				l.points = append(l.points, point{float64(c.Workers), v})
			}
		}
		if len(l.points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// bars makes a bar per contender and variant, from the medians of a metric.
func (r *report) bars(k key) (out []bar) {
	for _, w := range r.who(k.Section, k.Metric) {
		for _, c := range r.columns(*sectionNamed(k.Section), k.Metric) {
			v, label := r.median(c.by(w)), w
			if math.IsNaN(v) || c.Nodes != k.Nodes || c.Workers != k.Workers {
				continue
			}
			if k.Section == handOverPart {
				label += ", " + c.Variant
			}
			out = append(out, bar{w, label, v,
				k.Section == frozenPart && v >= millis(full.FrozenPatience)})
		}
	}
	return out
}
