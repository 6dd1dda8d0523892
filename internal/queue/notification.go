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

	bidding []string // by node: what it sends if it takes the bid up; nil without one
	took    []bool   // by node: the bid was taken up
	taken   int      // nodes in took
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
		wake: make(chan struct{}, 1), next: make(chan struct{}, 1),
		told: make([]bool, len(l.nodes)), latest: make([]uint64, len(l.nodes)),
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
	n.took = make([]bool, len(n.told))
	for range n.told {
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

// forgetBid is endBid. The caller holds the listener's mu.
func (n *notification) forgetBid() {
	for _, said := range n.bidding {
		delete(n.listener.notes, said)
	}
	n.bidding, n.took, n.taken = nil, nil, 0
}

// hear notes that a node has said that it is the number's turn there. The caller holds the
// listener's mu.
func (n *notification) hear(node int) {
	if n.told[node] {
		return
	}
	n.told[node] = true
	switch n.count++; {
	case n.count == n.listener.quorum:
		signal(n.wake)
	case n.grace == nil && n.count < n.listener.quorum:
		n.grace = time.AfterFunc(grace, func() { signal(n.wake) })
	}
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
// was heard of them. Their replies come in through replied.
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
