package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// config says how much is measured.
type config struct {
	Rounds     int           // of every comparison; the contenders take turns in each
	Slice      time.Duration // one contender's turn in pairs, fencing and frozen
	Nodes      []int
	Goroutines []int

	FencingCalls int // of each contender in one round

	ContentionRounds int
	Contention       time.Duration // one contender's turn
	Waiters          []int
	CrowdWaiters     []int // where only commands per acquisition are of interest
	HandOvers        int
	Resigns, Kills   int // of leaders, in each contender's election
	IdleWaiters      int
	IdleWatch        time.Duration // less than two thirds of the expiry

	Processes     []int // how many share a lock
	ProcessRounds int
	ProcessSlice  time.Duration // one contender's turn

	FrozenPatience time.Duration // how long one Lock and Unlock may take
	FrozenWatch    time.Duration // of memory

	Latencies    []time.Duration
	LatencyOps   int
	HeldReal     []int
	HeldSim      []int
	HeldWatch    time.Duration
	HeldPatience time.Duration // how long holding and releasing them may take beside
	SampleEvery  time.Duration

	Who []string `json:"-"` // the contenders that take part; all if empty
}

var full = config{
	Rounds: 5, Slice: time.Second, Nodes: []int{1, 3, 5, 7}, Goroutines: []int{1, 8, 64, 256},
	FencingCalls:     2000,
	ContentionRounds: 3, Contention: 20 * time.Second, Waiters: []int{16, 64},
	CrowdWaiters: []int{4, 16, 64, 256, 1000}, HandOvers: 100, Resigns: 100, Kills: 20,
	IdleWaiters: 1000,
	IdleWatch:   5 * time.Second,
	Processes:   []int{1, 4, 16, 64, 256, 1000}, ProcessRounds: 3, ProcessSlice: 6 * time.Second,
	FrozenPatience: 12 * time.Second, FrozenWatch: 60 * time.Second, SampleEvery: 2 * time.Second,
	Latencies: []time.Duration{time.Millisecond, 20 * time.Millisecond}, LatencyOps: 40,
	HeldReal: []int{1000, 3000, 10000}, HeldSim: []int{1000, 10000, 100000},
	HeldWatch: 30 * time.Second, HeldPatience: 5 * time.Minute,
}

// quick shows that everything works. Its figures are not worth quoting.
var quick = config{
	Rounds: 2, Slice: 50 * time.Millisecond, Nodes: []int{1, 5}, Goroutines: []int{1, 64},
	FencingCalls:     50,
	ContentionRounds: 1, Contention: 400 * time.Millisecond, Waiters: []int{16, 64},
	CrowdWaiters: []int{4, 1000}, HandOvers: 1, Resigns: 2, Kills: 1, IdleWaiters: 100,
	IdleWatch: 100 * time.Millisecond,
	Processes: []int{1, 16}, ProcessRounds: 1, ProcessSlice: 500 * time.Millisecond,
	FrozenPatience: 300 * time.Millisecond, FrozenWatch: 600 * time.Millisecond,
	SampleEvery: 100 * time.Millisecond,
	Latencies:   []time.Duration{time.Millisecond, 20 * time.Millisecond}, LatencyOps: 1,
	HeldReal: []int{1000}, HeldSim: []int{1000, 10000}, HeldWatch: 300 * time.Millisecond,
	HeldPatience: 30 * time.Second,
}

const mostNodes = 7

// suite is one run of the program.
type suite struct {
	config
	report  *report
	now     *sectionRun         // the section that is being measured
	servers []*redistest.Server // mostNodes of them
	etcd    *etcd               // nil before somebody needs it
	scope   *scope
	began   time.Time
}

// section is one kind of measurement.
type section struct {
	name string
	run  func(*suite)
}

var sections = []section{
	{"pairs", (*suite).pairs},
	{"fencing", (*suite).fencing},
	{"instant", (*suite).instant},
	{"contention", (*suite).contention},
	{"crowd", (*suite).crowd},
	{processPart, (*suite).processes},
	{"handover", (*suite).handOver},
	{electionPart, (*suite).election},
	{"idle", (*suite).idle},
	{"frozen", (*suite).frozen},
	{"latency", (*suite).latency},
	{"held", (*suite).held},
}

// say shows progress.
func (s *suite) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(s.began).Seconds(),
		fmt.Sprintf(format, args...))
}

// warn keeps what went wrong for the report. A contender that fails does not stop the others.
func (s *suite) warn(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.say("! %s", line)
	s.now.Notes = append(s.now.Notes, line)
}

// entrant is a contender that takes part, with the lockers it opened.
type entrant struct {
	*contender
	lockers []locker
}

// enter opens clients lockers for each of the contenders that can lock on n nodes, on empty
// servers.
func (s *suite) enter(cs []*contender, addrs []string, clients int) []*entrant {
	s.flush()
	var in []*entrant
	for _, c := range cs {
		if !c.fits(len(addrs)) {
			continue
		}
		e := &entrant{contender: c}
		for range clients {
			l, err := c.open(addrs)
			if err != nil {
				s.warn("%s on %d nodes: %v", c.name, len(addrs), err)
				e.leave()
				e = nil
				break
			}
			e.lockers = append(e.lockers, l)
		}
		if e != nil {
			in = append(in, e)
		}
	}
	return in
}

func (s *suite) flush() {
	for _, srv := range s.servers {
		srv.Must("FLUSHALL")
	}
}

func (e *entrant) leave() {
	for _, l := range e.lockers {
		l.Close()
	}
}

func leave(in []*entrant) {
	for _, e := range in {
		e.leave()
	}
}

// turns calls f for every entrant in each of the rounds. Every round begins with another entrant,
// so that none always follows the same one.
func turns(in []*entrant, rounds int, f func(e *entrant)) {
	for r := range rounds {
		for i := range in {
			f(in[(i+r)%len(in)])
		}
	}
}

// pick returns the contenders that take part and are ok.
func (s *suite) pick(ok func(*contender) bool) []*contender {
	return slices.DeleteFunc(slices.Clone(roster), func(c *contender) bool {
		return !ok(c) || len(s.Who) > 0 && !slices.Contains(s.Who, c.name)
	})
}

func list(in []*entrant) string {
	var b strings.Builder
	for i, e := range in {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(e.name)
	}
	return b.String()
}

func everybody(c *contender) bool { return !c.fenced && !c.etcd }
func waiting(c *contender) bool   { return everybody(c) && !c.noWaiter }
