package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
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
	sent   int32  // Writes that were handed to the client
	out    int32  // Writes that were given up and have not returned from the client
	over   bool   // an Undo was submitted: what else has not been sent is not sent any more
	unsure bool   // a Write failed or was given up: it may have been executed, or may yet be
	undone bool   // an Undo found something and took it back
	undo   *Round // the Undo to send once more whenever one of those that are out returns
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
	node *Node

	mu      sync.Mutex // guards what follows
	running *call      // handed to the client and not given up, or nil
	waiting *backlog   // behind running, or nil
}

// backlog is what waits behind the running call of a lane: at least one call.
type backlog struct {
	calls []*call     // in order
	timer *time.Timer // ends in giveUp; nil as long as the running call's round does that
	few   [2]*call    // calls of the usual number, allocated with the backlog
}

func (b *backlog) stop() {
	if b.timer != nil {
		b.timer.Stop() // if it fires all the same, giveUp finds that it is not time
		b.timer = nil
	}
}

// Lanes makes a lane for each of the nodes.
func Lanes(nodes []*Node) []Lane {
	lanes := make([]Lane, len(nodes))
	for i := range lanes {
		lanes[i].node = nodes[i]
	}
	return lanes
}

// call is a round's command on one lane.
type call struct {
	round *Round
	lane  *Lane
	mark  *Mark // of the acquisition it belongs to; nil only for an Ask

	// Set under the lane's mutex when the call begins to run, and not changed any more.
	began  int64     // see clock.Ticks
	unsent error     // why it is not sent, or nil
	late   *overtime // for a call that may take longer than its round, or nil

	// The round's mutex guards these.
	reply   int64
	err     error
	settled bool

	again  bool // an Undo sent once more
	inHand bool // the client has it; the lane's mutex guards this
}

// overtime is the time that an Undo has after its round.
type overtime struct {
	deadline time.Time
	ctx      context.Context    // made by and for who runs the call
	cancel   context.CancelFunc // of ctx
}

// deadline is when the node must have answered. It is known when the call has begun.
func (c *call) deadline() time.Time {
	if c.late != nil {
		return c.late.deadline
	}
	return c.round.deadline
}

// submit puts a call at the end of the lane.
func (l *Lane) submit(c *call) {
	l.node.tracker.Enter()
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
		now := c.round.start
		if c.again || c.round.expired.Load() { // while Start stood still
			now = time.Now()
		}
		l.begin(c, now)
		first = c
	case l.waiting == nil:
		l.waiting = &backlog{}
		l.waiting.calls = append(l.waiting.few[:0], c)
		l.arm()
	default:
		l.waiting.calls = append(l.waiting.calls, c)
	}
	l.mu.Unlock()
	for _, c := range idle {
		c.round.settle(c, 0, ErrUnsent)
		l.node.tracker.Leave()
	}
	l.launch(first)
}

// withdraw takes from the end of the backlog what has the mark of an Undo. None of it would be
// sent, and the backlog stays short while an owner locks and unlocks beside a frozen node. The
// caller holds mu.
func (l *Lane) withdraw(m *Mark) (idle []*call) {
	b := l.waiting
	if b == nil {
		return nil
	}
	for last := len(b.calls) - 1; last >= 0; last-- {
		if w := b.calls[last]; w.mark != m || w.round.kind == Undo {
			return idle
		}
		idle = append(idle, b.calls[last])
		b.calls[last] = nil
		b.calls = b.calls[:last]
	}
	b.stop()
	l.waiting = nil
	return idle
}

// arm sees to it that the running call is given up when it has used up its time, if its round does not. The caller holds mu.
func (l *Lane) arm() {
	// A round sets expired before it looks at the lane. So either this finds it set, or the round
	// finds the backlog.
	if l.running.late == nil && !l.running.round.expired.Load() {
		return
	}
	l.waiting.timer = time.AfterFunc(clock.Ahead(time.Until(l.running.deadline())), l.giveUp)
}

