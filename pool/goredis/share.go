package goredis

import (
	"context"
	"fmt"
	"runtime/debug"
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
	// patience is how long a command waits for a pipeline under way before it
	// goes on another connection.
	patience = time.Millisecond
	// crowd is how many commands have to wait for a second pipeline to go beside the
	// first, if there are fewer under way in the process than it has processors. With one
	// node and 64 callers a pair takes a sixth less then. Where other nodes keep the
	// processors busy, it would only make more, and smaller, pipelines.
	crowd = 24
	// maxParked and parkTime say how many goroutines stay for the next flight, and for how
	// long at least. A new one costs more than its start: its stack has to grow in several steps.
	maxParked = 2
	parkTime  = 50 * time.Millisecond
)

// aloft is how many flights are under way in this process, of all Pools.
var aloft atomic.Int64

// line is where commands wait that found another one under way. Callers that wait for their
// commands send those of others with them; for commands that were only started, a flight is a goroutine.
//
// A flight is one trip to the node, of one command or of a pipeline. A caller that finds
// no flight under way takes off at once, alone. Others queue. When a flight lands, the
// first in the queue is appointed to lead the next one: it takes all who wait
// along and hands out their replies. So a pipeline grows exactly as long as it takes the
// one before to return, and nobody waits for a pipeline to fill. A crowd does not wait
// for the landing either, if the process has fewer flights under way than processors.
//
// go-redis has AutoPipeline for this purpose, marked experimental. Measured on two cores and one
// Redis 7.0 on loopback, SET NX and release, medians of six interleaved runs, before a crowd had a second flight: a
// lone caller 34 µs a pair here (as without sharing) and 68 µs there; 8 callers 22 and 25; 64 callers 9.5 and 20.
// A command whose context ends cannot leave its queue, it runs goroutines of its own, and it
// does not know Ring.
//
// A flight that does not return, or not soon, must not hold up the others, so after
// some patience the next one takes off on another connection.
type line struct {
	mu          sync.Mutex
	flights     int // under way, or waiting for their appointed leader to wake up
	boarding    int // of them, those that have not taken the others along yet
	first, last *waiter
	queued      int
	overdue     *time.Timer // appoints a leader when patience is over
	fly         func(*waiter)
	processors  int64          // that the process may use
	parked      []chan *waiter // goroutines that flew a moment ago
	flown       bool           // one of them has been used since the sweep before
	sweep       *time.Timer    // ends those that are not used; nil while none is parked
	spare       sync.Pool      // of *waiter; none of the package's, for the sake of testing/synctest
}

// waiter is one command in the queue, and its caller's way to leave.
type waiter struct {
	cmd        *command
	to         pool.Receiver // nil for a caller that waits
	err        error
	prev, next *waiter
	place      place     // guarded by line.mu
	turn       chan bool // buffered: true to lead a flight, false when the reply is there
}

type place int8

const (
	queued    place = iota
	appointed       // turn holds true
	aboard          // turn holds false, or will
)

// share sends cmd, together with others if others are under way.
//
// It returns when the outcome is known or ctx has ended, except that the caller who
// leads a flight stays with it to its end.
func (p *Pool) share(ctx context.Context, cmd *command) (any, error) {
	l := &p.line
	l.mu.Lock()
	if l.flights == 0 {
		l.takeOff()
		l.mu.Unlock()
		defer l.land()
		return cmd.reply(p.client.Process(ctx, cmd))
	}
	w := l.waiter()
	w.cmd = cmd
	l.push(w)
	l.reinforce()
	l.mu.Unlock()

	var lead bool
	select {
	case lead = <-w.turn:
	case <-ctx.Done():
		if l.leave(w) {
			l.release(w)
		}
		return nil, ctx.Err() // cmd is the flight's own business now
	}
	if lead {
		p.lead(ctx, w)
	}
	err := w.err
	l.release(w)
	return cmd.reply(err)
}

// start sends cmd as share does, and gives the outcome to another.
func (p *Pool) start(cmd *command, to pool.Receiver) {
	l := &p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiter()
	w.cmd, w.to = cmd, to
	if l.flights == 0 {
		l.depart(w)
		return
	}
	l.push(w)
	l.reinforce()
}

// fly leads flights of commands that were only started, as long as there are any.
func (p *Pool) fly(w *waiter) {
	next := make(chan *waiter, 1)
	for w != nil {
		p.lead(w.cmd.ctx, w)
		w = p.line.park(next)
	}
}

// deliver hands over the outcome of a command that was only started.
func (p *Pool) deliver(w *waiter) {
	cmd, to := w.cmd, w.to
	reply, err := cmd.reply(w.err)
	p.line.release(w)
	if cmd.isSet() {
		ok, err := granted(reply, err)
		to.Receive(ok, err)
	} else if next := cmd.withSource(err); next != nil {
		p.start(next, to)
	} else {
		to.Receive(reply, err)
	}
}

// lead flies with w and as many as wait behind it.
func (p *Pool) lead(ctx context.Context, w *waiter) {
	crew := p.line.board(w)
	defer func() {
		if w.to != nil { // nobody can recover from a hook's panic on the flight's own goroutine
			if why := recover(); why != nil {
				err := fmt.Errorf("goredis: the client panicked: %v\n%s", why, debug.Stack())
				for _, c := range crew {
					c.err = err
				}
			}
		}
		p.line.land()
		for i, c := range crew {
			switch {
			case c.to != nil:
				p.deliver(c)
			case i > 0:
				c.turn <- false
			}
		}
	}()
	if len(crew) == 1 {
		w.err = p.client.Process(ctx, w.cmd)
		return
	}
	ctx, cancel := batchContext(ctx, crew)
	defer cancel()
	cmds := make([]redis.Cmder, len(crew))
	for i, c := range crew {
		cmds[i] = c.cmd
	}
	pipe := p.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // only queues
	_, err := pipe.Exec(ctx)            // the first command's error, mostly
	for _, c := range crew {
		c.err = c.cmd.Err()
		if c.err == nil && c.cmd.Val() == nil {
			c.err = err // a hook did not let the pipeline pass
		}
	}
}

