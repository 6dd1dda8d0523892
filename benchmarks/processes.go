package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

const (
	crewCount   = 4                    // processes that the clients are spread over
	crewHold    = 5 * time.Millisecond // how long each turn keeps the lock
	againKind   = "come back"          // each waiter wants the lock again at once
	onceKind    = "come once"          // all want it at once, and others come later
	crewNodes   = 5
	processPart = "processes"

	someProcesses = 16  // with fewer, one round has to do
	manyProcesses = 256 // with more, one round of a peer has to do
)

// processes measures how many processes, each a client with one waiter, share a lock.
func (s *suite) processes() {
	for _, p := range s.Processes {
		for _, kind := range []string{againKind, onceKind} {
			s.queueUp(p, kind, 0)
		}
		if p == s.FarProcesses {
			s.queueUp(p, againKind, s.FarProcessTrip)
		}
	}
}

// farKind is that of processes whose nodes are so far away.
func farKind(kind string, away time.Duration) string {
	if away == 0 {
		return kind
	}
	return fmt.Sprintf("%s, nodes %v away", kind, away)
}

// rounds is how often p processes of a contender are measured. Figures are compared with those of
// contenders on the same client.
func (c config) rounds(who *contender, p int) int {
	switch {
	case p < someProcesses, p > manyProcesses && !who.ours(),
		who.client != contenderNamed(we).client:
		return 1
	default:
		return c.ProcessRounds
	}
}

// stretch is how long one contender's p processes come back.
func (c config) stretch(p int) time.Duration {
	return max(c.ProcessSlice, time.Duration(p)*c.ProcessTime)
}

// queueUp lets every contender's p processes share a lock, on nodes that are so far away.
func (s *suite) queueUp(p int, kind string, away time.Duration) {
	cs := s.pick(func(c *contender) bool { return c.joins(p) && (away == 0 || !c.etcd) })
	for r := range s.ProcessRounds {
		for i := range cs {
			c := cs[(i+r)%len(cs)]
			if r >= s.rounds(c, p) {
				continue
			}
			on, err := s.backend(c)
			if err != nil {
				s.warn("%s: %v", c.name, err)
				continue
			}
			k := key{Section: processPart, Who: c.name, Nodes: on.nodes, Workers: p,
				Variant: farKind(kind, away)}
			var o outcome
			err = on.behind(away, func(on backend) (err error) {
				o, err = s.shiftOf(c, on, p, kind, s.stretch(p))
				return err
			})
			if err != nil {
				s.warn("%s, %d processes that %s: %v", c.name, p, k.Variant, err)
				continue
			}
			s.note(o, k)
			if c.ours() && away == 0 {
				s.noteBound(on, o, k)
			}
			if s.grows(c, p) && away == 0 {
				s.noteGrowth(c, on, o, k)
			}
		}
	}
}

// grows reports whether figures of p processes of a contender are compared with those of few.
func (c config) grows(who *contender, p int) bool { return who.ours() && p > c.FewProcesses }

// noteGrowth lets few processes have a turn right after many, and reports by how much the figures
// have grown. What a machine has done minutes ago says little about now.
func (s *suite) noteGrowth(c *contender, on backend, many outcome, k key) {
	few, who, ok := s.rightAfter(c, on, s.FewProcesses, k.Variant, s.stretch(s.FewProcesses))
	if !ok {
		return
	}
	for metric, of := range map[string]func(*outcome) float64{
		"turns/s": (*outcome).rate, "commands/turn": (*outcome).perTurn,
		laterCommands: (*outcome).laterPerTurn,
	} {
		if v, base := of(&many), of(&few); v > 0 && base > 0 { // else it was not counted
			k.Metric = overFew(metric)
			s.report.add(k, v/base)
		}
	}
	s.say("%s: %.0f turns/s right after, %.0f commands", who, few.rate(), few.perTurn())
}

// noteBound lets one process of the bare client work right after ours, and reports which part of
// its turns ours had. Nobody else wants its lock: it has it again as soon as it has released it.
func (s *suite) noteBound(on backend, ours outcome, k key) {
	o, who, ok := s.rightAfter(contenderNamed(bare), on, 1, againKind, s.BoundSlice)
	if !ok {
		return
	}
	k.Metric = ofTheBound
	s.report.add(k, ours.rate()/o.rate())
	s.report.add(boundKey(k.Nodes), o.rate())
	s.say("%s: %.0f turns/s right after", who, o.rate())
}

// rightAfter is shiftOf for processes that others are compared with. It tells what went wrong, and
// who they are.
func (s *suite) rightAfter(
	c *contender, on backend, p int, kind string, long time.Duration,
) (o outcome, who string, ok bool) {
	who = fmt.Sprintf("%s, %d processes that %s", c.name, p, kind)
	o, err := s.shiftOf(c, on, p, kind, long)
	if err != nil {
		s.warn("%s: %v", who, err)
		return o, who, false
	}
	s.warnOf(o, who)
	return o, who, true
}

// overFew is a figure over that of few processes.
func overFew(metric string) string { return metric + " over those of few" }

const (
	overtakes   = "overtakes"           // of those in the queue
	calledLater = "later callers"       // that had the lock first
	toTheQueue  = "p99 ms to the queue" // from when Lock is called
	ofTheBound  = "of the bound"        // turns, over those of one process of the bare client
)

// laterCommands are those of the second half, without the arrival of all processes at once.
const laterCommands = "later commands/turn"

