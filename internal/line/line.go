package line

import (
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/fifo"
	"github.com/redlock-go/redlock/internal/turn"
)

const (
	// minTry is the least time that a try in the line takes, where the retry delay is shorter.
	minTry = 5 * time.Millisecond
	// spareTimes says for how many times as long as they were silent nodes are left alone. 1,000
	// processes that begin at once on two cores overload five nodes. Each command that is given up
	// then costs go-redis its connection, too. In 9 of 17 runs they had 0 to 28 turns a second, and
	// with this rule in 2 of 39. With 2 instead of 4, one of 4 runs had 31.
	spareTimes = 4
	// maxSpare bounds that. With it, one in the queue asks again within [wire.RollGrace].
	maxSpare = 2 * time.Second
)

// reason is why the head of a line makes an attempt, or does something else.
type reason uint8

const (
	arrived reason = iota // the waiter is new, or new at the head
	overdue               // the retry delay is over: the only reason that uses up a try
	expired               // the keys of a holder have expired, as far as is known
	missed                // something may have been missed
	left                  // this process leaves the key to others for a moment: none for an attempt
	freed                 // this process released the key, and nobody queues for it
	queued                // this process released the key, and others queue: none for an attempt
	heard                 // turns can be heard, or soon will be: none for an attempt
)

// A line is what the waiters of one process for one key share that wait on the same terms. It exists
// while somebody waits.
type line struct {
	queue       bool // they may stand in the queue on the nodes
	nodeTimeout time.Duration

	places fifo.Queue    // of the waiters
	bell   chan struct{} // rung for a release; has room for one
	keys   *Expiry       // what attempts have learnt

	// Lines.mu guards these.
	users    int            // in the line or on the way
	listener *turn.Listener // nil if they may not queue
	held     time.Time      // until then, this process has the key; zero: it was released
	again    bool           // it was granted the key since it last began to release that

	// The head of the line guards these.
	ends  time.Time // when a quorum of keys will have expired, as the first in the queue is told
	taken bool      // it was found taken, or was taken; no release has been heard of since

	mu     sync.Mutex    // guards what follows
	rung   reason        // what the bell was rung for
	latest Refusal       // of anybody in the line, or nil
	began  time.Time     // when the latest attempt did
	took   time.Duration // the latest of which is known what it came to
	next   time.Time     // when the head makes the next attempt if nothing happens
	spared time.Time     // until then, silent nodes are left alone
	stands bool          // the head, in the queue on the nodes
	ahead  int64         // of it in that queue, as a node has said last; 0: nobody, or not known
	told   time.Time     // when Wish.Long was called last
	quiet  time.Duration // after that it is not called for so long
}

// ring rings the bell for a reason. Of two that wait to be heard, the one counts that says more.
func (ln *line) ring(why reason) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.rung = max(ln.rung, why)
	signal(ln.bell)
}

// hear returns what the bell was rung for.
func (ln *line) hear() reason {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	why := ln.rung
	ln.rung = arrived
	return why
}

// begin notes that somebody in the line makes an attempt.
func (ln *line) begin(now time.Time) {
	ln.keys.forget(now)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.began = now
}

// refused notes that the nodes were asked for so long, for the key or for a place in their queue,
// and refused.
func (ln *line) refused(refusal Refusal, took time.Duration) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.latest, ln.took, ln.spared = refusal, took, time.Time{}
	if !refusal.Answered() {
		ln.spared = time.Now().Add(min(clock.Times(took, spareTimes), maxSpare))
	}
}

// spare returns for how long silent nodes are still left alone.
func (ln *line) spare(now time.Time) time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return max(ln.spared.Sub(now), 0)
}

// inQueue notes whether the head stands in the queue on the nodes.
func (ln *line) inQueue(stands bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.stands, ln.ahead = stands, 0
}

// stood notes how many are before the head in the queue on the nodes.
func (ln *line) stood(ahead int64) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.ahead = ahead
}

// refusal returns the latest refusal of anybody in the line, or nil.
func (ln *line) refusal() Refusal {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.latest
}

// try returns how long a try takes for a waiter behind the head: its retry delay, and as long as
// the latest attempt of the line took.
func (ln *line) try(delay time.Duration) time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return clock.Add(max(delay, minTry), ln.took)
}

// plan notes when the head makes the next attempt.
func (ln *line) plan(next time.Time) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.next = next
}

// idle reports whether nobody has asked the nodes since a time, and the head is not about to before
// another. A head that stands in the queue on the nodes asks all the time. While silent nodes are
// left alone, idle reports false.
func (ln *line) idle(since, now, before time.Time) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.stands || now.Before(ln.spared) {
		return false
	}
	soon := ln.next.After(now.Add(-minTry)) && !ln.next.After(before)
	return ln.began.Before(since) && !soon
}
