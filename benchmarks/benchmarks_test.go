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
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

func TestRatiosAreThoseOfOneRound(t *testing.T) {
	r, k := &report{}, pairOn(1, 1, perPair)
	mine, theirs := k, k
	mine.Who, theirs.Who = we, "redsync goredis"
	// The machine is slower from round to round, and redlock is behind in none of them. The
	// quotient of the medians would be 2.
	r.put(mine, mine.Metric, 1, 10, 100)
	r.put(theirs, theirs.Metric, 2, 5, 200, 400)
	if got := r.ratios(k, we, "redsync goredis"); fmt.Sprint(got) != "[0.5 2 0.5]" {
		t.Errorf("ratios %v", got)
	}
	if got := r.ratios(k, we, "redislock"); got != nil {
		t.Errorf("ratios to one that was not measured: %v", got)
	}
	if got := spread([]float64{1, 2, 3, 4, 5}); got != "3 (2–4)" {
		t.Errorf("a spread of %s", got)
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
	if c.Who = "^redislock|" + bare; len(c.pick(waiting)) != 1 {
		t.Errorf("%d take part, want redislock", len(c.pick(waiting)))
	}
	if in := (config{}).pick(everybody); len(in) != len(roster)-2 {
		t.Errorf("%d of %d take part", len(in), len(roster))
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

// stuck is a holder that never grants a lock, whatever the context says.
type stuck struct{ closed chan struct{} }

func (s stuck) Hold(context.Context, string) (func() error, error) {
	<-s.closed
	return nil, errors.New("closed")
}

func (stuck) Close() {}

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
	p := newProxy(echo.Addr().String(), delay)
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

// sample is a report of a run in which redlock on go-redis is always twice as fast as a peer, and
// redlock on rueidis always slower than one, although each round is slower than the one before.
func sample() *report {
	r := &report{}
	for _, n := range []int{1, 5} {
		for _, g := range []int{1, 64} {
			for _, metric := range times {
				k := pairOn(n, g, metric)
				for who, v := range map[string]float64{we: 10, "redsync goredis": 20, bare: 5,
					onTheRueidis: 8, "redsync rueidis": 6, "rueidislock": 6} {
					if k.Who = who; contenderNamed(who).fits(n) {
						r.put(k, k.Metric, v, 3*v, 9*v, 27*v)
					}
				}
			}
		}
	}
	return r
}

// Redlock is compared with the peers on the same client, time and processor time. What peers do on
// another client, and the bare one, is not compared.
func TestPageTellsWhereAPeerIsBetter(t *testing.T) {
	r := sample()
	k := pairOn(5, 8, perPair)
	for who, v := range map[string]float64{we: 10, "redsync goredis": 9.8} {
		k.Who = who
		r.put(k, k.Metric, v)
	}
	idle := key{Section: idlePart, Nodes: 1, Workers: 10, Metric: busy}
	for who, v := range map[string]float64{we: 10, "rueidislock": 1, "redislock": 2,
		"redsync goredis": 9.8, bare: 1} {
		idle.Who = who
		r.put(idle, idle.Metric, v)
	}
	page, err := r.page()
	if err != nil {
		t.Fatal(err)
	}
	_, beaten, _ := strings.Cut(page, "## Where a peer is better")
	// 2 peers on 1 node and 1 on 5, for 1 and 64 goroutines, time and processor time.
	for _, want := range []string{"12 of 21 comparisons",
		"- pairs, redsync rueidis, µs/pair: 1/1 1.33; 1/64 1.33; 5/1 1.33; ",
		"- pairs, rueidislock, CPU µs/pair: 1/1 1.33; 1/64 1.33\n",
		"- idle, redislock, CPU %: 1/10 5\n"} {
		if !strings.Contains(beaten, want) {
			t.Errorf("no %q in %s", want, beaten)
		}
	}
	if got := len(r.better()); got != 5 {
		t.Errorf("%d lines in %s", got, beaten)
	}
	r = &report{}
	k = key{Section: processPart, Nodes: 5, Metric: perSecond}
	for who, v := range map[string]float64{we: 10, "redsync goredis": 20} {
		k.Who = who
		r.put(k, k.Metric, v)
	}
	if got := r.better(); len(got) != 1 || !strings.HasSuffix(got[0], ": 0 2") {
		t.Errorf("of more turns: %q", got)
	}
}

// What the page promises and a run leaves out is named. The figures that are there have it all.
func TestHolesAreNamed(t *testing.T) {
	got := strings.Join(sample().missing(), "\n")
	for what, want := range map[string]bool{
		"5 nodes, 64 callers: µs for Lock and Unlock": false,
		"– µs of processor time":                      false,
		"hand-over: ms":                               true,
	} {
		if strings.Contains(got, what) != want {
			t.Errorf("%q among the missing: %v, in\n%s", what, !want, got)
		}
	}
	r, err := load("results.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.missing(); got != nil {
		t.Errorf("results.json lacks %q", got)
	}
}

// The pages are those of the figures that are kept beside them.
func TestThePagesAreUpToDate(t *testing.T) {
	r, err := load("results.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := r.page()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"../docs/benchmarks.md": page,
		"tables.md": r.tablePage()} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what go run . -docs writes: %v", file, err)
		}
	}
	for what, most := range map[string]int{page: 1500, page + r.tablePage(): 2400} {
		if got := len(strings.Fields(what)); got > most {
			t.Errorf("%d words, more than %d", got, most)
		}
	}
	if strings.Contains(page, "%!") || strings.Contains(page, "NaN") {
		t.Error(page)
	}
}

func TestSectionsAreKeptOrReplacedAsAWhole(t *testing.T) {
	held := key{Section: heldPart, Who: we, Metric: busy}
	pairs := key{Section: pairPart, Who: we, Metric: perPair}
	peers := key{Section: pairPart, Who: "redislock", Metric: perPair}
	on := func(kernel string) map[string]string {
		return map[string]string{"cores": "2", "kernel": kernel}
	}
	old := &report{Runs: map[string]*sectionRun{
		heldPart: {Notes: []string{"kept"}, Machine: on("older")},
		pairPart: {Notes: []string{"replaced"}, Machine: on("older")}}}
	old.put(held, held.Metric, 1)
	old.put(pairs, pairs.Metric, 1)
	old.put(peers, peers.Metric, 1)
	old.Runs["gone"] = &sectionRun{Notes: []string{"of a section that is no more"}}
	measured := &report{Runs: map[string]*sectionRun{pairPart: {Machine: on("newer")}}}
	measured.put(pairs, pairs.Metric, 2)
	r := measured.with(old)
	if len(measured.Runs) != 1 || len(measured.Series) != 1 || len(r.Runs) != 2 {
		t.Errorf("measured %v, all %v", measured.Runs, r.Runs)
	}
	if r.median(held) != 1 || r.median(pairs) != 2 || r.find(peers) != nil {
		t.Errorf("held %v, pairs %v, of the peer %v", r.median(held), r.median(pairs),
			r.find(peers))
	}
	page, err := r.page()
	if err != nil || !strings.Contains(page, "- kept") || strings.Contains(page, "replaced") {
		t.Errorf("what went wrong is not that of the runs that are shown: %v", err)
	}
	// Once more with another, and the first are of the machine that they were.
	r = (&report{Runs: map[string]*sectionRun{idlePart: {Machine: on("newest")}}}).with(r)
	for what, want := range map[string]string{"cores": "2", "kernel": "newer, newest, older"} {
		if got := r.machine(what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

// lesson L84: the page shows each chart that there is, and no other; an old one is removed.
func TestThereIsNoChartOfNothing(t *testing.T) {
	for name, r := range map[string]*report{"some": sample(), "nothing": {}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			figures := filepath.Join(dir, "figures")
			if err := os.MkdirAll(figures, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, old := range []string{"bench-waits-1.svg", "hold.svg"} {
				if err := os.WriteFile(filepath.Join(figures, old), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.docs(dir, filepath.Join(dir, "tables.md")); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
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
			if !maps.Equal(shown, written) || shown["bench-waits-1.svg"] ||
				shown["bench-goroutines.svg"] != (name == "some") {
				t.Errorf("shown %v, written %v", shown, written)
			}
		})
	}
}

// lesson L84
func TestAContenderThatHangsCostsItsOwnFigures(t *testing.T) {
	s := &suite{config: config{HeldWatch: time.Millisecond, HeldPatience: 20 * time.Millisecond},
		report: &report{}, now: &sectionRun{}, began: time.Now()}
	h := stuck{make(chan struct{})}
	defer close(h.closed)
	s.keepAll(h, 1, key{Who: "stuck"})
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
	for _, values := range [][]float64{{1}, {0.3, 7}, {17.6, 289}, {0.02, 12000}, {100, 1000},
		{999, 1001}} {
		const from, to = 10, 110
		a, ticks := valueAxis(values, from, to)
		if len(ticks) < 2 || len(ticks) > 9 {
			t.Fatalf("%v: %d ticks: %v", values, len(ticks), ticks)
		}
		first, last := ticks[0], ticks[len(ticks)-1]
		if first > values[0] || last < values[len(values)-1] {
			t.Errorf("%v: ticks %v", values, ticks)
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
	}
}

// Three waiters have the lock in turn, the first of them twice in a row, and a fourth waits until
// the end.
func TestJudge(t *testing.T) {
	at := func(ms int) int64 { return time.UnixMilli(int64(1000 + ms)).UnixNano() }
	end := time.UnixMilli(2000)
	logs := []shiftLog{
		{Turns: [][]turn{{{at(0), at(10), at(15)}, {at(16), at(200), at(205)},
			{at(206), at(210), at(215)}}, {{at(1), at(20), at(25)}}}, CPU: time.Second},
		{Turns: [][]turn{{{at(60), at(100), at(105)}}, {{at(500), 0, 0}}},
			CPU: time.Second, Err: "oops"},
	}
	q := judge(logs, end)
	if q.granted != 5 || q.overlaps != 0 || q.err != "oops" || q.clientCPU != 2*time.Second {
		t.Errorf("%+v", q)
	}
	if q.longest != 500*time.Millisecond || q.elapsed != 215*time.Millisecond {
		t.Errorf("longest %v, elapsed %v", q.longest, q.elapsed)
	}
	logs[0].Turns[1][0].Granted = at(15) // when the first has released it
	if q := judge(logs, end); q.overlaps != 0 {
		t.Errorf("%d overlaps", q.overlaps)
	}
	logs[1].Turns[0][0].Granted = at(22) // while the second has it
	if q := judge(logs, end); q.overlaps != 1 {
		t.Errorf("%d overlaps", q.overlaps)
	}
	q.join(judge(logs, end))
	if q.granted != 10 || q.overlaps != 1 {
		t.Errorf("%+v", q)
	}
}

func TestCrewOfSimulatedLockers(t *testing.T) {
	rl := func() locker {
		return (&redlockLocker{pools: sim.NewNodes(1).Instants("test")}).forget()
	}
	lockers := []locker{rl(), rl()}
	if err := warm(lockers); err != nil {
		t.Fatal(err)
	}
	for i, l := range lockers {
		lockers[i] = l.(stranger).forget()
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
