package queue

import "time"

const (
	// handedFor is how long a process that has handed a key on takes it that others queue for it.
	handedFor = time.Second
	// handOver is how long a process that has handed a key on leaves the nodes to the one that
	// claims it, if somebody was before it in the queue the last time.
	handOver = time.Millisecond
	// slice is for how long a process that polls passes a key on within itself. Then it leaves the
	// key free for a retry delay, or for maxRest if that is less: others that poll ask within that.
	slice   = time.Second
	maxRest = time.Second
	// Beyond maxRivals keys, those are forgotten that nobody has wanted for rivalsKept.
	maxRivals  = 1000
	rivalsKept = 10 * time.Second
)

// rivals is what a process knows of other processes that want the same key.
//
// Where turns can be heard, the nodes keep a queue of processes. A process whose release handed the
// key on knows that there is one, and enrolls in it without asking for the key first. Elsewhere the
// others poll, and the process leaves the key to them from time to time.
//
// Queues.mu guards its fields.
type rivals struct {
	used   time.Time // latest
	handed time.Time // when this process last handed the key on
	before int64     // how many were before this process in the queue when it last asked
	denied time.Time // when nodes last denied to let this process queue, although they answered
	ends   time.Time // the slice of this process; zero: it has not polled for the key
	left   time.Time // when this process last left the key to others that poll
}

// rivalsOf returns what is known of a key's rivals. The caller holds mu.
func (q *Queues) rivalsOf(key string, now time.Time) *rivals {
	r := q.rivals[key]
	if r == nil {
		if len(q.rivals) >= maxRivals && now.Sub(q.swept) > time.Second {
			q.swept = now
			for k, r := range q.rivals {
				if now.Sub(r.used) > rivalsKept {
					delete(q.rivals, k)
				}
			}
		}
		r = &rivals{}
		q.rivals[key] = r
	}
	r.used = now
	return r
}

// Releasing notes that this process is about to release a key.
func (q *Queues) Releasing(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.locals[key] {
		l.again = false
	}
}

// HandedOff notes that this process has given a key away to another one, which releases it. So the
// heads of its own queues wait among other processes.
func (q *Queues) HandedOff(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.locals[key] {
		l.held = time.Time{}
		l.ring(handed)
	}
}

// Released notes that this process has released a key, and tells its own waiters, unless it has the
// key again. Announced says whether it tells other processes of its releases; handedOn, whether one
// who queues has the key.
func (q *Queues) Released(key string, announced, handedOn bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if handedOn {
		q.rivalsOf(key, now).handed = now
	}
	r, locals := q.rivals[key], q.locals[key]
	polls := !announced || !q.listener.able || q.denies(key, now)
	for _, l := range locals {
		polls = polls || q.deaf(key, l, now)
	}
	leaves := r != nil && polls && !r.ends.IsZero() && now.After(r.ends)
	if leaves {
		r.used, r.left, r.ends = now, now, now.Add(slice)
	}
	for _, l := range locals {
		if l.again {
			continue
		}
		l.held = time.Time{}
		switch {
		case leaves:
			l.ring(left)
		case handedOn && !q.deaf(key, l, now):
			l.ring(handed)
		default:
			l.ring(freed)
		}
	}
	switch {
	case r == nil || handedOn:
	case locals == nil && r.ends.IsZero() && !q.denies(key, now):
		delete(q.rivals, key)
	default:
		r.handed = time.Time{}
	}
}

// deny notes that the nodes deny to let this process queue for a key, although they answer. It
// polls for a while, and then tries to queue again.
func (q *Queues) deny(key string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rivalsOf(key, now).denied = now
}

// denies reports whether the nodes deny to let this process queue for a key. The caller holds mu.
func (q *Queues) denies(key string, now time.Time) bool {
	r := q.rivals[key]
	return r != nil && now.Sub(r.denied) < rivalsKept
}

// deaf reports whether a local queue cannot hear of turns, or there are none. The caller holds mu.
func (q *Queues) deaf(key string, l *local, now time.Time) bool {
	return !l.queues || q.listener.deaf() || q.denies(key, now)
}

// enrolled notes how many are before this process in the queue for a key. It does so also if this
// process has never handed the key on.
func (q *Queues) enrolled(key string, before int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rivalsOf(key, time.Now()).before = before
}

// handsOver returns how long this process leaves the nodes to the one that claims what it has just
// handed on.
func (q *Queues) handsOver(key string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.rivals[key]; r != nil && r.before > 0 {
		return time.Until(r.handed.Add(handOver))
	}
	return 0
}

// others reports whether others queue for a key, as far as this process knows, and since when it
// leaves the key to others that poll.
func (q *Queues) others(key string) (queue bool, left time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.rivals[key]
	if r == nil {
		return false, time.Time{}
	}
	return time.Since(r.handed) < handedFor, r.left
}

// granted notes that a waiter has the key: for the expiry, if it never releases that. A key that is
// shared need not become free when this process releases it: others of it go on waiting among all
// processes. Where others poll, a slice begins if this process had not passed the key on within
// itself.
func (q *Queues) granted(w *Waiter, why reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, l := time.Now(), w.local
	if !l.shared {
		for _, other := range q.locals[w.key] {
			other.held, other.again = now.Add(w.request.Lock.Expiry), true
		}
	}
	received(l.bell)
	l.hear() // the release of somebody who had it before
	if why != freed && q.deaf(w.key, l, now) {
		q.rivalsOf(w.key, now).ends = now.Add(slice)
	}
}
