package queue

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

const (
	// linger is how long a process listens after its last waiter. Often it waits for a lock again
	// soon.
	linger = 2 * time.Second
	// confirms is how long a node may take to confirm a subscription. No lock waits for that.
	confirms = 5 * time.Second
	// retry is how long after a failure a node is asked again.
	retry = 2 * time.Second
	// maxCalls is how many calls of Subscribe a node may have under way. It bounds the goroutines
	// of a pool that does not return when its context has ended.
	maxCalls = 256
)

// listener hears from the nodes whose turn it is. A process has one channel on all nodes, for all
// that it waits for. A message is the number of the notification whose turn has come on the node
// that sends it, or the key and the number of its bid.
//
// It is subscribed to every node that can be, as long as somebody uses it, and a moment longer. A
// subscription that fails is tried again once per retry interval. What is missed in the meantime,
// is missed. It is safe for concurrent use.
type listener struct {
	Config
	able  bool            // a quorum of nodes can be subscribed to, as far as their pools go
	calls []chan struct{} // of each node, full when maxCalls are under way

	mu     sync.Mutex // guards what follows, and the fields of notifications
	users  int
	idle   *time.Timer              // stops it; nil while it has users
	cancel context.CancelFunc       // stops it; nil while it is stopped
	states []subscribed             // of each node's subscription
	ready  chan struct{}            // closed while a quorum of nodes has confirmed it
	notes  map[string]*notification // by what nodes send
	last   uint64                   // number
}

// subscribed is what has become of a subscription.
type subscribed uint8

const (
	trying    subscribed = iota // for the first time
	confirmed                   // by the node
	failed                      // it cannot be made, or has been lost; it may be tried again
)

// newListener makes a listener that is stopped.
func newListener(c Config) *listener {
	c.quorum = quorum.Majority(len(c.Nodes))
	l := &listener{
		Config: c, calls: make([]chan struct{}, len(c.Nodes)),
		states: make([]subscribed, len(c.Nodes)), ready: make(chan struct{}),
		notes: map[string]*notification{},
	}
	able := 0
	for i, n := range c.Nodes {
		l.calls[i] = make(chan struct{}, maxCalls)
		if _, ok := n.Pool.(pool.Subscriber); ok {
			able++
		}
	}
	l.able = able >= l.quorum
	return l
}

// use begins a use, which done ends. A listener that is stopped subscribes to each node at a random
// moment within so long.
func (l *listener) use(within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	if l.idle != nil {
		l.idle.Stop()
		l.idle = nil
	}
	if l.cancel != nil || l.Open.Err() != nil {
		return
	}
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(l.Open)
	for i, n := range l.Nodes {
		p, ok := n.Pool.(pool.Subscriber)
		if !ok {
			l.states[i] = failed
			continue
		}
		after := time.Duration(0)
		if within > 0 {
			after = l.Jitter(within)
		}
		l.Tracker.Enter()
		go func() {
			defer l.Tracker.Leave()
			l.listen(ctx, i, p, after)
		}()
	}
}

// done ends what use began.
func (l *listener) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users == 0 {
		l.idle = time.AfterFunc(linger, l.stopUnused)
	}
}

// stopUnused stops the listener if nobody uses it: it cancels the subscriptions. Their goroutines
// end soon, or when the client returns.
func (l *listener) stopUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users > 0 || l.cancel == nil {
		return
	}
	l.cancel()
	l.cancel, l.idle = nil, nil
	if l.are(confirmed) >= l.quorum {
		l.ready = make(chan struct{})
	}
	clear(l.states)
}

// readiness returns a channel that is closed when a quorum of nodes next confirms the subscription:
// at once if one has.
func (l *listener) readiness() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready
}

// deaf reports whether so many nodes cannot be subscribed to that no quorum is left.
func (l *listener) deaf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.able || l.are(failed) > len(l.Nodes)-l.quorum
}

// are returns how many nodes are in a state. The caller holds mu.
func (l *listener) are(in subscribed) (n int) {
	for _, s := range l.states {
		if s == in {
			n++
		}
	}
	return n
}

// listen keeps one node's subscription, from some time after now until ctx ends.
func (l *listener) listen(ctx context.Context, node int, p pool.Subscriber, after time.Duration) {
	for t := time.NewTimer(after); ; t.Reset(retry) {
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		l.follow(ctx, node, p)
		l.record(ctx, node, failed)
	}
}

// follow subscribes, and hears what the subscription says until ctx ends or the subscription fails.
// A pool that panics is one node's failure.
func (l *listener) follow(ctx context.Context, node int, p pool.Subscriber) {
	defer func() { _ = recover() }()
	sub := l.subscribe(ctx, node, p)
	if sub == nil {
		return
	}
	defer func() { _ = sub.Close() }()
	messages := sub.Messages()
	l.record(ctx, node, confirmed)
	for {
		select {
		case value, ok := <-messages:
			if !ok {
				return
			}
			l.hear(node, value)
		case <-ctx.Done():
			return
		}
	}
}

// subscribe makes one try, and returns nil if it fails.
func (l *listener) subscribe(ctx context.Context, node int, p pool.Subscriber) pool.Subscription {
	select {
	case l.calls[node] <- struct{}{}:
		defer func() { <-l.calls[node] }()
	case <-ctx.Done():
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirms)
	defer cancel()
	sub, err := p.Subscribe(ctx, l.Channel)
	if err != nil {
		return nil
	}
	return sub
}

// record notes what has become of a node's subscription. What was sent while it was lost is lost.
func (l *listener) record(ctx context.Context, node int, now subscribed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return // the listener has stopped, and may have begun anew
	}
	if now == confirmed && l.states[node] == failed {
		l.missed()
	}
	was := l.are(confirmed) >= l.quorum
	l.states[node] = now
	switch is := l.are(confirmed) >= l.quorum; {
	case is && !was:
		close(l.ready)
	case was && !is:
		l.ready = make(chan struct{})
	}
}

// hear passes on a message of a node. An empty one says that messages may have been missed.
func (l *listener) hear(node int, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if value == "" {
		l.missed()
		return
	}
	said, next := strings.CutSuffix(value, nextUp)
	n := l.notes[said]
	switch {
	case n == nil:
	case next:
		n.next = true
		signal(n.wake)
	case said == n.number:
		n.hear(node, kept)
	case said == n.bidding[node]: // and not of another node, repeated by somebody
		n.hear(node, taken)
	}
}

// missed wakes everybody. The caller holds mu.
func (l *listener) missed() {
	for _, n := range l.notes {
		n.missed = true
		signal(n.wake)
	}
}
