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
	"testing"
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

// sample is a report of a run in which redlock is twice as fast as one peer and slower than
// another.
func sample() *report {
	r := &report{Machine: map[string]string{}}
	for _, n := range []int{1, 5} {
		for _, g := range []int{1, 64} {
			k := perPair(n, g)
			for who, v := range map[string]float64{we: 10, "redsync goredis": 20,
				"redsync rueidis": 8, "bare go-redis": 1} {
				k.Who = who
				r.add(k, v, v+2, v+1)
			}
		}
	}
	return r
}

func TestBestIsAmongThePeers(t *testing.T) {
	if who, v := sample().best(perPair(5, 64)); who != "redsync rueidis" || v != 9 {
		t.Errorf("best is %s with %v", who, v)
	}
}

func TestTargets(t *testing.T) {
	r := sample()
	for _, target := range targets {
		v := target.figure(r)
		switch target.what {
		case "5 nodes, 64 goroutines: time per pair / redsync goredis":
			if math.Abs(v-11.0/21) > 1e-9 || target.ok(v) {
				t.Errorf("%s: %v, ok %v", target.what, v, target.ok(v))
			}
		case "1 node, 1 goroutine: time per pair / redsync goredis":
			if !target.ok(v) {
				t.Errorf("%s: %v is not ok", target.what, v)
			}
		case "hand-over, 5 nodes: median ms":
			if !math.IsNaN(v) || target.ok(v) {
				t.Errorf("%s was not measured, and is %v, ok %v", target.what, v, target.ok(v))
			}
		}
	}
}

// Who takes part in a run is not who the report may speak of.
func TestPageTellsWhereAPeerIsBetter(t *testing.T) {
	var c config
	if err := choose(we, &c); err != nil {
		t.Fatal(err)
	}
	page := sample().page()
	if !strings.Contains(page, "over the best peer: 1.22 × redsync rueidis") {
		t.Error("no ratio to the best peer")
	}
	_, beaten, _ := strings.Cut(page, "## Where a peer is better")
	if !strings.Contains(beaten, "redsync rueidis") ||
		strings.Contains(beaten, "redsync goredis") || strings.Contains(beaten, "bare go-redis") {
		t.Error(beaten)
	}
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
	if in := (&suite{}).pick(everybody); len(in) != len(roster)-2 {
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
	got := strings.Join(r.missing(), "\n")
	for what, want := range map[string]bool{
		"lock and unlock of any peer on 5 nodes with 8 goroutines":                true,
		"lock and unlock of any peer on 5 nodes with 64 goroutines":               false,
		"the target hand-over, 5 nodes: median ms":                                true,
		"the target 5 nodes, 64 goroutines: time per pair / redsync goredis":      false,
		"the target most held locks on 5 simulated nodes: bytes of heap per lock": true,
	} {
		if strings.Contains(got, what) != want {
			t.Errorf("%q among the missing: %v, in\n%s", what, !want, got)
		}
	}
}

func TestSectionsAreKeptOrReplacedAsAWhole(t *testing.T) {
	held := key{Section: "held", Who: we, Metric: "lost"}
	pairs := key{Section: "pairs", Who: we, Metric: "µs/pair"}
	peers := key{Section: "pairs", Who: "redislock", Metric: "µs/pair"}
	old := &report{Runs: map[string]*sectionRun{"held": {Notes: []string{"kept"}},
		"pairs": {Notes: []string{"replaced"}}}}
	old.add(held, 1)
	old.add(pairs, 1)
	old.add(peers, 1)
	r := &report{Runs: map[string]*sectionRun{"pairs": {}}}
	r.add(pairs, 2)
	r.keep(old)
	if r.median(held) != 1 || r.median(pairs) != 2 || r.find(peers) != nil {
		t.Errorf("held %v, pairs %v, of the peer %v", r.median(held), r.median(pairs),
			r.find(peers))
	}
	if page := r.page(); !strings.Contains(page, "- kept") || strings.Contains(page, "replaced") {
		t.Error("what went wrong is not that of the runs that are shown")
	}
}

// Bare is a floor only for one caller on one node.
func TestTargetsBelowTheFloor(t *testing.T) {
	r := sample()
	for _, g := range []int{1, 64} {
		k := perPair(1, g)
		for who, v := range map[string]float64{"redislock": 1, "rueidislock": 1} {
			k.Who = who
			r.add(k, v)
		}
	}
	const want = `"1 node, 1 goroutine: time per pair / redislock" asks for 0.8, ` +
		`and bare go-redis is at 2`
	if got := r.outOfReach(); got != want {
		t.Errorf("out of reach: %s", got)
	}
	if !strings.Contains(r.page(), want) {
		t.Error("the page does not say so")
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

// Two waiters, and a third who asks last and is served first: that is an overtaking. A fourth
// waits for ever.
func TestJudge(t *testing.T) {
	at := func(ms int) int64 { return time.UnixMilli(int64(1000 + ms)).UnixNano() }
	end := time.UnixMilli(2000)
	logs := []shiftLog{
		{Turns: [][]turn{{{at(0), at(10), at(15)}, {at(16), at(200), at(205)}},
			{{at(1), at(20), at(25)}}}, CPU: time.Second},
		{Turns: [][]turn{{{at(60), at(100), at(105)}}, {{at(500), 0, 0}}}, CPU: time.Second,
			Err: "oops"},
	}
	q := judge(logs, end)
	if q.granted != 4 || q.fewest != 0 || q.most != 2 || q.overtakes != 1 || q.overlaps != 0 ||
		q.err != "oops" || q.clientCPU != 2*time.Second {
		t.Errorf("%+v", q)
	}
	if q.longest != 500*time.Millisecond || q.elapsed != 205*time.Millisecond {
		t.Errorf("longest %v, elapsed %v", q.longest, q.elapsed)
	}
	logs[1].Turns[0][0].Granted = at(22) // while the second has it
	if q := judge(logs, end); q.overlaps != 1 {
		t.Errorf("%d overlaps", q.overlaps)
	}
	q.join(judge(logs, end))
	if q.granted != 8 || q.most != 4 || q.overtakes != 1 {
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
