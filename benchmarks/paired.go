package main

import (
	"fmt"
	"slices"
)

// Contenders are compared by what they did in the same round: one run of a virtual machine differs
// from the next by a factor of two, and one second from the next by a quarter.

// ahead is the ratio from which on a contender is called slower than another.
const ahead = 1.03

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

// spread is a median with its quartiles in brackets.
func spread(values []float64) string {
	if len(values) < 2 {
		return number(median(values))
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(values)), number(quantile(values, 0.25)),
		number(quantile(values, 0.75)))
}

// duel is a comparison of redlock with another library.
type duel struct {
	mine, theirs *contender
	k            key // without a contender
	ratios       []float64
}

// duels are all comparisons of a section's metric.
func (r *report) duels(section, metric string) (out []duel) {
	for _, c := range ours {
		for _, o := range roster {
			for _, mine := range r.Series {
				k := mine.key
				if k.Section != section || k.Metric != metric || k.Who != c.name || !c.rivals(o) {
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

// lost are those comparisons in which the peer is ahead.
func lost(duels []duel) []duel {
	return slices.DeleteFunc(slices.Clone(duels),
		func(d duel) bool { return !(median(d.ratios) > ahead) })
}

// compared are the comparisons of time and processor time of a section of pairs.
func (r *report) compared(section string) []duel {
	return slices.Concat(r.duels(section, perPair), r.duels(section, cpuPair))
}
