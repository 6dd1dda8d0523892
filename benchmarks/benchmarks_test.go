package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{[]float64{3}, 0.5, 3},
		{[]float64{4, 1, 3, 2}, 0, 1},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{4, 1, 3, 2}, 1, 4},
		{[]float64{0, 10, 20, 30, 40}, 0.9, 36},
	} {
		if got := quantile(c.values, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 5: "5", 1000: "1000", 0.1234: "0.123",
		12.34: "12.3", 123.4: "123", math.NaN(): "–"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

// sample is a report of a run in which redlock on go-redis is always twice as fast as a peer, and
// redlock on rueidis always slower than one, although each round is slower than the one before.
func sample() *report {
	r := &report{Machine: map[string]string{}}
	for _, n := range []int{1, 5} {
		for _, g := range []int{1, 64} {
			for _, metric := range times {
				k := perPair(n, g)
				k.Metric = metric
				for who, v := range map[string]float64{we: 10, "redsync goredis": 20, bare: 5,
					"redlock rueidis": 8, "redsync rueidis": 6, "rueidislock": 6} {
					if k.Who = who; contenderNamed(who).fits(n) {
						r.add(k, v, 3*v, 9*v, 27*v)
					}
				}
			}
		}
	}
	return r
}

func TestRatiosAreThoseOfOneRound(t *testing.T) {
	r, k := &report{}, perPair(1, 1)
	mine, theirs := k, k
	mine.Who, theirs.Who = we, "redsync goredis"
	// The machine is slower from round to round, and redlock is behind in none of them. The
	// quotient of the medians would be 2.
	r.add(mine, 1, 10, 100)
	r.add(theirs, 2, 5, 200, 400)
	if got := r.ratios(k, we, "redsync goredis"); fmt.Sprint(got) != "[0.5 2 0.5]" {
		t.Errorf("ratios %v", got)
	}
	if got := ratio(k, we, "redsync goredis")(r); got != 0.5 {
		t.Errorf("the median is %v", got)
	}
	if got := r.ratios(k, we, "redislock"); got != nil {
		t.Errorf("ratios to one that was not measured: %v", got)
	}
	if got := spread([]float64{1, 2, 3, 4, 5}); got != "3 (2–4)" {
		t.Errorf("a spread of %s", got)
	}
}

func TestTargets(t *testing.T) {
	r := sample()
	of := map[string]target{}
	for _, target := range targets {
		of[target.what] = target
	}
	for what, want := range map[string]struct {
		value float64
		ok    bool
	}{
		"5 nodes, 64 goroutines: time per pair, redlock goredis / redsync goredis": {0.5, false},
		"1 node, 64 goroutines: time per pair, redlock rueidis / rueidislock":      {8. / 6, false},
		"times and processor times per pair in which a peer on the same client is ahead": {12,
			false},
		"1 node, 1 goroutine: time per pair, redlock goredis / bare go-redis": {2, false},
		"hand-over, 5 nodes: median ms":                                       {math.NaN(), false},
	} {
		target, ok := of[what]
		if !ok {
			t.Errorf("there is no target %q", what)
			continue
		}
		v := target.figure(r)
		if math.Abs(v-want.value) > 1e-9 || math.IsNaN(v) != math.IsNaN(want.value) ||
			target.ok(v) != want.ok {
			t.Errorf("%s: %v, ok %v", what, v, target.ok(v))
		}
	}
}

// A kilobyte that each hundred pairs leave behind is growth. Moments in which much more waits for
// an answer are not.
func TestHeapGrowth(t *testing.T) {
	const samples, pairs = 120, 20_000 // in half a second each
	for leaked, most := range map[float64]float64{0: 1.05, 1e3 / 100: math.Inf(1)} {
		var r report
		for i := range samples {
			mb := 12 + leaked*pairs/1e6*float64(i) + 0.3*float64(i%3)
			if i%5 == 0 {
				mb += 15
			}
			r.add(key{Section: "frozen", Who: we, Nodes: 5, Workers: 64, Variant: "one frozen",
				Metric: heapOverTime}, mb)
		}
		if got := heapGrowth(&r); got > most || leaked > 0 && got < 1.2 {
			t.Errorf("with %v bytes left by each pair the heap has grown to %.2f", leaked, got)
		}
	}
	if got := heapGrowth(&report{}); !math.IsNaN(got) {
		t.Errorf("nothing has grown to %v", got)
	}
}

// Redlock is compared with the peers on the same client, time and processor time.
func TestPageTellsWhereAPeerIsBetter(t *testing.T) {
	var c config
	if err := choose(we, &c); err != nil { // does not matter: the report speaks of all
		t.Fatal(err)
	}
	r := sample()
	k := perPair(5, 64)
	for who, v := range map[string]float64{we: 10, "redsync goredis": 9.8} {
		k.Who, k.Workers = who, 8
		r.add(k, v)
	}
	_, beaten, _ := strings.Cut(r.page(), "## Where a peer is better")
	// 2 peers on 1 node and 1 on 5, for 1 and 64 goroutines, time and processor time.
	if !strings.Contains(beaten, "12 of 21 comparisons") ||
		strings.Count(beaten, "redlock rueidis / rueidislock") != 4 ||
		strings.Count(beaten, "redlock rueidis / redsync rueidis") != 8 ||
		strings.Contains(beaten, we) && strings.Contains(beaten, "redlock goredis /") {
		t.Error(beaten)
	}
	r = &report{}
	for who, v := range map[string]float64{we: 10.2, "redsync goredis": 10} {
		k.Who = who
		r.add(k, v)
	}
	if page := r.page(); !strings.Contains(page, "in none of 1 comparisons") {
		t.Error("a peer is better that is 2 % ahead")
	}
}

// What the peers do on another client, or on servers of another kind, is not compared.
func TestBeatenIsByPeersOnTheSameClient(t *testing.T) {
	r := &report{}
	k := key{Section: "idle", Nodes: 1, Workers: 10, Metric: "CPU %"}
	for who, v := range map[string]float64{we: 10, "rueidislock": 1, "redislock": 2,
		"redsync goredis": 9.8, bare: 1} {
		k.Who = who
		r.add(k, v)
	}
	if rows := r.beaten(); len(rows) != 1 || rows[0][1] != "redislock" {
		t.Errorf("beaten: %v", rows)
	}
}

// Every round begins with another entrant, and none always follows the same one.
func TestTurnsAlternate(t *testing.T) {
	var in []*entrant
	for _, name := range []string{"a", "b", "c"} {
		in = append(in, &entrant{contender: &contender{name: name}})
	}
	var order string
	turns(in, 4, func(e *entrant) { order += e.name })
	if order != "abc"+"acb"+"cab"+"cba" {
		t.Errorf("the order is %s", order)
	}
}

// stubborn is a locker whose Lock ends late.
type stubborn struct {
	closed chan struct{}
	until  chan struct{} // when Lock ends
	lone   atomic.Bool   // the context could not end
}

func (s *stubborn) Lock(ctx context.Context, _ string) (func() error, error) {
	s.lone.Store(ctx.Done() == nil)
	<-s.until
	return nil, errors.New("closed")
}

func (s *stubborn) Close() { close(s.closed) }

// A caller has no context that can end. The grace closes its client, and leaves it behind if that
// does not help.
func TestALoneCallerThatHangs(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint("ends: ", ends), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &stubborn{closed: make(chan struct{})}
				if l.until = l.closed; !ends {
					l.until = make(chan struct{})
				}
				e := &entrant{lockers: []locker{l}}
				start := time.Now()
				r := drive(e, workload{goroutines: 1, slice: time.Second})
				took := time.Since(start)
				if !l.lone.Load() || r.pairs != 0 || r.hung == ends || (r.err != nil) == ends {
					t.Errorf("alone: %v; %+v", l.lone.Load(), r)
				}
				if ends && took != time.Second+grace || !ends && took != time.Second+2*grace {
					t.Errorf("it took %v", took)
				}
				if !ends {
					close(l.until)
				}
				e.leave() // a second time
			})
		})
	}
}

