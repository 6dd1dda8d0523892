package redlock

import (
	"container/heap"
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

const (
	// maxRenewals is how many places there are for renewals. Holds that began together are due
	// together; if a hundred thousand of them ask at once, the goroutines get in each other's way,
	// nobody is answered in time, and all try again.
	maxRenewals = 256
	// patience is how long a renewal that waits for its nodes keeps its place when others need it.
	patience = 50 * time.Millisecond
)

// renewals are the holds of a process that are due. Each renewal takes a place; where there are not
// enough, those with the least time left come first.
//
// A renewal may wait for its nodes for very long, and must not keep its place all that time. It
// loses it, and goes on without one, as soon as it seems that its nodes do not answer: when no
// renewal at all has been confirmed for the patience, or when one has been confirmed that began so
// much later. As long as nodes answer in turn, if only slowly, neither is so, and more renewals
// would only make them slower.
type renewals struct {
	mu        sync.Mutex  // guards what follows; held after a mutex's mu
	waiting   queue       // for a place
	placed    list.List   // of *renewal: those with a place, in the order in which they began
	confirmed time.Time   // when the last renewal was
	timer     *time.Timer // ends in hurry; nil if nobody waits
}

// renewal is an extension that is due or under way.
type renewal struct {
	hold   *hold
	until  time.Time          // the hold's deadline, when the renewal came due
	cancel context.CancelFunc // set when it is under way
	done   chan struct{}

	// The mutex of renewals guards these.
	began time.Time
	place *list.Element // nil without one
}

// add has h renewed. The caller holds the mutex's mu.
func (rs *renewals) add(h *hold) {
	h.due = true
	rs.mu.Lock()
	defer rs.mu.Unlock()
	heap.Push(&rs.waiting, &renewal{hold: h, until: h.deadline()})
	rs.begin()
}

// begin begins as many renewals as there are places. The caller holds mu.
func (rs *renewals) begin() {
	now := time.Now()
	for len(rs.waiting) > 0 && rs.placed.Len() < maxRenewals {
		r := heap.Pop(&rs.waiting).(*renewal)
		r.began, r.place = now, rs.placed.PushBack(r)
		go func() { rs.end(r, r.hold.renew(r)) }() // ends within its budget
	}
	if len(rs.waiting) > 0 && rs.timer == nil {
		rs.timer = time.AfterFunc(clock.Ahead(rs.lost().Sub(now)), rs.hurry)
	}
}

// lost returns when the oldest renewal loses its place, if none is confirmed before. The caller
// holds mu.
func (rs *renewals) lost() time.Time {
	since := rs.placed.Front().Value.(*renewal).began
	if rs.confirmed.After(since) {
		since = rs.confirmed
	}
	return since.Add(patience)
}

// hurry takes their places from renewals whose nodes do not answer.
func (rs *renewals) hurry() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.timer = nil
	if now := time.Now(); rs.placed.Len() > 0 && !now.Before(rs.lost()) {
		rs.evict(now)
	}
	rs.begin()
}

// evict takes their places from renewals that began so long before now that they have lost them.
// The caller holds mu.
func (rs *renewals) evict(now time.Time) {
	for rs.placed.Len() > 0 {
		oldest := rs.placed.Front().Value.(*renewal)
		if now.Sub(oldest.began) < patience {
			return
		}
		rs.leave(oldest)
	}
}

// leave gives up the place of r, if it has one. The caller holds mu.
func (rs *renewals) leave(r *renewal) {
	if r.place != nil {
		rs.placed.Remove(r.place)
		r.place = nil
	}
}

// end ends r, which was confirmed or not.
func (rs *renewals) end(r *renewal, confirmed bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.leave(r)
	if confirmed {
		rs.confirmed = time.Now()
		rs.evict(r.began)
	}
	rs.begin()
}

// queue is a [heap.Interface] of renewals, that with the least time left first.
type queue []*renewal

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].until.Before(q[j].until) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(r any)        { *q = append(*q, r.(*renewal)) }

func (q *queue) Pop() any {
	end := len(*q) - 1
	r := (*q)[end]
	(*q)[end] = nil
	if *q = (*q)[:end]; end == 0 {
		*q = nil // what was a long queue is not kept
	}
	return r
}

// leastLeft is the least time before the deadline with which a renewal begins: no node can be
// expected to answer within less.
const leastLeft = time.Millisecond

// renew extends the lease, unless the hold is over by now, and reports whether a quorum confirmed
// it. It ends within its budget.
//
// The nodes have half of what is left to answer. So when an outage ends, with so much left until
// the deadline, the next renewal starts with no less than half of that left, and has no less than a
// quarter of it for itself.
func (h *hold) renew(r *renewal) (confirmed bool) {
	h.m.mu.Lock()
	h.due = false
	if h.over {
		h.m.mu.Unlock()
		return false
	}
	start := h.m.core.now()
	left := clock.Remaining(start, h.deadline())
	if left < leastLeft {
		h.next = start.Add(leastLeft) // later than the deadline
		h.timer.Reset(h.wait(start))
		h.m.mu.Unlock()
		return false
	}
	budget := min(h.m.cfg.nodeTimeout, left/2)
	ctx, cancel := context.WithCancel(h.values)
	defer cancel()
	r.cancel, r.done = cancel, make(chan struct{})
	defer close(r.done)
	h.renewal = r
	h.m.mu.Unlock()

	round, err := h.m.tellExtend(ctx, h.l, budget, true)

	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	h.renewal = nil
	if h.over {
		return err == nil
	}
	now := h.m.core.now()
	switch {
	case err == nil:
		h.failed, h.had = nil, 0
		h.next = now.Add(clock.Remaining(now, h.deadline()) / 3)
	default:
		// What the nodes do not answer within ever less time, towards the end, is not what is wrong
		// with them.
		if round != nil && budget >= h.had {
			h.failed, h.had = round, budget
		}
		// Often enough for several more, and ever more often towards the end.
		h.next = start.Add(max(left/8, time.Millisecond))
	}
	h.timer.Reset(h.wait(now))
	return err == nil
}
