package main

import (
	_ "embed"
	"math"
	"slices"
	"strings"
	"text/template"
)

// The charts are drawn here, because plotting libraries write colours into the drawing: these
// follow the light or dark theme of the page that shows them. All values are on a logarithmic axis.

//go:embed svg.tmpl
var svgText string

var svgTemplate = template.Must(template.New("svg").Parse(svgText))

// chart is a drawing, in pixels.
type chart struct {
	Title         string
	Width, Height int
	Colours       map[string]string // by class
	Grid          []stroke
	Paths         []path
	Rects         []rectangle
	Texts         []label
}

type point struct{ X, Y float64 }

type stroke struct{ X, Y, ToX, ToY float64 }

type path struct {
	Class  string
	Points []point
}

type rectangle struct {
	Class       string
	X, Y, Width float64
	Height      int
}

type label struct {
	X, Y                float64
	Anchor, Class, Text string
}

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

// palette has readable contrast on white and on nearly black.
var palette = map[string]string{
	we: "#1f7ae0", onTheRedigo: "#3aa7c9", onTheRueidis: "#1098ad",
	"redsync goredis": "#d9480f", "redsync redigo": "#e8930c", "redsync rueidis": "#d6336c",
	"redislock": "#9c5bc0", "rueidislock": "#2f9e44", bare: "#868e96",
}

func newChart(title, sub string, height int) *chart {
	c := &chart{Title: title, Width: width, Height: height, Colours: map[string]string{}}
	c.text(16, 26, "start", "t", title)
	c.text(16, 46, "start", "s", sub)
	return c
}

func (c *chart) text(x, y float64, anchor, class, text string) {
	c.Texts = append(c.Texts, label{x, y, anchor, class, text})
}

// class returns that of a contender, which has its colour.
func (c *chart) class(name string) string {
	class := strings.ReplaceAll(name, " ", "-")
	c.Colours[class] = palette[name]
	return class
}

func (c *chart) String() string {
	var b strings.Builder
	if err := svgTemplate.Execute(&b, c); err != nil {
		panic(err)
	}
	return b.String()
}

// axis maps values to pixels.
type axis struct{ min, max, from, to float64 }

func (a axis) at(v float64) float64 {
	if a.max == a.min {
		return a.from
	}
	return a.from + math.Log(max(v, a.min)/a.min)/math.Log(a.max/a.min)*(a.to-a.from)
}

// valueAxis is an axis with round ends for the values, and its ticks.
func valueAxis(values []float64, from, to float64) (a axis, ticks []float64) {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !(v > 0) })
	if len(values) == 0 {
		values = []float64{1}
	}
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
	return axis{ticks[0], ticks[len(ticks)-1], from, to}, ticks
}

// lineChart draws values over x, with a tick at each x there is. The chart of no points is "".
func lineChart(title, sub, unit, xLabel string, all []line) string {
	const bottom = 378
	c := newChart(title, sub, bottom+52)
	var xs, ys []float64
	for _, l := range all {
		for _, p := range l.points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	if len(xs) == 0 {
		return ""
	}
	y, yTicks := valueAxis(ys, bottom, top+14)
	for _, t := range yTicks {
		c.Grid = append(c.Grid, stroke{left, y.at(t), width - right, y.at(t)})
		c.text(left-8, y.at(t)+4, "end", "s", number(t))
	}
	xs = slices.Compact(slices.Sorted(slices.Values(xs)))
	x := axis{xs[0], xs[len(xs)-1], left + 12, width - right - 12}
	for _, t := range xs {
		c.text(x.at(t), bottom+20, "middle", "s", number(t))
	}
	c.text((left+width-right)/2, bottom+40, "middle", "s", xLabel)
	c.text(16, top+2, "start", "s", unit)
	var ends []label
	for _, l := range all {
		p := path{Class: c.class(l.name)}
		for _, at := range l.points {
			p.Points = append(p.Points, point{x.at(at.X), y.at(at.Y)})
		}
		c.Paths = append(c.Paths, p)
		ends = append(ends, label{Y: p.Points[len(p.Points)-1].Y, Text: l.name})
	}
	c.names(ends)
	return c.String()
}

// names writes the names of lines at their ends, pushed apart where they would overlap.
func (c *chart) names(ends []label) {
	slices.SortFunc(ends, func(a, b label) int { return int(math.Copysign(1, a.Y-b.Y)) })
	for range 50 {
		for i := 1; i < len(ends); i++ {
			if lack := 15 - (ends[i].Y - ends[i-1].Y); lack > 0.1 {
				ends[i-1].Y -= lack / 2
				ends[i].Y += lack / 2
			}
		}
	}
	for _, e := range ends {
		c.Rects = append(c.Rects, rectangle{c.class(e.Text), width - right + 4, e.Y - 5, 9, 9})
		c.text(width-right+18, e.Y+4, "start", "", e.Text)
	}
}

// barChart draws one row per bar. The chart of no bars is "".
func barChart(title, sub, unit string, all []bar) string {
	if len(all) == 0 {
		return ""
	}
	const labels, row = 215, 24
	bottom := float64(top + row*len(all))
	c := newChart(title, sub+"; logarithmic", int(bottom)+34)
	var values []float64
	for _, r := range all {
		values = append(values, r.value, r.value/3) // the shortest bar should still be one
	}
	x, ticks := valueAxis(values, labels, width-90)
	for _, t := range ticks {
		c.Grid = append(c.Grid, stroke{x.at(t), top, x.at(t), bottom})
		c.text(x.at(t), bottom+18, "middle", "s", number(t))
	}
	c.text(width-12, bottom+18, "end", "s", unit)
	for i, r := range all {
		y := float64(top + row*i)
		c.text(labels-10, y+16, "end", "", r.label)
		long := max(x.at(r.value)-labels, 1)
		c.Rects = append(c.Rects, rectangle{c.class(r.name), labels, y + 4, long, row - 8})
		v := number(r.value)
		if r.atLeast {
			v = "≥ " + v
		}
		c.text(labels+long+6, y+16, "start", "", v)
	}
	return c.String()
}
