package sim_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// Where a campaign begins and how long it is. A longer one:
//
//	go test ./internal/test/sim -run 'TestSchedules$' -first 1000000 -schedules 20000 -timeout 0
var (
	first = flag.Uint64("first", 1, "first seed of each campaign")
	count = flag.Int("schedules", 0, "schedules of each campaign; 0 for as many as usual")
	times = flag.Int("times", 1, "how many times as long as usual the campaigns are, and the "+
		"comparison with real nodes")
	shrink = flag.Bool("shrink", true, "look for a smaller schedule that fails like the first "+
		"one that did")
	schedule = flag.String("schedule", "", "for TestReplay: a schedule as a failure has printed it")
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// schedules is the number of schedules of a campaign that usually has n.
func schedules(n int) int { return cmp.Or(*count, n**times) }

// report is what a campaign has seen.
type report struct {
	mu        sync.Mutex
	states    map[string]int // interesting states that were reached
	broken    map[string]int // invariants that were broken although they may be
	schedules int
	least     int // fewer may not reach everything
	grants    int
	waited    time.Duration
}

// campaign runs n schedules, or as many as the flags say, beside each other. An invariant that is
// broken in one of them fails the test, unless mayBreak is true of it.
func campaign(t *testing.T, n int, draw func(seed uint64) setup,
	mayBreak func(invariant string) bool) *report {
	r := &report{states: make(map[string]int), broken: make(map[string]int), least: n}
	begun := time.Now()
	seeds(t, schedules(n), func(t *testing.T, seed uint64) {
		r.add(t, run(t, draw(seed), false), mayBreak)
	})
	took := time.Since(begun)
	t.Logf("%d schedules in %v (%.0f/s), %d grants", r.schedules, took.Round(time.Millisecond),
		float64(r.schedules)/took.Seconds(), r.grants)
	for _, list := range []map[string]int{r.states, r.broken} {
		for _, k := range slices.Sorted(maps.Keys(list)) {
			t.Logf("%8d %s", list[k], k)
		}
	}
	return r
}

// seeds calls f with n seeds from the first, beside each other, until a shard has failed.
func seeds(t *testing.T, n int, f func(t *testing.T, seed uint64)) {
	var next atomic.Uint64
	var failed atomic.Bool // in any shard
	t.Run("shards", func(t *testing.T) {
		for shard := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				defer func() { failed.CompareAndSwap(false, t.Failed()) }()
				for i := next.Add(1) - 1; i < uint64(n) && !failed.Load(); i = next.Add(1) - 1 {
					f(t, *first+i)
				}
			})
		}
	})
}

