package quorum

import (
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// Lane keeps the commands of one mutex on one node in order. Each is sent only when the one before
// has been answered, has failed or was given up. Clients with connection pools do not order
// commands across connections. Without a lane, a release could overtake the slow SET that it takes
// back. An Undo does not wait for an Ask, which may be lost, see passes.
//
// The zero value with a node is ready for use. A Lane is safe for concurrent use and is not copied.
// An idle lane has no goroutine and no timer.
type Lane struct {
	node  *Node
	watch Watch // or nil

	mu      sync.Mutex  // guards what follows
	running *call       // handed to the client and not given up, or nil
	waiting []*call     // behind running, in order
	timer   *time.Timer // ends in giveUp; nil as long as the running call's round does that
}

// Lanes makes a lane for each of the nodes.
func Lanes(nodes []*Node) []Lane {
	lanes := make([]Lane, len(nodes))
	for i := range lanes {
		lanes[i].node = nodes[i]
	}
	return lanes
}

// submit puts a call at the end of the lane. With round.carry the caller sends it, if that is now.
func (l *Lane) submit(c *call) {
	l.node.tracker.Enter()
	l.mu.Lock()
	var idle []*call // that have nothing to do any more
	var first *call  // that may run at once
	if c.round.kind == Undo {
		c.write.over = true
		idle = l.withdraw(c.write)
		if l.recall(c.write) {
			held := l.running
			l.mu.Unlock()
			l.launch(held) // which only closes it
			l.mu.Lock()
		}
		if c.write.sent == 0 {
			idle = append(idle, c)
		}
	}
	switch {
	case c.round.kind == Undo && c.write.sent == 0:
	case l.running == nil || c.passes(l.running) && len(l.waiting) == 0:
		now := c.round.start
		if c.round.expired.Load() { // while Start stood still
			now = time.Now()
		}
		first = l.begin(c, now)
	default:
		l.waiting = append(l.waiting, c)
		l.arm()
	}
	l.mu.Unlock()
	for _, i := range idle {
		err := ErrUnsent
		if i == c {
			err = errNothing
		}
		i.round.settle(i, Reply{}, err)
		l.node.tracker.Leave()
	}
	if first == c && c.round.carry && c.unsent == nil && c.round.starts(l.node) {
		c.round.startOn(c.context(), l.node, c, true)
		return
	}
	l.launch(first)
}

// passes reports whether a call need not wait for the one that is running. An Undo need not wait
// for an Ask: whichever the node executes first, the key is gone afterwards. An Undo that is
// decided when its turn comes may leave the key with a shorter expiry, which an extension after it
// would prolong: it waits. The caller holds mu.
func (c *call) passes(running *call) bool {
	return c.round.kind == Undo && c.round.command.Decide == nil &&
		running.inHand && running.round.kind == Ask
}

// launch lets a call that has begun and those that wait behind it run, and does not wait for them:
// it hands them to a client that can do that, or else to a goroutine. Nil is no call.
func (l *Lane) launch(c *call) {
	for c != nil {
		switch {
		case c.unsent != nil:
			c = l.close(c, Reply{}, c.unsent)
		case !c.round.starts(l.node):
			go l.run(c)
			return
		default:
			c.round.startOn(c.context(), l.node, c, false)
			return // Receive goes on
		}
	}
}

// withdraw removes from the end of the queue the calls whose write an Undo takes back. None of them
// would be sent. So little waits while an owner locks and unlocks beside a frozen node. The caller
// holds mu.
func (l *Lane) withdraw(w *WriteState) (idle []*call) {
	left := len(l.waiting)
	for left > 0 && l.waiting[left-1].write == w && l.waiting[left-1].round.kind != Undo {
		left--
	}
	idle = slices.Clone(l.waiting[left:])
	l.waiting = slices.Delete(l.waiting, left, len(l.waiting))
	if left == 0 {
		l.disarm()
	}
	return idle
}

// recall takes the running call back from the breaker if an Undo takes its write back. It reports
// whether it did. The caller holds mu, and launches the call.
func (l *Lane) recall(w *WriteState) bool {
	c := l.running
	if c == nil || !c.kept || c.write != w {
		return false
	}
	l.expel(c, ErrUnsent)
	return true
}

// expel takes a call back from the breaker, which is not sent because of err. The caller holds mu,
// and launches the call.
func (l *Lane) expel(c *call, err error) {
	l.node.breaker.drop(c)
	c.kept = false
	c.unsent = err
}

// arm starts a timer that gives up the running call at its deadline, unless its round will, or
// nothing waits. The caller holds mu.
func (l *Lane) arm() {
	// A round sets expired before it looks at the lane. So either this finds it set, or the round
	// finds what waits.
	if l.timer != nil || len(l.waiting) == 0 ||
		l.running.overtime == nil && !l.running.round.expired.Load() {
		return
	}
	l.timer = time.AfterFunc(clock.TimerDelay(time.Until(l.running.deadline())), l.giveUp)
}

// disarm stops the timer. If that fires nevertheless, giveUp finds that it is not time. The caller
// holds mu.
func (l *Lane) disarm() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// giveUp lets the lane go on past a call that has used up its time. A goroutine that waits for
// the client's answer to that call stays with it.
func (l *Lane) giveUp() {
	l.mu.Lock()
	if l.running == nil || len(l.waiting) == 0 || time.Now().Before(l.running.deadline()) {
		l.mu.Unlock()
		return
	}
	if c := l.running; c.round.kind == Write && c.inHand {
		c.write.unsure = true
		c.write.out++
	}
	first := l.advance()
	l.mu.Unlock()
	l.launch(first)
}

// advance begins the first call that waits, if there is one, and returns it if it may be
// launched. The caller holds mu.
func (l *Lane) advance() *call {
	l.disarm()
	if len(l.waiting) == 0 {
		l.running, l.waiting = nil, nil
		return nil
	}
	c := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	first := l.begin(c, time.Now())
	l.arm()
	return first
}

// begin makes a call the running one, and returns it unless the breaker keeps it. It decides
// whether the call is sent, in one step with noting that it is: between the two it could be given
// up, and an Undo could find that there is nothing to take back. The caller holds mu, and launches
// the returned call.
func (l *Lane) begin(c *call, now time.Time) *call {
	r := c.round
	l.running = c
	c.began = clock.Ticks(now)
	switch {
	case r.kind != Undo && r.budget <= 0:
		c.unsent = errNoTime
		return c
	case r.kind != Undo:
		if r.over.Load() || !now.Before(r.deadline()) || c.write != nil && c.write.over {
			c.unsent = ErrUnsent
			return c
		}
	case c.write.sent == 0, r.trusts && c.write.refused(): // after all
		c.unsent = errNothing
		return c
	case r.deadline().Sub(now) < r.budget-r.budget/4:
		// It has to have its time, also if it has waited for long.
		c.overtime = &overtime{deadline: now.Add(r.budget)}
	}
	if l.node.breaker.pass(c) {
		l.hand(c)
		return c
	}
	c.kept = true
	// A round sets expired before it looks for what the breaker keeps. So either this finds it set,
	// or the round finds the call.
	if c.overtime != nil || r.expired.Load() {
		l.expel(c, l.node.unresponsive(r.budget))
		return c
	}
	return nil
}

// hand notes that a call is being handed to the client. The caller holds mu.
func (l *Lane) hand(c *call) {
	c.inHand = true
	if c.round.kind == Write {
		c.write.sent++
		c.write.sentAt = uint32(c.began / 1000)
	}
}

// resume sends a call that the breaker has kept, if that lets it pass now. If it is too late, the
// end of its round is about to end it.
func (l *Lane) resume(c *call) {
	l.mu.Lock()
	r, now := c.round, time.Now()
	if !c.kept || !now.Before(r.deadline()) {
		l.mu.Unlock()
		return
	}
	c.began = clock.Ticks(now)
	switch {
	case r.kind != Undo && (r.over.Load() || c.write != nil && c.write.over):
		l.expel(c, ErrUnsent)
	case l.node.breaker.pass(c):
		c.kept = false
		l.hand(c)
	default:
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.launch(c)
}
