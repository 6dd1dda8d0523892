package quorum

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Kind says what a command means for its lane.
type Kind uint8

const (
	// Ask is a command that never sets a key that was not there. If it has not been sent when its
	// round is over, it is not sent any more.
	Ask Kind = iota
	// Write is a command that may set the key. It leaves the same way as an Ask.
	Write
	// Undo takes back the Writes with the same Mark. It is sent however late its turn
	// comes, unless none of those Writes was ever sent.
	Undo
)

// Mark is what a lane knows of the Writes of one acquisition on its node: the memory that
// lets an Undo be left out, or be sent once more. The lane's mutex guards it.
type Mark struct {
	sent   bool  // a Write was handed to the client
	unsure bool  // a Write failed or was given up: it may have been executed, or may yet be
	out    bool  // a Write that was given up has not returned from the client
	undo   *call // the Undo to send once more when that one returns
}

// Sent makes marks for n lanes of an acquisition whose Writes were sent by somebody else.
func Sent(n int) []Mark {
	marks := make([]Mark, n)
	for i := range marks {
		marks[i].sent = true
	}
	return marks
}

// Lane keeps the commands of one owner on one node in order: each is sent only when the
// outcome of the one before is known, because it replied, failed or was given up.
// Clients with connection pools do not order commands across connections, so without
// a lane a release could overtake the slow SET it is to take back.
//
// The zero value with a node is ready for use. A Lane is safe for concurrent use and is not copied.
// An idle lane has no goroutine and no timer.
type Lane struct {
	node    *Node
	tracker *Tracker

	mu      sync.Mutex
	running *call       // handed to the client and not given up, or nil; its goroutine is run
	queue   []*call     // waiting behind running, in order; empty while running is nil
	timer   *time.Timer // ends in giveUp; set while queue is not empty
}

// Lanes makes a lane for each of the nodes. The tracker counts their commands, from
// the time they are submitted until the client has returned.
func Lanes(nodes []*Node, tracker *Tracker) []Lane {
	lanes := make([]Lane, len(nodes))
	for i := range lanes {
		lanes[i].node = nodes[i]
		lanes[i].tracker = tracker
	}
	return lanes
}

// call is a round's command on one lane.
type call struct {
	round *Round
	lane  *Lane
	mark  *Mark // nil for an Ask
	again bool  // an Undo sent for the second time

	// The lane's mutex guards these.
	deadline time.Time // for the node's answer, since the call runs
	returned bool      // the client has returned

	// The round's mutex guards these.
	settled bool
	reply   int64
	err     error
}

// submit puts a call at the end of the lane.
func (l *Lane) submit(c *call) {
	l.tracker.Enter()
	l.mu.Lock()
	if l.running == nil {
		l.running = c
		c.deadline = c.round.deadline
		if c.again {
			c.deadline = time.Now().Add(c.round.budget)
		}
		l.mu.Unlock()
		go l.run(c)
		return
	}
	if c.round.kind == Undo {
		// An Undo behind its own unsent Write: neither has anything to do. This also keeps
		// the queue short while an owner locks and unlocks beside a frozen node.
		if last := len(l.queue) - 1; last >= 0 && l.queue[last].mark == c.mark && !c.mark.sent {
			w := l.queue[last]
			l.queue = l.queue[:last]
			l.mu.Unlock()
			w.finish(0, ErrUnsent)
			c.finish(0, ErrUnsent)
			return
		}
	}
	l.queue = append(l.queue, c)
	if len(l.queue) == 1 {
		l.arm()
	}
	l.mu.Unlock()
}

// arm sets the timer to the moment when the running call is given up. The caller holds mu.
func (l *Lane) arm() {
	if l.timer != nil {
		l.timer.Stop() // if it fires all the same, giveUp finds that it is not time
	}
	l.timer = time.AfterFunc(time.Until(l.running.deadline), l.giveUp)
}

// giveUp lets the queue go on past a call that has used up its time. The goroutine of that call
// stays with it until the client returns.
func (l *Lane) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil || len(l.queue) == 0 || time.Now().Before(l.running.deadline) {
		return
	}
	if c := l.running; c.round.kind == Write && !c.returned {
		c.mark.unsure, c.mark.out = true, true
	}
	l.advance()
	go l.run(l.running)
}

