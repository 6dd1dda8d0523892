package sim_test

import (
	"cmp"
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/sim"
)

var draw = flag.String("draw", "", "for TestReplay: a `file` for a picture (SVG) of the schedule")

// picture is what is drawn of a schedule: a lane for each process with the time in which it relies
// on the lock, a lane for each node, and the commands between them. The history's mutex guards it.
type picture struct {
	messages []*message
	under    map[string][]*message // way, by what they are
	marks    []mark
}

// message is a command on its way to a node.
type message struct {
	client, command, value string
	node                   int
	sent                   time.Duration
	done                   time.Duration // when the node executed it; 0: it did not
	effect                 sim.Effect
	reply                  string
	failed                 bool
}

// mark is something that happens on a lane.
type mark struct {
	at   time.Duration
	lane string
	text string
}

func newPicture() *picture { return &picture{under: map[string][]*message{}} }

// sent notes a command that leaves a process.
func (p *picture) sent(at time.Duration, op sim.Op) {
	m := &message{client: op.Client, command: op.Command, value: plain(op.Value), node: op.Node,
		sent: at}
	what := fmt.Sprint(op.Client, op.Node, op.Command, op.Value)
	p.messages, p.under[what] = append(p.messages, m), append(p.under[what], m)
}

// executed notes that a node has executed a command: the latest of that kind that it has not, or
// the same one twice.
func (p *picture) executed(at time.Duration, e sim.Event) {
	what := fmt.Sprint(e.Client, e.Node, e.Command, e.Value)
	all := p.under[what]
	if len(all) == 0 {
		return
	}
	m := all[len(all)-1]
	if m.done != 0 {
		again := *m
		m = &again
		p.messages = append(p.messages, m)
	} else if len(all) > 1 {
		p.under[what] = all[:len(all)-1]
	}
	m.done, m.effect, m.reply, m.failed = at, e.Effect, fmt.Sprint(e.Reply), e.Err != nil
	if m.failed {
		m.reply = e.Err.Error()
	}
}

// noted notes a line of the trace that is about a node.
func (p *picture) noted(at time.Duration, text string) {
	var node int
	for _, form := range []string{"node %d ", "clock of node %d "} {
		if n, _ := fmt.Sscanf(text, form, &node); n == 1 {
			p.marks = append(p.marks, mark{at, nodeLane(node), text})
		}
	}
}

func nodeLane(n int) string { return fmt.Sprint("node ", n) }

// The picture's measures, in pixels.
const (
	laneHeight = 46
	laneLeft   = 110
	topMargin  = 64
	mostDrawn  = 600 // messages: those before the first violation
)

// draw returns the picture of what happened in h.
func (p *picture) draw(h *history) string {
	messages, wrong := p.messages, time.Duration(math.MaxInt64)
	for _, v := range h.violations {
		text, _, _ := strings.Cut(v.text, ":")
		if at, err := time.ParseDuration(text); err == nil {
			wrong = min(wrong, at)
		}
	}
	slices.SortStableFunc(messages, func(a, b *message) int { return cmp.Compare(a.sent, b.sent) })
	after := slices.IndexFunc(messages, func(m *message) bool { return m.sent > wrong })
	if after >= 0 {
		messages = messages[:after]
	}
	messages = messages[max(0, len(messages)-mostDrawn):]
	d := &drawing{lanes: map[string]int{}, named: map[string]float64{}}
	d.layOut(messages, h, wrong)
	for _, l := range h.leases {
		d.lease(l)
	}
	for _, m := range messages {
		d.message(m)
	}
	for _, m := range p.marks {
		d.mark(m)
	}
	if wrong != math.MaxInt64 {
		x := d.x(wrong)
		d.add(`<line x1="%.0f" y1="%d" x2="%.0f" y2="%d" class="wrong"/>`, x, topMargin-16, x,
			d.height)
	}
	return d.page(h)
}

// drawing turns times into places. A pause takes less room than what happens at its ends.
type drawing struct {
	lanes  map[string]int     // y
	named  map[string]float64 // x of a lane's latest command with a name
	order  []string
	times  []time.Duration
	places []float64 // of times
	height int
	body   strings.Builder
}

func (d *drawing) add(format string, args ...any) {
	fmt.Fprintf(&d.body, format+"\n", args...)
}

