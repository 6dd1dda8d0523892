package goredis

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
)

const (
	// maxBatch bounds the commands of one pipeline.
	maxBatch = 256
	// maxFlights bounds the pipelines, and so the connections and the waiting
	// goroutines, that a node which does not answer can tie up.
	maxFlights = 16
	// Beyond that there is one more flight every rescue, up to maxStuck: those that wait for replies on
	// lost connections, until the client's own timeout, do not keep a node unasked that has come back.
	rescue   = 100 * time.Millisecond
	maxStuck = 48
	// patience is how long a command waits for a pipeline under way before it
	// goes on another connection.
	patience = time.Millisecond
	// maxParked and parkTime say how many goroutines stay for the next flight, and for how
	// long at least. A new one costs more than its start: its stack has to grow in several steps.
	maxParked = 2
	parkTime  = 50 * time.Millisecond
)

// aloft is how many flights are under way in this process, of all Pools.
var aloft atomic.Int64

// callers go first when many flights are under way in this process, of all Pools.
var callers yielding

// line is where commands wait that found another one under way.
//
// A flight is one trip to the node, of one command or of a pipeline. A caller who waits for its command
// and finds no flight under way takes off at once, alone. What else there is to send queues, and is taken along
// by a flight that is a goroutine: the first leaves at once, another when one has landed. So a pipeline grows
// exactly as long as it takes the one before to return, and nobody waits for a pipeline to fill. While the process has
// fewer flights under way than processors, a second one does not wait for the landing either, once it is as large as the
// first: two that take turns keep a node and its callers busy, and more, smaller ones would only cost more.
//
// go-redis has AutoPipeline for this purpose, marked experimental. Measured on two cores and one
// Redis 7.0 on loopback, SET NX and release, medians of six interleaved runs: a lone caller 128 µs a pair here, 152 there
// and 147 without sharing; 8 callers 27, 34 and 23; 64 callers 8, 18 and 28.
// A command whose context ends cannot leave its queue, it runs goroutines of its own, and it
// does not know Ring.
//
// A flight that does not return, or not soon, must not hold up the others, so after
// some patience the next one takes off on another connection.
type line struct {
	mu       sync.Mutex
	flights  int        // under way, or about to board
	boarding int        // of them, those that have not taken the queue along yet
	aboard   int        // commands in those that have
	queue    []*command // in order
	empty    []*command // to be the next queue: its room is used again
	end      time.Time  // the last of the queue's contexts ends no later,
	endless  bool       // unless there may be one that never does
	full     time.Time  // when the last flight took off of more than there should be

	fly        func()
	explain    func(error) error
	processors int64       // that the process may use
	overdue    *time.Timer // lets another flight go when patience is over
	parked     []chan bool // goroutines that flew a moment ago; true is for another flight
	flown      bool        // one of them has been used since the sweep before
	sweep      *time.Timer // ends those that are not used; nil while none is parked
}

// share sends cmd, together with others if others are under way, and returns its outcome.
//
// It returns when the outcome is known or ctx has ended, except that a caller who finds nobody under way
// waits for the client.
func (p *Pool) share(ctx context.Context, cmd *command) (any, error) {
	l := &p.line
	l.mu.Lock()
	if l.flights == 0 {
		l.takeOff()
		l.aboard++
		l.mu.Unlock()
		return p.alone(ctx, cmd)
	}
	told := make(answer, 1)
	cmd.to = told
	l.push(cmd)
	l.mu.Unlock()
	select {
	case r := <-told:
		return r.reply, r.err
	case <-ctx.Done():
		l.leave(cmd) // or it is the flight's own business now
		return nil, p.explain(cmd.unsent(ctx.Err()))
	}
}

// alone sends one command on the caller's goroutine.
func (p *Pool) alone(ctx context.Context, cmd *command) (any, error) {
	defer p.line.land(1)
	reply, next, err := cmd.outcome(p.process(ctx, cmd))
	if next != nil {
		reply, _, err = next.outcome(p.process(ctx, next))
	}
	return reply, p.explain(err)
}

// answer is the receiver of a caller that waits.
type answer chan result

type result struct {
	reply any
	err   error
}

// Receive is told the outcome.
func (a answer) Receive(reply any, err error) { a <- result{reply, err} }

// start sends cmd as share does, and gives the outcome to its receiver.
func (p *Pool) start(cmd *command) {
	l := &p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.push(cmd)
}

// fly makes flights, as long as there are any.
func (p *Pool) fly() {
	again := make(chan bool, 1)
	for {
		if !p.line.park(again, p.trip()) {
			return
		}
	}
}

// trip makes one flight and hands out the replies. It returns the room that the queue took.
func (p *Pool) trip() []*command {
	crew, end := p.line.board()
	var err error
	defer func() {
		var panicked error
		if why := recover(); why != nil { // nobody else can recover from a hook's panic on this goroutine
			panicked = pool.Recovered(why)
		}
		p.line.land(len(crew))
		for _, c := range crew {
			if panicked != nil {
				c.to.Receive(nil, panicked)
			} else {
				p.deliver(c, err)
			}
		}
	}()
	switch len(crew) {
	case 0: // they have left
	case 1:
		err = p.process(crew[0].ctx, crew[0])
		crew[0].SetErr(err)
	default:
		err = p.pipeline(crew, end)
	}
	return crew
}

