package turn

import (
	"crypto/rand"
	"slices"
	"strconv"
	"time"
)

// Call is what somebody waits for: that nodes say that it is the turn of a number.
type Call struct {
	// Number is what the nodes send.
	Number string

	listener *Listener
	wake     chan struct{}
	next     chan struct{} // it may bid

	heard  []bool   // by node
	count  int      // of nodes in heard
	asked  uint64   // calls of Ask
	latest []uint64 // of these the latest, by node
	grace  *time.Timer

	bid string // what nodes send that take its bid up, or ""
	has []bool // by node: the bid was taken up
	had int    // nodes in has
}

// Next ends a message to the one that is the next after the holder. Its number comes before.
const Next = "+"

// Expect begins a call with a new number. It is given up by [Call.End].
func (l *Listener) Expect() *Call {
	l.source.mu.Lock()
	l.source.last++
	number := strconv.FormatUint(l.source.last, 36)
	l.source.mu.Unlock()
	c := &Call{
		listener: l, Number: number, wake: make(chan struct{}, 1), next: make(chan struct{}, 1),
		heard: make([]bool, len(l.nodes)), latest: make([]uint64, len(l.nodes)),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[number] = c
	return c
}

// Next returns a channel. There is something to receive when a node has said that the call is the
// next one.
func (c *Call) Next() <-chan struct{} { return c.next }

// Bid returns a number for a bid for the key. Nodes that take it up send the key and this number
// instead of the call's. A call has one bid at a time: what nodes say of an earlier one is not
// heard any more. The number is a secret of the bidder and the nodes: others may be allowed to send
// on the channel, but not to give the key away.
func (c *Call) Bid(key string) (number string) {
	number = rand.Text()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.endBid()
	c.bid, c.has = key+" "+number, make([]bool, len(c.heard))
	c.listener.calls[c.bid] = c
	return number
}

// EndBid forgets the bid.
func (c *Call) EndBid() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.endBid()
}

// endBid is EndBid. The caller holds the listener's mu.
func (c *Call) endBid() {
	delete(c.listener.calls, c.bid)
	c.bid, c.has, c.had = "", nil, 0
}

// TakenUp returns how many nodes have taken the bid up.
func (c *Call) TakenUp() int {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.had
}

// Wake returns a channel. There is something to receive when a quorum of nodes has called, or when
// some have and a moment has passed. So there is when messages may have been lost.
func (c *Call) Wake() <-chan struct{} { return c.wake }

// Heard returns on how many nodes it is the number's turn.
func (c *Call) Heard() int {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.count
}

// Where returns on which nodes it is the number's turn.
func (c *Call) Where() []bool {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return slices.Clone(c.heard)
}

// Ask begins to ask those nodes, all if nil, whether it is the number's turn there. It forgets what
// was heard of them. What they reply is told by Note.
func (c *Call) Ask(these []bool) (question uint64) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.asked++
	for i := range c.heard {
		if these != nil && !these[i] {
			continue
		}
		c.latest[i] = c.asked
		if c.heard[i] {
			c.heard[i] = false
			c.count--
		}
	}
	if c.count == 0 {
		c.quiet()
	}
	return c.asked
}

// quiet takes back a signal, and one that is about to be given. The caller holds the listener's mu.
func (c *Call) quiet() {
	if c.grace != nil {
		c.grace.Stop()
		c.grace = nil
	}
	select {
	case <-c.wake:
	default:
	}
}

// Note notes that a node has replied that it is the number's turn there. A late reply to another
// question than the latest one counts as nothing.
func (c *Call) Note(node int, question uint64) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.latest[node] != question || c.heard[node] {
		return
	}
	c.heard[node] = true
	if c.count++; c.count == c.listener.quorum {
		c.signal()
	}
}

// End gives the call up.
func (c *Call) End() {
	c.Ask(nil)
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.endBid()
	delete(c.listener.calls, c.Number)
}

// signal wakes the one that waits for the call.
func (c *Call) signal() { signal(c.wake) }

// signal puts something into a channel that has room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