// layOut gives each lane and each moment a place.
func (d *drawing) layOut(messages []*message, h *history, wrong time.Duration) {
	lane := func(name string) {
		if _, ok := d.lanes[name]; !ok {
			d.lanes[name] = topMargin + len(d.order)*laneHeight
			d.order = append(d.order, name)
		}
	}
	var clients []string
	for _, m := range messages {
		clients = append(clients, m.client)
		d.times = append(d.times, m.sent, cmp.Or(m.done, m.sent))
	}
	for _, l := range h.leases {
		clients = append(clients, processOf(l.owner))
	}
	slices.Sort(clients)
	for _, c := range slices.Compact(clients) {
		lane(c)
	}
	for i := range h.Nodes {
		lane(nodeLane(i))
	}
	if wrong != math.MaxInt64 {
		d.times = append(d.times, wrong)
	}
	slices.Sort(d.times)
	d.times = slices.Compact(d.times)
	at := float64(laneLeft)
	for i, t := range d.times {
		if i > 0 {
			at += 3 + 9*math.Log10(1+float64(t-d.times[i-1])/float64(100*time.Microsecond))
		}
		d.places = append(d.places, at)
	}
	d.height = topMargin + len(d.order)*laneHeight
}

// processOf is the process of a worker.
func processOf(owner string) string {
	process, _, _ := strings.Cut(owner, "w")
	return process
}

// x is the place of a moment.
func (d *drawing) x(t time.Duration) float64 {
	i, found := slices.BinarySearch(d.times, t)
	switch {
	case len(d.times) == 0:
		return laneLeft
	case found || i == 0:
		return d.places[i]
	case i == len(d.times):
		return d.places[i-1] + 10
	}
	part := float64(t-d.times[i-1]) / float64(d.times[i]-d.times[i-1])
	return d.places[i-1] + part*(d.places[i]-d.places[i-1])
}

// shows reports whether something of that time is in the picture.
func (d *drawing) shows(from, to time.Duration) bool {
	return len(d.times) > 0 && to >= d.times[0] && from <= d.times[len(d.times)-1]
}

// lease draws the time in which somebody relies on the lock.
func (d *drawing) lease(l *lease) {
	if !d.shows(l.from, l.until()) {
		return
	}
	from, to, y := d.x(l.from), d.x(l.until()), d.lanes[processOf(l.owner)]
	class := "lease"
	if l.shared {
		class = "shared"
	}
	what := fmt.Sprintf("%s has %s, token %d: %v to %v", l.owner, l.name, l.token, l.from,
		l.until())
	d.add(`<rect x="%.0f" y="%d" width="%.0f" height="14" rx="3" class="%s">`+
		`<title>%s</title></rect>`, from, y-7, max(to-from, 2), class, html.EscapeString(what))
}

// message draws a command: an arrow, or a short broken line if the node never executed it.
func (d *drawing) message(m *message) {
	x, y, class := d.x(m.sent), d.lanes[m.client], m.effect.String()
	toX, toY := d.x(m.done), d.lanes[nodeLane(m.node)]
	switch {
	case m.done == 0:
		toX, toY, class = x+14, y+26, "lost"
	case m.failed:
		class = "error"
	}
	what := fmt.Sprintf("%s %s %q to node %d: sent %v, executed %v: %s, %s",
		m.client, m.command, m.value, m.node, m.sent, m.done, m.reply, m.effect)
	d.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" class="%s"><title>%s</title></line>`,
		x, y+7, toX, toY-5, class, html.EscapeString(what))
	if last := d.named[m.client]; last == 0 || x-last > 50 {
		d.named[m.client] = x
		d.add(`<text x="%.0f" y="%d" class="command">%s</text>`, x, y-10, m.command)
	}
	if m.done != 0 {
		d.add(`<circle cx="%.1f" cy="%d" r="3" class="%s"/>`, toX, toY, class)
	}
}

// mark draws what befalls a node.
func (d *drawing) mark(m mark) {
	if d.shows(m.at, m.at) {
		d.add(`<text x="%.0f" y="%d" class="mark">%s</text>`, d.x(m.at), d.lanes[m.lane]+18,
			html.EscapeString(m.text))
	}
}