// advance makes the head of the queue, or nobody, the running call. The caller holds mu.
func (l *Lane) advance() {
	if len(l.queue) == 0 {
		l.running, l.queue, l.timer = nil, nil, nil
		return
	}
	c := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	l.running = c
	c.deadline = c.round.deadline
	if c.round.kind == Undo {
		// It may have waited for long, but it has to be sent.
		c.deadline = time.Now().Add(c.round.budget)
	}
	if len(l.queue) > 0 {
		l.arm()
	}
}

// run makes a call, and then those that wait behind it.
func (l *Lane) run(c *call) {
	for c != nil {
		l.execute(c)
		l.tracker.Leave()
		c = l.next(c)
	}
}

// next returns the call after c, or nil if there is none or c had been given up: then another goroutine
// has gone on with the lane.
func (l *Lane) next(c *call) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running != c {
		return nil
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.advance()
	return l.running
}

// execute sends the call and waits for the client, however long that takes.
func (l *Lane) execute(c *call) {
	r := c.round
	l.mu.Lock()
	deadline := c.deadline
	unsent := r.kind == Undo && !c.mark.sent
	l.mu.Unlock()

	start := time.Now()
	if r.kind != Undo && (r.over.Load() || !start.Before(r.deadline)) {
		unsent = true
	}
	if unsent {
		c.settle(0, ErrUnsent)
		return
	}
	if err := l.node.enter(ticks(start), r.budget); err != nil {
		if r.kind == Undo {
			l.undid(c, 0, err)
		}
		c.settle(0, err)
		return
	}
	if r.kind == Write {
		l.mu.Lock()
		c.mark.sent = true
		l.mu.Unlock()
	}

	ctx := r.ctx
	if !deadline.Equal(r.deadline) {
		late, cancel := context.WithDeadline(r.base, deadline)
		defer cancel()
		ctx = late
	}
	reply, err := r.op(ctx, l.node)
	end := time.Now()
	l.node.leave(ticks(start), ticks(end), r.budget, err)
	if err != nil && !end.Before(deadline) {
		err = &TimeoutError{Budget: r.budget, Err: err}
	}

	switch r.kind {
	case Write:
		l.wrote(c, reply, err)
	case Undo:
		l.undid(c, reply, err)
	}
	c.settle(reply, err)
}

// wrote notes the outcome of a Write, and sends the Undo again that may have overtaken it.
func (l *Lane) wrote(c *call, reply int64, err error) {
	l.mu.Lock()
	m := c.mark
	c.returned = true
	givenUp := l.running != c
	if err != nil && !errors.Is(err, ErrUnsent) {
		m.unsure = true
	}
	var undo *call
	if givenUp {
		m.out = false
		undo, m.undo = m.undo, nil
		if err == nil && reply <= 0 {
			undo = nil // refused: there is nothing to undo
		}
	}
	l.mu.Unlock()
	if undo != nil {
		l.submit(undo)
	}
}

// undid arranges for an Undo to be sent once more if it failed, or if it found nothing to undo but a
// Write may yet arrive: when the client returns from that Write or, where it has
// already returned, one budget later. A frozen node that executes a buffered SET later still
// is beyond any client; that key lives until it expires.
func (l *Lane) undid(c *call, reply int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := c.mark
	if c.again || err == nil && (reply > 0 || !m.unsure) {
		return
	}
	again := &call{round: c.round.repeat(), lane: l, mark: m, again: true}
	if m.out {
		m.undo = again
		return
	}
	l.tracker.Enter()
	time.AfterFunc(c.round.budget, func() {
		l.submit(again)
		l.tracker.Leave()
	})
}

// settle gives the round the call's outcome.
func (c *call) settle(reply int64, err error) { c.round.settle(c, reply, err) }

// finish is the end of a call that is not run.
func (c *call) finish(reply int64, err error) {
	c.settle(reply, err)
	c.lane.tracker.Leave()
}
