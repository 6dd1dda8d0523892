package quorum

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// Pipeline keeps the commands of one mutex on one node in order. Each is sent only when the one
// before has been answered, has failed or was given up. Clients with connection pools do not order
// commands across connections. Without a pipeline, a release could overtake the slow SET that it
// takes back. A Release does not wait for an Ask, which may be lost, see passes.
//
// The zero value with a node is ready for use. A Pipeline is safe for concurrent use and is not
// copied. An idle pipeline has no goroutine and no timer.
type Pipeline struct {
	node  *Node
	watch Watch // or nil

	mu      sync.Mutex // guards what follows
	running *call      // handed to the client and not given up, or kept by the breaker, or nil
	waiting []*call    // behind running, in order
	room    [1]*call   // for those that wait, as long as there is one
}

// Pipelines makes a pipeline for each of the nodes.
func Pipelines(nodes []*Node) []Pipeline {
	pipelines := make([]Pipeline, len(nodes))
	for i := range pipelines {
		p := &pipelines[i]
		p.node, p.waiting = nodes[i], p.room[:0]
	}
	return pipelines
}

// submit puts a call at the end of the pipeline. If its turn is now and its caller waits for it,
// the caller makes it.
func (p *Pipeline) submit(c *call) {
	p.node.tracker.Enter()
	p.mu.Lock()
	release := c.round.kind == Release
	var unsent []*call
	if release {
		c.write.over = true
		unsent = p.withdraw(c.write)
	}
	var first *call // that may be launched
	switch {
	case c.first != nil || release && c.write.sent == 0:
		first = p.begin(c) // it does not wait for its turn
	case p.running == nil || c.passes(p.running) && len(p.waiting) == 0:
		first = p.next(c)
	default:
		p.waiting = append(p.waiting, c)
	}
	p.mu.Unlock()
	for _, u := range unsent {
		p.launch(u)
	}
	if first == c && c.round.spec.Waits && c.unsent == nil {
		c.start(true)
		return
	}
	p.launch(first)
}

// passes reports whether a call need not wait for the one that is running. A Release need not wait
// for an Ask: whichever the node executes first, the key is gone afterwards. A Release that is
// decided when its turn comes may leave the key with a shorter expiry, which an extension after it
// would prolong: it waits. The caller holds mu.
func (c *call) passes(running *call) bool {
	return c.round.kind == Release && c.round.spec.Command.For == nil &&
		running.inHand && running.round.kind == Ask
}

// withdraw takes back what waits of the write that a Release takes back. So little waits while an
// owner locks and unlocks beside a frozen node. The caller holds mu, and launches the calls.
func (p *Pipeline) withdraw(w *WriteState) (unsent []*call) {
	p.waiting = slices.DeleteFunc(p.waiting, func(c *call) bool {
		ours := c.write == w && c.round.kind != Release
		if ours {
			c.unsent = ErrUnsent
			unsent = append(unsent, c)
		}
		return ours
	})
	return unsent
}

// launch lets a call that has begun, and those that wait behind it, run, and does not wait for
// them. Nil is no call.
func (p *Pipeline) launch(c *call) {
	for c != nil && c.unsent != nil {
		c = p.close(c, Reply{}, c.unsent)
	}
	switch {
	case c == nil:
	case c.round.spec.Command.For != nil: // which may wait for a mutex
		go c.start(false)
	default:
		c.start(false)
	}
}

// close notes the outcome of a call, and returns the one that may be launched now, or nil. If c had
// been given up, there is none: the pipeline has gone on.
func (p *Pipeline) close(c *call, reply Reply, err error) (next *call) {
	r, sent := c.round, c.unsent == nil
	if sent {
		err = p.node.left(c, err)
	}
	p.mu.Lock()
	switch {
	case r.kind == Release:
		p.released(c, reply, err)
	case r.kind == Write && sent:
		p.wrote(c, reply, err)
	}
	c.inHand = false
	if p.running == c {
		next = p.advance()
	}
	p.mu.Unlock()
	// A caller that waits for this may submit the next command at once: the pipeline is free. What
	// waits behind it is launched later, and may want to know the outcome.
	r.settle(c, reply, err)
	if c.first != nil {
		c.first.round.settle(c.first, reply, err)
	}
	if sent && p.watch != nil && !errors.Is(err, ErrUnsent) {
		p.watch(p.node, c.sent, r.kind, c.began, err)
	}
	p.node.tracker.Leave()
	return next
}

// expire ends a call that has used up its time. The breaker does not keep it any longer, and if the
// client has it, the pipeline goes on without the answer.
func (p *Pipeline) expire(c *call) {
	p.mu.Lock()
	var first *call
	switch {
	case c.kept:
		first = c // to launch it only closes it
		p.node.breaker.drop(c)
		c.unsent = p.node.unresponsive(c.round.spec.Budget)
	case c.inHand:
		switch c.round.kind {
		case Write:
			c.write.unsure = true
			c.write.out++
		case Release:
			p.released(c, Reply{}, ErrUnanswered)
		}
		c.inHand = false
		if p.running == c {
			first = p.advance()
		}
	}
	p.mu.Unlock()
	p.launch(first)
}

// advance begins the first call that waits, if there is one, and returns it if it may be launched.
// The caller holds mu.
func (p *Pipeline) advance() *call {
	if len(p.waiting) == 0 {
		p.running = nil
		return nil
	}
	c := p.waiting[0]
	p.waiting = slices.Delete(p.waiting, 0, 1)
	return p.next(c)
}

// next begins a call whose turn it is, and returns what may be launched. The caller holds mu.
func (p *Pipeline) next(c *call) *call {
	if r := c.round; r.kind == Release && time.Until(r.deadline()) < r.spec.Budget-r.spec.Budget/4 {
		c = c.again() // It has to have its time, also if it has waited for long.
	}
	p.running = c
	return p.begin(c)
}

// begin begins a call, and returns it unless the breaker keeps it. It decides whether the call is
// sent, in one step with noting that it is: between the two it could be given up, and a Release
// could find that there is nothing to take back. The caller holds mu, and launches the returned
// call.
func (p *Pipeline) begin(c *call) *call {
	r, w := c.round, c.write
	c.began = clock.NowTicks()
	late := c.began >= clock.Ticks(r.deadline())
	switch {
	case r.kind == Release && (w.sent == 0 || r.spec.Trusts && w.refused()):
		c.unsent = errNothing
	case r.kind != Release && (w.over || late):
		c.unsent = ErrUnsent
	case late: // its round may have expired: nobody else would end it
		c.unsent = &TimeoutError{Budget: r.spec.Budget}
	case !p.node.breaker.pass(c):
		return nil
	default:
		c.inHand = true
		if r.kind == Write {
			w.sent++
			w.sentAt = uint32(c.began / 1000)
		}
	}
	return c
}

// resume begins a call that the breaker has kept once more. If it is too late, the end of its round
// is about to end it.
func (p *Pipeline) resume(c *call) {
	p.mu.Lock()
	var first *call
	if c.kept && time.Now().Before(c.round.deadline()) {
		p.node.breaker.drop(c)
		first = p.begin(c)
	}
	p.mu.Unlock()
	p.launch(first)
}