// patient is a locker that waits until the context ends.
type patient struct{}

func (patient) Lock(ctx context.Context, _ string) (func() error, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (patient) Close() {}

// A context that may end does so after the grace.
func TestCallersWhoseContextsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := drive(&entrant{lockers: []locker{patient{}}},
			workload{goroutines: 4, slice: time.Second, ends: true})
		if took := time.Since(start); r.hung || r.pairs != 0 || took != time.Second+grace {
			t.Errorf("after %v: %+v", took, r)
		}
	})
}

// counted is a locker whose goroutines each need a second for their first pair, and a millisecond
// for the others.
type counted struct{ seen sync.Map }

func (c *counted) Lock(_ context.Context, name string) (func() error, error) {
	took := time.Millisecond
	if _, again := c.seen.LoadOrStore(name, true); !again {
		took = time.Second
	}
	time.Sleep(took)
	return func() error { return nil }, nil
}

func (*counted) Close() {}

// A slice counts from when the goroutines are at their second pair.
func TestSlicesBeginWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &entrant{lockers: []locker{&counted{}}}
		r := drive(e, workload{goroutines: 4, warm: time.Minute, slice: 100 * time.Millisecond})
		if r.pairs < 4*98 || r.pairs > 4*101 || r.elapsed != 100*time.Millisecond {
			t.Errorf("%d pairs in %v", r.pairs, r.elapsed)
		}
	})
}

