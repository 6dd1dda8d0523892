package main

import (
	"fmt"
	"math"
	"slices"
)

// Contenders are compared by what they did in the same round: one run of a virtual machine differs
// from the next by a factor of two, and one second from the next by a quarter.

// ahead is the ratio from which on a contender is called slower than another. Less than that comes
// and goes from one run to the next.
const ahead = 1.1

// ratios are those of who's figure to other's in each round.
func (r *report) ratios(k key, who, other string) (out []float64) {
	a, b := r.find(k.by(who)), r.find(k.by(other))
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
	k            key     // without a contender
	ratio        float64 // of what mine needs to what theirs does
}

// duels are all comparisons of a section.
func (r *report) duels(s section) (out []duel) {
	for _, c := range ours {
		for _, o := range roster {
			for _, metric := range s.metrics {
				for _, k := range r.columns(s, metric) {
					d := duel{c, o, k, r.ratio(s, k, c.name, o.name)}
					if c.rivals(o) && !math.IsNaN(d.ratio) {
						out = append(out, d)
					}
				}
			}
		}
	}
	return out
}

// ratio says how many times as much who needs as other: of rounds if the section is paired, or else
// of the medians.
func (r *report) ratio(s section, k key, who, other string) float64 {
	if s.paired {
		return median(r.ratios(k, who, other))
	}
	a, b := r.median(k.by(who)), r.median(k.by(other))
	if slices.Contains(moreIsBetter, k.Metric) {
		a, b = b, a
	}
	return a / b
}

// moreIsBetter are metrics of which the greater value is the better one.
var moreIsBetter = []string{perSecond, pairsPerSecond}

// losses says in how many comparisons of pairs a peer is ahead.
func (r *report) losses() string {
	all, lost := r.duels(*sectionNamed(pairPart)), 0
	for _, d := range all {
		if d.ratio > ahead {
			lost++
		}
	}
	return fmt.Sprintf("%d of %d", lost, len(all))
}

// better has a line for each contender and figure of redlock in which a peer is ahead.
func (r *report) better() (out []string) {
	for _, s := range sections {
		last := ""
		for _, d := range r.duels(s) {
			if d.ratio <= ahead || math.IsInf(d.ratio, 0) {
				continue
			}
			what := fmt.Sprintf("%s, %s, %s: ", s.name, d.theirs.name, d.k.Metric)
			place := d.k.label() + " " + number(d.ratio)
			if what != last {
				out = append(out, what+place)
			} else {
				out[len(out)-1] += "; " + place
			}
			last = what
		}
	}
	return out
}