func (r *report) add(t *testing.T, h *history, mayBreak func(string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedules++
	r.grants += h.grants
	r.waited = max(r.waited, h.waited)
	r.states[fmt.Sprintf("N = %d", h.Nodes)]++
	for k, v := range h.sometimes {
		r.states[k] += v
	}
	bad := h.violations
	if mayBreak != nil {
		bad = nil
		// A resource that compares tokens is as good as their order.
		disorder := slices.ContainsFunc(h.violations, func(v violation) bool {
			return v.invariant == "I3 token order"
		})
		for _, v := range h.violations {
			if mayBreak(v.invariant) || disorder && v.invariant == "I4 fenced resource" {
				r.broken[v.invariant]++
				if h.guarded() {
					r.broken[v.invariant+despiteTheGuard]++
				}
			} else {
				bad = append(bad, v)
			}
		}
	}
	if len(bad) > 0 {
		small := h.setup
		if *shrink {
			small = minimise(t, h.setup, bad[0].invariant)
		}
		t.Fatalf("%d violations in\n\t%s\n%ssmaller: go test ./internal/test/sim -v "+
			"-run TestReplay -schedule '%s'",
			len(bad), h.setup, some(bad), small)
	}
}

// saw requires that a campaign has reached what makes it worth running, unless it was cut short.
func (r *report) saw(t *testing.T, states ...string) {
	t.Helper()
	for _, s := range states {
		if r.schedules >= r.least {
			assert.NotZero(t, r.states[s], "the campaign has not reached: %s", s)
		}
	}
}

// sawStrike requires that faults of each of these classes, which befall single commands, have
// done so.
func (r *report) sawStrike(t *testing.T, f faults) {
	t.Helper()
	for i := range faultNames {
		if f&(1<<i) != 0 {
			r.saw(t, "struck by "+faults(1<<i).String())
		}
	}
}

func some(violations []violation) string {
	var b strings.Builder
	for _, v := range violations[:min(5, len(violations))] {
		fmt.Fprintln(&b, v)
	}
	return b.String()
}

// minimise looks for a smaller schedule that breaks the same invariant: fewer fault classes,
// clients, workers and cycles.
func minimise(t *testing.T, s setup, invariant string) setup {
	breaks := func(s setup) bool {
		return slices.ContainsFunc(run(t, s, false).violations,
			func(v violation) bool { return v.invariant == invariant })
	}
	for smaller := true; smaller; {
		smaller = false
		var tries []setup
		for i := range faultNames {
			if s.has(1 << i) {
				less := s
				less.Faults &^= 1 << i
				tries = append(tries, less)
			}
		}
		for _, n := range []func(*setup) *int{
			func(s *setup) *int { return &s.Cycles },
			func(s *setup) *int { return &s.Clients },
			func(s *setup) *int { return &s.Workers },
		} {
			less := s
			if *n(&less)--; *n(&less) > 0 {
				tries = append(tries, less)
			}
		}
		for _, less := range tries {
			if breaks(less) {
				s, smaller = less, true
				break
			}
		}
	}
	return s
}

const inModel = (lastFault - 1) &^ outOfModel

// Faults that Redlock is made for break nothing.
func TestSchedules(t *testing.T) {
	r := campaign(t, 60, func(seed uint64) setup { return newSetup(seed, inModel) }, nil)
	r.saw(t, usual...)
	r.saw(t, "split vote", "N = 1", "N = 2", "N = 3", "N = 4", "N = 5", "N = 6", "N = 7")
	r.sawStrike(t, strikes)
	if r.schedules >= 2000 {
		r.saw(t, "attempt expired", "stale write refused", "lost update without fencing",
			"lost update without a claim")
	}
}

// strikes are the fault classes that befall commands.
const strikes = slow | late | lostRequest | lostReply | duplicate | partition | failing | deaf |
	mute

// usual is what every campaign of all faults in the model reaches.
var usual = []string{
	"Lock", "TryLock", "Hold", "taken", "no quorum", "cancelled", "zombie SET", "heal",
	"raise round",
	"restart guard refused", "node %d freezes", "node %d crashes", "node %d loses its data",
	"abandoned", "paused", "suspended",
	"extended", "renewed", "extend after the end", "extend without a quorum",
	"unlock after the end", "unlock without a quorum",
	"lost", "announcement",
}

// Many more schedules that are as small as can be: two clients on three nodes that want the lock
// once.
func TestSchedulesInShort(t *testing.T) {
	r := campaign(t, 500, func(seed uint64) setup {
		s := newSetup(seed, inModel)
		s.Nodes, s.Clients, s.Workers, s.Cycles = 3, 2, 1, 1
		if s.nodeTimeout() == s.expiry() {
			s.Faults, s.Few = s.Faults|slow, false // votes that are won too late
		}
		return s
	}, nil)
	r.saw(t, usual...)
	r.saw(t, "attempt expired")
	r.sawStrike(t, strikes)
}

// Readers share a lock, and writers have it alone. Two of three schedules are as small as can be.
func TestSchedulesOfReaders(t *testing.T) {
	r := campaign(t, 180, func(seed uint64) setup {
		s := newSetup(seed, inModel)
		s.Shared = true
		if seed%3 > 0 {
			s.Nodes, s.Clients, s.Workers, s.Cycles = 3, 2+int(seed%2), 1, 1
		}
		return s
	}, nil)
	r.saw(t, usual...)
	r.saw(t, "readers together", "reader refused by a queue", "reader admitted", "last reader")
	r.sawStrike(t, strikes)
}

// Readers that use a lease to its last nanosecond.
func TestSchedulesOfReadersAtTheEdge(t *testing.T) {
	r := campaign(t, 12, func(seed uint64) setup {
		s := newSetup(seed, rates|skew|slow|lostReply)
		s.Edge, s.Few, s.Cycles, s.Workers, s.Shared = true, false, 2, 1, true
		s.Clients, s.Nodes = min(s.Clients, 3), min(s.Nodes, 5)
		s.Faults |= rates
		return s
	}, nil)
	r.saw(t, "held to the last nanosecond", "readers together")
}

// Owners that use a lease to its last nanosecond, while others try every millisecond and the clocks
// run apart as far as the drift allows.
func TestSchedulesAtTheEdge(t *testing.T) {
	r := campaign(t, 12, func(seed uint64) setup {
		s := newSetup(seed, rates|skew|slow|lostReply)
		s.Edge, s.Few, s.Cycles, s.Workers = true, false, 2, 1
		s.Clients, s.Nodes = min(s.Clients, 3), min(s.Nodes, 5)
		s.Faults |= rates
		return s
	}, nil)
	r.saw(t, "held to the last nanosecond")
}

// Faults that break mutual exclusion, by the nature of Redlock, break it and nothing else. A
// campaign in which they do not is not worth much.
func TestSchedulesOutOfTheModel(t *testing.T) {
	refused, lost, late, enough := 0, 0, 0, true
	for _, tt := range []struct {
		fault  faults
		with   faults
		breaks []string
	}{
		{lossNow, skew, []string{"I1 mutual exclusion", "I2 quorum", "I3 token order"}},
		{flush, skew | loss, []string{"I1 mutual exclusion", "I2 quorum", "I3 token order",
			"I1 mutual exclusion" + despiteTheGuard}},
		{jump, 0, []string{"I1 mutual exclusion", "I2 quorum"}},
		{fast, 0, []string{"I1 mutual exclusion", "I2 quorum"}},
		{lagging, 0, []string{"I1 mutual exclusion", "I2 quorum"}},
	} {
		t.Run(tt.fault.String(), func(t *testing.T) {
			r := campaign(t, 40, func(seed uint64) setup {
				s := newSetup(seed, inModel)
				s.Faults |= tt.fault | tt.with
				if tt.fault == lagging {
					s.Faults &^= loss // without the counters, tokens rest on the clocks
				}
				s.Few = false
				return s
			}, func(invariant string) bool { return slices.Contains(tt.breaks, invariant) })
			refused += r.states["stale claim refused"] + r.states["stale write refused"]
			lost += r.states["lost update without fencing"]
			late += r.states["lost update without a claim"]
			if enough = enough && r.schedules >= r.least; enough {
				for _, invariant := range tt.breaks {
					assert.NotZero(t, r.broken[invariant], "never broken: %s", invariant)
				}
			}
		})
	}
	if enough {
		assert.NotZero(t, refused, "a token")
		assert.NotZero(t, lost, "an update for want of a token")
		assert.NotZero(t, late, "an update for want of a claim") // lesson L72
	}
}

// despiteTheGuard marks what was broken in a schedule with WithRestartGuard.
const despiteTheGuard = " despite the guard"

// TestRegressions replays the schedules that have found something.
func TestRegressions(t *testing.T) {
	text, err := os.ReadFile("testdata/schedules.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		s, err := parseSetup(line)
		require.NoError(t, err)
		require.Equal(t, line, s.String())
		h := run(t, s, false)
		require.Empty(t, h.violations, "%s\n%s", s, some(h.violations))
	}
}

// A schedule is worth something only if it can be replayed. Two things are left out, because they
// make events of the library's own fall on the same nanosecond, after which either order is
// right: clients that do not look at the context, so that its timers for several nodes end
// together; and two workers in a process that wake each other.
func TestReplaysAreIdentical(t *testing.T) {
	again := func(seed uint64, times int) {
		s := newSetup(seed, (lastFault-1)&^deaf)
		s.Workers = 1
		first := run(t, s, true)
		for range times {
			if only := difference(first.lines, run(t, s, true).lines); only != "" {
				t.Fatalf("%s: the traces differ: %s", s, only)
			}
		}
	}
	for i := range uint64(schedules(4)) {
		again(*first+i, 1)
	}
	again(3000082, 6) // a waiter was woken while another of its channels was ready
	again(3000116, 2) // two answers came at the same nanosecond
	again(3200484, 2) // so they did here
	again(2000039, 6) // the same release was sent twice at the same nanosecond
}

// difference returns the first line of each trace that the other has not, or "".
func difference(a, b []string) string {
	in := make(map[string]int)
	for _, l := range a {
		in[l]++
	}
	for _, l := range b {
		in[l]--
	}
	only := func(lines []string) string {
		i := slices.IndexFunc(lines, func(l string) bool { return in[l] != 0 })
		if i < 0 {
			return "nothing"
		}
		return lines[i]
	}
	if in := only(a) + " | " + only(b); in != "nothing | nothing" {
		return in
	}
	return ""
}

// TestReplay runs one schedule, prints everything that happens, and draws it.
func TestReplay(t *testing.T) {
	if *schedule == "" {
		t.Skip("needs -schedule")
	}
	s, err := parseSetup(*schedule)
	require.NoError(t, err)
	h := run(t, s, true)
	t.Log("\n" + strings.Join(h.lines, "\n"))
	h.save(t)
	require.Empty(t, h.violations, some(h.violations))
}
