// Package turn hears from a group of nodes whose turn it is.
//
// A process has one channel on all nodes, for all that it waits for. A message is the number of the
// one whose turn has come on the node that sends it, or the key and the number of its bid.
package turn

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

const (
	// grace is how long a call waits for a quorum of nodes after the first of them has sent it.
	grace = time.Millisecond
	// linger is how long a process listens after its last call. Often it waits for a lock again
	// soon. With 1 s instead of 2, 256 processes that come once, and again two seconds later, send
	// 124 commands a turn instead of 119: they have closed connections.
	linger = 2 * time.Second
	// patience is how long a node may take to confirm a subscription. No lock waits for that.
	patience = 5 * time.Second
	// retry is how long after a failure a node is asked again.
	retry = 2 * time.Second
	// maxCalls is how many calls of Subscribe a node may have under way. It bounds the goroutines
	// of a pool that does not return when its context has ended.
	maxCalls = 256
)

// Source is a channel on a group of nodes. It is subscribed to as long as somebody uses it, and a
// moment longer. It is safe for concurrent use.
type Source struct {
	Channel string

	nodes   []*quorum.Node
	able    bool // a quorum of them can be subscribed to
	tracker *quorum.Tracker
	jitter  func(limit time.Duration) time.Duration
	calls   []chan struct{} // of each node, full when maxCalls are under way

	mu       sync.Mutex // guards what follows
	listener *Listener
	users    int
	idle     *time.Timer // closes the listener; nil while it has users
	over     bool
	last     uint64 // number
}

// NewSource makes a Source of the nodes. The tracker counts the goroutines of its listeners. Jitter
// returns a random duration below a limit.
func NewSource(nodes []*quorum.Node, tracker *quorum.Tracker, channel string,
	jitter func(limit time.Duration) time.Duration) *Source {
	s := &Source{Channel: channel, nodes: nodes, tracker: tracker, jitter: jitter,
		calls: make([]chan struct{}, len(nodes))}
	able := 0
	for i, n := range nodes {
		s.calls[i] = make(chan struct{}, maxCalls)
		if _, ok := n.Pool.(pool.Subscriber); ok {
			able++
		}
	}
	s.able = able > len(nodes)/2
	return s
}

// Able reports whether a quorum of the nodes can be subscribed to, as far as their pools go.
func (s *Source) Able() bool { return s.able }

// Use returns the listener, for somebody who calls Done in the end. A listener that nobody uses yet
// subscribes to each node at a random moment within so long. It is deaf after End.
func (s *Source) Use(within time.Duration) *Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	if s.listener == nil {
		s.listener = s.listen(within)
		if s.over {
			s.listener.cancel()
		}
	}
	s.users++
	return s.listener
}

// Done ends what Use began.
func (s *Source) Done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 && !s.over {
		s.idle = time.AfterFunc(linger, s.closeUnused)
	}
}

// closeUnused closes the listener if nobody has used it for a while.
func (s *Source) closeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 && s.listener != nil {
		s.listener.cancel()
		s.listener, s.idle = nil, nil
	}
}

// End closes the listener for good. It does not wait for the network.
func (s *Source) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.listener != nil {
		s.listener.cancel()
	}
}

// Listener is subscribed to the channel of every node that can be subscribed to. It is safe for
// concurrent use.
//
// A subscription that fails is tried again once per retry interval. What is missed in the meantime,
// is missed.
type Listener struct {
	source *Source
	quorum int
	ctx    context.Context // ends with the listener
	cancel context.CancelFunc

	mu    sync.Mutex    // guards what follows, and the fields of calls
	nodes []state       // what has become of each node's subscription
	ready chan struct{} // closed while a quorum of nodes has confirmed it
	calls map[string]*Call
}

// state is what has become of a subscription.
type state uint8

const (
	trying    state = iota // for the first time
	confirmed              // by the node
	failed                 // it cannot be made, or has been lost; it may be tried again
)

// listen makes a listener, and starts a goroutine for each node. They end soon after the listener is
// cancelled, or when the client returns. The caller holds mu.
func (s *Source) listen(within time.Duration) *Listener {
	l := &Listener{
		source: s, quorum: len(s.nodes)/2 + 1,
		nodes: make([]state, len(s.nodes)), ready: make(chan struct{}), calls: map[string]*Call{},
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
		after := time.Duration(0)
		if within > 0 {
			after = s.jitter(within)
		}
		s.tracker.Enter()
		go func() {
			defer s.tracker.Leave()
			l.listen(i, p, after)
		}()
	}
	return l
}

// Ready returns a channel that is closed when a quorum of nodes next confirms the subscription: at
// once if one has.
func (l *Listener) Ready() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready
}

// Hears reports whether a quorum of nodes has confirmed the subscription.
func (l *Listener) Hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.are(confirmed) >= l.quorum
}

// Deaf reports whether so many nodes cannot be subscribed to that no quorum is left.
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

// listen keeps one node's subscription, from some time after now until the listener is closed.
func (l *Listener) listen(node int, p pool.Subscriber, after time.Duration) {
	for l.pause(after) {
		l.follow(node, p)
		l.record(node, failed)
		after = retry
	}
}

// pause waits for d, and reports whether the listener is still wanted then.
func (l *Listener) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// follow subscribes, and hears what the subscription says until the listener is closed or the
// subscription fails. A pool that panics is one node's failure.
func (l *Listener) follow(node int, p pool.Subscriber) {
	defer func() { _ = recover() }()
	sub := l.subscribe(node, p)
	if sub == nil {
		return
	}
	defer func() { _ = sub.Close() }()
	messages := sub.Messages()
	l.record(node, confirmed)
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
	sub, err := p.Subscribe(ctx, l.source.Channel)
	if err != nil {
		return nil
	}
	return sub
}

// record notes what has become of a node's subscription. What was sent while it was lost is lost.
func (l *Listener) record(node int, now state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now == confirmed && l.nodes[node] == failed {
		l.missed()
	}
	was := l.are(confirmed) >= l.quorum
	l.nodes[node] = now
	switch is := l.are(confirmed) >= l.quorum; {
	case is && !was:
		close(l.ready)
	case was && !is:
		l.ready = make(chan struct{})
	}
}

// hear passes on a message of a node. An empty one says that messages may have been missed.
func (l *Listener) hear(node int, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if value == "" {
		l.missed()
		return
	}
	said, next := strings.CutSuffix(value, Next)
	c := l.calls[said]
	switch {
	case c == nil:
		return
	case next:
		signal(c.next)
		return
	case said == c.bid && !c.has[node]:
		c.has[node] = true
		c.had++
	}
	if c.heard[node] {
		return
	}
	c.heard[node] = true
	switch c.count++; {
	case c.count == l.quorum:
		c.signal()
	case c.grace == nil && c.count < l.quorum:
		c.grace = time.AfterFunc(grace, c.signal)
	}
}

// missed wakes everybody. The caller holds mu.
func (l *Listener) missed() {
	for _, c := range l.calls {
		c.signal()
	}
}
