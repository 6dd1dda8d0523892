package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// maxRenewals is how many renewals a process has under way at a time. Holds that began together are due together; if a hundred
// thousand of them ask at once, the goroutines get in each other's way, nobody is answered in time, and all
// try again. It is greater than the number of commands that a frozen node may leave unanswered: where a quorum is
// frozen, those beyond that number are refused at once and make room.
const maxRenewals = 256

// renewals are the holds of a process that are due, in the order in which they came due, and the goroutines that
// renew them. There is none while nothing is due.
type renewals struct {
	mu      sync.Mutex // guards what follows; held after a mutex's mu
	waiting []*hold
	workers int
}

// add has h renewed. The caller holds the mutex's mu.
func (rs *renewals) add(h *hold) {
	h.due = true
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.waiting = append(rs.waiting, h)
	if rs.workers < maxRenewals {
		rs.workers++
		go rs.work()
	}
}

// work renews holds as long as there are any that wait.
func (rs *renewals) work() {
	for h := rs.next(); h != nil; h = rs.next() {
		h.renew()
	}
}

// next returns the hold that has waited longest, or nil if there is none: then the worker ends.
func (rs *renewals) next() *hold {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.waiting) == 0 {
		rs.waiting = nil
		rs.workers--
		return nil
	}
	h := rs.waiting[0]
	rs.waiting[0] = nil
	rs.waiting = rs.waiting[1:]
	return h
}

// renewal is an extension under way.
type renewal struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// leastLeft is the least time before until with which a renewal begins: no node can be expected to answer within less.
const leastLeft = time.Millisecond

// renew extends the lease, unless the hold is over by now. It ends within its budget.
//
// The nodes have half of what is left to answer. So when an outage ends, with so much left until until, the next renewal starts
// with no less than half of that left, and has no less than a quarter of it for itself.
func (h *hold) renew() {
	h.m.mu.Lock()
	h.due = false
	if h.over {
		h.m.mu.Unlock()
		return
	}
	start := h.m.core.now()
	left := clock.Remaining(start, h.l.until)
	if left < leastLeft {
		h.next = start.Add(leastLeft) // later than until
		h.timer.Reset(h.wait(start))
		h.m.mu.Unlock()
		return
	}
	budget := min(h.m.cfg.nodeTimeout, left/2)
	ctx, cancel := context.WithCancel(h.values)
	defer cancel()
	r := &renewal{cancel: cancel, done: make(chan struct{})}
	defer close(r.done)
	h.renewal = r
	h.m.mu.Unlock()

	round, err := h.m.extend(ctx, h.l, budget)

	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	h.renewal = nil
	if h.over {
		return
	}
	now := h.m.core.now()
	switch {
	case err == nil:
		h.failed, h.had = nil, 0
		h.next = now.Add(clock.Remaining(now, h.l.until) / 3)
	default:
		// What the nodes do not answer within ever less time, towards the end, is not what is wrong with them.
		if round != nil && budget >= h.had {
			h.failed, h.had = round, budget
		}
		// Often enough for several more, and ever more often towards the end.
		h.next = start.Add(max(left/8, time.Millisecond))
	}
	h.timer.Reset(h.wait(now))
}
