package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
)

// watch shows what the locks do: in a log, by numbers, or both. A program that has a metrics
// library adds to its counters in the same places, or uses the module otelredlock.
type watch struct {
	verbose, metrics bool
	log              io.Writer // of verbose

	mu     sync.Mutex // guards what follows
	counts map[string]int
	waited []time.Duration
}

// flags defines the flags of the watch.
func (w *watch) flags() {
	flag.BoolVar(&w.verbose, "v", false, "log what the locks do, on the standard error output")
	flag.BoolVar(&w.metrics, "metrics", false, "count what the locks do, and tell at the end")
}

// options are what a Redlock needs to be watched.
func (w *watch) options() (opts []redlock.Option) {
	if w.verbose {
		text := slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})
		opts = append(opts, redlock.WithEvents(redlock.LogEvents(slog.New(text))))
	}
	if w.metrics {
		opts = append(opts, redlock.WithEvents(w.events()))
	}
	return opts
}

// events count. Each is told by any goroutine.
func (w *watch) events() *redlock.Events {
	return &redlock.Events{
		Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			return ctx, func(a redlock.Acquired) {
				w.add("acquire, " + string(a.Outcome))
				if a.Err == nil {
					w.wait(a.Waited)
				}
			}
		},
		Extend: func(ctx context.Context, _ redlock.Extending) (context.Context,
			func(redlock.Extended)) {
			return ctx, func(e redlock.Extended) { w.add("extend, " + string(e.Outcome)) }
		},
		Release: func(ctx context.Context, _ redlock.Releasing) (context.Context,
			func(redlock.Released)) {
			return ctx, func(r redlock.Released) { w.add("release, " + string(r.Outcome)) }
		},
		Lost:     func(redlock.Ended) { w.add("lost") },
		Overrun:  func(redlock.Overrun) { w.add("used after the end") },
		NoQuorum: func(redlock.Failure) { w.add("no quorum") },
		NodeState: func(s redlock.NodeState) {
			if s.Up {
				w.add("node answers again")
			} else {
				w.add("node down")
			}
		},
	}
}

func (w *watch) add(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts == nil {
		w.counts = map[string]int{}
	}
	w.counts[what]++
}

func (w *watch) wait(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waited = append(w.waited, d)
}

// tell prints the numbers, if they are wanted.
func (w *watch) tell(out io.Writer) {
	if !w.metrics {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintln(out, "\nWhat the locks have done:")
	for _, what := range slices.Sorted(maps.Keys(w.counts)) {
		fmt.Fprintf(out, "%8d  %s\n", w.counts[what], what)
	}
	if n := len(w.waited); n > 0 {
		slices.Sort(w.waited)
		fmt.Fprintf(out, "Half of the locks were granted within %v, all within %v.\n",
			w.waited[n/2].Round(time.Millisecond), w.waited[n-1].Round(time.Millisecond))
	}
}
