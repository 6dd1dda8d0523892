// Command cron runs a job at every tick of the clock, on exactly one of several replicas.
//
//	go run ./examples/cron
//	go run ./examples/cron -v -metrics
//	go run ./examples/cron -addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379 -every 1m -ticks 0
//
// Without flags it plays three replicas in one process, on embedded nodes, for six ticks. The
// exit status is 0 only if every tick's job was run once. With -addrs it can be started several
// times, also on several machines: all replicas everywhere share the ticks, and each process
// tells only what its own ran.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
)

type options struct {
	addrs    string
	name     string
	replicas int
	every    time.Duration
	ticks    int
	see      *watch
}

func main() {
	o := options{see: &watch{log: os.Stderr}}
	o.see.flags()
	flag.StringVar(&o.addrs, "addrs", "",
		"comma-separated `host:port` of real nodes; if empty, three embedded ones")
	flag.StringVar(&o.name, "name", "replica", "what the replicas of this process are called")
	flag.IntVar(&o.replicas, "replicas", 3, "how many replicas to play in this process")
	flag.DurationVar(&o.every, "every", 500*time.Millisecond, "time between two ticks")
	flag.IntVar(&o.ticks, "ticks", 6, "how many ticks to run, 0 for no end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, o options) error {
	if o.every <= 0 || o.replicas < 1 {
		return errors.New("-every and -replicas must be more than 0")
	}
	pools, closeNodes, err := openNodes(o.addrs, 3)
	if err != nil {
		return err
	}
	defer closeNodes()
	return play(ctx, w, pools, o)
}

// play lets the replicas run the ticks.
func play(ctx context.Context, w io.Writer, pools []pool.Pool, o options) error {
	runs := newLog(w)
	defer o.see.tell(w)
	first := time.Now().Truncate(o.every).Add(o.every)
	var group sync.WaitGroup
	for i := range o.replicas {
		// Each replica has a Redlock of its own, as it would have in a process of its own.
		locks := redlock.New(pools...).With(o.see.options()...)
		defer locks.Close()
		group.Go(func() {
			r := replica{name: fmt.Sprintf("%s-%d", o.name, i+1), locks: locks, runs: runs}
			r.work(ctx, first, o.every, o.ticks)
		})
	}
	group.Wait()
	if ctx.Err() != nil || o.ticks == 0 {
		return nil
	}
	return runs.verify(o.addrs == "", o.ticks)
}

type replica struct {
	name  string
	locks *redlock.Redlock
	runs  *log
}

// work runs the ticks from the first on, or without end, until ctx is done.
func (r *replica) work(ctx context.Context, first time.Time, every time.Duration, ticks int) {
	for i := 0; ticks == 0 || i < ticks; i++ {
		tick := first.Add(time.Duration(i) * every)
		select {
		case <-time.After(time.Until(tick)):
			r.tick(ctx, tick)
		case <-ctx.Done():
			return
		}
	}
}

// memory is for how long a tick is remembered as taken. It must exceed by what the replicas'
// clocks may differ.
const memory = time.Minute

// tick runs the job of one tick, unless another replica does. The tick's lock is never released:
// it is the note that the tick is taken, also for a replica whose clock is late. Should the
// winner die in the middle of the job, this tick's job is not run again; the next tick is another
// lock.
func (r *replica) tick(ctx context.Context, tick time.Time) {
	m := r.locks.NewMutex("cron:report:"+tick.UTC().Format(time.RFC3339Nano),
		redlock.WithExpiry(memory),
		redlock.WithNodeTimeout(time.Second),
		// All replicas ask at the same moment, and each may get some of the nodes and none a
		// quorum. So it takes more than one try to know that another replica has it.
		redlock.WithTries(5),
		redlock.WithRetryDelayFunc(redlock.UniformDelay(5*time.Millisecond, 25*time.Millisecond)),
	)
	switch err := m.LockContext(ctx); {
	case err == nil:
		r.runs.ran(tick, r.name, report(ctx))
	case errors.Is(err, redlock.ErrTaken):
		// Another replica runs it.
	case ctx.Err() != nil:
		// The program ends.
	default:
		// Whether anybody runs it is not known. That is worth an alarm.
		r.runs.ran(tick, r.name, err)
	}
}

// report is the job.
func report(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// log notes who ran what.
type log struct {
	w     io.Writer
	mu    sync.Mutex // guards what follows, and keeps lines whole
	times map[time.Time]int
	by    map[string]int
}

func newLog(w io.Writer) *log {
	fmt.Fprintf(w, "%-12s  %-10s  %s\n", "tick", "ran on", "outcome")
	return &log{w: w, times: map[time.Time]int{}, by: map[string]int{}}
}

func (l *log) ran(tick time.Time, replica string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.times[tick]++
		l.by[replica]++
	}
	fmt.Fprintf(l.w, "%-12s  %-10s  %s\n", tick.Format("15:04:05.000"), replica, outcome)
}

// verify returns an error if a tick was run twice or, where nobody else could have run it, not at
// all.
func (l *log) verify(alone bool, ticks int) error {
	fmt.Fprintln(l.w)
	for _, name := range slices.Sorted(maps.Keys(l.by)) {
		fmt.Fprintf(l.w, "%s ran the job %d times\n", name, l.by[name])
	}
	for tick, n := range l.times {
		if n > 1 {
			return fmt.Errorf("the job of %v was run %d times", tick, n)
		}
	}
	if alone && len(l.times) != ticks {
		return fmt.Errorf("the job was run for %d of %d ticks", len(l.times), ticks)
	}
	fmt.Fprintln(l.w, "No tick was run twice.")
	return nil
}
