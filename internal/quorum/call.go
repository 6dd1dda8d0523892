package quorum

import (
	"container/list"
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// call is a round's command on one lane.
type call struct {
	round *Round
	lane  *Lane
	write *WriteState // of the acquisition it belongs to; nil only for an Ask

	// Set under the lane's mutex when the call begins to run, and not changed any more.
	began    int64     // see clock.Ticks
	unsent   error     // why it is not sent, or nil
	overtime *overtime // for a call that may take longer than its round, or nil

	// The round's mutex guards these.
	reply   Reply
	err     error
	settled bool

	// The lane's mutex guards these.
	inHand bool // the client has it
	kept   bool // the node's breaker has it
	probe  bool // it was sent although the breaker has tripped; not changed once it is sent

	returned once          // Receive was called
	place    *list.Element // in the breaker, or nil; the breaker's mutex guards it
}

// overtime is the time that an Undo has after its round.
type overtime struct {
	deadline time.Time
	ctx      context.Context    // made by and for who runs the call
	cancel   context.CancelFunc // of ctx
	timer    *time.Timer        // ends in overdue
}

// deadline is when the node must have answered. It is known when the call has begun.
func (c *call) deadline() time.Time {
	if c.overtime != nil {
		return c.overtime.deadline
	}
	return c.round.deadline()
}

// Receive is told the outcome of a call that was started.
func (c *call) Receive(reply any, err error) {
	if c.returned.first() {
		said, err := c.round.read(c.lane.node, reply, err)
		c.lane.launch(c.lane.close(c, said, err))
	}
}

// run makes a call, and then those that wait behind it.
func (l *Lane) run(c *call) {
	defer func() {
		if c != nil { // the client has ended this goroutine
			l.launch(l.close(c, Reply{}, errGoexit))
		}
	}()
	for c != nil {
		reply, err := Reply{}, c.unsent
		if err == nil {
			reply, err = c.round.do(c.context(), l.node)
		}
		c = l.close(c, reply, err)
	}
}

// context returns what bounds the call: that of its round, unless it has more time than that.
func (c *call) context() context.Context {
	if c.overtime == nil {
		return &c.round.ctx
	}
	o := c.overtime
	o.ctx, o.cancel = context.WithDeadline(c.round.ctx.Context, o.deadline)
	o.timer = time.AfterFunc(clock.TimerDelay(time.Until(o.deadline)), c.overdue)
	return o.ctx
}

// close notes the outcome of a call, and returns the one that may run now, or nil. If c had been
// given up, there is none: another goroutine has gone on with the lane.
func (l *Lane) close(c *call, reply Reply, err error) (next *call) {
	r := c.round
	if c.unsent == nil {
		err = c.left(err)
	}
	if r.kind == Ask {
		// What waits behind it may want to know its outcome.
		r.settle(c, reply, err)
	}
	var d *debt
	var w when
	l.mu.Lock()
	c.inHand = false
	switch {
	case r.kind == Undo:
		d, w = l.undid(c, reply, err)
	case r.kind == Write && c.unsent == nil:
		d, w = l.wrote(c, reply, err)
	}
	l.node.owed.note(d, w)
	if l.running == c {
		next = l.advance()
	}
	l.mu.Unlock()
	if d != nil {
		l.node.owed.pay()
	}
	if r.kind != Ask {
		// A caller that waits for this may submit the next command at once: the lane is free.
		r.settle(c, reply, err)
	}
	if c.unsent == nil {
		l.watched(&r.work, r.kind, c.began, err)
	}
	l.node.tracker.Leave()
	return next
}

// left notes that the client has returned from the call, and returns the error to report.
func (c *call) left(err error) error {
	r := c.round
	c.lane.node.left(c.began, r.budget, c.probe, err)
	var ctx context.Context = &r.ctx
	if c.overtime != nil {
		ctx = c.overtime.ctx
		c.overtime.timer.Stop()
		c.overtime.cancel()
	}
	return c.lane.node.timedOut(ctx, c.began, r.budget, err)
}

// expire ends a call that the breaker still keeps when the time of its round is over.
func (c *call) expire() {
	l := c.lane
	l.mu.Lock()
	if !c.kept {
		l.mu.Unlock()
		return
	}
	l.expel(c, l.node.unresponsive(c.round.budget))
	l.mu.Unlock()
	l.launch(c)
}

// overdue notes that the client has kept an Undo for longer than it may take. The ledger does not
// wait for it.
func (c *call) overdue() {
	l := c.lane
	l.mu.Lock()
	var d *debt
	if c.inHand && c.write.debt == nil && !time.Now().Before(c.deadline()) {
		d = c.debt()
	}
	l.node.owed.note(d, onceLanded)
	l.mu.Unlock()
	l.node.owed.pay()
}
