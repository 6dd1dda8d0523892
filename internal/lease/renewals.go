package lease

import (
	"container/heap"
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

const (
	// maxPlaces is how many renewals are under way at a time, as long as they are answered. After
	// an outage, all leases are due together. If all of them ask at once, the goroutines get in
	// each other's way. Then nobody is answered in time, and all try again.
	//
	// Measured with 30,000 leases of 10 s on three servers, which stood still for 4 s: without a
	// bound 25,409 leases were lost, with 52,000 goroutines; with 64, 256 or 1,024 places none,
	// with 2,300, 13,000 and 27,000 goroutines.
	maxPlaces = 256
	// patience is how long a renewal that waits for its nodes keeps its place when others need it.
	patience = 50 * time.Millisecond
)

// Renewals are those of a process that are due. Many leases are renewed without getting in each
// other's way. Each renewal takes a place; if there are too few, those with the earliest deadlines
// come first. The zero value is ready for use. It is safe for concurrent use and is not copied.
//
// A renewal may wait for its nodes for very long, and must not keep its place all that time. As
// soon as its nodes seem not to answer, it loses the place and goes on without one. They seem so if
// no renewal at all has been confirmed for the patience, or if one has that began so much later.
// Nodes that answer slowly, one renewal after the other, do not seem so. More renewals would only
// make them slower.
type Renewals struct {
	mu        sync.Mutex  // guards what follows
	waiting   waiting     // for a place
	placed    list.List   // of *dueRenewal: those with a place, in the order in which they began
	confirmed time.Time   // when the last renewal was
	timer     *time.Timer // ends in hurry; nil if nobody waits
}

// Renewer is what is renewed.
type Renewer interface {
	// Renew renews the lease and reports whether that was confirmed. It must end by itself.
	Renew() (confirmed bool)
}

// dueRenewal is a renewal that is due or under way.
type dueRenewal struct {
	lease    Renewer
	deadline time.Time
	began    time.Time
	place    *list.Element // nil without one
}

// Add renews the lease, on a goroutine of its own, when its turn comes. It does not block.
func (q *Renewals) Add(l Renewer, deadline time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	heap.Push(&q.waiting, &dueRenewal{lease: l, deadline: deadline})
	q.begin()
}

// begin begins as many renewals as there are places. The caller holds mu.
func (q *Renewals) begin() {
	now := time.Now()
	for len(q.waiting) > 0 && q.placed.Len() < maxPlaces {
		r := heap.Pop(&q.waiting).(*dueRenewal)
		r.began, r.place = now, q.placed.PushBack(r)
		go q.run(r)
	}
	if len(q.waiting) > 0 && q.timer == nil {
		q.timer = time.AfterFunc(clock.TimerDelay(q.lost().Sub(now)), q.hurry)
	}
}

// run renews a lease that has a place.
func (q *Renewals) run(r *dueRenewal) {
	confirmed := false
	defer func() { q.end(r, confirmed) }() // also if the goroutine ends within Renew
	confirmed = r.lease.Renew()
}

// lost returns when the oldest renewal loses its place, if none is confirmed before. The caller
// holds mu.
func (q *Renewals) lost() time.Time {
	since := q.placed.Front().Value.(*dueRenewal).began
	if q.confirmed.After(since) {
		since = q.confirmed
	}
	return since.Add(patience)
}

// hurry takes their places from renewals whose nodes do not answer.
func (q *Renewals) hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = nil
	if now := time.Now(); q.placed.Len() > 0 && !now.Before(q.lost()) {
		q.evict(now)
	}
	q.begin()
}

// evict takes their places from renewals that began so long before now that they have lost them.
// The caller holds mu.
func (q *Renewals) evict(now time.Time) {
	for q.placed.Len() > 0 {
		oldest := q.placed.Front().Value.(*dueRenewal)
		if now.Sub(oldest.began) < patience {
			return
		}
		q.leave(oldest)
	}
}

// leave ends the place of r, if it has one. The caller holds mu.
func (q *Renewals) leave(r *dueRenewal) {
	if r.place != nil {
		q.placed.Remove(r.place)
		r.place = nil
	}
}

// end ends r, which was confirmed or not.
func (q *Renewals) end(r *dueRenewal, confirmed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(r)
	if confirmed {
		q.confirmed = time.Now()
		q.evict(r.began)
	}
	q.begin()
}

// waiting is a [heap.Interface] of renewals, that with the earliest deadline first.
type waiting []*dueRenewal

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].deadline.Before(w[j].deadline) }
func (w waiting) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *waiting) Push(r any)        { *w = append(*w, r.(*dueRenewal)) }

func (w *waiting) Pop() any {
	end := len(*w) - 1
	r := (*w)[end]
	(*w)[end] = nil
	*w = (*w)[:end]
	return r
}

// renewal is one under way, which somebody may stop. A nil renewal is none.
type renewal struct {
	context.CancelFunc
	done chan struct{}
}

// Renew is Extend for the one who keeps the lease extended: the end of the lease stops it.
func (l *Lease) Renew(ctx context.Context, budget time.Duration,
	extended func(r *quorum.Round, before time.Time)) (*quorum.Round, *Failure) {
	ctx, cancel := context.WithCancel(ctx)
	r := &renewal{cancel, make(chan struct{})}
	defer close(r.done)
	defer cancel()
	set := func(r *renewal) {
		l.lock.Mu.Lock()
		defer l.lock.Mu.Unlock()
		if l.renewal = r; !l.Kept() {
			cancel()
		}
	}
	set(r)
	defer set(nil)
	return l.Extend(ctx, budget, extended)
}

// cancel cancels its context, and does not wait.
func (r *renewal) cancel() {
	if r != nil {
		r.CancelFunc()
	}
}

// stop cancels its context, and waits for its end.
func (r *renewal) stop() {
	if r != nil {
		r.CancelFunc()
		<-r.done
	}
}
