package sim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// These schedules are about a job that fifty replicas start once in a period, each when its own
// clock says so. The clocks are up to ten seconds off, or hardly at all. The job takes a
// millisecond.
const (
	jobReplicas = 50
	jobPeriods  = 3
	jobPeriod   = time.Minute
	jobClocks   = 10 * time.Second
)

// jobs is one of these schedules.
type jobs struct {
	dice
	clocks  time.Duration // by which clocks are off at most
	tries   int
	minHold time.Duration // 0 for none
	nodes   sim.Nodes
	start   time.Time

	mu   sync.Mutex
	runs [jobPeriods]int
	errs []error // that say more than that the lock is taken
}

// runJobs runs a schedule, and returns how often the job was run in each period. In half of them
// the clocks hardly differ, and all replicas ask at the same moment.
func runJobs(t *testing.T, d dice, minHold bool, tries int) (runs [jobPeriods]int) {
	again := fmt.Sprintf("go test ./internal/test/sim -run %s -first %d -schedules 1", t.Name(), d)
	bubble(t, again, func(t *testing.T) {
		nodes := sim.NewNodes([]int{3, 5, 5, 7}[d.below(4, "nodes")])
		j := &jobs{dice: d, nodes: nodes, start: time.Now(), tries: tries}
		j.clocks = []time.Duration{jobClocks, time.Millisecond}[d.below(2, "clocks")]
		defer j.nodes.Close()
		if minHold {
			// Longer than the clocks differ, and by as much shorter than the period.
			j.minHold = d.between(2*jobClocks+time.Second, jobPeriod-2*jobClocks-2*time.Second,
				"minimum hold")
		}
		over := make(chan struct{})
		var all, nemesis sync.WaitGroup
		for i, n := range j.nodes {
			n.Clock(1+0.0045*(2*d.unit("node rate", int64(i))-1), 0)
			if i < (len(j.nodes)-1)/2 {
				nemesis.Go(func() { j.trouble(int64(i), n, over) })
			}
		}
		for i := range int64(jobReplicas) {
			all.Go(func() { j.replica(i) })
		}
		all.Wait()
		close(over)
		nemesis.Wait()
		assert.Empty(t, j.errs)
		runs = j.runs
	})
	return runs
}

// trouble befalls the nodes of a minority, again and again.
func (j *jobs) trouble(node int64, n *sim.Node, over <-chan struct{}) {
	for i := int64(0); sleep(over, j.between(0, jobPeriod, "peace", node, i)); i++ {
		last := j.between(0, jobPeriod/2, "trouble", node, i)
		switch j.below(4, "kind", node, i) {
		case 0:
			n.Freeze()
			sleep(over, last)
			n.Thaw()
		case 1:
			n.Crash()
			sleep(over, last)
			n.Restart(true)
		case 2:
			n.Crash()
			n.Restart(false) // the guard keeps it out
		case 3:
			n.Always(sim.LoseReply())
			sleep(over, last)
			n.Always(sim.Fate{})
		}
	}
}

// replica tries the job whenever its clock says that a period begins.
func (j *jobs) replica(id int64) {
	c := clientClock{start: j.start, rate: 1, dice: j.dice, id: id}
	c.offset = j.between(-j.clocks, j.clocks, "clock", id)
	pools := make([]pool.Pool, len(j.nodes))
	for i, n := range j.nodes {
		link := n.Link(fmt.Sprintf("c%d", id))
		trip := j.between(50*time.Microsecond, 2*time.Millisecond, "trip", id, int64(i))
		link.Plan(func(sim.Op) sim.Fate { return sim.Slow(trip) })
		pools[i] = way{link, c}
	}
	rl := redlock.New(pools...).With(redlock.WithTries(j.tries), redlock.WithMinHold(j.minHold),
		redlock.WithRestartGuard(jobPeriod))
	defer rl.Close()
	for k := range jobPeriods {
		time.Sleep(time.Until(j.start.Add(time.Duration(k+1)*jobPeriod - c.offset)))
		err := rl.Do(context.Background(), "job", func(context.Context) error {
			j.mu.Lock()
			j.runs[k]++
			j.mu.Unlock()
			time.Sleep(time.Millisecond)
			return nil
		})
		if err != nil && !errors.Is(err, redlock.ErrTaken) && !errors.Is(err, redlock.ErrNoQuorum) {
			j.mu.Lock()
			j.errs = append(j.errs, err)
			j.mu.Unlock()
		}
	}
}

// With WithMinHold the job runs exactly once in each period; without, the same schedules run it
// more often. With a single try it may not run at all: several replicas that ask at the same moment
// may get some nodes each, and nobody a quorum.
func TestSchedulesOfJobs(t *testing.T) {
	const enough = 5 // tries
	n := uint64(schedules(6))
	begun, done, more, none := time.Now(), 0, 0, 0
	defer func() {
		t.Logf("%d schedules in %v; a tenth of them without WithMinHold: %d runs too many; "+
			"with a single try, in one of them: %d periods without a run",
			done, time.Since(begun).Round(time.Millisecond), more, none)
	}()
	for seed := *first; seed < *first+n; seed++ {
		done++
		for k, runs := range runJobs(t, dice(seed), true, enough) {
			if runs != 1 {
				t.Fatalf("1 violations in\n\tseed %d\n\tI19 one run: %d runs in period %d",
					seed, runs, k+1)
			}
		}
		if seed%10 != 1 {
			continue
		}
		for _, runs := range runJobs(t, dice(seed), false, enough) {
			more += max(runs-1, 0)
		}
	}
	// About half of the periods in which all replicas ask at the same moment.
	for seed := *first; seed < *first+n && none == 0; seed++ {
		for _, runs := range runJobs(t, dice(seed), true, 1) {
			none += max(1-runs, 0)
		}
	}
	if n >= 6 {
		assert.NotZero(t, more, "runs too many without WithMinHold")
		assert.NotZero(t, none, "periods without a run with a single try")
	}
}
