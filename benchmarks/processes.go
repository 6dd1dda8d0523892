package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/redistest"
)

const (
	crewCount   = 4                    // processes that the clients are spread over
	crewHold    = 5 * time.Millisecond // how long each turn keeps the lock
	againKind   = "come back"          // each waiter wants the lock again at once
	onceKind    = "come once"          // all want it at once, and others come later
	crewNodes   = 5
	processPart = "processes"
)

// processes measures how many processes, each a client with one waiter, share a lock.
func (s *suite) processes() {
	for _, p := range s.Processes {
		for _, kind := range []string{againKind, onceKind} {
			s.queueUp(p, kind)
		}
	}
}

func (s *suite) queueUp(p int, kind string) {
	servers := s.servers[:crewNodes]
	cs := s.pick(func(c *contender) bool { return c.crews && (c.most == 0 || p <= c.most) })
	for r := range s.ProcessRounds {
		for i := range cs {
			c := cs[(i+r)%len(cs)]
			on := servers
			if c.oneNode {
				on = servers[:1]
			}
			s.flush()
			q, commands, serverCPU, err := s.shiftOf(c, on, p, kind)
			if err != nil {
				s.warn("%s, %d processes that %s: %v", c.name, p, kind, err)
				continue
			}
			if q.err != "" {
				s.warn("%s, %d processes that %s: %s", c.name, p, kind, q.err)
			}
			if q.overlaps > 0 {
				s.warn("%s, %d processes that %s: %d OVERLAPS of two holders", c.name, p, kind,
					q.overlaps)
			}
			turns := float64(max(1, q.granted))
			fair := float64(p) * q.elapsed.Seconds() / turns
			k := key{Section: processPart, Who: c.name, Nodes: len(on), Workers: p, Variant: kind}
			for metric, v := range map[string]float64{
				"turns/s":              float64(q.granted) / q.elapsed.Seconds(),
				"commands/turn":        float64(commands) / turns,
				"fewest/most":          float64(q.fewest) / math.Max(1, float64(q.most)),
				"fewest turns":         float64(q.fewest),
				"most turns":           float64(q.most),
				"longest wait ms":      millis(q.longest),
				"longest wait/fair":    q.longest.Seconds() / fair,
				"p99 wait ms":          quantile(q.waits, 0.99),
				"overtakes":            float64(q.overtakes),
				"clients' CPU ms/turn": millis(q.clientCPU) / turns,
				"servers' CPU ms/turn": millis(serverCPU) / turns,
			} {
				k.Metric = metric
				s.report.add(k, v)
			}
			s.say("%-16s %4d processes that %s: %4.0f turns/s, %4.0f commands, %d/%d turns, "+
				"longest %4.0f ms (%.2f of fair), %d overtook, CPU %.2f+%.2f ms a turn",
				c.name, p, kind, float64(q.granted)/q.elapsed.Seconds(), float64(commands)/turns,
				q.fewest, q.most, millis(q.longest),
				q.longest.Seconds()/fair, q.overtakes, millis(q.clientCPU)/turns,
				millis(serverCPU)/turns)
		}
	}
}

// shiftOf lets p processes work for the configured time.
func (s *suite) shiftOf(c *contender, on []*redistest.Server, p int, kind string) (q queueing,
	sent int64, cpu time.Duration, err error) {
	var crews []*crew
	defer func() {
		for _, c := range crews {
			c.dismiss()
		}
	}()
	for i := range min(crewCount, p) {
		n := p / min(crewCount, p)
		if i < p%min(crewCount, p) {
			n++
		}
		cr, err := hire(roll{Who: c.name, Addrs: addrs(on), Waiters: n})
		if err != nil {
			return q, 0, 0, err
		}
		crews = append(crews, cr)
	}
	for _, cr := range crews {
		if err := cr.ready(); err != nil {
			return q, 0, 0, err
		}
	}
	work := shift{Hold: crewHold, Most: 2 * s.ProcessSlice}
	if kind == againKind {
		work.For = s.ProcessSlice
	}
	for began := time.Now(); ; {
		before, cpuBefore := commands(on), serverCPU(on)
		var end time.Time
		logs, err := together(crews, work, func() {
			end = time.Now()
			sent += commands(on) - before
			cpu += serverCPU(on) - cpuBefore
		})
		if err != nil {
			return q, 0, 0, err
		}
		q.join(judge(logs, end))
		if kind == againKind || time.Since(began) > s.ProcessSlice {
			return q, sent, cpu, nil
		}
	}
}

// join adds a shift that came after those of q.
func (q *queueing) join(o queueing) {
	if q.waits == nil {
		*q = o
		return
	}
	q.granted += o.granted
	q.elapsed += o.elapsed
	q.fewest += o.fewest
	q.most += o.most
	q.longest = max(q.longest, o.longest)
	q.overtakes += o.overtakes
	q.overlaps += o.overlaps
	q.clientCPU += o.clientCPU
	q.waits = append(q.waits, o.waits...)
	if q.err == "" {
		q.err = o.err
	}
}

// serverCPU is the processor time that the servers have used together.
func serverCPU(servers []*redistest.Server) (sum time.Duration) {
	for _, s := range servers {
		text, _ := s.Must("INFO", "cpu").(string)
		for line := range strings.Lines(text) {
			for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
				if v, ok := strings.CutPrefix(line, name); ok {
					seconds, _ := strconv.ParseFloat(strings.TrimSpace(v), 64)
					sum += time.Duration(seconds * float64(time.Second))
				}
			}
		}
	}
	return sum
}