// giveUp lets the backlog go on past a call that has used up its time. Who waits for the client's answer to
// that call stays with it.
func (l *Lane) giveUp() {
	l.mu.Lock()
	if l.running == nil || l.waiting == nil || time.Now().Before(l.running.deadline()) {
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

// advance begins the first call of the backlog, if there is one. The caller holds mu.
func (l *Lane) advance() {
	b := l.waiting
	if b == nil {
		l.running = nil
		return
	}
	b.stop()
	c := b.calls[0]
	b.calls[0] = nil
	b.calls = b.calls[1:]
	l.begin(c, time.Now())
	if len(b.calls) == 0 {
		l.waiting = nil
		return
	}
	l.arm()
}

// begin makes a call the running one and decides whether it is sent, in one step with noting that
// it is: between the two it could be given up, and an Undo could find that there is nothing to take back.
// The caller holds mu, and launches the call.
func (l *Lane) begin(c *call, now time.Time) {
	r := c.round
	l.running = c
	c.began = clock.Ticks(now)
	if r.kind == Undo && r.deadline.Sub(now) < r.budget*3/4 {
		// It has to be sent, and to have its time, also if it has waited for long.
		c.late = &overtime{deadline: now.Add(r.budget)}
	}
	if r.kind != Undo && (r.over.Load() || !now.Before(r.deadline) || c.mark != nil && c.mark.over) {
		c.unsent = ErrUnsent
		return
	}
	if c.unsent = l.node.enter(c.began, r.budget); c.unsent == nil && r.kind == Write {
		c.mark.sent++
		c.inHand = true
	}
}

// launch lets a call that has begun and those that wait behind it run, and does not wait for them: it hands them to a
// client that can do that, or else to a goroutine. Nil is no call.
func (l *Lane) launch(c *call) {
	for c != nil {
		switch {
		case c.unsent != nil:
			c = l.close(c, 0, c.unsent)
		case l.node.Starter == nil || c.round.op != nil:
			go l.run(c)
			return
		default:
			l.node.Starter.Start(c.context(), c.round.command.Command, c)
			return // Receive goes on
		}
	}
}

// Receive is told the outcome of a call that was started.
func (c *call) Receive(reply any, err error) {
	command := c.round.command
	n, err := command.Reply(command.Command, reply, err)
	c.lane.launch(c.lane.close(c, n, err))
}

// run makes a call, and then those that wait behind it.
func (l *Lane) run(c *call) {
	for c != nil {
		reply, err := int64(0), c.unsent
		if err == nil {
			reply, err = c.round.do(c.context(), l.node)
		}
		c = l.close(c, reply, err)
	}
}

// context returns what bounds the call: that of its round, unless it has more time than that.
func (c *call) context() context.Context {
	if c.late == nil {
		return &c.round.ctx
	}
	c.late.ctx, c.late.cancel = context.WithDeadline(c.round.base, c.late.deadline)
	return c.late.ctx
}

// close notes the outcome of a call, and returns the one that may run now: none if there is none
// or c had been given up, for then another goroutine has gone on with the lane.
func (l *Lane) close(c *call, reply int64, err error) (next *call) {
	r := c.round
	if c.unsent == nil {
		err = c.left(err)
	}
	if r.kind == Ask {
		// What waits behind it may want to know its outcome.
		r.settle(c, reply, err)
	}
	var undo *Round
	l.mu.Lock()
	switch {
	case r.kind == Undo:
		l.undid(c, reply, err)
	case r.kind == Write && c.unsent == nil:
		undo = l.wrote(c, reply, err)
	}
	if l.running == c {
		l.advance()
		next = l.running
	}
	l.mu.Unlock()
	if undo != nil {
		l.submit(undo.again(c))
	}
	if r.kind != Ask {
		// Whoever waits for this may submit the next command at once: the lane is free by then.
		r.settle(c, reply, err)
	}
	l.node.tracker.Leave()
	return next
}

// left notes that the client has returned from the call, and returns the error to report.
func (c *call) left(err error) error {
	// An error that took long is a client's timeout, not an answer of the node; nor is it one if an Op did not ask.
	c.lane.node.leave(err == nil ||
		!errors.Is(err, ErrUnsent) && time.Duration(clock.Ticks(time.Now())-c.began) < c.round.budget/4)
	var ctx context.Context = &c.round.ctx
	if c.late != nil {
		ctx = c.late.ctx
		defer c.late.cancel()
	}
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = c.lane.node.Timeout(c.round.budget, err)
	}
	return err
}

// wrote notes the outcome of a Write, and returns the Undo that may have overtaken it and has to be
// submitted again, or nil. The caller holds mu.
func (l *Lane) wrote(c *call, reply int64, err error) *Round {
	m := c.mark
	c.inHand = false
	failed := err != nil && !errors.Is(err, ErrUnsent)
	if failed {
		m.unsure = true
	}
	if l.running == c {
		return nil
	}
	undo := m.undo
	m.out--
	if m.out == 0 {
		m.undo = nil
	}
	switch {
	case undo == nil:
	case failed:
		l.repeat(undo, c)
	case err == nil && reply > 0:
		return undo
	}
	return nil
}

// undid arranges for an Undo to be sent once more if it failed, or if it found nothing to undo but a
// Write may yet arrive: when the client returns from that Write with an answer or, where it
// returns without one or has done so already, one budget later. A frozen node that executes a
// buffered SET later still is beyond any client; that key lives until it expires. The caller holds mu.
func (l *Lane) undid(c *call, reply int64, err error) {
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
	l.node.tracker.Enter()
	time.AfterFunc(r.budget, func() {
		l.submit(r.again(c))
		l.node.tracker.Leave()
	})
}