// batchContext lasts until nobody is left who waits for the pipeline: it
// stops go-redis from waiting any longer for a connection. It keeps the values of
// the leader's, for tracing.
func batchContext(ctx context.Context, crew []*waiter) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, c := range crew {
		end, ok := c.cmd.ctx.Deadline()
		if !ok {
			return context.WithoutCancel(ctx), func() {}
		}
		if end.After(last) {
			last = end
		}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), last)
}

// push puts w at the end of the queue. The caller holds l.mu.
func (l *line) push(w *waiter) {
	w.place, w.prev, w.next = queued, l.last, nil
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
		l.wait()
	}
	l.last = w
	l.queued++
}

// reinforce lets a second flight go if many wait and there are processors for it. The caller holds l.mu.
func (l *line) reinforce() {
	if l.flights == 1 && l.boarding == 0 && l.queued >= crowd && aloft.Load() < l.processors {
		l.appoint()
	}
}

// takeOff counts a flight in. The caller holds l.mu.
func (l *line) takeOff() {
	l.flights++
	aloft.Add(1)
}

// touchDown counts a flight out. The caller holds l.mu.
func (l *line) touchDown() {
	l.flights--
	aloft.Add(-1)
}

// remove takes w out of the queue. The caller holds l.mu.
func (l *line) remove(w *waiter) {
	l.queued--
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
}

// wait starts the patience of those in the queue. The caller holds l.mu.
func (l *line) wait() {
	if l.overdue == nil {
		l.overdue = time.AfterFunc(patience, l.appointLate)
	} else {
		l.overdue.Reset(patience)
	}
}

func (l *line) appointLate() {
	l.mu.Lock()
	l.appoint()
	var ended []*waiter
	for w := l.first; w != nil && w.to != nil && w.cmd.ctx.Err() != nil; w = l.first {
		l.remove(w)
		ended = append(ended, w)
	}
	if l.first != nil {
		l.wait()
	}
	l.mu.Unlock()
	for _, w := range ended {
		to, err := w.to, w.cmd.ctx.Err()
		l.release(w)
		to.Receive(nil, err)
	}
}

// appoint makes the first in the queue the leader of a new flight, if there may be
// one. The caller holds l.mu.
func (l *line) appoint() {
	if w := l.first; w != nil && l.flights < maxFlights {
		l.remove(w)
		l.depart(w)
	}
}

// depart makes w the leader of a new flight. The caller holds l.mu.
func (l *line) depart(w *waiter) {
	l.takeOff()
	l.boarding++
	if w.to != nil {
		w.place = aboard
		l.embark(w)
		return
	}
	w.place = appointed
	w.turn <- true
}

// embark gives a flight a goroutine: one that has flown before, whose stack is as large as it takes, or
// a new one. The caller holds l.mu.
func (l *line) embark(w *waiter) {
	if n := len(l.parked); n > 0 {
		l.parked[n-1] <- w
		l.parked = l.parked[:n-1]
		l.flown = true
		return
	}
	go l.fly(w)
}

// park waits for the next flight, and returns nil if there is none for a while.
func (l *line) park(next chan *waiter) *waiter {
	l.mu.Lock()
	if len(l.parked) == maxParked {
		l.mu.Unlock()
		return nil
	}
	l.parked = append(l.parked, next)
	if l.sweep == nil {
		l.sweep = time.AfterFunc(parkTime, l.clear)
	}
	l.mu.Unlock()
	return <-next
}

// clear ends the parked goroutines if none of them was used since the last time.
func (l *line) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flown {
		l.flown = false
		l.sweep.Reset(parkTime)
		return
	}
	for _, next := range l.parked {
		next <- nil
	}
	l.parked, l.sweep = nil, nil
}

// waiter returns one to use. The caller holds l.mu.
func (l *line) waiter() *waiter {
	if w, ok := l.spare.Get().(*waiter); ok {
		return w
	}
	return &waiter{turn: make(chan bool, 1)}
}

// board returns the leader and those that it takes along.
func (l *line) board(leader *waiter) []*waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boarding--
	crew := append(make([]*waiter, 0, 1+min(l.queued, maxBatch)), leader)
	for l.first != nil && len(crew) < maxBatch {
		w := l.first
		l.remove(w)
		w.place = aboard
		crew = append(crew, w)
	}
	if l.first != nil {
		l.wait()
	}
	return crew
}

// land ends a flight and lets the next one go.
func (l *line) land() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touchDown()
	l.appoint()
}

// leave gives w up, and reports whether nobody else knows of it any more.
func (l *line) leave(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch w.place {
	case queued:
		l.remove(w)
	case appointed:
		<-w.turn
		l.boarding--
		l.touchDown()
		l.appoint()
	case aboard:
		return false
	}
	return true
}

// release makes w ready for another command.
func (l *line) release(w *waiter) {
	*w = waiter{turn: w.turn}
	l.spare.Put(w)
}
