package quorum

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
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
// lets an Undo be left out, or be sent again. The lane's mutex guards it.
type Mark struct {
	sent   int32 // Writes that were handed to the client, unless that has not sent them
	out    int32 // Writes that were given up and have not returned from the client
	over   bool  // an Undo was submitted: what else has not been sent is not sent any more
	unsure bool  // a Write failed or was given up: it may have been executed, or may yet be
	undone bool  // an Undo found something and took it back
	debt   *debt // the Undo, once it has failed or may have come too early
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

	// The lane's mutex guards these.
	inHand bool // the client has it
	kept   bool // the node's gate has it
	probe  bool // it was sent through the shut gate; not changed once it is sent

	returned once          // Receive was called
	place    *list.Element // in the gate, or nil; the gate's mutex guards it
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
		if l.recall(c.mark) {
			held := l.running
			l.mu.Unlock()
			l.launch(held) // which only closes it
			l.mu.Lock()
		}
		if c.mark.sent == 0 {
			idle = append(idle, c)
		}
	}
	switch {
	case c.round.kind == Undo && c.mark.sent == 0:
	case l.running == nil:
		now := c.round.start
		if c.round.expired.Load() { // while Start stood still
			now = time.Now()
		}
		first = l.begin(c, now)
	case l.waiting == nil:
		l.waiting = &backlog{}
		l.waiting.calls = append(l.waiting.few[:0], c)
		l.arm()
	default:
		l.waiting.calls = append(l.waiting.calls, c)
	}
	l.mu.Unlock()
	for _, i := range idle {
		err := ErrUnsent
		if i == c {
			err = errNothing
		}
		i.round.settle(i, 0, err)
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

// recall takes the running call back from the gate if it has the mark of an Undo. It reports
// whether it did. The caller holds mu, and launches the call.
func (l *Lane) recall(m *Mark) bool {
	c := l.running
	if c == nil || !c.kept || c.mark != m {
		return false
	}
	l.expel(c, ErrUnsent)
	return true
}

// expel takes a call back from the gate, which is not sent because of err. The caller holds mu, and
// launches the call.
func (l *Lane) expel(c *call, err error) {
	l.node.gate.drop(c)
	c.kept = false
	c.unsent = err
}

// arm sees to it that the running call is given up when it has used up its time, if its round does
// not. The caller holds mu.
func (l *Lane) arm() {
	// A round sets expired before it looks at the lane. So either this finds it set, or the round
	// finds the backlog.
	if l.running.late == nil && !l.running.round.expired.Load() {
		return
	}
	l.waiting.timer = time.AfterFunc(clock.Ahead(time.Until(l.running.deadline())), l.giveUp)
}

// giveUp lets the backlog go on past a call that has used up its time. Who waits for the client's
// answer to that call stays with it.
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
	first := l.advance()
	l.mu.Unlock()
	l.launch(first)
}

// advance begins the first call of the backlog, if there is one, and returns it if it may be
// launched. The caller holds mu.
func (l *Lane) advance() *call {
	b := l.waiting
	if b == nil {
		l.running = nil
		return nil
	}
	b.stop()
	c := b.calls[0]
	b.calls[0] = nil
	b.calls = b.calls[1:]
	first := l.begin(c, time.Now())
	if len(b.calls) == 0 {
		l.waiting = nil
		return first
	}
	l.arm()
	return first
}

// begin makes a call the running one, and returns it unless the gate keeps it. It decides whether
// the call is sent, in one step with noting that it is: between the two it could be given up, and
// an Undo could find that there is nothing to take back. The caller holds mu, and launches the
// returned call.
func (l *Lane) begin(c *call, now time.Time) *call {
	r := c.round
	l.running = c
	c.began = clock.Ticks(now)
	switch {
	case r.kind != Undo && r.budget <= 0:
		c.unsent = errNoTime
		return c
	case r.kind != Undo:
		if r.over.Load() || !now.Before(r.deadline) || c.mark != nil && c.mark.over {
			c.unsent = ErrUnsent
			return c
		}
	case c.mark.sent == 0: // after all
		c.unsent = errNothing
		return c
	case r.deadline.Sub(now) < r.budget-r.budget/4:
		// It has to have its time, also if it has waited for long.
		c.late = &overtime{deadline: now.Add(r.budget)}
	}
	if l.node.gate.pass(c) {
		l.hand(c)
		return c
	}
	c.kept = true
	// A round sets expired before it looks for what the gate keeps. So either this finds it set, or
	// the round finds the call.
	if c.late != nil || r.expired.Load() {
		l.expel(c, l.node.gate.unresponsive(c.began))
		return c
	}
	return nil
}

// hand notes that a call is being handed to the client. The caller holds mu.
func (l *Lane) hand(c *call) {
	c.inHand = true
	if c.round.kind == Write {
		c.mark.sent++
	}
}