// Callers rest before each pair, and the rest is not counted as time in it.
func TestCallersRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &entrant{lockers: []locker{&counted{}}}
		r := drive(e, workload{goroutines: 4, warm: time.Minute, slice: 10 * time.Second,
			rest: 9 * time.Millisecond})
		if r.pairs < 3600 || r.pairs > 4400 {
			t.Errorf("%d pairs of 10 ms by four in %v", r.pairs, r.elapsed)
		}
		// First pairs, which take a second, may end in the slice: three of them at most.
		each := r.spent / time.Duration(r.pairs)
		if each < time.Millisecond || each >= 2*time.Millisecond {
			t.Errorf("%v in a pair, want 1ms", each)
		}
	})
}

func TestPickLeavesOutWhoWasNotChosen(t *testing.T) {
	var c config
	if err := choose("redislock,"+bare, &c); err != nil {
		t.Fatal(err)
	}
	s := &suite{config: c}
	if in := s.pick(waiting); len(in) != 1 || in[0].name != "redislock" {
		t.Errorf("%d take part", len(in))
	}
	if in := (config{}).pick(everybody); len(in) != len(roster)-2 {
		t.Errorf("%d of %d take part", len(in), len(roster))
	}
	if choose("nobody", &c) == nil {
		t.Error("a contender that does not exist can be chosen")
	}
}

func TestHolesAreNamed(t *testing.T) {
	r := sample()
	k := perPair(5, 8)
	k.Who = we
	r.add(k, 10)
	r.Runs = map[string]*sectionRun{processPart: {Config: config{Processes: []int{64}}}}
	got := strings.Join(r.missing(), "\n")
	for what, want := range map[string]bool{
		"any peer of redlock goredis on 5 nodes with 8 goroutines":  true,
		"any peer of redlock goredis on 5 nodes with 64 goroutines": false,
		"the target hand-over, 5 nodes: median ms":                  true,
		"time per pair, redlock goredis / redsync goredis":          false,
		"time per pair, redlock goredis / bare batcher":             true,
		"the target most held locks on 5 simulated nodes":           true,
		"the target 64 processes that come back: overtakes":         true,
		"the target 256 processes that come back: overtakes":        false, // left out
	} {
		if strings.Contains(got, what) != want {
			t.Errorf("%q among the missing: %v, in\n%s", what, !want, got)
		}
	}
}

