package queue

import (
	"crypto/rand"
	"slices"
	"strconv"
	"time"
)

// notification is what a waiter expects to hear: that nodes say that it is the turn of its number.
// The listener's mu guards its fields.
type notification struct {
	number string // what the nodes send

	listener *listener
	// There is something to receive when it is the number's turn on a quorum of nodes, or on some
	// and a moment has passed. So there is when messages may have been missed.
	wake chan struct{}
	next chan struct{} // there is something to receive when a node has said that it may bid

	told   []bool   // by node: it is the number's turn
	count  int      // of nodes in told
	asked  uint64   // calls of ask
	latest []uint64 // of these the latest, by node
	grace  *time.Timer

	bidding string // what nodes send that take its bid up, or ""
	took    []bool // by node: the bid was taken up
	taken   int    // nodes in took
}

// nextUp ends a message to the one that is the next after the holder. Its number comes before.
const nextUp = "+"

// expect begins to listen for a new number, until end.
func (l *listener) expect() *notification {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	n := &notification{
		listener: l, number: strconv.FormatUint(l.last, 36),
		wake: make(chan struct{}, 1), next: make(chan struct{}, 1),
		told: make([]bool, len(l.nodes)), latest: make([]uint64, len(l.nodes)),
	}
	l.notes[n.number] = n
	return n
}

// bid returns a number for a bid for the key. Nodes that take it up send the key and this number
// instead of the notification's. There is one bid at a time: what nodes say of an earlier one is
// not heard any more. The number is a secret of the bidder and the nodes: others may be allowed to
// send on the channel, but not to give the key away.
func (n *notification) bid(key string) (number string) {
	number = rand.Text()
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	n.forgetBid()
	n.bidding, n.took = key+" "+number, make([]bool, len(n.told))
	n.listener.notes[n.bidding] = n
	return number
}

// endBid forgets the bid.
func (n *notification) endBid() {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	n.forgetBid()
}

// forgetBid is endBid. The caller holds the listener's mu.
func (n *notification) forgetBid() {
	delete(n.listener.notes, n.bidding)
	n.bidding, n.took, n.taken = "", nil, 0
}

// takenUp returns how many nodes have taken the bid up.
func (n *notification) takenUp() int {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	return n.taken
}

// turns returns on how many nodes it is the number's turn.
func (n *notification) turns() int {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	return n.count
}

// where returns on which nodes it is the number's turn.
func (n *notification) where() []bool {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	return slices.Clone(n.told)
}

// ask begins to ask those nodes, all if nil, whether it is the number's turn there. It forgets what
// was heard of them. What they reply is told by replied.
func (n *notification) ask(these []bool) (question uint64) {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	n.asked++
	for i := range n.told {
		if these != nil && !these[i] {
			continue
		}
		n.latest[i] = n.asked
		if n.told[i] {
			n.told[i] = false
			n.count--
		}
	}
	if n.count == 0 { // what has woken the waiter, or is about to, is forgotten
		if n.grace != nil {
			n.grace.Stop()
			n.grace = nil
		}
		received(n.wake)
	}
	return n.asked
}

// replied notes that a node has replied that it is the number's turn there. A late reply to another
// question than the latest one counts as nothing.
func (n *notification) replied(node int, question uint64) {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	if n.latest[node] != question || n.told[node] {
		return
	}
	n.told[node] = true
	if n.count++; n.count == n.listener.quorum {
		signal(n.wake)
	}
}

// end stops listening for the number.
func (n *notification) end() {
	n.ask(nil)
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	n.forgetBid()
	delete(n.listener.notes, n.number)
}
