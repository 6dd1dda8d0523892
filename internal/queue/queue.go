// Package queue decides who of a process asks the nodes for a key, and when. It is how a Lock
// waits.
//
// A newcomer asks at once if nobody of its process asks for the key or waits for it. A newcomer
// that is refused, or has others of its process before it, becomes the last waiter of a local
// queue, with those of its process who wait on the same terms. The first waiter is the head, and
// asks for all. The others wake it where it does not ask as often as their own retry delays say,
// and ask for their last try (waiter.go).
//
// The head does one of three things (head.go):
//
//   - It asks: it makes an attempt.
//   - It is in the queue that the nodes keep for all processes (queued.go, enroll.go). It listens
//     on the channel of its process (listener.go). A release hands the key on: each node reserves
//     it for the first in its queue, and tells that one. A head that a quorum has told claims the
//     key. One that is told that it is the next bids (bid.go), and has the key when it is released.
//     It relies on no message, and enrolls again from time to time.
//   - It polls: it sleeps until there is a reason for an attempt. The retry delay is over, its own
//     process has released the key, or the holder's keys have expired. It polls where no quorum can
//     be heard, or the nodes deny their queue; and until its subscriptions are open, when attempts
//     are rarer. It backs off from silent nodes for a while.
//
// Each retry delay costs a waiter a try, wherever it waits, and the last try is an attempt.
//
// The package does not know what is done with the key. An [Acquirer] makes the attempts.
package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// Many processes that begin at once overload the nodes by their attempts, and would keep them
// overloaded. So one whose first attempt took longer than a part of the node timeout makes no other
// until turns can be heard, for openTimes of that at most, within which it opens its subscriptions.
// 1,000 processes open 5,000 connections like that.
const (
	slowPart  = 4
	openTimes = 8
	maxOpen   = 8 * time.Second
)

// Queues are the local queues of one process. It is safe for concurrent use.
//
// Nobody in a local queue is overtaken by anybody behind it. The heads wait in the nodes' queue.
// The first there asks again after a retry delay at the latest, unless a majority is silent. So
// whatever becomes of messages, W waiters, of whom each keeps the key for H, have all had it after
//
//	W × (H + longest delay + 2 × node timeout)
//	  + one expiry for each holder that died, and for what was left behind before
//	  + two seconds and a try for each silence of a majority
//	  + the time that it takes to subscribe to the nodes
//
// A process that only polls, and comes back again and again, leaves the key to others from time to
// time, see rivals.
type Queues struct {
	Config
	listener *listener

	mu     sync.Mutex // guards what follows
	locals map[string][]*local
	asking map[string]bool // a newcomer of this process asks for the key
	rivals map[string]rivals
	latest time.Duration // answer of a quorum of nodes
	trip   time.Duration // the shorter one of the latest two
}

// Config is what the queues of a process need.
type Config struct {
	Nodes   []*quorum.Node
	Tracker *quorum.Tracker // of the goroutines that listen
	Channel string          // of the process, on the nodes
	Open    context.Context // when it is done, nobody waits or listens any more
	Now     func() time.Time
	Jitter  func(limit time.Duration) time.Duration // a random duration below the limit

	quorum int // of the nodes
}

// New makes the queues of a process. It does nothing on the network before somebody waits.
func New(c Config) *Queues {
	l := newListener(c)
	return &Queues{
		Config: l.Config, listener: l,
		locals: map[string][]*local{}, asking: map[string]bool{}, rivals: map[string]rivals{},
	}
}

// Enter makes an attempt at a key, unless somebody of this process asks or waits for it. It returns
// a waiter if the caller has to wait: others are before it, or the attempt was refused and another
// try is left. The caller then calls [Waiter.Wait], which leaves the place in the end. If too many
// wait already, it returns no waiter, and the answer has their number.
func (q *Queues) Enter(
	ctx context.Context, r *Request, attempt func(Attempt) Answer,
) (w *Waiter, answer Answer) {
	key := r.Lock.Key()
	q.mu.Lock()
	if len(q.locals[key]) > 0 || q.asking[key] {
		w, answer.Crowd = q.join(r, Answer{}, 0)
		q.mu.Unlock()
		return w, answer
	}
	q.asking[key] = true
	q.mu.Unlock()
	var began time.Time
	waits := false // also if a function of the caller's panics
	defer func() { w, answer.Crowd = q.asked(r, waits, answer, began) }()
	others, left := q.others(key)
	if waits = r.Lock.Queues() && others && q.patience(ctx) > 0; waits {
		return nil, Answer{}
	}
	if time.Since(left) < maxRest {
		q.sleep(ctx, time.Until(left.Add(min(r.delay(1), maxRest))))
	}
	began = time.Now()
	answer = attempt(Attempt{Keep: r.Lock.Queues() && q.listener.able})
	waits = !answer.Won && answer.Err == nil
	if answer.answered() {
		q.answered(time.Since(began))
	}
	return nil, answer
}

