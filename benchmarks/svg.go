package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The charts are drawn here, because plotting libraries write colours into the drawing: these
// follow the light or dark theme of the page that shows them.

// chart is what lines and bars have in common.
type chart struct {
	title, sub string
	unit       string // of the values
	log        bool   // the value axis of lines; that of bars is logarithmic if it has to be
}

type point struct{ x, y float64 }

// line is one line of a line chart. Its name is that of a contender, which decides the colour.
type line struct {
	name   string
	points []point
}

// bar is one row of a bar chart.
type bar struct {
	name, label string // the contender; what stands before the bar
	value       float64
	atLeast     bool // the true value is higher
}

const (
	width = 760
	left  = 70
	right = 150 // for the names at the lines' ends
	top   = 62
)

// Colours are told by CSS, so that one file fits light and dark pages.
const style = `<style>
text{font:12px system-ui,sans-serif;fill:#424a53}.t{font-size:15px;font-weight:600;fill:#1f2328}
.s{fill:#656d76}
.g{stroke:#d0d7de;stroke-width:1}.b{fill:#fff}
.l{fill:none;stroke-width:2;stroke-linejoin:round}.bare{stroke-dasharray:5 4}
%s@media(prefers-color-scheme:dark){text{fill:#b1bac4}.t{fill:#f0f6fc}.s{fill:#8b949e}
.g{stroke:#30363d}.b{fill:#0d1117}}
</style>`

// palette has readable contrast on white and on nearly black.
var palette = map[string]string{
	"redlock goredis":   "#1f7ae0",
	"redlock redigo":    "#3aa7c9",
	"redlock rueidis":   "#1098ad",
	"redlock fenced":    "#7a6ff0",
	"redlock simulated": "#3aa7c9",
	"redlock":           "#1f7ae0",
	"redsync goredis":   "#d9480f",
	"redsync redigo":    "#e8930c",
	"redsync rueidis":   "#d6336c",
	"redislock":         "#9c5bc0",
	"rueidislock":       "#2f9e44",
	bare:                "#868e96",
	bareOnRedigo:        "#adb5bd",
	batcher:             "#5c940d",
	"etcd":              "#5f3dc4",
}

func class(name string) string {
	c := strings.ReplaceAll(name, " ", "-")
	if strings.HasPrefix(name, "bare ") {
		return c + " bare"
	}
	return c
}

func colours(used []string) string {
	var b strings.Builder
	for _, n := range slices.Compact(slices.Sorted(slices.Values(used))) {
		c := palette[n]
		if c == "" {
			c = "#868e96"
		}
		id := strings.Fields(class(n))[0]
		fmt.Fprintf(&b, ".l.%[1]s{stroke:%[2]s}.f.%[1]s{fill:%[2]s}\n", id, c)
	}
	return b.String()
}

func (c chart) open(b *strings.Builder, height int, used []string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `+
		`width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(c.title))
	fmt.Fprintf(b, style+"\n", colours(used))
	fmt.Fprintf(b, `<rect class="b" width="%d" height="%d"/>`+"\n", width, height)
	text(b, 16, 26, "start", "t", c.title)
	text(b, 16, 46, "start", "s", c.sub)
}

func text(b *strings.Builder, x, y float64, anchor, class, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", class, x,
		y, anchor, html.EscapeString(s))
}

// axis maps values to pixels.
type axis struct {
	log      bool
	min, max float64
	from, to float64 // pixels
}

func (a axis) at(v float64) float64 {
	lo, hi := a.min, a.max
	if a.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(max(v, a.min))
	}
	if hi == lo {
		return a.from
	}
	return a.from + (v-lo)/(hi-lo)*(a.to-a.from)
}

// valueAxis is an axis with round ends for the values, and its ticks. A linear one begins at zero.
func valueAxis(values []float64, log bool, from, to float64) (axis, []float64) {
	values = slices.DeleteFunc(slices.Clone(values),
		func(v float64) bool { return math.IsNaN(v) || log && v <= 0 })
	if len(values) == 0 {
		values = []float64{1}
	}
	a := axis{log: log, from: from, to: to}
	var ticks []float64
	if log {
		lo, hi := slices.Min(values), slices.Max(values)
		steps := []float64{1, 2, 5}
		if hi/lo > 300 {
			steps = steps[:1]
		}
		for e := math.Floor(math.Log10(lo)); len(ticks) < 2 || ticks[len(ticks)-1] < hi; e++ {
			for _, s := range steps {
				t := s * math.Pow(10, e)
				if t <= lo {
					ticks = ticks[:0] // the axis begins at the last one not above the least value
				}
				if len(ticks) < 2 || ticks[len(ticks)-1] < hi {
					ticks = append(ticks, t)
				}
			}
		}
	} else {
		hi := max(slices.Max(values), 1e-9)
		step := math.Pow(10, math.Floor(math.Log10(hi)))
		for _, s := range []float64{0.2, 0.5, 1, 2} {
			if hi/(step*s) <= 6 {
				step *= s
				break
			}
		}
		for t := 0.0; ; t += step {
			ticks = append(ticks, t)
			if t >= hi {
				break
			}
		}
	}
	a.min, a.max = ticks[0], ticks[len(ticks)-1]
	return a, ticks
}

