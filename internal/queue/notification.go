package queue

import (
	"crypto/rand"
	"strconv"
)

// turn is what a node has said of a number's turn.
type turn uint8

const (
	noTurn turn = iota
	kept        // the node keeps the key for the number
	taken       // it has taken up the bid, and given the key
)

// notification is what a waiter expects to hear: that nodes say that it is the turn of its number.
// The listener's mu guards what changes.
type notification struct {
	number string // what the nodes send

	listener *listener
	wake     chan struct{} // there is something to receive when there is news

	said    []turn   // by node
	asked   uint64   // calls of ask
	bidding []string // by node: what it sends if it takes the bid up; nil without one
	next    bool     // a node has said that the waiter may bid
	missed  bool     // messages may have been missed
}

// nextUp ends a message to the one that is the next after the holder. Its number comes before.
const nextUp = "+"

// expect begins to listen for a new number with that ending, until end.
func (l *listener) expect(ending string) *notification {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	n := &notification{
		listener: l, number: strconv.FormatUint(l.last, 36) + ending,
		wake: make(chan struct{}, 1), said: make([]turn, len(l.Nodes)),
	}
	l.notes[n.number] = n
	return n
}

// bid returns the numbers of a bid for the key, one for each node. A node that takes the bid up
// sends the key and its number instead of the notification's. There is one bid at a time: what
// nodes say of an earlier one is not heard any more. Each number is a secret of the bidder and one
// node: others may be allowed to listen and to send on the channel, but not to give the key away.
// With one number for all, they could repeat on other nodes what one has said.
func (n *notification) bid(key string) (numbers []string) {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	n.forgetBid()
	for range n.said {
		number := rand.Text()
		numbers, n.bidding = append(numbers, number), append(n.bidding, key+" "+number)
		n.listener.notes[key+" "+number] = n
	}
	return numbers
}

// endBid forgets the bid.
func (n *notification) endBid() {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	n.forgetBid()
}

// forgetBid is endBid for a caller who holds the listener's mu. A node that had taken up the bid
// counts as one that keeps the key for the waiter.
func (n *notification) forgetBid() {
	for i, said := range n.bidding {
		delete(n.listener.notes, said)
		n.said[i] = min(n.said[i], kept)
	}
	n.bidding = nil
}

// hear notes that it is the number's turn on a node. The caller holds the listener's mu.
func (n *notification) hear(node int, is turn) {
	n.said[node] = max(n.said[node], is)
	signal(n.wake)
}

// count returns how many nodes have said so, or more than that.
func (n *notification) count(least turn) (nodes int) {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	for _, is := range n.said {
		if is >= least {
			nodes++
		}
	}
	return nodes
}

// news returns whether the waiter may bid, and whether messages may have been missed, since it was
// called last.
func (n *notification) news() (next, missed bool) {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	next, missed = n.next, n.missed
	n.next, n.missed = false, false
	return next, missed
}

// ask begins to ask those nodes, all if nil, whether it is the number's turn there. It forgets what
// was heard of them. Replies come in through replied.
func (n *notification) ask(these []bool) (question uint64) {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	n.asked++
	for i := range n.said {
		if these == nil || these[i] {
			n.said[i] = noTurn
		}
	}
	return n.asked
}

// replied notes that a node has replied that it is the number's turn there. A late reply to another
// question than the latest one counts as nothing.
func (n *notification) replied(node int, question uint64) {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	if n.asked == question {
		n.hear(node, kept)
	}
}

// end stops listening for the number.
func (n *notification) end() {
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	n.forgetBid()
	delete(n.listener.notes, n.number)
}