// asked ends what a newcomer began by asking. One that waits was refused, and its local queue
// learns from its answer, or it has not asked because others queue.
func (q *Queues) asked(
	r *Request, waits bool, answer Answer, began time.Time,
) (w *Waiter, crowd int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := r.Lock.Key()
	delete(q.asking, key)
	if waits {
		w, crowd = q.join(r, answer, time.Since(began))
	}
	for _, l := range q.locals[key] {
		if (!answer.Won || r.Lock.Shared && l.shared) && (w == nil || w.local != l) {
			l.ring(missed) // those who joined because somebody asked were not told anything
		}
	}
	return w, crowd
}

// join makes a waiter, or returns how many wait if there is no place for one more. The local queue
// learns from the answer to one who has asked, which took so long. A new one begins to listen at a
// random moment within that time, or within openTimes of it if the nodes are slow. The caller holds
// mu.
func (q *Queues) join(r *Request, answer Answer, took time.Duration) (w *Waiter, crowd int) {
	key := r.Lock.Key()
	var l *local
	for _, other := range q.locals[key] {
		if other.queues == r.Lock.Queues() && other.shared == r.Lock.Shared &&
			other.nodeTimeout == r.Lock.NodeTimeout {
			l = other
		}
	}
	if n := q.waiting(key); r.MaxWaiters > 0 && n >= r.MaxWaiters {
		return nil, n
	}
	if l == nil {
		within := time.Duration(0)
		if answer.Refusal != nil {
			within = took
		}
		if within > r.Lock.NodeTimeout/slowPart {
			within = max(took, min(clock.Times(took, openTimes), maxOpen))
		}
		l = &local{queues: r.Lock.Queues(), shared: r.Lock.Shared,
			nodeTimeout: r.Lock.NodeTimeout, bell: make(chan struct{}, 1),
			told:  make(chan time.Time, 1),
			taken: answer.Refusal != nil || q.asking[key], opening: time.Now().Add(within)}
		if answer.Refusal != nil {
			l.told = answer.Refusal.Free()
		}
		q.locals[key] = append(q.locals[key], l)
		if l.queues {
			q.listener.use(within)
		}
	}
	if answer.Refusal != nil {
		l.refused(answer.Refusal, took)
	}
	// One that joins at once has left the first try to somebody else.
	w = &Waiter{request: *r, key: key, queues: q, local: l, head: make(chan struct{}),
		since: time.Now(), used: 1}
	if l.waiters = append(l.waiters, w); len(l.waiters) == 1 {
		close(w.head)
	}
	return w, 0
}

// leave ends a place. The last waiter to leave ends the local queue.
func (q *Queues) leave(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := w.local
	if l.leave(w); len(l.waiters) > 0 {
		return
	}
	if l.queues {
		q.listener.done()
	}
	q.locals[w.key] = slices.DeleteFunc(q.locals[w.key], func(o *local) bool { return o == l })
	if len(q.locals[w.key]) == 0 {
		delete(q.locals, w.key)
	}
}

// waiting returns how many of this process wait for a key. The caller holds mu.
func (q *Queues) waiting(key string) (n int) {
	for _, l := range q.locals[key] {
		n += len(l.waiters)
	}
	return n
}

// mayQueue reports whether the local queue's head may be in the nodes' queue, and whether this
// process has the key.
func (q *Queues) mayQueue(w *Waiter) (may, held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	may = w.local.queues && q.listener.able && !q.denies(w.key)
	return may, time.Now().Before(w.local.held)
}
