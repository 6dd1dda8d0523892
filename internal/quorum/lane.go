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

	mu      sync.Mutex // guards what follows
	running *call      // handed to the client and not given up, or kept by the breaker, or nil
	waiting []*call    // behind running, in order
}

// Lanes makes a lane for each of the nodes.
func Lanes(nodes []*Node) []Lane {
	lanes := make([]Lane, len(nodes))
	for i := range lanes {
		lanes[i].node = nodes[i]
	}
	return lanes
}

// submit puts a call at the end of the lane. If its turn is now and its caller waits for it, the
// caller makes it.
func (l *Lane) submit(c *call) {
	l.node.tracker.Enter()
	l.mu.Lock()
	undo := c.round.kind == Undo && !c.beside
	var unsent []*call
	if undo {
		c.write.over = true
		unsent = l.withdraw(c.write)
	}
	var first *call // that may be launched
	now := c.round.start
	if c.round.expired.Load() { // while the caller stood still
		now = time.Now()
	}
	switch {
	case undo && c.write.sent == 0:
		c.unsent = errNothing
		unsent = append(unsent, c)
	case c.beside:
		first = l.begin(c, now)
	case l.running == nil || c.passes(l.running) && len(l.waiting) == 0:
		first = l.next(c, now)
	default:
		l.waiting = append(l.waiting, c)
	}
	l.mu.Unlock()
	for _, u := range unsent {
		l.launch(u)
	}
	if first == c && c.round.spec.Waits && c.unsent == nil && c.starts() {
		c.start(true)
		return
	}
	l.launch(first)
}

// passes reports whether a call need not wait for the one that is running. An Undo need not wait
// for an Ask: whichever the node executes first, the key is gone afterwards. An Undo that is
// decided when its turn comes may leave the key with a shorter expiry, which an extension after it
// would prolong: it waits. The caller holds mu.
func (c *call) passes(running *call) bool {
	return c.round.kind == Undo && c.round.spec.Command.Decide == nil &&
		running.inHand && running.round.kind == Ask
}

// withdraw takes back what has not been sent of the write that an Undo takes back: the end of the
// queue, and the running call if the breaker has it. So little waits while an owner locks and
// unlocks beside a frozen node. The caller holds mu, and launches the calls.
func (l *Lane) withdraw(w *WriteState) (unsent []*call) {
	ours := func(c *call) bool { return c.write == w && c.round.kind != Undo }
	left := len(l.waiting)
	for left > 0 && ours(l.waiting[left-1]) {
		left--
		l.waiting[left].unsent = ErrUnsent
	}
	unsent = slices.Clone(l.waiting[left:])
	l.waiting = slices.Delete(l.waiting, left, len(l.waiting))
	if c := l.running; c != nil && c.kept && ours(c) {
		l.expel(c, ErrUnsent)
		unsent = append(unsent, c)
	}
	return unsent
}

// expel takes a call back from the breaker, which is not sent because of err, if that is not nil.
// The caller holds mu, and launches the call.
func (l *Lane) expel(c *call, err error) {
	l.node.breaker.drop(c)
	c.kept = false
	c.unsent = err
}

// launch lets a call that has begun, and those that wait behind it, run, and does not wait for
// them. Nil is no call.
func (l *Lane) launch(c *call) {
	for c != nil {
		switch {
		case c.unsent != nil:
			c = l.close(c, Reply{}, c.unsent)
		case c.starts():
			c.start(false)
			return
		default:
			go c.run()
			return
		}
	}
}

// close notes the outcome of a call, and returns the one that may be launched now, or nil. If c had
// been given up, there is none: the lane has gone on.
func (l *Lane) close(c *call, reply Reply, err error) (next *call) {
	r, sent := c.round, c.unsent == nil
	if sent {
		err = l.node.left(c, err)
	}
	if r.kind == Ask {
		// What waits behind it may want to know its outcome.
		r.settle(c, reply, err)
	}
	l.mu.Lock()
	switch {
	case r.kind == Undo:
		l.undid(c, reply, err)
	case r.kind == Write && sent:
		l.wrote(c, reply, err)
	}
	c.inHand = false
	if l.running == c {
		next = l.advance()
	}
	l.mu.Unlock()
	if r.kind != Ask {
		// A caller that waits for this may submit the next command at once: the lane is free.
		r.settle(c, reply, err)
	}
	if c.first != nil {
		c.first.round.settle(c.first, reply, err)
	}
	if sent {
		l.watched(c, err)
	}
	l.node.tracker.Leave()
	return next
}

// expire ends a call that has used up its time. The breaker does not keep it any longer, and if the
// client has it, the lane goes on without the answer.
func (l *Lane) expire(c *call) {
	l.mu.Lock()
	var first *call
	switch {
	case c.kept:
		l.expel(c, l.node.unresponsive(c.round.spec.Budget))
		first = c // which only closes it
	case c.inHand:
		switch c.round.kind {
		case Write:
			c.write.unsure = true
			c.write.out++
		case Undo:
			l.undid(c, Reply{}, ErrUnanswered)
			c.inHand = false
		}
		if l.running == c {
			first = l.advance()
		}
	}
	l.mu.Unlock()
	l.launch(first)
}

// advance begins the first call that waits, if there is one, and returns it if it may be launched.
// The caller holds mu.
func (l *Lane) advance() *call {
	if len(l.waiting) == 0 {
		l.running, l.waiting = nil, nil
		return nil
	}
	c := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	return l.next(c, time.Now())
}

// next begins a call whose turn it is, and returns what may be launched. The caller holds mu.
func (l *Lane) next(c *call, now time.Time) *call {
	if r := c.round; r.kind == Undo && r.deadline().Sub(now) < r.spec.Budget-r.spec.Budget/4 {
		c = c.again() // It has to have its time, also if it has waited for long.
	}
	l.running = c
	return l.begin(c, now)
}

// begin begins a call, and returns it unless the breaker keeps it. It decides whether the call is
// sent, in one step with noting that it is: between the two it could be given up, and an Undo could
// find that there is nothing to take back. The caller holds mu, and launches the returned call.
func (l *Lane) begin(c *call, now time.Time) *call {
	r := c.round
	c.began = clock.Ticks(now)
	switch {
	case r.kind == Undo:
		if c.write.sent == 0 || r.spec.Trusts && c.write.refused() { // after all
			c.unsent = errNothing
			return c
		}
	case r.spec.Budget <= 0:
		c.unsent = errNoTime
		return c
	case r.over.Load() || !now.Before(r.deadline()) || c.write.over:
		c.unsent = ErrUnsent
		return c
	}
	if l.node.breaker.pass(c) {
		l.hand(c)
		return c
	}
	c.kept = true
	// A round sets expired before it looks for what the breaker keeps. So either this finds it set,
	// or the round finds the call.
	if r.expired.Load() {
		l.expel(c, l.node.unresponsive(r.spec.Budget))
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

// resume begins a call that the breaker has kept once more. If it is too late, the end of its round
// is about to end it.
func (l *Lane) resume(c *call) {
	l.mu.Lock()
	var first *call
	if now := time.Now(); c.kept && now.Before(c.round.deadline()) {
		l.expel(c, nil)
		first = l.begin(c, now)
	}
	l.mu.Unlock()
	l.launch(first)
}