// lines draws values over x. A logarithmic x axis has a tick at each x there is. The chart of no
// points is "".
func (c chart) lines(xLabel string, xLog bool, all []line) string {
	const height, bottom = 430, 378
	var b strings.Builder
	var used []string
	var xs, ys []float64
	for _, l := range all {
		used = append(used, l.name)
		for _, p := range l.points {
			xs, ys = append(xs, p.x), append(ys, p.y)
		}
	}
	if len(xs) == 0 {
		return ""
	}
	c.open(&b, height, used)
	y, yTicks := valueAxis(ys, c.log, bottom, top+14)
	for _, t := range yTicks {
		at := y.at(t)
		fmt.Fprintf(&b, `<line class="g" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", left,
			width-right, at, at)
		text(&b, left-8, at+4, "end", "s", number(t))
	}
	x, xTicks := valueAxis(xs, xLog, left+12, width-right-12)
	if xLog {
		xTicks = slices.Compact(slices.Sorted(slices.Values(xs)))
		x.min, x.max = xTicks[0], xTicks[len(xTicks)-1]
	}
	for _, t := range xTicks {
		text(&b, x.at(t), bottom+20, "middle", "s", number(t))
	}
	text(&b, (left+width-right)/2, bottom+40, "middle", "s", xLabel)
	text(&b, 16, top+2, "start", "s", c.unit)

	var ends []end
	for _, l := range all {
		var d strings.Builder
		for i, p := range l.points {
			fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x.at(p.x), y.at(p.y))
		}
		fmt.Fprintf(&b, `<path class="l %s" d="%s"/>`+"\n", class(l.name), d.String())
		for _, p := range l.points {
			if len(l.points) <= 8 {
				fmt.Fprintf(&b, `<circle class="f %s" cx="%.1f" cy="%.1f" r="3"/>`+"\n",
					class(l.name), x.at(p.x), y.at(p.y))
			}
		}
		if n := len(l.points); n > 0 {
			ends = append(ends, end{l.name, y.at(l.points[n-1].y)})
		}
	}
	labels(&b, ends)
	b.WriteString("</svg>\n")
	return b.String()
}

// end is where a line ends.
type end struct {
	name string
	y    float64
}

// labels writes the names of lines at their ends, pushed apart where they would overlap.
func labels(b *strings.Builder, ends []end) {
	slices.SortFunc(ends, func(a, b end) int { return int(math.Copysign(1, a.y-b.y)) })
	for range 50 {
		for i := 1; i < len(ends); i++ {
			if lack := 15 - (ends[i].y - ends[i-1].y); lack > 0.1 {
				ends[i-1].y -= lack / 2
				ends[i].y += lack / 2
			}
		}
	}
	for _, e := range ends {
		fmt.Fprintf(b, `<rect class="f %s" x="%d" y="%.1f" width="9" height="9" rx="2"/>`+"\n",
			class(e.name), width-right+4, e.y-5)
		text(b, width-right+18, e.y+4, "start", "", e.name)
	}
}

// bars draws one row per bar. Its axis begins at zero, unless the values differ too much to be
// seen beside each other. The chart of no bars is "".
func (c chart) bars(all []bar) string {
	if len(all) == 0 {
		return ""
	}
	const labels, row = 215, 24
	height := top + row*len(all) + 34
	var b strings.Builder
	var used []string
	var values []float64
	for _, r := range all {
		used = append(used, r.name)
		values = append(values, r.value)
	}
	a, ticks := valueAxis(values, slices.Max(append(values, 0)) > 50*slices.Min(append(values,
		math.Inf(1))), labels, width-90)
	if a.log {
		// A bar's length means little here, but the shortest should still be one.
		a, ticks = valueAxis(append(values, slices.Min(values)/3), true, labels, width-90)
		c.sub += "; logarithmic"
	}
	c.open(&b, height, used)
	for _, t := range ticks {
		fmt.Fprintf(&b, `<line class="g" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", a.at(t),
			a.at(t), top, top+row*len(all))
		text(&b, a.at(t), float64(top+row*len(all)+18), "middle", "s", number(t))
	}
	text(&b, width-12, float64(top+row*len(all)+18), "end", "s", c.unit)
	for i, r := range all {
		y := float64(top + row*i)
		text(&b, labels-10, y+16, "end", "", r.label)
		fmt.Fprintf(&b, `<rect class="f %s" x="%d" y="%.1f" width="%.1f" height="%d" rx="2"/>`+"\n",
			class(r.name), labels, y+4, max(a.at(r.value)-labels, 1), row-8)
		v := number(r.value)
		if r.atLeast {
			v = "≥ " + v
		}
		text(&b, max(a.at(r.value), labels+1)+6, y+16, "start", "", v)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
