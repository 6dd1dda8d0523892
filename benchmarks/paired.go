package main

import (
	"fmt"
	"math"
	"slices"
)

// Contenders are compared by what they did in the same round: one run of a virtual machine differs
// from the next by a factor of two, and one second from the next by a quarter.

// ahead is the ratio from which on a contender is called slower than another.
const ahead = 1.03

// times are the figures of a pair that contenders are compared by.
var times = []string{"µs/pair", "CPU µs/pair"}

// timeNames are what the page calls them.
var timeNames = []string{"Time", "Processor time"}

// ratios are those of who's figure to other's in each round.
func (r *report) ratios(k key, who, other string) (out []float64) {
	mine, theirs := k, k
	mine.Who, theirs.Who = who, other
	a, b := r.find(mine), r.find(theirs)
	if a == nil || b == nil {
		return nil
	}
	for i := range min(len(a.Values), len(b.Values)) {
		if b.Values[i] > 0 {
			out = append(out, a.Values[i]/b.Values[i])
		}
	}
	return out
}

// ratio is the median of who's figure over other's in the same round.
func ratio(k key, who, other string) func(*report) float64 {
	return func(r *report) float64 { return median(r.ratios(k, who, other)) }
}

// spread is a median with its quartiles in brackets.
func spread(values []float64) string {
	switch len(values) {
	case 0:
		return "–"
	case 1:
		return number(values[0])
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(values)), number(quantile(values, 0.25)),
		number(quantile(values, 0.75)))
}

// duel is a comparison of redlock with another contender on the same client.
type duel struct {
	mine, theirs *contender
	k            key
	ratios       []float64
}

// duels are all comparisons of a section's metric with the contenders that rivals returns.
func (r *report) duels(section, metric string, rivals func(*contender) []*contender) []duel {
	var out []duel
	for _, c := range ours {
		for _, o := range rivals(c) {
			for _, mine := range r.Series {
				k := mine.key
				if k.Section != section || k.Metric != metric || k.Who != c.name {
					continue
				}
				if v := r.ratios(k, c.name, o.name); len(v) > 0 {
					k.Who = ""
					out = append(out, duel{c, o, k, v})
				}
			}
		}
	}
	return out
}

// compared are the comparisons of pairs with peers, of time and of processor time.
func (r *report) compared() []duel { return r.comparedIn(pairPart) }

func (r *report) comparedIn(section string) (out []duel) {
	for _, metric := range times {
		out = append(out, r.duels(section, metric, peersOf)...)
	}
	return out
}

// lost are those comparisons in which a peer is ahead.
func lost(duels []duel) []duel {
	return slices.DeleteFunc(slices.Clone(duels),
		func(d duel) bool { return !(median(d.ratios) > ahead) })
}

// losses is how many of them there are, NaN if nothing was compared.
func losses(r *report) float64 {
	compared := r.compared()
	if len(compared) == 0 {
		return math.NaN()
	}
	return float64(len(lost(compared)))
}

// lostTable names those in which a peer is ahead.
func (r *report) lostTable(duels []duel) string {
	var rows [][]string
	for _, d := range lost(duels) {
		mine, theirs := d.k, d.k
		mine.Who, theirs.Who = d.mine.name, d.theirs.name
		where := fmt.Sprintf("%s, %s", plural(d.k.Nodes, "node"), plural(d.k.Workers, "goroutine"))
		if d.k.Variant != "" {
			where += ", " + d.k.Variant
		}
		rows = append(rows, []string{where,
			d.mine.name + " / " + d.theirs.name, d.k.Metric, spread(d.ratios),
			number(r.median(mine)), number(r.median(theirs))})
	}
	if len(rows) == 0 {
		return ""
	}
	return table([]string{"where", "who", "figure", "ratio", "redlock's", "peer's"}, rows)
}

// ratioTable has the ratios of redlock to the rivals of each client, by goroutines, where all else
// is that of k.
func (r *report) ratioTable(k key, workers []int,
	rivals func(*contender) []*contender) string {
	var rows [][]string
	at := map[string]int{} // rows by their first cell
	for _, d := range r.duels(k.Section, k.Metric, rivals) {
		if d.k.Nodes != k.Nodes || d.k.Variant != k.Variant {
			continue
		}
		who := d.mine.name + " / " + d.theirs.name
		i, ok := at[who]
		if !ok {
			i, at[who] = len(rows), len(rows)
			row := []string{who}
			for range workers {
				row = append(row, "–")
			}
			rows = append(rows, row)
		}
		for col, w := range workers {
			if w == d.k.Workers {
				rows[i][col+1] = spread(d.ratios)
			}
		}
	}
	if len(rows) == 0 {
		return ""
	}
	return table(append([]string{k.Metric}, goroutines(workers)...), rows)
}

// goroutines are the heads of columns.
func goroutines(workers []int) (out []string) {
	for _, w := range workers {
		out = append(out, plural(w, "goroutine"))
	}
	return out
}
