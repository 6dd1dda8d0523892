package main

import (
	"fmt"
	"time"
)

const (
	crewCount   = 4                    // processes that the clients are spread over
	crewHold    = 5 * time.Millisecond // how long each turn keeps the lock
	againKind   = "come back"          // each waiter wants the lock again at once
	onceKind    = "come once"          // all want it at once, and others come later
	processPart = "processes"

	perSecond   = "turns/s"
	perTurn     = "commands/turn"
	longestWait = "longest wait ms"
	clientCPU   = "clients' CPU ms/turn"
)

// processes measures how many processes, each a client with one waiter, share a lock.
func (s *suite) processes() {
	for _, p := range s.Processes {
		s.queueUp(p, againKind, 0)
		s.queueUp(p, onceKind, 0)
		if p == 64 {
			s.queueUp(p, againKind, time.Millisecond)
		}
	}
}

// rounds is how often p processes of a contender are measured. A single round is enough for a few
// processes, for many processes of a peer, and for any client other than go-redis.
func (c config) rounds(who *contender, p int) int {
	if p < 16 || p > 256 && who.peer || who.client != onGoredis {
		return 1
	}
	return c.ProcessRounds
}

// queueUp lets every contender's p processes share a lock, on nodes that are so far away.
func (s *suite) queueUp(p int, kind string, away time.Duration) {
	cs := s.pick(func(c *contender) bool { return p <= c.most })
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
			behind(away, addrs(on), func(addrs []string) {
				o, err := s.shiftOf(roll{Who: c.name, Addrs: addrs}, on, p, kind)
				if err != nil {
					s.warn("%s, %d processes that %s: %v", c.name, p, variant, err)
					return
				}
				s.note(o, key{Section: processPart, Who: c.name, Nodes: len(on), Workers: p,
					Variant: variant})
			})
		}
	}
}

// note reports what processes came to.
func (s *suite) note(o queueing, k key) {
	who := fmt.Sprintf("%s, %d processes that %s", k.Who, k.Workers, k.Variant)
	if o.err != "" {
		s.warn("%s: %s", who, o.err)
	}
	if o.overlaps > 0 {
		s.warn("%s: %d OVERLAPS of two holders", who, o.overlaps)
	}
	seconds, turns := o.elapsed.Seconds(), float64(max(1, o.granted))
	s.report.put(k, perSecond, float64(o.granted)/seconds)
	s.report.put(k, perTurn, float64(o.sent)/turns)
	s.report.put(k, longestWait, millis(o.longest))
	s.report.put(k, clientCPU, millis(o.clientCPU)/turns)
	s.say("%s: %4.0f turns/s, %4.0f commands, longest %4.0f ms", who,
		float64(o.granted)/seconds, float64(o.sent)/turns, millis(o.longest))
}

// shiftOf lets p processes work, on nodes that have no keys.
func (s *suite) shiftOf(r roll, on servers, p int, kind string) (q queueing, err error) {
	s.flush()
	stretch := max(s.ProcessSlice, time.Duration(p)*s.ProcessTime)
	var jobs []job
	for left := min(crewCount, p); left > 0; left-- {
		r := roll{r.Who, r.Addrs, p / left}
		p -= r.Waiters
		jobs = append(jobs, job{Crew: &r})
	}
	crews, err := startAll(jobs)
	for _, c := range crews {
		defer c.dismiss()
	}
	if err != nil {
		return q, err
	}
	work := shift{Hold: crewHold, For: stretch}
	if kind == onceKind {
		work.For, work.Most = 0, max(2*s.ProcessSlice, stretch)
	}
	for began := time.Now(); ; {
		before := commands(on)
		var end time.Time
		logs, err := together(crews, work, func() {
			end = time.Now()
			q.sent += commands(on) - before
		})
		if err != nil {
			return q, err
		}
		q.join(judge(logs, end))
		if kind == againKind || time.Since(began) > s.ProcessSlice {
			return q, nil
		}
	}
}
