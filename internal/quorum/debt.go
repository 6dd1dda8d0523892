package quorum

import (
	"container/list"
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// debt is an Undo that a node has not answered, or has answered while a Write could still arrive: a
// key may be on the node, or may yet be set there.
type debt struct {
	work
	lane    *Lane
	write   *WriteState
	base    context.Context // values only
	budget  time.Duration
	expires time.Time // of the key

	// final is when the Writes have landed: an answer to an Undo that is sent from then on leaves
	// nothing to take back. It is 0 if the node has not answered the Undo yet. See
	// WriteState.landed and clock.Ticks. The lane's mutex guards it.
	final int64

	// The ledger's mutex guards these.
	state state
	place *list.Element // among those of the same state; nil if paid
	timer *time.Timer   // runs while landing, else nil
	again bool          // while trying: due once more afterwards
}

// state is where a debt is in the ledger.
type state uint8

const (
	paid    state = iota // not in the ledger
	landing              // until no Write can arrive any more: see untilLanded
	due                  // to be sent as soon as the node answers
	trying               // sent, and its time is not over
)

// when says when an Undo is sent the next time.
type when uint8

const (
	never when = iota
	atOnce
	onceLanded
	onceItAnswers
)

// debt returns what is owed to the node for the write of an Undo. The caller holds the lane's mu.
func (c *call) debt() *debt {
	r, m := c.round, c.write
	if m.debt == nil {
		m.debt = &debt{
			work: r.work, lane: c.lane, write: m, base: r.ctx.Context, budget: r.budget,
			expires: time.Now().Add(max(r.expiry, leastOwed)),
		}
	}
	return m.debt
}

// try is a debt that has been sent.
type try struct {
	*debt
	began    int64 // see clock.Ticks
	ctx      context.Context
	cancel   context.CancelFunc
	timer    *time.Timer // ends in giveUp
	returned once        // from the client
	ended    once        // or its time is over
}

// send sends the Undo.
func (d *debt) send() {
	n := d.lane.node
	t := &try{debt: d, began: clock.Ticks(time.Now())}
	t.ctx, t.cancel = context.WithTimeout(d.base, d.budget)
	t.timer = time.AfterFunc(clock.TimerDelay(d.budget), t.giveUp)
	n.tracker.Enter()
	n.breaker.enter()
	if d.starts(n) {
		d.startOn(t.ctx, n, t, false)
	} else {
		go t.run()
	}
}

func (t *try) run() {
	reply, err := Reply{}, errGoexit
	defer func() { t.finish(reply, err) }()
	reply, err = t.do(t.ctx, t.lane.node)
}

// Receive is told the outcome of a try that was started.
func (t *try) Receive(reply any, err error) {
	if t.returned.first() {
		t.finish(t.read(t.lane.node, reply, err))
	}
}

// finish notes that the client has returned.
func (t *try) finish(reply Reply, err error) {
	l, o := t.lane, &t.lane.node.owed
	t.timer.Stop()
	t.cancel()
	l.node.left(t.began, t.budget, false, err)
	inTime := t.ended.first()
	l.mu.Lock()
	w := t.next(reply, err, inTime)
	if inTime {
		o.tried(t.debt, w, true)
	} else {
		o.returned(t.debt, w)
	}
	l.mu.Unlock()
	o.pay()
	l.watched(&t.work, Undo, t.began, err)
	l.node.tracker.Leave()
}

// next says when the Undo is sent again after an answer or an error. The caller holds the lane's
// mu.
func (t *try) next(reply Reply, err error, inTime bool) when {
	switch {
	case t.write.sent == 0: // as has turned out meanwhile
		return never
	case err != nil:
		return onceItAnswers
	}
	t.write.undone = t.write.undone || reply.Yes()
	switch {
	case t.write.settledBy(reply):
		return never
	case t.final == 0:
		return t.answered()
	case t.began >= t.final:
		return never
	case inTime:
		return onceLanded
	}
	return onceItAnswers // which the ledger has noted already
}

// answered says when the Undo is sent again after the node's first answer, as a Write may yet
// arrive: when the Writes have landed, or when the client returns from one. The caller holds the
// lane's mu.
func (d *debt) answered() when {
	d.final = d.write.landed(clock.Ticks(time.Now()), d.budget)
	if d.write.out > 0 {
		return never // until the client returns from that Write: see wrote
	}
	return onceLanded
}

// untilLanded is how long it takes from now until the Writes have landed, see final. The caller
// holds the lane's mu.
func (d *debt) untilLanded() time.Duration {
	now, final := clock.Ticks(time.Now()), d.final
	if final == 0 {
		final = d.write.landed(now, d.budget)
	}
	return clock.Sub(time.Duration(final), time.Duration(now))
}

// giveUp lets the ledger go on without the client's answer.
func (t *try) giveUp() {
	if t.ended.first() {
		t.lane.node.owed.tried(t.debt, onceItAnswers, false)
		t.lane.node.owed.pay()
	}
}
