package main

import (
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

const (
	crewCount   = 4                    // processes that the clients are spread over
	crewHold    = 5 * time.Millisecond // how long each turn keeps the lock
	againKind   = "come back"          // each waiter wants the lock again at once
	onceKind    = "come once"          // all want it at once, and others come later
	processPart = "processes"

	someProcesses = 16  // with fewer, one round has to do
	manyProcesses = 256 // with more, one round of a peer has to do

	perSecond   = "turns/s"
	passes      = "passes/s"
	perTurn     = "commands/turn"
	fewestMost  = "fewest/most"
	longestWait = "longest wait ms"
	clientCPU   = "clients' CPU ms/turn"
)

// processes measures how many processes, each a client with one waiter, share a lock.
func (s *suite) processes() {
	for _, p := range s.Processes {
		s.queueUp(p, againKind, 0)
		s.queueUp(p, onceKind, 0)
		if p == s.FarProcesses {
			s.queueUp(p, againKind, s.FarProcessTrip)
		}
	}
}

// rounds is how often p processes of a contender are measured. Figures are compared with those of
// contenders on the same client.
func (c config) rounds(who *contender, p int) int {
	if p < someProcesses || p > manyProcesses && !who.ours() || who.client != onGoredis {
		return 1
	}
	return c.ProcessRounds
}

// queueUp lets every contender's p processes share a lock, on nodes that are so far away.
func (s *suite) queueUp(p int, kind string, away time.Duration) {
	cs := s.pick(func(c *contender) bool { return c.joins(p) })
	variant := kind
	if away > 0 {
		variant = fmt.Sprintf("%s, nodes %v away", kind, away)
	}
	for r := range s.ProcessRounds {
		for i := range cs {
			c := cs[(i+r)%len(cs)]
			if r >= s.rounds(c, p) {
				continue
			}
			on := s.servers
			if c.oneNode {
				on = on[:1]
			}
			err := behind(away, addrs(on), func(addrs []string) error {
				o, err := s.shiftOf(roll{Who: c.name, Addrs: addrs}, on, p, kind)
				if err == nil {
					s.note(o, key{Section: processPart, Who: c.name, Nodes: len(on), Workers: p,
						Variant: variant})
				}
				return err
			})
			if err != nil {
				s.warn("%s, %d processes that %s: %v", c.name, p, variant, err)
			}
		}
	}
}

// note reports what processes came to.
func (s *suite) note(o outcome, k key) {
	who := fmt.Sprintf("%s, %d processes that %s", k.Who, k.Workers, k.Variant)
	if o.err != "" {
		s.warn("%s: %s", who, o.err)
	}
	if o.overlaps > 0 {
		s.warn("%s: %d OVERLAPS of two holders", who, o.overlaps)
	}
	seconds, turns := o.elapsed.Seconds(), float64(max(1, o.granted))
	s.report.put(k, perSecond, float64(o.granted)/seconds)
	s.report.put(k, passes, float64(o.passes)/seconds)
	s.report.put(k, perTurn, float64(o.sent)/turns)
	s.report.put(k, fewestMost, float64(o.fewest)/float64(max(1, o.most)))
	s.report.put(k, longestWait, millis(o.longest))
	s.report.put(k, clientCPU, millis(o.clientCPU)/turns)
	s.say("%s: %4.0f turns/s, %4.0f commands, %d/%d turns, longest %4.0f ms", who,
		float64(o.granted)/seconds, float64(o.sent)/turns, o.fewest, o.most, millis(o.longest))
}

// outcome is what processes came to, and how many commands that took.
type outcome struct {
	queueing
	sent int64
}

// shiftOf lets p processes work, on nodes that have no keys.
func (s *suite) shiftOf(
	r roll, on []*redistest.Server, p int, kind string,
) (o outcome, err error) {
	s.flush()
	stretch := max(s.ProcessSlice, time.Duration(p)*s.ProcessTime)
	var crews []*crew
	defer func() {
		for _, c := range crews {
			c.dismiss()
		}
	}()
	for left := min(crewCount, p); left > 0; left-- {
		r.Waiters = p / left
		p -= r.Waiters
		c, err := hire(r)
		if err != nil {
			return o, err
		}
		crews = append(crews, c)
	}
	for _, c := range crews {
		if err := c.ready(); err != nil {
			return o, err
		}
	}
	work := shift{Hold: crewHold, Most: max(2*s.ProcessSlice, stretch)}
	if kind == againKind {
		work.For = stretch
	}
	for began := time.Now(); ; {
		before := commands(on)
		var end time.Time
		logs, err := together(crews, work, func() {
			end = time.Now()
			o.sent += commands(on) - before
		})
		if err != nil {
			return o, err
		}
		o.join(judge(logs, end))
		if kind == againKind || time.Since(began) > s.ProcessSlice {
			return o, nil
		}
	}
}
