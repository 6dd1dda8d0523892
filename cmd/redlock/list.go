package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/wire"
)

// list tells what is locked now.
func (c *common) list(ctx context.Context, inJSON bool) (int, error) {
	nodes := c.lookOnce(ctx)
	if ctx.Err() != nil {
		return 0, nil
	}
	locks := merge(nodes, c.prefix)
	if inJSON {
		c.tool.printJSON(listJSON(nodes, locks))
	} else {
		c.tool.print(nodesText(nodes) + locksText(locks) + stoppedText(nodes))
	}
	return statusOfNodes(nodes), nil
}

// lookOnce lets every node look for all locks.
func (c *common) lookOnce(ctx context.Context) []nodeView {
	viewers, closeAll := c.viewers()
	defer closeAll()
	nodes := make([]nodeView, len(viewers))
	var all sync.WaitGroup
	for i, v := range viewers {
		all.Go(func() { nodes[i] = v.look(ctx, mostScans) })
	}
	all.Wait()
	return nodes
}

// statusOfNodes is the exit status: do enough nodes answer?
func statusOfNodes(nodes []nodeView) int {
	answered := 0
	for _, n := range nodes {
		if n.err == nil {
			answered++
		}
	}
	if answered <= len(nodes)/2 {
		return exitUnavailable
	}
	return 0
}

// table writes rows of cells that are separated by tabs.
func table(write func(w *tabwriter.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	write(w)
	_ = w.Flush() // a strings.Builder does not fail
	return b.String()
}

func nodesText(nodes []nodeView) string {
	return table(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "NODE\tUP\tROUND TRIP\tCLOCK\tMEMORY\tERRORS")
		for _, n := range nodes {
			if n.err != nil {
				fmt.Fprintf(w, "%s\tno\t\t\t\t%d %s\n", n.addr, n.failures,
					errtext.Said(n.err.Error()))
				continue
			}
			clock, memory, why := fmt.Sprintf("%+.3fs", n.ahead.Seconds()), bytesText(n.used), ""
			if n.most > 0 {
				memory = fmt.Sprintf("%d %% of %s", n.used*100/n.most, bytesText(n.most))
			}
			if n.denied != nil {
				clock, memory, why = "", "", " "+errtext.Said(n.denied.Error())
			}
			fmt.Fprintf(w, "%s\tyes\t%v\t%s\t%s\t%d%s\n", n.addr,
				n.trip.Round(10*time.Microsecond), clock, memory, n.failures, why)
		}
	})
}

func bytesText(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// locksText is a table of locks. A column is left out that no lock has anything for: without
// -fence-per-name, status knows no tokens, nor since when locks are held.
func locksText(locks []lockView) string {
	now := time.Now()
	rows := [][]string{{"LOCK", "HOLDER", "HELD FOR", "VOTES", "EXPIRES", "TOKEN", "WAITING",
		"LONGEST"}}
	for _, l := range locks {
		held, expires, token, longest := "", "", "", ""
		switch {
		case l.since.IsZero() || l.value == "":
		case l.longer:
			held = "> " + seconds(now.Sub(l.since))
		default:
			held = seconds(now.Sub(l.since))
		}
		switch {
		case l.ends.Equal(never):
			expires = "never"
		case !l.ends.IsZero():
			expires = seconds(l.ends.Sub(now))
		}
		if l.token > 0 {
			token = fmt.Sprint(l.token)
		}
		if l.waiting > 0 {
			longest = seconds(now.Sub(l.first))
		}
		rows = append(rows, []string{shown(l.name), shown(l.holder()), held, fmt.Sprint(l.votes),
			expires, token, fmt.Sprint(l.waiting), longest})
	}
	for _, column := range []int{5, 2} {
		if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[column] != "" }) {
			continue
		}
		for i := range rows {
			rows[i] = slices.Delete(rows[i], column, column+1)
		}
	}
	return "\n" + table(func(w *tabwriter.Writer) {
		for _, row := range rows {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
	})
}

// shown is a text of somebody else's as a cell.
func shown(text string) string { return errtext.Text(errtext.CutTo(text, 60)) }

func seconds(d time.Duration) string { return max(d, 0).Truncate(100 * time.Millisecond).String() }

// unfinished returns a node that answers and has not looked at all of its keys, or -1.
func unfinished(nodes []nodeView) int {
	return slices.IndexFunc(nodes, func(n nodeView) bool { return n.err == nil && !n.complete })
}

// stoppedText says where not all keys have been looked at.
func stoppedText(nodes []nodeView) string {
	i := unfinished(nodes)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("\nStopped after %d keys of a node: there may be more locks. "+
		"status NAME looks at one.\n", nodes[i].keys)
}

func (t *tool) printJSON(of any) {
	text, err := json.MarshalIndent(of, "", "  ")
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	t.print(string(text) + "\n")
}

type object = map[string]any

// ms is a number of milliseconds, or nothing if there is no end.
func ms(d time.Duration) any {
	if d == redlock.NoExpiry {
		return nil
	}
	return d.Milliseconds()
}

// inspectionJSON has all of an Inspection but the values, which are secrets.
func inspectionJSON(in *redlock.Inspection) object {
	nodes, readers := []object{}, []object{}
	for _, n := range in.Nodes {
		o := object{"node": n.Node, "addr": n.Addr, "found": n.Found, "reserved": n.Reserved,
			"shared": n.Shared, "ttl_ms": ms(n.TTL), "error": errorJSON(n.Err)}
		nodes = append(nodes, o)
	}
	for _, r := range in.Readers {
		readers = append(readers, object{"owner": r.Owner, "votes": r.Votes, "ttl_ms": ms(r.TTL)})
	}
	var waiters any
	if in.Waiters != nil {
		all := []object{}
		for _, w := range in.Waiters {
			all = append(all, object{"owner": w.Owner, "since": w.Since})
		}
		waiters = all
	}
	return object{"name": in.Name, "key": in.Key, "verdict": in.Verdict, "quorum": in.Quorum,
		"owner": in.Owner, "votes": in.Votes, "ttl_ms": ms(in.TTL), "readers": readers,
		"waiters": waiters, "nodes": nodes}
}

func errorJSON(err error) any {
	if err == nil {
		return nil
	}
	return err.Error()
}

func listJSON(nodes []nodeView, locks []lockView) object {
	allNodes, allLocks := []object{}, []object{}
	for _, n := range nodes {
		allNodes = append(allNodes, object{"addr": n.addr, "error": errorJSON(n.err)})
	}
	for _, l := range locks {
		owner, ttl := "", any(nil)
		if l.verdict == redlock.VerdictHeld {
			owner = wire.OwnerOf(l.value)
		}
		if !l.ends.IsZero() && !l.ends.Equal(never) {
			ttl = time.Until(l.ends).Milliseconds()
		}
		o := object{"name": l.name, "verdict": l.verdict, "owner": owner, "votes": l.votes,
			"ttl_ms": ttl, "waiting": l.waiting}
		if l.token > 0 {
			o["token"] = l.token
		}
		if l.waiting > 0 {
			o["first_waits_since"] = l.first
		}
		allLocks = append(allLocks, o)
	}
	return object{"nodes": allNodes, "locks": allLocks, "complete": unfinished(nodes) < 0}
}
