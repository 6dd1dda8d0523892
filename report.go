package redlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// Severity says how bad a [Finding] is.
type Severity int

const (
	// Note is something to know: nothing is wrong.
	Note Severity = iota + 1
	// Warning is something that makes locks less safe or less available than they could be.
	Warning
	// Critical is something that breaks mutual exclusion, or makes locking impossible.
	Critical
)

// String returns "note", "warning" or "critical".
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Critical:
		return "critical"
	}
	return strconv.Itoa(int(s))
}

// Finding is something about a deployment that an operator should know.
type Finding struct {
	// Severity says how bad it is.
	Severity Severity
	// Code names the kind of finding, for programs: one of the words that [Redlock.Check] lists.
	Code string
	// Nodes are those it is about, or none if it is about the deployment as a whole.
	Nodes []int
	// Problem says what is wrong, in a sentence for people that may change.
	Problem string
	// Advice says what to do, in the same way.
	Advice string
}

// Report is what [Redlock.Check] found out.
type Report struct {
	// Quorum is the number of nodes that make a holder.
	Quorum int
	// Nodes is what each node told, in node order.
	Nodes []NodeReport
	// Findings are the conclusions, the worst first.
	Findings []Finding
}

// Worst returns the severity of the worst finding, 0 if there is none.
func (r *Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return 0
	}
	return r.Findings[0].Severity
}

// String lays the report out for people: a table of the nodes, then the findings and what to do about them.
func (r *Report) String() string {
	var b strings.Builder
	count := map[Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	fmt.Fprintf(&b, "%s, quorum %d: %d critical, %s, %s\n\n", plural(len(r.Nodes), "node"), r.Quorum,
		count[Critical], plural(count[Warning], "warning"), plural(count[Note], "note"))

	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, r.nameColumns("node", "address")+"server\tup\trole\tmemory\tpersistence\tclock")
	for i := range r.Nodes {
		n := &r.Nodes[i]
		fmt.Fprintln(w, r.nameColumns(strconv.Itoa(n.Node), n.Addr)+n.row())
	}
	_ = w.Flush() // a strings.Builder does not fail
	if len(r.Findings) == 0 {
		b.WriteString("\nNo problems found.\n")
	}
	for _, f := range r.Findings {
		where := "deployment"
		if len(f.Nodes) > 0 {
			where = "node "
			if len(f.Nodes) > 1 {
				where = "nodes "
			}
			for i, n := range f.Nodes {
				if i > 0 {
					where += ", "
				}
				where += strings.TrimPrefix(nodeName(n, r.Nodes[n].Addr), "node ")
			}
		}
		fmt.Fprintf(&b, "\n%s (%s), %s\n", strings.ToUpper(f.Severity.String()), f.Code, where)
		wrap(&b, "  ", f.Problem)
		wrap(&b, "  -> ", f.Advice)
	}
	return b.String()
}

// nameColumns begins a line of the table. If no pool tells an address, there is no column for them.
func (r *Report) nameColumns(node, addr string) string {
	if slices.ContainsFunc(r.Nodes, func(n NodeReport) bool { return n.Addr != "" }) {
		return node + "\t" + addr + "\t"
	}
	return node + "\t"
}

// row returns the rest of the node's line of the table.
func (n *NodeReport) row() string {
	cell := func(what, text string) string {
		if !n.knows(what) {
			return "?"
		}
		return text
	}
	if n.Err != nil && n.keptOut() == nil && len(n.Unknown) > len(infoTells) {
		return "unreachable\t?\t?\t?\t?\t?"
	}
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
	return strings.Join([]string{
		cell("server", n.Server), cell("uptime", n.Uptime.String()), cell("role", role), cell("memory", memory),
		cell("persistence", n.Persistence), cell("clock", fmt.Sprintf("%s ± %.1fms", offset(n.ClockOffset), ms(n.ClockError))),
	}, "\t")
}

// wrap writes text in lines of up to 100 columns, the first after prefix and the others below its end.
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

func offset(d time.Duration) string {
	if d.Abs() < clockLimit {
		return fmt.Sprintf("%+.1fms", ms(d.Round(100*time.Microsecond))) // of -0.04 ms, the sign would be left
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
