package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

const mostNodes = 5

// suite is one run of the program.
type suite struct {
	config
	report  *report
	now     *sectionRun         // the section that is being measured
	servers []*redistest.Server // mostNodes of them
	scope   *scope
	began   time.Time
	out     map[key]bool // contenders that have failed in a race of pairs, without a metric
}

// section is one kind of measurement.
type section struct {
	name    string
	run     func(*suite)
	paired  bool     // in many rounds of short slices, whose ratios are shown
	own     bool     // contenders have different numbers of nodes
	metrics []string // that tables show
}

var sections = []section{
	{name: pairPart, run: (*suite).pairs, paired: true, metrics: append(times, allocs)},
	{name: endingPart, run: (*suite).ending, paired: true, metrics: times},
	{name: randomPart, run: (*suite).random, paired: true, metrics: []string{inAPair}},
	{name: fencePart, run: (*suite).fencing, metrics: times},
	{name: processPart, run: (*suite).processes, own: true, metrics: []string{perSecond, passes,
		perTurn, fewestMost, longestWait, clientCPU}},
	{name: handOverPart, run: (*suite).handOver, metrics: []string{"ms"}},
	{name: electionPart, run: (*suite).election, own: true,
		metrics: []string{afterResign, afterKill}},
	{name: idlePart, run: (*suite).idle, metrics: []string{busy, "commands/s"}},
	{name: frozenPart, run: (*suite).frozen, metrics: []string{pairsPerSecond, onePair}},
	{name: heldPart, run: (*suite).held, own: true, metrics: []string{bytesPerLock,
		goroutinesPerLock, busy, lostLocks}},
}

// sectionNamed returns a section, or nil.
func sectionNamed(name string) *section {
	for i := range sections {
		if sections[i].name == name {
			return &sections[i]
		}
	}
	return nil
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
	left    sync.Once
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
			l, err := c.open(addrs, expiry)
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

// leave closes the lockers, once.
func (e *entrant) leave() {
	e.left.Do(func() {
		for _, l := range e.lockers {
			l.Close()
		}
	})
}

func leave(in []*entrant) {
	for _, e := range in {
		e.leave()
	}
}

// turns calls f for every entrant in each of the rounds. Every round begins with another entrant,
// and every other one goes backwards: none always follows the same one.
func turns(in []*entrant, rounds int, f func(e *entrant)) {
	for r := range rounds {
		for i := range in {
			if r%2 == 1 {
				i = len(in) - 1 - i
			}
			f(in[(i+r)%len(in)])
		}
	}
}

// pick returns the contenders that take part and are ok.
func (c config) pick(ok func(*contender) bool) []*contender {
	return slices.DeleteFunc(slices.Clone(roster), func(o *contender) bool {
		return !ok(o) || len(c.Who) > 0 && !slices.Contains(c.Who, o.name)
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

func everybody(c *contender) bool { return !c.fenced && c.open != nil }
func waiting(c *contender) bool   { return everybody(c) && !c.bare }
