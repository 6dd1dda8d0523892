// Package line decides who of a process asks the nodes for a key, and when. It is how a Lock waits.
//
// A newcomer asks at once if nobody of its process asks for the key or waits for it. A newcomer
// that is refused, or has others of its process before it, takes the last place in a line, with
// those who wait on the same terms. The first in the line is the head, and asks for all. The others follow: they ask only
// where the head does not ask as often as their own retry delays say, and for their last try.
//
// The head listens on the channel of its process. When a quorum of nodes can be heard, the head
// stands in the queue that the nodes keep for all processes. A release hands the key on: each node
// reserves it for the first in its queue, and tells that one. A head that a quorum has told claims the key. One that is told that it
// is the next bids, and has the key when it is released. The head relies on no message, and stands
// again from time to time. Until its subscriptions are open, it makes attempts, which become rarer.
//
// Where no quorum can be heard, or the nodes deny their queue, the head polls. It sleeps, and makes
// an attempt when there is a reason: the retry delay is over, its own process has released the key,
// or the holder's keys have expired. It leaves silent nodes alone for a while. A process that polls
// leaves a key that it has released to other processes now and then. Each retry delay costs a
// waiter a try, wherever it waits, and the last try is an attempt.
//
// The package does not know what is done with the key. An [Asker] makes the attempts.
package line

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/fifo"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/turn"
)

// Lines are the lines of one process, one for each key that somebody waits for. It is safe for
// concurrent use.
//
// Nobody in a line is overtaken by anybody behind it. The heads of the lines stand in the queue on the nodes. The first there asks again after a retry delay at the latest,
// unless a majority is silent. So whatever becomes of messages, W waiters, of whom each keeps the
// key for H, have all had it after
//
//	W × (H + longest delay + 2 × node timeout)
//	  + one expiry for each holder that died, and for what was left behind before
//	  + two seconds and a try for each silence of a majority
//	  + the time that it takes to subscribe to the nodes
//
// A process that only polls, and comes back again and again, leaves the key to others from time to
// time, see rivals.
type Lines struct {
	quorum int
	source *turn.Source
	closed <-chan struct{}
	now    func() time.Time
	jitter func(limit time.Duration) time.Duration

	mu     sync.Mutex         // guards what follows
	lines  map[string][]*line // of each key
	asking map[string]bool    // a newcomer of this process asks
	rivals map[string]*rivals
	swept  time.Time     // when old rivals were forgotten last
	latest time.Duration // answer of a quorum of nodes
	trip   time.Duration // the shorter one of the latest two
}

// Config is what the lines of a process need.
type Config struct {
	Nodes   []*quorum.Node
	Tracker *quorum.Tracker // of the goroutines that listen
	Channel string          // of the process, on the nodes
	Closed  <-chan struct{} // when it is closed, nobody waits any more
	Now     func() time.Time
	Jitter  func(limit time.Duration) time.Duration // a random duration below the limit
}

// New makes the lines of a process. It does nothing on the network before somebody waits.
func New(c Config) *Lines {
	return &Lines{
		quorum: quorum.Majority(len(c.Nodes)),
		source: turn.NewSource(c.Nodes, c.Tracker, c.Channel, c.Jitter),
		closed: c.Closed, now: c.Now, jitter: c.Jitter,
		lines: map[string][]*line{}, asking: map[string]bool{}, rivals: map[string]*rivals{},
	}
}

// Channel is the channel of the process.
func (ls *Lines) Channel() string { return ls.source.Channel }

// End stops listening. It does not wait for the network.
func (ls *Lines) End() { ls.source.End() }

// Enter makes an attempt at a key, unless somebody of this process asks or waits for it. It
// returns a waiter if the caller has to wait: others are before it, or the attempt was refused
// and another try is left. The caller then calls [Waiter.Wait], which leaves the place in the
// end. If too many wait already, it returns no waiter, and the answer has their number.
func (ls *Lines) Enter(
	ctx context.Context, wish *Wish, attempt func(Attempt) Answer,
) (w *Waiter, answer Answer) {
	if w, crowd, asks := ls.arrive(wish); !asks {
		return w, Answer{Crowd: crowd}
	}
	// It makes a waiter of a caller that was refused, also if a function of the caller's panics.
	var began time.Time
	defer func() { w, answer.Crowd = ls.asked(wish, answer, began) }()
	queue, since := ls.others(wish.Key)
	if wish.Queue && queue && ls.patience(ctx) > 0 {
		return nil, Answer{Keys: NewExpiry()} // which takes a place
	}
	if time.Since(since) < maxRest {
		sleep(ctx, time.Until(since.Add(min(wish.delay(1), maxRest))))
	}
	began = time.Now()
	answer = attempt(Attempt{Keep: wish.Queue && ls.source.Able()})
	ls.answered(answer, began)
	return nil, answer
}

