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
	// comes, unless none of those Writes was ever sent. From its submission on no other command with
	// the Mark is sent, also none that is ahead of it on the lane.
	Undo
)

// Mark is what a lane knows of the Writes of one acquisition on its node: the memory that
// lets an Undo be left out, or be sent once more. The lane's mutex guards it.
type Mark struct {
	sent   int    // Writes that were handed to the client
	over   bool   // an Undo was submitted: what else has not been sent is not sent any more
	unsure bool   // a Write failed or was given up: it may have been executed, or may yet be
	out    int    // Writes that were given up and have not returned from the client
	undo   *Round // the Undo to send once more whenever one of those returns
	undone bool   // an Undo found something and took it back
}

// Sent makes marks for n lanes of an acquisition whose Writes were sent by somebody else.
func Sent(n int) []Mark {
	marks := make([]Mark, n)
	for i := range marks {
		marks[i].sent = 1
	}
	return marks
}

// Undone reports whether an Undo has taken back a Write with the mark, which is one of this lane's.
func (l *Lane) Undone(m *Mark) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return m.undone
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
	mark  *Mark // of the acquisition it belongs to; nil only for an Ask
	again bool  // an Undo sent for the second time

	// Who runs the call has these to itself.
	start  time.Time
	sent   bool
	ctx    context.Context
	cancel context.CancelFunc // of a ctx of its own, or nil

	// The lane's mutex guards these.
	deadline time.Time // for the node's answer, since the call runs
	inHand   bool      // the client has it

	// The round's mutex guards these.
	settled bool
	reply   int64
	err     error
}

// submit puts a call at the end of the lane.
func (l *Lane) submit(c *call) {
	l.tracker.Enter()
	l.mu.Lock()
	var idle []*call // that have nothing to do any more
	var first *call  // that may run at once
	if c.round.kind == Undo {
		c.mark.over = true
		idle = l.withdraw(c.mark)
		if c.mark.sent == 0 {
			idle = append(idle, c)
		}
	}
	switch {
	case c.round.kind == Undo && c.mark.sent == 0:
	case l.running == nil:
		l.running = c
		c.deadline = c.round.deadline
		if c.again {
			c.deadline = time.Now().Add(c.round.budget)
		}
		first = c
	default:
		l.queue = append(l.queue, c)
		if len(l.queue) == 1 {
			l.arm()
		}
	}
	l.mu.Unlock()
	for _, c := range idle {
		c.round.settle(c, 0, ErrUnsent)
		l.tracker.Leave()
	}
	l.launch(first)
}

// withdraw takes from the end of the queue what has the mark of an Undo. None of it would be
// sent, and the queue stays short while an owner locks and unlocks beside a frozen node. The
// caller holds mu.
func (l *Lane) withdraw(m *Mark) (idle []*call) {
	for last := len(l.queue) - 1; last >= 0; last-- {
		if w := l.queue[last]; w.mark != m || w.round.kind == Undo {
			break
		}
		idle = append(idle, l.queue[last])
		l.queue[last] = nil
		l.queue = l.queue[:last]
	}
	return idle
}

// arm sets the timer to the moment when the running call is given up. The caller holds mu.
func (l *Lane) arm() {
	if l.timer != nil {
		l.timer.Stop() // if it fires all the same, giveUp finds that it is not time
	}
	l.timer = time.AfterFunc(time.Until(l.running.deadline), l.giveUp)
}

// giveUp lets the queue go on past a call that has used up its time. Who waits for the client's answer to
// that call stays with it.
func (l *Lane) giveUp() {
	l.mu.Lock()
	if l.running == nil || len(l.queue) == 0 || time.Now().Before(l.running.deadline) {
		l.mu.Unlock()
		return
	}
	if c := l.running; c.round.kind == Write && c.inHand {
		c.mark.unsure = true
		c.mark.out++
	}
	l.advance()
	first := l.running
	l.mu.Unlock()
	l.launch(first)
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
		// It has to be sent, and to have its time, also if it has waited for long.
		if now := time.Now(); c.deadline.Sub(now) < c.round.budget*3/4 {
			c.deadline = now.Add(c.round.budget)
		}
	}
	if len(l.queue) > 0 {
		l.arm()
	}
}