// made is a report with all figures of pairs, processes and waiters that a configuration asks for.
func made(c config) *report {
	r := &report{Machine: map[string]string{"cores": "2"}, Runs: map[string]*sectionRun{}}
	for _, s := range sections {
		r.Runs[s.name] = &sectionRun{Config: c}
	}
	of := func(k key, figures ...string) {
		for _, k.Metric = range figures {
			r.add(k, 1, 2, 3, 4, 5, 6, 7, 8)
		}
	}
	for _, o := range c.pick(everybody) {
		for _, n := range []int{1, 3, 5, 7} {
			k := key{Who: o.name, Nodes: n}
			if !o.fits(n) {
				continue
			}
			for _, k.Workers = range c.Goroutines {
				if k.Section = pairPart; slices.Contains(c.Nodes, n) {
					of(k, append(times, "allocs/pair")...)
				}
				if slices.Contains(c.EndingGoroutines, k.Workers) && n == 1 {
					of(key{Section: endingPart, Who: o.name, Nodes: 1, Workers: k.Workers},
						times...)
				}
			}
			for _, away := range c.RandomTrips {
				for _, g := range c.RandomCallers {
					of(key{Section: randomPart, Who: o.name, Nodes: n, Workers: g,
						Variant: farAway(away)}, inAPair)
				}
			}
			for _, k.Workers = range c.Waiters {
				k.Section = "contention"
				of(k, "turns/s", "p99 wait ms", "fewest/most", "commands/turn")
			}
			for _, k.Workers = range c.CrowdWaiters {
				k.Section = "crowd"
				of(k, "commands/turn")
			}
			for _, k.Workers = range c.Processes {
				for _, k.Variant = range []string{againKind, onceKind} {
					k.Section = processPart
					of(k, "turns/s", "passes/s", "commands/turn", laterCommands, "fewest/most",
						"longest wait/fair", overtakes, calledLater)
					if o.ours() {
						of(k, ofTheBound)
					}
					if c.grows(o, k.Workers) {
						of(k, overFew("turns/s"), overFew("commands/turn"), overFew(laterCommands))
					}
				}
			}
		}
	}
	for _, n := range c.Nodes {
		of(key{Section: "instant", Who: "redlock", Nodes: n, Workers: 1}, "µs/pair", "allocs/pair")
	}
	return r
}

// Turns of processes are compared with those of one bare process where it was measured. Elsewhere,
// and for nodes far away, a pair of the bare client tells how many are possible.
func TestTheBoundIsWhatOneBareProcessHas(t *testing.T) {
	r := sample()
	pairs := r.mostTurns(crewNodes, crewHold)
	if got := r.bound(crewNodes, 0); got != pairs {
		t.Errorf("the bound without a bare process is %v, want %v", got, pairs)
	}
	r.add(boundKey(crewNodes), 140, 150, 160)
	if got := r.bound(crewNodes, 0); got != 150 {
		t.Errorf("the bound beside a bare process is %v, want 150", got)
	}
	if got, want := r.bound(1, 0), r.mostTurns(1, crewHold); got != want {
		t.Errorf("the bound of one node is %v, want %v", got, want)
	}
	away := time.Millisecond
	if got, want := r.bound(crewNodes, away), r.mostTurns(crewNodes, crewHold+2*away); got != want {
		t.Errorf("the bound of nodes far away is %v, want %v", got, want)
	}
}

// What the targets need of nodes, goroutines, waiters and processes, both configurations measure.
func TestConfigurationsCoverTheTargets(t *testing.T) {
	for name, c := range map[string]config{"quick": quick, "full": full} {
		t.Run(name, func(t *testing.T) {
			missing := made(c).missing()
			for _, m := range missing {
				for _, other := range []string{"frozen", "held", "away:", "fencing", "election:",
					"hand-over"} {
					if strings.Contains(m, other) {
						m = ""
					}
				}
				if m != "" {
					t.Errorf("not measured: %s", m)
				}
			}
			all := reflect.ValueOf(c)
			for i := range all.NumField() {
				what := all.Type().Field(i).Name
				if all.Field(i).IsZero() && what != "Who" && (name == "full" ||
					what != "ProcessTime") {
					t.Errorf("%s is not said", what)
				}
			}
		})
	}
}

