package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// String lays the report out for people: a table of the nodes, then the findings with the advice.
func (r *Report) String() string {
	var b strings.Builder
	count := map[Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	fmt.Fprintf(&b, "%s, quorum %d: %d critical, %s, %s\n",
		plural(len(r.Nodes), "node"), r.Quorum,
		count[Critical], plural(count[Warning], "warning"), plural(count[Note], "note"))
	if text := r.Fingerprint(); text != "" {
		fmt.Fprintf(&b, "fingerprint %s\n", text)
	}
	b.WriteByte('\n')

	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	header := []string{"server", "up", "role", "memory", "persistence", "clock"}
	r.writeLine(w, "node", "address", header)
	for i := range r.Nodes {
		n := &r.Nodes[i]
		r.writeLine(w, strconv.Itoa(n.Node), n.Addr, n.cells())
	}
	_ = w.Flush() // a strings.Builder does not fail
	if len(r.Findings) == 0 {
		b.WriteString("\nNo problems found.\n")
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%s (%s), %s\n", strings.ToUpper(f.Severity.String()), f.Code, r.where(f))
		wrap(&b, "  ", f.Problem)
		wrap(&b, "  -> ", f.Advice)
	}
	return b.String()
}

// writeLine writes a line of the table. There is a column for addresses if a pool tells one.
func (r *Report) writeLine(w *tabwriter.Writer, node, addr string, cells []string) {
	line := append([]string{node}, cells...)
	if slices.ContainsFunc(r.Nodes, func(n NodeReport) bool { return n.Addr != "" }) {
		line = slices.Insert(line, 1, addr)
	}
	fmt.Fprintln(w, strings.Join(line, "\t"))
}

// cells returns what the table shows of the node.
func (n *NodeReport) cells() []string {
	role := n.Role
	if n.Mode != "standalone" {
		role += ", " + n.Mode
	}
	if n.Replicas > 0 {
		role += ", " + plural(n.Replicas, "replica")
	}
	memory := "no limit"
	if n.MaxMemory > 0 {
		memory = fmt.Sprintf("%.1f MiB, %s", float64(n.MaxMemory)/(1<<20), n.Eviction)
	}
	clock := fmt.Sprintf("%s ± %.1fms", offset(n.ClockOffset), ms(n.ClockUncertainty))
	var cells []string
	silent := true
	for _, c := range []struct{ what, text string }{
		{"server", n.Server}, {"uptime", n.Uptime.String()}, {"role", role},
		{"memory", memory}, {"persistence", n.Persistence}, {"clock", clock},
	} {
		if n.Knows(c.what) {
			silent = false
		} else {
			c.text = "?"
		}
		cells = append(cells, c.text)
	}
	if silent && n.Err != nil && n.Guarded == 0 {
		cells[0] = "unreachable"
	}
	return cells
}

// where names what a finding is about: "deployment", "node 3 (10.0.0.3:6379)", "nodes 0, 2".
func (r *Report) where(f Finding) string {
	var names []string
	for _, n := range f.Nodes {
		name := strconv.Itoa(n)
		if addr := r.Nodes[n].Addr; addr != "" {
			name += " (" + addr + ")"
		}
		names = append(names, name)
	}
	switch len(names) {
	case 0:
		return "deployment"
	case 1:
		return "node " + names[0]
	}
	return "nodes " + strings.Join(names, ", ")
}

// wrap writes text in lines of up to 100 columns, the first after prefix and the others below its
// end.
func wrap(b *strings.Builder, prefix, text string) {
	column := 0
	for _, word := range strings.Fields(text) {
		width := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(prefix)
			column = len(prefix)
		case column+1+width > 100:
			b.WriteString("\n" + strings.Repeat(" ", len(prefix)))
			column = len(prefix)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += width
	}
	b.WriteByte('\n')
}

// offset shows a second and more as a duration, and less in milliseconds.
func offset(d time.Duration) string {
	if d.Abs() < time.Second {
		// Without the rounding, -0.04 ms would leave its sign.
		return fmt.Sprintf("%+.1fms", ms(d.Round(100*time.Microsecond)))
	}
	if d > 0 {
		return "+" + d.Round(100*time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
