package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"
)

const mostNodes = 5

// suite is one run of the program.
type suite struct {
	config
	report  *report
	now     *sectionRun // the section that is being measured
	servers servers     // mostNodes of them
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
	{name: processPart, run: (*suite).processes, own: true,
		metrics: []string{perSecond, perTurn, longestWait, clientCPU}},
	{name: handOverPart, run: (*suite).handOver, metrics: []string{"ms"}},
	{name: electionPart, run: (*suite).election, own: true,
		metrics: []string{afterResign, afterKill}},
	{name: idlePart, run: (*suite).idle, metrics: []string{busy, "commands/s"}},
	{name: frozenPart, run: (*suite).frozen, metrics: []string{pairsPerSecond, onePair}},
	{name: heldPart, run: (*suite).held, own: true, metrics: []string{bytesPerLock,
		goroutinesPerLock, busy}},
	{name: familyPart, run: (*suite).family, metrics: []string{readsPerSecond, writesPerSecond,
		readP99, writeP99, setsPerSecond, longestSet, longestSingle, slotsUsed, mostAtOnce,
		slotsFair}},
}

// sectionNamed returns a section, or nil.
func sectionNamed(name string) *section {
	i := slices.IndexFunc(sections, func(s section) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &sections[i]
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
			e.lockers = append(e.lockers, c.open(addrs, expiry))
		}
		in = append(in, e)
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
	who := regexp.MustCompile(c.Who)
	return slices.DeleteFunc(slices.Clone(roster), func(o *contender) bool {
		return !ok(o) || !who.MatchString(o.name)
	})
}

func everybody(c *contender) bool { return !c.fenced && c.open != nil }
func waiting(c *contender) bool   { return everybody(c) && !c.bare }
