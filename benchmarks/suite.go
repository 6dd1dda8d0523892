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
	name  string
	run   func(*suite)
	about func(config) time.Duration // how long it takes
}

var sections = []section{
	{pairPart, (*suite).pairs, config.pairTime},
	{endingPart, (*suite).ending, config.endingTime},
	{randomPart, (*suite).random, config.randomTime},
	{"fencing", (*suite).fencing, config.fencingTime},
	{"instant", (*suite).instant, config.instantTime},
	{"contention", (*suite).contention, config.contentionTime},
	{"crowd", (*suite).crowd, config.crowdTime},
	{processPart, (*suite).processes, config.processTime},
	{"handover", (*suite).handOver, config.handOverTime},
	{electionPart, (*suite).election, config.electionTime},
	{"idle", (*suite).idle, config.idleTime},
	{"frozen", (*suite).frozen, config.frozenTime},
	{"latency", (*suite).latency, config.latencyTime},
	{"held", (*suite).held, config.heldTime},
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

func everybody(c *contender) bool { return !c.fenced && !c.etcd }
func waiting(c *contender) bool   { return everybody(c) && !c.bare }