// arrive takes the last place in a line for a key, if somebody waits for the key or asks for it.
// Otherwise the caller is that newcomer, and calls asked when it has.
func (ls *Lines) arrive(wish *Wish) (w *Waiter, crowd int, asks bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.lines[wish.Key]) == 0 && !ls.asking[wish.Key] {
		ls.asking[wish.Key] = true
		return nil, 0, true
	}
	w, crowd = ls.join(wish, Answer{}, 0)
	return w, crowd, false
}

// asked ends what arrive began. A newcomer that was refused takes the last place in the line, which
// learns from its answer. So does one that has not asked because others queue; began is zero then.
func (ls *Lines) asked(wish *Wish, answer Answer, began time.Time) (w *Waiter, crowd int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.asking, wish.Key)
	waits := !answer.Won && answer.Err == nil && answer.Keys != nil
	if waits {
		w, crowd = ls.join(wish, answer, time.Since(began))
	}
	for _, ln := range ls.lines[wish.Key] {
		if !answer.Won && (w == nil || w.line != ln) {
			ln.ring(missed) // those who joined because somebody asked were not told anything
		}
	}
	return w, crowd
}

// join takes the last place in the line for a key, or returns how many wait if there is none. The
// line learns from the answer to one who has asked, which took so long. A new one begins to listen at
// a random moment within that time, or within that for which silent nodes are left alone: many
// processes that begin at once would overload the nodes. The caller holds mu.
func (ls *Lines) join(wish *Wish, answer Answer, took time.Duration) (w *Waiter, crowd int) {
	var ln *line
	for _, other := range ls.lines[wish.Key] {
		crowd += other.users
		if other.queue == wish.Queue && other.nodeTimeout == wish.NodeTimeout {
			ln = other
		}
	}
	if wish.MaxWaiters > 0 && crowd >= wish.MaxWaiters {
		return nil, crowd
	}
	isNew := ln == nil
	if isNew {
		ln = &line{queue: wish.Queue, nodeTimeout: wish.NodeTimeout, bell: make(chan struct{}, 1),
			keys: answer.Keys, taken: answer.Refusal != nil || ls.asking[wish.Key]}
		if ln.keys == nil {
			ln.keys = NewExpiry()
		}
		ls.lines[wish.Key] = append(ls.lines[wish.Key], ln)
	}
	ln.users++
	within := time.Duration(0)
	if answer.Refusal != nil {
		ln.refused(answer.Refusal, took)
		within = max(took, ln.spare(time.Now()))
	}
	if isNew && wish.Queue {
		ln.listener = ls.source.Use(within)
	}
	// One that joins at once has left the first try to somebody else.
	return &Waiter{
		Wish: *wish, lines: ls, line: ln, place: ln.places.Join(), since: time.Now(), used: 1,
	}, 0
}

// leave ends a place. The last to leave ends the line.
func (ls *Lines) leave(key string, ln *line, place *fifo.Place) {
	place.Leave()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.users--
	if ln.users > 0 {
		return
	}
	if ln.listener != nil {
		ls.source.Done()
	}
	others := slices.DeleteFunc(ls.lines[key], func(l *line) bool { return l == ln })
	if ls.lines[key] = others; len(others) == 0 {
		delete(ls.lines, key)
	}
}

// listening returns what the line hears of its turns by, and whether this process has the key. The
// listener is nil if the line does not queue, or if nobody may.
func (ls *Lines) listening(key string, ln *line) (l *turn.Listener, held bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if ls.denies(key, now) {
		return nil, now.Before(ln.held)
	}
	return ln.listener, now.Before(ln.held)
}