// page puts the lanes, the times and a title around what was drawn.
func (d *drawing) page(h *history) string {
	width := laneLeft + 40.0
	if len(d.places) > 0 {
		width = d.places[len(d.places)-1] + 40
	}
	title := fmt.Sprintf("%d violations", len(h.violations))
	if len(h.violations) > 0 {
		title = h.violations[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" `+
		`font-family="sans-serif" font-size="11">`+"\n<style>%s</style>\n"+
		`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n", width, d.height, pictureStyle)
	fmt.Fprintf(&b, `<text x="8" y="16" class="title">%s</text><text x="8" y="32">%s</text>`+"\n",
		html.EscapeString(title), html.EscapeString(h.setup.String()))
	for _, name := range d.order {
		y := d.lanes[name]
		fmt.Fprintf(&b, `<text x="8" y="%d">%s</text>`+
			`<line x1="%d" y1="%d" x2="%.0f" y2="%d" class="lane"/>`+"\n",
			y+4, html.EscapeString(name), laneLeft-10, y, width-8, y)
	}
	last := math.Inf(-1)
	for i, t := range d.times {
		if d.places[i]-last > 70 {
			last = d.places[i]
			fmt.Fprintf(&b, `<text x="%.0f" y="%d" class="time">%v</text>`+"\n", last, topMargin-20,
				t.Round(10*time.Microsecond))
		}
	}
	return b.String() + d.body.String() + "</svg>\n"
}

const pictureStyle = `
.lane{stroke:#ccc}.title{font-weight:bold}.time{fill:#666}.mark{fill:#b00020}
.command{fill:#333;font-size:9px}
.lease{fill:#2e7d32}.shared{fill:#81c784}.wrong{stroke:#b00020;stroke-width:2}
line.none{stroke:#b0b0b0}line.granted{stroke:#2e7d32}line.deleted{stroke:#6d4c41}
line.extended{stroke:#1565c0}line.raised{stroke:#6a1b9a}line.error{stroke:#b00020}
line.lost{stroke:#b00020;stroke-dasharray:3 2}
circle.none{fill:#b0b0b0}circle.granted{fill:#2e7d32}circle.deleted{fill:#6d4c41}
circle.extended{fill:#1565c0}circle.raised{fill:#6a1b9a}circle.error{fill:#b00020}
`

// A picture has a lane for each process and node, an arrow for each command that a node has
// executed, a broken line for one that was lost, a bar for each lease, and a line where something
// went wrong.
func TestPicture(t *testing.T) {
	s := newSetup(*first, 0)
	s.Nodes, s.Clients, s.Workers, s.Cycles, s.Faults = 3, 2, 1, 1, lostRequest|freeze
	h := run(t, s, true)
	require.NotEmpty(t, h.leases)
	lost, landed := 0, 0
	for _, m := range h.picture.messages {
		if m.done == 0 {
			lost++
		} else {
			landed++
		}
	}
	svg := h.picture.draw(h)
	assert.Equal(t, landed, strings.Count(svg, "<circle "))
	assert.Equal(t, lost, strings.Count(svg, `class="lost"`))
	assert.Equal(t, len(h.leases), strings.Count(svg, "<rect x="))
	for _, lane := range []string{">c0<", ">c1<", ">node 0<", ">node 2<"} {
		assert.Contains(t, svg, lane)
	}
	assert.NotContains(t, svg, `class="wrong"`)
	assert.Contains(t, svg, ">0 violations<")
	assert.NotContains(t, svg, "NaN")

	h.violate("I1 exclusion", "two <holders>")
	svg = h.picture.draw(h)
	assert.Equal(t, 1, strings.Count(svg, `class="wrong"`))
	assert.Contains(t, svg, "two &lt;holders&gt;")

	// Of a long one, what came before the first violation.
	for i := range 2 * mostDrawn {
		h.picture.sent(h.now()+time.Duration(i), sim.Op{Client: "late"})
	}
	assert.NotContains(t, h.picture.draw(h), "late")
}

// save writes the picture of a schedule, if there is a file to write it to.
func (h *history) save(t *testing.T) {
	if *draw != "" {
		require.NoError(t, os.WriteFile(*draw, []byte(h.picture.draw(h)), 0o644))
	}
}
