package queue

import "time"

const (
	// handedFor is how long a process that has handed a key on takes it that others queue for it.
	handedFor = time.Second
	// slice is for how long a process that polls passes a key on within itself. Then it leaves the
	// key free for a retry delay, or for maxRest if that is less: others that poll ask within that.
	slice   = time.Second
	maxRest = time.Second
	// deniedFor is how long a process polls to which the nodes have denied their queue.
	deniedFor = 10 * time.Second
	// Of more than maxRivals keys, what is known of any is forgotten.
	maxRivals = 1000
)

// rivals is what a process knows of other processes that want the same key.
//
// Where turns can be heard, the nodes keep a queue of processes. A process whose release handed the
// key on knows that there is one, and enrolls in it without asking for the key first. Elsewhere the
// others poll, and the process leaves the key to them from time to time.
//
// Queues.mu guards its fields.
type rivals struct {
	handed time.Time // when this process last handed the key on
	denied time.Time // when nodes last denied to let this process queue
	ends   time.Time // the slice of this process; zero: it has not polled for the key
	left   time.Time // when this process last left the key to others that poll
}

// remember notes what is known of a key's rivals. The caller holds mu.
func (q *Queues) remember(key string, r rivals) {
	if r == (rivals{}) {
		delete(q.rivals, key)
		return
	}
	for other := range q.rivals {
		if len(q.rivals) < maxRivals {
			break
		}
		delete(q.rivals, other)
	}
	q.rivals[key] = r
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

// Released notes that this process has released a key, and tells its own waiters. Queues says
// whether the lock's waiters queue on the nodes; handedOn, whether one of them has the key.
func (q *Queues) Released(key string, queues, handedOn bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, r := time.Now(), q.rivals[key]
	leaves := !r.ends.IsZero() && now.After(r.ends) && q.polls(key, queues)
	if leaves {
		r.left, r.ends = now, now.Add(slice)
	}
	for _, l := range q.locals[key] {
		l.held = time.Time{}
		switch {
		case leaves:
			l.ring(left)
		case handedOn && !q.polls(key, l.queues):
			l.ring(handed)
		default:
			l.ring(freed)
		}
	}
	r.handed = time.Time{}
	if handedOn {
		r.handed = now
	}
	q.remember(key, r)
}

// deny notes that the nodes deny to let this process queue for a key. It polls for a while, and
// then tries to queue again.
func (q *Queues) deny(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.rivals[key]
	r.denied = time.Now()
	q.remember(key, r)
}

// denies reports whether the nodes deny to let this process queue for a key. The caller holds mu.
func (q *Queues) denies(key string) bool {
	return time.Since(q.rivals[key].denied) < deniedFor
}

// polls reports whether those who wait for a key cannot hear of turns, or do not queue. The caller
// holds mu.
func (q *Queues) polls(key string, queues bool) bool {
	return !queues || q.listener.deaf() || q.denies(key)
}

// others reports whether others queue for a key, as far as this process knows, and since when it
// leaves the key to others that poll.
func (q *Queues) others(key string) (queue bool, left time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.rivals[key]
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
			other.held = now.Add(w.request.Lock.Expiry)
		}
	}
	l.hear() // the release of somebody who had it before
	if why != freed && q.polls(w.key, l.queues) {
		r := q.rivals[w.key]
		r.ends = now.Add(slice)
		q.remember(w.key, r)
	}
}
