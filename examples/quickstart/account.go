package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlock-go/redlock"
)

// account tells what happens, as it happens.
type account struct {
	w     io.Writer
	rl    *redlock.Redlock
	n     int
	start time.Time

	mu    sync.Mutex // guards what follows, and keeps lines whole
	count int
	votes map[int]int // turns by number of votes
	least time.Duration
}

func newAccount(w io.Writer, rl *redlock.Redlock, n, total int) *account {
	a := &account{w: w, rl: rl, n: n, start: time.Now(), votes: map[int]int{}, least: expiry}
	fmt.Fprintf(w, "%d workers take %d turns on the lock %q, on %d nodes: a quorum is %d.\n",
		len(workers), total, name, n, n/2+1)
	fmt.Fprintf(w, "Each reads a counter, lets the others run for %v, and writes it back, plus "+
		"1.\n\n", work)
	fmt.Fprintf(w, "Votes: ● the node has the holder's key, ○ it has not, × it does not "+
		"answer.\n\n")
	fmt.Fprintf(w, "%7s  %4s  %-8s  %8s  %-*s  %10s  %s\n", "time", "turn", "holder", "waited", n+6,
		"votes", "valid for", "nodes that failed")
	return a
}

// turn tells who holds the lock, what the nodes say to that, and for how long it may be trusted.
func (a *account) turn(ctx context.Context, worker string, m *redlock.Mutex, waited time.Duration) {
	left := time.Until(m.Until())
	in, err := a.rl.Inspect(ctx, name)
	if err != nil {
		return // the context ended
	}
	votes, dots := 0, ""
	var failed failures
	for _, n := range in.Nodes {
		switch {
		case n.Err != nil:
			dots += "×"
			failed.add(n.Node, brief(n.Err))
		case n.Value == m.Value():
			dots += "●"
			votes++
		default:
			dots += "○"
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	a.votes[votes]++
	a.least = min(a.least, left)
	fmt.Fprintf(a.w, "%6.2fs  %4d  %-8s  %8v  %s  %d/%d  %10v  %s\n", time.Since(a.start).Seconds(),
		a.count, worker,
		waited.Round(time.Millisecond), dots, votes, a.n, left.Round(time.Millisecond), failed)
}

// failures are nodes by what is wrong with them.
type failures []struct{ reason, nodes string }

func (f *failures) add(node int, reason string) {
	for i := range *f {
		if (*f)[i].reason == reason {
			(*f)[i].nodes += fmt.Sprintf(", %d", node)
			return
		}
	}
	*f = append(*f, struct{ reason, nodes string }{reason, fmt.Sprint(node)})
}

func (f failures) String() string {
	var list []string
	for _, x := range f {
		list = append(list, x.nodes+": "+x.reason)
	}
	return strings.Join(list, "; ")
}

// brief is the innermost reason of a node's error.
func brief(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}

// note tells anything else.
func (a *account) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintf(a.w, "%6.2fs  ---- %s\n", time.Since(a.start).Seconds(),
		fmt.Sprintf(format, args...))
}

func (a *account) turns() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// summary tells how it came out, and returns an error if the counter is not exact.
func (a *account) summary(counter, want int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var votes []string
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(a.votes))) {
		votes = append(votes, fmt.Sprintf("%d/%d in %d turns", v, a.n, a.votes[v]))
	}
	fmt.Fprintf(a.w, "\nVotes: %s. Valid for %v at least.\n", strings.Join(votes, ", "),
		a.least.Round(time.Millisecond))
	if counter != want {
		return fmt.Errorf("the counter is %d after %d additions", counter, want)
	}
	fmt.Fprintf(a.w, "The counter is %d after %d additions: exact.\n", counter, want)
	return nil
}
