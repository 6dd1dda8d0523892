// Package announce hears from a group of nodes that something was released.
package announce

import (
	"context"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// grace is how long a quorum waits for the announcement of the node that all listeners
// prefer to be first.
const grace = time.Millisecond

const (
	// patience is how long a node may take to confirm a subscription. No lock waits for that.
	patience = 5 * time.Second
	// retry is how long after a failure a node is asked again.
	retry = 2 * time.Second
	// maxCalls is how many calls of Subscribe a node may have under way. It bounds the goroutines of a pool that does
	// not return when its context has ended.
	maxCalls = 256
)

// Source is a group of nodes to listen to. It is safe for concurrent use.
type Source struct {
	nodes   []*quorum.Node
	tracker *quorum.Tracker
	calls   []chan struct{} // of each node, full when maxCalls are under way
}

// NewSource makes a Source of the nodes. The tracker counts the goroutines of its listeners.
func NewSource(nodes []*quorum.Node, tracker *quorum.Tracker) *Source {
	s := &Source{nodes: nodes, tracker: tracker, calls: make([]chan struct{}, len(nodes))}
	for i := range s.calls {
		s.calls[i] = make(chan struct{}, maxCalls)
	}
	return s
}

// Able reports whether a quorum of the nodes can be subscribed to, as far as their pools go.
func (s *Source) Able() bool {
	n := 0
	for _, node := range s.nodes {
		if _, ok := node.Pool.(pool.Subscriber); ok {
			n++
		}
	}
	return n > len(s.nodes)/2
}

// Listener listens on one channel of every node that can be subscribed to, and tells when a quorum
// of nodes has announced the same release. It is safe for concurrent use.
//
// A subscription that fails is tried again once per retry interval. What is missed in the
// meantime, is missed: a listener shortens waiting and is nothing to rely on.
type Listener struct {
	source  *Source
	channel string
	quorum  int
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	tell    func(Release)

	mu    sync.Mutex // guards what follows
	nodes []state    // what has become of each node's subscription
	order []int      // the nodes, in an order that all listeners of the channel share
	late  []bool     // nodes that let a quorum wait in vain; until they announce something
	heard []recent   // what each node announced last: one that falls behind crowds out nothing but its own
	told  recent     // what a quorum has announced
}

// state is what has become of a subscription.
type state uint8

const (
	trying    state = iota // for the first time
	confirmed              // by the node
	failed                 // it cannot be made, or has been lost; it may be tried again
)

// Release is what a quorum has announced.
type Release struct {
	// Value is what was released, "" if messages may have been missed.
	Value string
	// First is one of the nodes that announced it, mostly the same for all listeners of the
	// channel; -1 if messages may have been missed.
	First int
}

// recent is the last few of many values.
type recent struct {
	values [8]string
	next   int // the place to use next
}

func (r *recent) has(value string) bool { return slices.Contains(r.values[:], value) }

func (r *recent) add(value string) {
	r.values[r.next] = value
	r.next = (r.next + 1) % len(r.values)
}

// Listen begins to listen. It calls tell for each release, and with an empty one when a quorum of nodes has confirmed the
// subscription, or when messages may have been missed. Tell must not block, nor call the listener. The goroutines that
// Listen starts, one for a node, end soon after Close, or when the client lets go of them.
func (s *Source) Listen(channel string, tell func(Release)) *Listener {
	l := &Listener{
		source: s, channel: channel, quorum: len(s.nodes)/2 + 1, tell: tell,
		nodes: make([]state, len(s.nodes)),
		late:  make([]bool, len(s.nodes)),
		heard: make([]recent, len(s.nodes)),
	}
	hash := fnv.New32a()
	io.WriteString(hash, channel)
	for i := range s.nodes {
		l.order = append(l.order, (i+int(hash.Sum32()%uint32(len(s.nodes))))%len(s.nodes))
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for i, n := range s.nodes {
		if _, ok := n.Pool.(pool.Subscriber); !ok {
			l.nodes[i] = failed // before anybody counts the states
		}
	}
	for i, n := range s.nodes {
		p, ok := n.Pool.(pool.Subscriber)
		if !ok {
			continue
		}
		s.tracker.Enter()
		go func() {
			defer s.tracker.Leave()
			l.listen(i, p)
		}()
	}
	return l
}

// Subscribed reports whether a quorum of nodes is being listened to.
func (l *Listener) Subscribed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.are(confirmed) >= l.quorum
}

// Deaf reports whether so many nodes cannot be listened to that no quorum is left.
func (l *Listener) Deaf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.are(failed) > len(l.nodes)-l.quorum
}