// resume sends a call that the gate has kept, unless it is too late. It reports whether it did.
func (l *Lane) resume(c *call, asProbe bool) bool {
	l.mu.Lock()
	if !c.kept {
		l.mu.Unlock()
		return false
	}
	c.kept = false
	r, g, now := c.round, &l.node.gate, time.Now()
	c.began = clock.Ticks(now)
	switch {
	case !now.Before(r.deadline):
		c.unsent = g.unresponsive(c.began)
	case r.kind != Undo && (r.over.Load() || c.mark != nil && c.mark.over):
		c.unsent = ErrUnsent
	case asProbe:
		g.enterProbe(c)
		l.hand(c)
	default:
		g.enter(c.began, r.budget)
		l.hand(c)
	}
	l.mu.Unlock()
	l.launch(c)
	return c.unsent == nil
}

// expire ends a call that the gate still keeps when the time of its round is over.
func (c *call) expire() {
	l := c.lane
	l.mu.Lock()
	if !c.kept {
		l.mu.Unlock()
		return
	}
	l.expel(c, l.node.gate.unresponsive(clock.Ticks(time.Now())))
	l.mu.Unlock()
	l.launch(c)
}

// overdue notes that the client has kept an Undo for longer than it may take. The ledger does not
// wait for it.
func (c *call) overdue() {
	l := c.lane
	l.mu.Lock()
	var d *debt
	if c.inHand && c.mark.debt == nil && !time.Now().Before(c.deadline()) {
		d = c.debt()
	}
	l.node.owed.note(d, aBudgetLater)
	l.mu.Unlock()
	l.node.owed.pay()
}

// launch lets a call that has begun and those that wait behind it run, and does not wait for them:
// it hands them to a client that can do that, or else to a goroutine. Nil is no call.
func (l *Lane) launch(c *call) {
	for c != nil {
		switch {
		case c.unsent != nil:
			c = l.close(c, 0, c.unsent)
		case !c.round.starts(l.node):
			go l.run(c)
			return
		default:
			c.round.startOn(c.context(), l.node, c)
			return // Receive goes on
		}
	}
}

// Receive is told the outcome of a call that was started.
func (c *call) Receive(reply any, err error) {
	if c.returned.first() {
		n, err := c.round.read(reply, err)
		c.lane.launch(c.lane.close(c, n, err))
	}
}

// run makes a call, and then those that wait behind it.
func (l *Lane) run(c *call) {
	defer func() {
		if c != nil { // the client has ended this goroutine
			l.launch(l.close(c, 0, errGoexit))
		}
	}()
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
	c.late.timer = time.AfterFunc(clock.Ahead(time.Until(c.late.deadline)), c.overdue)
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
		// Whoever waits for this may submit the next command at once: the lane is free by then.
		r.settle(c, reply, err)
	}
	l.node.tracker.Leave()
	return next
}

// left notes that the client has returned from the call, and returns the error to report.
func (c *call) left(err error) error {
	r := c.round
	c.lane.node.left(c.began, r.budget, c.probe, err)
	var ctx context.Context = &r.ctx
	if c.late != nil {
		ctx = c.late.ctx
		c.late.timer.Stop()
		c.late.cancel()
	}
	return c.lane.node.timedOut(ctx, c.began, r.budget, err)
}

// wrote notes the outcome of a Write, and says when the Undo that may have overtaken it is sent
// again. The caller holds mu.
func (l *Lane) wrote(c *call, reply int64, err error) (*debt, when) {
	m := c.mark
	unsent := errors.Is(err, ErrUnsent) || errors.Is(err, pool.ErrNotSent)
	switch {
	case unsent:
		m.sent--
	case err != nil:
		m.unsure = true
	}
	if l.running == c {
		return nil, never
	}
	m.out--
	switch {
	case m.sent == 0:
		return m.debt, never
	case unsent:
		return nil, never
	case err != nil:
		if d := m.debt; d != nil && d.answeredAt != 0 {
			d.answeredAt = clock.Ticks(time.Now()) // what was answered before this is not the last word
		}
		return m.debt, aBudgetLater
	case reply > 0:
		return m.debt, atOnce
	}
	return nil, never
}

// undid notes the outcome of an Undo, and says when it is sent again: as soon as the node answers,
// if it failed. If it was answered but a Write may yet arrive, it is sent once more, when the
// client returns from that Write or, where that has failed already, one budget later. A frozen node
// that executes a buffered SET later still is beyond any client; that key lives until it expires.
// The caller holds mu.
func (l *Lane) undid(c *call, reply int64, err error) (*debt, when) {
	m := c.mark
	switch {
	case m.sent == 0:
		return m.debt, never
	case err != nil:
		return c.debt(), onceItAnswers
	}
	m.undone = m.undone || reply > 0
	if m.settledBy(reply) {
		return m.debt, never
	}
	d := c.debt()
	if d.answeredAt != 0 {
		return nil, never // the ledger knows more
	}
	return d, d.answered()
}

// settledBy reports whether an answer to an Undo leaves nothing to take back: no Write can arrive
// any more, or it took back the only one. The lane's mutex guards the Mark.
func (m *Mark) settledBy(reply int64) bool { return !m.unsure || reply > 0 && m.sent == 1 }

// debt returns what is owed to the node for the mark of an Undo. The caller holds the lane's mu.
func (c *call) debt() *debt {
	r, m := c.round, c.mark
	if m.debt == nil {
		m.debt = &debt{
			work: r.work, lane: c.lane, mark: m, base: r.base, budget: r.budget,
			expires: time.Now().Add(max(r.expiry, leastOwed)),
		}
	}
	return m.debt
}