func TestTheRunsAreShort(t *testing.T) {
	for most, c := range map[time.Duration]config{40 * time.Minute: full, 3 * time.Minute: quick} {
		if got := c.estimate(sections); got > most {
			for _, s := range sections {
				t.Logf("%s: %v", s.name, s.about(c))
			}
			t.Errorf("it takes %v, more than %v", got, most)
		}
	}
}

// The page shows every table of what was measured, and says nothing of what was not.
func TestThePageIsWhole(t *testing.T) {
	page := made(full).page()
	for _, want := range []string{"### 1 node\n", "### 7 nodes", "redlock redigo / bare redigo",
		"redlock goredis / bare batcher", "redlock rueidis / rueidislock", laterCommands,
		"passes/s", "1000 processes, come once", "processes-commands-back", "processes-waits-once",
		"ContextTimeoutEnabled", "(2.75–6.25)", "5 nodes, 500µs away", "1 node, on loopback",
		"was called at least 20ms earlier", "They share 2 cores", "turns a second on 5 nodes"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(page, "%!") || strings.Contains(page, "NaN") {
		t.Error(page)
	}
}

func TestSectionsAreKeptOrReplacedAsAWhole(t *testing.T) {
	held := key{Section: "held", Who: we, Metric: "lost"}
	pairs := key{Section: "pairs", Who: we, Metric: "µs/pair"}
	peers := key{Section: "pairs", Who: "redislock", Metric: "µs/pair"}
	old := &report{Runs: map[string]*sectionRun{"held": {Notes: []string{"kept"}},
		"pairs": {Notes: []string{"replaced"}}},
		Machine: map[string]string{"cores": "2", "kernel": "older"}}
	old.add(held, 1)
	old.add(pairs, 1)
	old.add(peers, 1)
	old.Runs["gone"] = &sectionRun{Notes: []string{"of a section that is no more"}}
	measured := &report{Runs: map[string]*sectionRun{"pairs": {}},
		Machine: map[string]string{"cores": "2", "kernel": "newer"}}
	measured.add(pairs, 2)
	r := measured.with(old)
	if len(measured.Runs) != 1 || len(measured.Series) != 1 || len(r.Runs) != 2 {
		t.Errorf("measured %v, all %v", measured.Runs, r.Runs)
	}
	if r.median(held) != 1 || r.median(pairs) != 2 || r.find(peers) != nil {
		t.Errorf("held %v, pairs %v, of the peer %v", r.median(held), r.median(pairs),
			r.find(peers))
	}
	if page := r.page(); !strings.Contains(page, "- kept") || strings.Contains(page, "replaced") {
		t.Error("what went wrong is not that of the runs that are shown")
	}
	// Once more with another, and the first are of the machine that they were.
	r = (&report{Runs: map[string]*sectionRun{"idle": {}}, Machine: map[string]string{
		"cores": "2", "kernel": "newer", "go": "go1.26"}}).with(r)
	for what, want := range map[string]string{"cores": "2",
		"kernel": "newer (pairs, idle), older (held)",
		"go":     "unknown (pairs, held), go1.26 (idle)", "redis-server": ""} {
		if got := r.machine(what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

func TestLeastLeft(t *testing.T) {
	rl := redlock.New(sim.NewNodes(1).Instants("test")...)
	defer rl.Close()
	kept, lost := rl.NewMutex("kept"), rl.NewMutex("lost")
	if _, err := kept.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := leastLeft([]heldLock{kept}); left < 1 || left > expiry.Seconds() {
		t.Errorf("a lock that was just granted has %v s left", left)
	}
	if left := leastLeft([]heldLock{kept, lost}); left != 0 {
		t.Errorf("a lock that is not held has %v s left", left)
	}
	if left := leastLeft([]heldLock{kept, &rueidislockHeld{}}); !math.IsNaN(left) {
		t.Errorf("a lock that does not tell has %v s left", left)
	}
}

func TestChartsAreXML(t *testing.T) {
	for _, r := range []*report{sample(), {}} {
		for name, svg := range r.charts() {
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Errorf("%s has a coordinate that is not a number", name)
			}
			for d := xml.NewDecoder(strings.NewReader(svg)); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Errorf("%s: %v", name, err)
					break
				}
			}
		}
	}
}

// lesson L84: the page shows each chart that there is, and no other; an old one is removed.
func TestThereIsNoChartOfNothing(t *testing.T) {
	for name, r := range map[string]*report{"some": sample(), "nothing": {}} {
		t.Run(name, func(t *testing.T) {
			figures := filepath.Join(t.TempDir(), "figures")
			if err := os.MkdirAll(figures, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, old := range []string{"bench-waits-1.svg", "hold.svg"} {
				if err := os.WriteFile(filepath.Join(figures, old), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			page := filepath.Join(figures, "page.md")
			if err := r.docs(page, figures); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			shown := map[string]bool{}
			chart := regexp.MustCompile(`\(figures/(bench-.*?\.svg)\)`)
			for _, m := range chart.FindAllStringSubmatch(string(text), -1) {
				shown[m[1]] = true
			}
			written := map[string]bool{}
			files, err := os.ReadDir(figures)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				written[f.Name()] = true
			}
			if !written["hold.svg"] {
				t.Error("it removes charts of others")
			}
			delete(written, "hold.svg")
			delete(written, "page.md")
			if !maps.Equal(shown, written) || shown["bench-waits-1.svg"] ||
				shown["bench-goroutines.svg"] != (name == "some") {
				t.Errorf("shown %v, written %v", shown, written)
			}
		})
	}
}

// stuck is a holder that never grants a lock, whatever the context says.
type stuck struct{ closed chan struct{} }

func (s stuck) Hold(context.Context, string) (heldLock, error) {
	<-s.closed
	return nil, errors.New("closed")
}

func (stuck) Close() {}

// lesson L84
func TestAContenderThatHangsCostsItsOwnFigures(t *testing.T) {
	s := &suite{config: config{HeldWatch: time.Millisecond, HeldPatience: 20 * time.Millisecond},
		report: &report{}, now: &sectionRun{}, began: time.Now()}
	h := stuck{make(chan struct{})}
	defer close(h.closed)
	s.keepAll(h, []string{"x"}, key{Who: "stuck"})
	if len(s.now.Notes) != 1 || !strings.Contains(s.now.Notes[0],
		"stuck: hung: 1 locks were not held and released within 21ms") {
		t.Errorf("notes: %q", s.now.Notes)
	}
	if len(s.report.Series) > 0 {
		t.Errorf("figures of a contender that hung: %v", s.report.Series)
	}
}

// lesson L99: the axis begins and ends with a tick, the values lie between these two, and the
// ticks ascend.
func TestTicksEncloseTheValues(t *testing.T) {
	for _, log := range []bool{false, true} {
		for _, values := range [][]float64{{1}, {0.3, 7}, {17.6, 289}, {0.02, 12000}, {100, 1000},
			{999, 1001}} {
			t.Run(fmt.Sprint(values, log), func(t *testing.T) {
				const from, to = 10, 110
				a, ticks := valueAxis(values, log, from, to)
				if len(ticks) < 2 || len(ticks) > 9 {
					t.Fatalf("%d ticks: %v", len(ticks), ticks)
				}
				first, last := ticks[0], ticks[len(ticks)-1]
				if first > values[0] || last < values[len(values)-1] {
					t.Errorf("ticks %v", ticks)
				}
				if !log && first != 0 {
					t.Errorf("a linear axis begins at %v", first)
				}
				if a.at(first) != from || a.at(last) != to {
					t.Errorf("the first and the last of %v stand at %v and %v", ticks, a.at(first),
						a.at(last))
				}
				for i := 1; i < len(ticks); i++ {
					if ticks[i] <= ticks[i-1] || a.at(ticks[i]) <= a.at(ticks[i-1]) {
						t.Errorf("ticks %v do not ascend", ticks)
					}
				}
			})
		}
	}
}

func TestProxyDelaysRoundTripsAndCloses(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	const delay = 30 * time.Millisecond
	p, err := newProxy(echo.Addr().String(), delay)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	least := time.Hour
	for range 50 { // as many as a busy machine needs to do it in time once
		start := time.Now()
		// The second byte is sent while the first is under way: both are delayed once.
		for range 2 {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		if least = min(least, time.Since(start)); least < 2*delay {
			break
		}
	}
	if least < delay || least >= 2*delay {
		t.Errorf("a round trip took %v, want about %v", least, delay)
	}
	p.close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlived the proxy")
	}
}

// Two waiters, and a third who asks last and is served first. It overtakes the first, which was in
// the queue before, and not the second, which was not. A fourth waits for ever.
func TestJudge(t *testing.T) {
	at := func(ms int) int64 { return time.UnixMilli(int64(1000 + ms)).UnixNano() }
	half, end := time.UnixMilli(1100), time.UnixMilli(2000)
	logs := []shiftLog{
		{Turns: [][]turn{{{at(0), at(10), at(15), 0}, {at(16), at(200), at(205), at(59)},
			{at(206), at(210), at(215), 0}},
			{{at(1), at(20), at(25), at(3)}}}, CPU: time.Second},
		{Turns: [][]turn{{{at(60), at(100), at(105), at(62)}}, {{at(500), 0, 0, at(502)}}},
			CPU: time.Second, Err: "oops"},
	}
	q := judge(logs, half, end)
	if q.granted != 5 || q.fewest != 0 || q.most != 3 || q.overtakes != 1 || q.later != 1 ||
		q.overlaps != 0 || q.err != "oops" || q.clientCPU != 2*time.Second {
		t.Errorf("%+v", q)
	}
	slices.Sort(q.entries)
	if !slices.Equal(q.entries, []float64{2, 2, 2, 43}) {
		t.Errorf("in the queue after %v ms", q.entries)
	}
	if q.longest != 500*time.Millisecond || q.elapsed != 215*time.Millisecond {
		t.Errorf("longest %v, elapsed %v", q.longest, q.elapsed)
	}
	logs[0].Turns[0][1].Queued = at(60) // and the other called Lock at the same moment
	if q := judge(logs, half, end); q.overtakes != 0 || q.later != 1 {
		t.Errorf("%d overtakes, %d later callers", q.overtakes, q.later)
	}
	logs[0].Turns[0][1].Queued = at(59)
	logs[1].Turns[0][0].Asked = at(2)
	logs[1].Turns[0][0].Granted = at(22) // while the second has it
	if q := judge(logs, half, end); q.overlaps != 1 {
		t.Errorf("%d overlaps", q.overlaps)
	}
	if q.late != 3 || q.passes != 3 {
		t.Errorf("%d grants in the second half, %d to another waiter", q.late, q.passes)
	}
	q.join(judge(logs, half, end))
	if q.granted != 10 || q.most != 6 || q.overtakes != 1 || q.later != 1 || len(q.entries) != 8 {
		t.Errorf("%+v", q)
	}
}

func TestCrewOfSimulatedLockers(t *testing.T) {
	rl := func() locker {
		l := &redlockLocker{}
		l.open(sim.NewNodes(1).Instants("test"))
		return l
	}
	lockers := []locker{rl(), rl()}
	if err := warm(lockers); err != nil {
		t.Fatal(err)
	}
	for i, l := range lockers {
		lockers[i] = l.(queuer).seen().(stranger).forget()
		defer lockers[i].Close()
	}
	log := shift{Start: time.Now(), Hold: time.Millisecond, Most: time.Minute}.work(lockers)
	for i, turns := range log.Turns {
		if len(turns) != 1 || turns[0].Released-turns[0].Granted < int64(time.Millisecond) ||
			log.Err != "" {
			t.Errorf("waiter %d: %v, %s", i, turns, log.Err)
		}
	}
	log = shift{Start: time.Now(), For: 20 * time.Millisecond, Hold: time.Millisecond}.work(lockers)
	if len(log.Turns[0]) < 2 {
		t.Errorf("came back %d times", len(log.Turns[0])-1)
	}
}