// pipeline sends the commands together, and waits until all are answered, or until the end of the time for which anybody
// waits: then go-redis does not wait any longer for a connection. The context has the values of the first one's, for tracing.
func (p *Pool) pipeline(crew []*command, end time.Time) error {
	ctx := context.WithoutCancel(crew[0].ctx)
	if !end.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		ctx = bounded
	}
	cmds := make([]redis.Cmder, len(crew))
	for i, c := range crew {
		cmds[i] = c
	}
	pipe := p.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // only queues
	_, err := pipe.Exec(ctx)            // the first command's error, mostly
	p.dials.replied(err)
	return err
}

// process sends one command and waits for its outcome.
func (p *Pool) process(ctx context.Context, cmd *command) error {
	err := p.client.Process(ctx, cmd)
	p.dials.replied(err)
	return err
}

// deliver hands over the outcome of a command that was sent, by a flight that had the given error.
func (p *Pool) deliver(c *command, flight error) {
	if c.Err() == nil && c.Val() == nil { // a hook did not let it pass
		reply, err := c.reply(flight)
		c.to.Receive(reply, p.explain(err))
		return
	}
	reply, next, err := c.outcome(c.Err())
	if next != nil && c.ctx.Err() == nil {
		next.to = c.to
		p.start(next)
		return
	}
	c.to.Receive(reply, p.explain(err))
}

// push puts c at the end of the queue, and lets a flight go that need not wait. The caller holds l.mu.
func (l *line) push(c *command) {
	if len(l.queue) == 0 {
		l.end, l.endless = time.Time{}, false
		if l.flights > 0 {
			l.wait()
		}
	}
	if end, ok := c.ctx.Deadline(); !ok {
		l.endless = true
	} else if end.After(l.end) {
		l.end = end
	}
	l.queue = append(l.queue, c)
	l.reinforce()
}

// wait starts the patience of those in the queue. The caller holds l.mu.
func (l *line) wait() {
	if l.overdue == nil {
		l.overdue = time.AfterFunc(patience, l.departLate)
	} else {
		l.overdue.Reset(patience)
	}
}

// departLate lets another flight go, and tells those whose contexts have ended before they could have one.
func (l *line) departLate() {
	l.mu.Lock()
	var ended []*command
	l.queue = slices.DeleteFunc(l.queue, func(c *command) bool {
		if c.ctx.Err() == nil {
			return false
		}
		ended = append(ended, c)
		return true
	})
	l.next()
	if len(l.queue) > 0 {
		l.wait()
	}
	l.mu.Unlock()
	for _, c := range ended {
		c.to.Receive(nil, l.explain(c.unsent(c.ctx.Err())))
	}
}

// reinforce lets a flight go if there is none, or a second one if it is as large as the first and there are processors
// for it. The caller holds l.mu.
func (l *line) reinforce() {
	if l.flights == 0 || l.flights == 1 && len(l.queue) >= l.aboard && aloft.Load() < l.processors {
		l.next()
	}
}

// next lets another flight go if there is somebody to take along, and may be one more. The caller holds l.mu.
func (l *line) next() {
	if len(l.queue) == 0 || l.boarding > 0 {
		return
	}
	if l.flights < maxFlights || l.flights < maxStuck && time.Since(l.full) >= rescue {
		l.depart()
	}
}

// depart gives a flight a goroutine: one that has flown before, whose stack is as large as it takes, or
// a new one. The caller holds l.mu.
func (l *line) depart() {
	l.takeOff()
	l.boarding++
	if n := len(l.parked); n > 0 {
		l.parked[n-1] <- true
		l.parked = l.parked[:n-1]
		l.flown = true
		return
	}
	go l.fly()
}

// takeOff counts a flight in. The caller holds l.mu.
func (l *line) takeOff() {
	l.flights++
	if l.flights >= maxFlights {
		l.full = time.Now()
	}
	aloft.Add(1)
}

// board returns those that a flight takes along, and a time at which none of them waits any longer: never, if it is zero.
func (l *line) board() (crew []*command, end time.Time) {
	if aloft.Load() > l.processors {
		// The processors have enough to do. Those who are about to queue come along, and save a trip.
		callers.yield()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boarding--
	if len(l.queue) <= maxBatch {
		crew, l.queue = l.queue, l.empty
	} else {
		crew = append(l.empty, l.queue[:maxBatch]...)
		l.queue = slices.Delete(l.queue, 0, maxBatch)
	}
	l.empty = nil
	l.aboard += len(crew)
	if !l.endless {
		end = l.end
	}
	if len(l.queue) > 0 {
		l.wait()
		l.reinforce()
	}
	return crew, end
}

// land counts a flight out, and lets the next one go.
func (l *line) land(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flights--
	l.aboard -= n
	aloft.Add(-1)
	l.next()
}

// park gives back the room of a queue, and waits for the next flight. It returns false if there is none for a while.
func (l *line) park(again chan bool, room []*command) bool {
	clear(room)
	l.mu.Lock()
	if cap(room) <= 4*maxBatch {
		l.empty = room[:0]
	}
	if len(l.parked) == maxParked {
		l.mu.Unlock()
		return false
	}
	l.parked = append(l.parked, again)
	if l.sweep == nil {
		l.sweep = time.AfterFunc(parkTime, l.dismiss)
	}
	l.mu.Unlock()
	return <-again
}

// dismiss ends the parked goroutines if none of them was used since the last time.
func (l *line) dismiss() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flown {
		l.flown = false
		l.sweep.Reset(parkTime)
		return
	}
	for _, again := range l.parked {
		again <- false
	}
	l.parked, l.sweep = nil, nil
}

// leave takes c out of the queue, if it is still there.
func (l *line) leave(c *command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, c); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}
