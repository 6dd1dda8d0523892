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

// Listener listens on one channel of every node that can be subscribed to, and tells when a quorum
// of nodes has announced the same release. It is safe for concurrent use.
//
// A subscription that fails is tried again once per retry interval. What is missed in the
// meantime, is missed: a listener shortens waiting and is nothing to rely on.
type Listener struct {
	channel string
	quorum  int
	timeout time.Duration // for one try to subscribe
	retry   time.Duration
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	ready   chan struct{}
	wake    chan Release

	mu         sync.Mutex // guards what follows
	subscribed int
	failed     int // nodes whose first try failed, or that cannot be subscribed to
	isReady    bool
	order      []int    // the nodes, in an order that all listeners of the channel share
	late       []bool   // nodes that let a quorum wait in vain; until they announce something
	heard      []recent // what each node announced last: one that falls behind crowds out nothing but its own
	told       recent   // what a quorum has announced
}

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

// Listen begins to listen. The goroutines it starts, one for a node, are counted by the
// tracker and end soon after Close, or when the client lets go of them.
func Listen(nodes []*quorum.Node, tracker *quorum.Tracker, channel string, timeout, retry time.Duration) *Listener {
	l := &Listener{
		channel: channel, quorum: len(nodes)/2 + 1, timeout: timeout, retry: retry,
		ready: make(chan struct{}),
		wake:  make(chan Release, 1),
		late:  make([]bool, len(nodes)),
		heard: make([]recent, len(nodes)),
	}
	hash := fnv.New32a()
	io.WriteString(hash, channel)
	for i := range nodes {
		l.order = append(l.order, (i+int(hash.Sum32()%uint32(len(nodes))))%len(nodes))
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, n := range nodes {
		s, ok := n.Pool.(pool.Subscriber)
		if !ok {
			l.settled(false)
			continue
		}
		tracker.Enter()
		go func() {
			defer tracker.Leave()
			l.listen(n.Index, s)
		}()
	}
	return l
}

// Ready returns a channel that is closed when a quorum of nodes has confirmed the
// subscription, or when so many have failed that this cannot be at the first try.
func (l *Listener) Ready() <-chan struct{} { return l.ready }

// Wake returns the channel on which releases arrive, one at a time: those that happen while one
// waits there are joined with it.
func (l *Listener) Wake() <-chan Release { return l.wake }

// Close ends the subscriptions. It does not wait for the network. It is called once.
func (l *Listener) Close() { l.cancel() }

// listen keeps one node's subscription.
func (l *Listener) listen(node int, s pool.Subscriber) {
	for first := true; ; first = false {
		ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
		sub, err := s.Subscribe(ctx, l.channel)
		cancel()
		if first {
			l.settled(err == nil)
		}
		if err == nil {
			if !first {
				l.hear(node, "") // what was announced before now is lost
			}
			l.follow(node, sub)
			return
		}
		t := time.NewTimer(l.retry)
		select {
		case <-t.C:
		case <-l.ctx.Done():
			t.Stop()
			return
		}
	}
}

// follow hears what a subscription says until Close.
func (l *Listener) follow(node int, sub pool.Subscription) {
	defer sub.Close()
	for {
		select {
		case value := <-sub.Messages():
			l.hear(node, value)
		case <-l.ctx.Done():
			return
		}
	}
}

// settled counts the outcome of a node's first try.
func (l *Listener) settled(ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok {
		l.subscribed++
	} else {
		l.failed++
	}
	if !l.isReady && (l.subscribed >= l.quorum || l.failed > len(l.order)-l.quorum) {
		l.isReady = true
		close(l.ready)
	}
}

// hear counts an announcement.
func (l *Listener) hear(node int, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late[node] = false
	if value == "" {
		l.signal(Release{First: -1})
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
			l.signal(Release{Value: value, First: n})
			return
		}
	}
}

// signal leaves a release to be picked up, if none is there. The caller holds mu.
func (l *Listener) signal(r Release) {
	select {
	case l.wake <- r:
	default:
	}
}