// are returns how many nodes are in a state. The caller holds mu.
func (l *Listener) are(in state) (n int) {
	for _, s := range l.nodes {
		if s == in {
			n++
		}
	}
	return n
}

// Close ends the subscriptions. It does not wait for the network. It is called once.
func (l *Listener) Close() { l.cancel() }

// listen keeps one node's subscription until Close.
func (l *Listener) listen(node int, p pool.Subscriber) {
	for {
		l.follow(node, p)
		l.settle(node, failed)
		t := time.NewTimer(retry)
		select {
		case <-t.C:
		case <-l.ctx.Done():
			t.Stop()
			return
		}
	}
}

// follow subscribes, and hears what the subscription says until Close or until the subscription fails. A pool that panics is one
// node's failure.
func (l *Listener) follow(node int, p pool.Subscriber) {
	defer func() { _ = recover() }()
	sub := l.subscribe(node, p)
	if sub == nil {
		return
	}
	defer func() { _ = sub.Close() }()
	messages := sub.Messages()
	l.settle(node, confirmed)
	for {
		select {
		case value, ok := <-messages:
			if !ok {
				return
			}
			l.hear(node, value)
		case <-l.ctx.Done():
			return
		}
	}
}

// subscribe makes one try, and returns nil if it fails.
func (l *Listener) subscribe(node int, p pool.Subscriber) pool.Subscription {
	select {
	case l.source.calls[node] <- struct{}{}:
		defer func() { <-l.source.calls[node] }()
	case <-l.ctx.Done():
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	sub, err := p.Subscribe(ctx, l.channel)
	if err != nil {
		return nil
	}
	return sub
}

// settle notes what has become of a node's subscription. What was announced before a quorum was listened to is lost.
func (l *Listener) settle(node int, now state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes[node] = now
	if now == confirmed && l.are(confirmed) == l.quorum {
		l.tell(Release{First: -1})
	}
}

// hear counts an announcement.
func (l *Listener) hear(node int, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late[node] = false
	if value == "" {
		l.tell(Release{First: -1})
		return
	}
	if l.told.has(value) || l.heard[node].has(value) {
		return
	}
	l.heard[node].add(value)
	switch n := l.count(value); {
	case n < l.quorum:
	case l.heard[l.preferred()].has(value):
		l.announce(value)
	case n == l.quorum:
		// Those who ask different nodes first may split the vote: it is worth a moment
		// to agree on one.
		time.AfterFunc(grace, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !l.told.has(value) && l.count(value) >= l.quorum {
				l.late[l.preferred()] = true
				l.announce(value)
			}
		})
	}
}

// count returns how many nodes have announced a value. The caller holds mu.
func (l *Listener) count(value string) (n int) {
	for i := range l.heard {
		if l.heard[i].has(value) {
			n++
		}
	}
	return n
}

// preferred is the node that listeners agree to ask first. The caller holds mu.
func (l *Listener) preferred() int {
	for _, n := range l.order {
		if !l.late[n] {
			return n
		}
	}
	return l.order[0]
}

// announce wakes who listens. The caller holds mu.
func (l *Listener) announce(value string) {
	l.told.add(value)
	for _, n := range l.order {
		if l.heard[n].has(value) {
			l.tell(Release{Value: value, First: n})
			return
		}
	}
}