// note reports what processes came to.
func (s *suite) note(o outcome, k key) {
	who := fmt.Sprintf("%s, %d processes that %s", k.Who, k.Workers, k.Variant)
	s.warnOf(o, who)
	order := ""
	if len(o.entries) > 0 {
		order = fmt.Sprintf("%d overtakes (%d of %d waits in the queue, after %.0f ms at most), ",
			o.overtakes, len(o.entries), len(o.waits), quantile(o.entries, 1))
		k.Metric = overtakes
		s.report.add(k, float64(o.overtakes))
		k.Metric = toTheQueue
		s.report.add(k, quantile(o.entries, 0.99))
	}
	turns := o.turns()
	fair := float64(k.Workers) * o.elapsed.Seconds() / turns
	for metric, v := range map[string]float64{
		"turns/s":              o.rate(),
		"passes/s":             float64(o.passes) / o.elapsed.Seconds(),
		"commands/turn":        o.perTurn(),
		laterCommands:          o.laterPerTurn(),
		"fewest/most":          float64(o.fewest) / math.Max(1, float64(o.most)),
		"fewest turns":         float64(o.fewest),
		"most turns":           float64(o.most),
		"longest wait ms":      millis(o.longest),
		"longest wait/fair":    o.longest.Seconds() / fair,
		"p99 wait ms":          quantile(o.waits, 0.99),
		calledLater:            float64(o.later),
		"clients' CPU ms/turn": millis(o.clientCPU) / turns,
		"servers' CPU ms/turn": millis(o.serverCPU) / turns,
	} {
		switch k.Metric = metric; {
		case metric == "commands/turn" && o.sent == 0: // not counted
		case metric == laterCommands && o.sentLate == 0:
		default:
			s.report.add(k, v)
		}
	}
	s.say("%s: %4.0f turns/s, %4.0f passes/s, %4.0f commands, %d/%d turns, longest %4.0f ms "+
		"(%.2f of fair), %s%d later callers, CPU %.2f+%.2f ms a turn", who,
		o.rate(), float64(o.passes)/o.elapsed.Seconds(),
		o.perTurn(), o.fewest, o.most, millis(o.longest), o.longest.Seconds()/fair,
		order, o.later, millis(o.clientCPU)/turns, millis(o.serverCPU)/turns)
}

// backend is the servers that a contender locks on.
type backend struct {
	addrs    []string
	nodes    int
	commands func() int64 // that they have executed, inside scripts too; 0 if they do not count
	cpu      func() time.Duration
}

// backend returns the servers of a contender. Those of etcd are started for the first that asks.
func (s *suite) backend(c *contender) (backend, error) {
	if c.etcd {
		if s.etcd == nil {
			e, err := startEtcd(s.scope, etcdMembers)
			if err != nil {
				return backend{}, err
			}
			s.etcd = e
		}
		return backend{s.etcd.addrs, etcdMembers, func() int64 { return 0 }, s.etcd.cpu}, nil
	}
	on := s.servers[:crewNodes]
	if c.oneNode {
		on = on[:1]
	}
	return backend{addrs(on), len(on), func() int64 { return commands(on) },
		func() time.Duration { return serverCPU(on) }}, nil
}

// behind calls f with the servers behind proxies that make them so far away, if they are.
func (b backend) behind(away time.Duration, f func(backend) error) error {
	if away == 0 {
		return f(b)
	}
	through, end, err := proxies(b.addrs, func(int) time.Duration { return away })
	if err != nil {
		return err
	}
	defer end()
	b.addrs = through
	return f(b)
}

// outcome is what processes came to, and what that cost the servers.
type outcome struct {
	queueing
	sent      int64
	sentLate  int64 // in the second half of a stretch
	serverCPU time.Duration
}

// warnOf tells what went wrong while somebody worked.
func (s *suite) warnOf(o outcome, who string) {
	if o.err != "" {
		s.warn("%s: %s", who, o.err)
	}
	if o.overlaps > 0 {
		s.warn("%s: %d OVERLAPS of two holders", who, o.overlaps)
	}
}

// turns is how often the lock was granted, or 1 if never.
func (o *outcome) turns() float64 { return float64(max(1, o.granted)) }

// rate is how many turns there were a second.
func (o *outcome) rate() float64 { return float64(o.granted) / o.elapsed.Seconds() }

// perTurn is how many commands a turn has cost.
func (o *outcome) perTurn() float64 { return float64(o.sent) / o.turns() }

// laterPerTurn is that of the second half of a stretch.
func (o *outcome) laterPerTurn() float64 { return float64(o.sentLate) / float64(max(1, o.late)) }

// shiftOf lets p processes work, on nodes that have no keys. Those that come back work for so long.
func (s *suite) shiftOf(
	c *contender, on backend, p int, kind string, long time.Duration,
) (o outcome, err error) {
	s.flush()
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
		cr, err := hire(roll{Who: c.name, Addrs: on.addrs, Waiters: n})
		if err != nil {
			return o, err
		}
		crews = append(crews, cr)
	}
	for _, cr := range crews {
		if err := cr.ready(); err != nil {
			return o, err
		}
	}
	work := shift{Hold: crewHold, Most: max(2*s.ProcessSlice, s.stretch(p))}
	if kind == againKind {
		work.For = long
	}
	for began := time.Now(); ; {
		before, cpuBefore := on.commands(), on.cpu()
		var end time.Time
		var sentByHalf int64
		half := time.Now()
		logs, err := together(crews, work, func() {
			sentByHalf, half = on.commands(), time.Now()
		}, func() {
			end = time.Now()
			sent := on.commands()
			o.sent += sent - before
			if kind == againKind {
				o.sentLate += sent - sentByHalf
			}
			o.serverCPU += on.cpu() - cpuBefore
		})
		if err != nil {
			return o, err
		}
		o.join(judge(logs, half, end))
		if kind == againKind || time.Since(began) > s.ProcessSlice {
			return o, nil
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
	q.passes += o.passes
	q.late += o.late
	q.overtakes += o.overtakes
	q.later += o.later
	q.entries = append(q.entries, o.entries...)
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