// launch lets a call and those that wait behind it run, and does not wait for them: it hands them to a
// client that can do that, or else to a goroutine. Nil is no call.
func (l *Lane) launch(c *call) {
	for c != nil {
		if l.node.Starter == nil || c.round.op != nil {
			go l.run(c)
			return
		}
		ctx, err := l.open(c)
		if err == nil {
			c.round.command.Start(ctx, l.node, c)
			return // Receive goes on
		}
		c = l.close(c, 0, err)
	}
}

// Receive is told the outcome of a call that was started.
func (c *call) Receive(reply any, err error) {
	n, err := c.round.command.Reply(reply, err)
	c.lane.launch(c.lane.close(c, n, err))
}

// run makes a call, and then those that wait behind it.
func (l *Lane) run(c *call) {
	for c != nil {
		ctx, err := l.open(c)
		reply := int64(0)
		if err == nil {
			reply, err = c.round.do(ctx, l.node)
		}
		c = l.close(c, reply, err)
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

// open decides whether a call is sent, and returns the context for it.
func (l *Lane) open(c *call) (context.Context, error) {
	r := c.round
	c.start = time.Now()
	l.mu.Lock()
	deadline := c.deadline
	err := l.admit(c, c.start)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.sent, c.ctx = true, &r.ctx
	if !deadline.Equal(r.deadline) {
		c.ctx, c.cancel = context.WithDeadline(r.base, deadline)
	}
	return c.ctx, nil
}

// close notes the outcome of a call, and returns the one that may run now.
func (l *Lane) close(c *call, reply int64, err error) (next *call) {
	r := c.round
	if c.sent {
		l.node.leave(ticks(c.start), ticks(time.Now()), r.budget, err)
		if err != nil && c.ctx.Err() == context.DeadlineExceeded {
			err = &TimeoutError{Budget: r.budget, Err: err}
		}
		if c.cancel != nil {
			c.cancel()
		}
	}
	switch {
	case r.kind == Undo:
		l.undid(c, reply, err)
	case r.kind == Write && c.sent:
		l.wrote(c, reply, err)
	}
	if r.kind == Ask {
		// What waits behind it may want to know its outcome.
		r.settle(c, reply, err)
	}
	next = l.next(c)
	if r.kind != Ask {
		// Whoever waits for this may submit the next command at once: the lane is free by then.
		r.settle(c, reply, err)
	}
	l.tracker.Leave()
	return next
}

// admit decides whether a call is sent, in one step with noting that it is: between the two
// it could be given up, and an Undo could find that there is nothing to take back. The caller holds mu.
func (l *Lane) admit(c *call, now time.Time) error {
	r := c.round
	if r.kind != Undo && (l.running != c || r.over.Load() || !now.Before(r.deadline) || c.mark != nil && c.mark.over) {
		return ErrUnsent
	}
	if err := l.node.enter(ticks(now), r.budget); err != nil {
		return err
	}
	if r.kind == Write {
		c.mark.sent++
		c.inHand = true
	}
	return nil
}

// wrote notes the outcome of a Write, and sends the Undo again that may have overtaken it.
func (l *Lane) wrote(c *call, reply int64, err error) {
	l.mu.Lock()
	m := c.mark
	c.inHand = false
	failed := err != nil && !errors.Is(err, ErrUnsent)
	if failed {
		m.unsure = true
	}
	var undo *Round
	if l.running != c {
		undo = m.undo
		m.out--
		if m.out == 0 {
			m.undo = nil
		}
	}
	l.mu.Unlock()
	switch {
	case undo == nil:
	case failed:
		l.repeat(undo, c)
	case err == nil && reply > 0:
		l.submit(undo.again(c))
	}
}

// undid arranges for an Undo to be sent once more if it failed, or if it found nothing to undo but a
// Write may yet arrive: when the client returns from that Write with an answer or, where it
// returns without one or has done so already, one budget later. A frozen node that executes a
// buffered SET later still is beyond any client; that key lives until it expires.
func (l *Lane) undid(c *call, reply int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := c.mark
	if err == nil && reply > 0 {
		m.undone = true
	}
	// One deletion takes back one Write.
	if c.again || err == nil && (!m.unsure || reply > 0 && m.sent == 1) {
		return
	}
	if m.out > 0 {
		m.undo = c.round
		return
	}
	l.repeat(c.round, c)
}

// repeat sends the Undo r for the Mark of c once more, one budget later.
func (l *Lane) repeat(r *Round, c *call) {
	l.tracker.Enter()
	time.AfterFunc(r.budget, func() {
		l.submit(r.again(c))
		l.tracker.Leave()
	})
}
