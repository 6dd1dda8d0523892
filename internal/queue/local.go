package queue

import (
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

const (
	// minTry is the least time that a try of a waiter takes, where the retry delay is shorter.
	minTry = 5 * time.Millisecond
	// spareTimes says for how many times their silence waiters back off from nodes: many processes
	// that begin at once would keep them overloaded.
	spareTimes = 4
	// maxSpare bounds that. With it, a waiter in the nodes' queue asks again within
	// [wire.RollGrace].
	maxSpare = 2 * time.Second
)

// reason is why the head of a local queue makes an attempt, or does something else.
type reason uint8

const (
	arrived reason = iota // the waiter is new, or new at the head
	overdue               // the retry delay is over: the only reason that uses up a try
	expired               // the keys of a holder have expired, as far as is known
	missed                // something may have been missed
	left                  // this process leaves the key to others for a moment: none for an attempt
	freed                 // this process released the key, and nobody queues for it
	handed                // this process released the key, and others queue: none for an attempt
	heard                 // turns can be heard: none for an attempt
)

// local is a local queue: the waiters of one process for one key that wait on the same terms. It
// exists while somebody waits.
type local struct {
	queues      bool // they may enroll in the nodes' queue
	shared      bool // they share the key with others that do
	nodeTimeout time.Duration
	bell        chan struct{}  // rung for a release; has room for one
	told        chan time.Time // of all attempts, see [Attempt].Free
	opening     time.Time      // until then, subscriptions are opened

	// Queues.mu guards these.
	waiters []*Waiter // the first is the head
	held    time.Time // until then, this process has the key; zero: it was released

	// The head guards these.
	free  time.Time // when a quorum of nodes will have no key any more; zero: not known
	taken bool      // the key was found taken, or was taken; no release has been heard of since

	mu     sync.Mutex    // guards what follows
	rung   reason        // what the bell was rung for
	latest Refusal       // of anybody, or nil
	began  time.Time     // when the latest attempt did
	took   time.Duration // the latest of which is known what it came to
	next   time.Time     // when the head makes the next attempt if nothing happens
	spared time.Time     // until then, waiters back off from silent nodes
	place  int64         // of the head in the nodes' queue, from 1; 0: it is in none
	quiet  time.Time     // until then, [Waiter].Long is not called
}

// leave ends a place, wherever it is, and tells a new head. What the one who leaves did before that
// happens before the new head finds itself there. The caller holds Queues.mu.
func (l *local) leave(w *Waiter) {
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if i == 0 && len(l.waiters) > 0 {
		close(l.waiters[0].head)
	}
}

// ring rings the bell for a reason. Of two that wait to be heard, the one counts that says more.
func (l *local) ring(why reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rung = max(l.rung, why)
	signal(l.bell)
}

// hear returns what the bell was rung for since it was last heard.
func (l *local) hear() reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	received(l.bell)
	why := l.rung
	l.rung = arrived
	return why
}

// begin notes that a waiter makes an attempt.
func (l *local) begin(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = now
}

// refused notes that the nodes were asked for so long, for the key or for a place in their queue,
// and refused.
func (l *local) refused(refusal Refusal, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest, l.took, l.spared = refusal, took, time.Time{}
	if !refusal.Answered() {
		l.spared = time.Now().Add(min(clock.Times(took, spareTimes), maxSpare))
	}
}

// spare returns for how long silent nodes are still left alone.
func (l *local) spare(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.spared.Sub(now), 0)
}

// placed notes the place of the head in the nodes' queue, from 1, or 0.
func (l *local) placed(place int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.place = place
}

// refusal returns the latest refusal of anybody, or nil.
func (l *local) refusal() Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// try returns how long a try takes for a waiter that makes no attempt: its retry delay, and as long
// as the latest attempt took.
func (l *local) try(delay time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return clock.Add(max(delay, minTry), l.took)
}

// plan notes when the head makes the next attempt.
func (l *local) plan(next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
}

// idle reports whether nobody has asked the nodes since a time, and the head is not about to before
// another. A head in the nodes' queue asks all the time. While silent nodes are left alone, idle
// reports false.
func (l *local) idle(since, now, before time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.place > 0 || now.Before(l.spared) {
		return false
	}
	soon := l.next.After(now.Add(-minTry)) && !l.next.After(before)
	return l.began.Before(since) && !soon
}

// signal puts something into a channel with room for one, unless it is full.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// received reports whether there was something to receive, or the channel is closed.
func received(from <-chan struct{}) bool {
	select {
	case <-from:
		return true
	default:
		return false
	}
}

// sooner returns a time, or so much later than now if that is sooner.
func sooner(than time.Time, d time.Duration) time.Time {
	if soon := time.Now().Add(d); soon.Before(than) {
		return soon
	}
	return than
}
