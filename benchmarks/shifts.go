package main

import (
	"cmp"
	"slices"
	"time"
)

// queueing is what the logs of shifts come to.
type queueing struct {
	granted, fewest, most int // turns: of all waiters, and of one
	elapsed               time.Duration
	longest               time.Duration // a wait, finished or cut off by the end
	overlaps              int           // two holders at a time
	passes                int           // grants to another waiter than the one before
	clientCPU             time.Duration
	err                   string
}

// event is what a waiter did. Of what happens at the same time, a release comes first.
type event struct {
	at      int64
	waiter  int
	granted bool
}

// judge looks at all turns of a shift that ended at end.
func judge(logs []shiftLog, end time.Time) (q queueing) {
	var events []event
	var first, latest int64
	waiters, until := 0, end.UnixNano()
	for _, l := range logs {
		q.clientCPU += l.CPU
		q.err = cmp.Or(q.err, l.Err)
		for _, turns := range l.Turns {
			n := 0
			for _, t := range turns {
				if t.Asked >= until {
					continue
				}
				if first == 0 || t.Asked < first {
					first = t.Asked
				}
				waited := until
				if t.Granted != 0 && t.Granted < until {
					n++
					waited, latest = t.Granted, max(latest, t.Released)
					events = append(events, event{t.Granted, waiters, true},
						event{t.Released, waiters, false})
				}
				q.longest = max(q.longest, time.Duration(waited-t.Asked))
			}
			q.granted += n
			q.most = max(q.most, n)
			if waiters == 0 || n < q.fewest {
				q.fewest = n
			}
			waiters++
		}
	}
	q.order(events)
	q.elapsed = time.Duration(min(until, latest) - first)
	return q
}

// order counts overlaps and passes.
func (q *queueing) order(events []event) {
	slices.SortFunc(events, func(a, b event) int {
		if a.at == b.at && a.granted != b.granted {
			return map[bool]int{true: 1, false: -1}[a.granted]
		}
		return cmp.Compare(a.at, b.at)
	})
	inside, last := 0, -1
	for _, e := range events {
		if !e.granted {
			inside--
			continue
		}
		if last >= 0 && last != e.waiter {
			q.passes++
		}
		last = e.waiter
		if inside++; inside > 1 {
			q.overlaps++
		}
	}
}

// join adds a shift that came after those of q.
func (q *queueing) join(o queueing) {
	q.granted += o.granted
	q.elapsed += o.elapsed
	q.fewest += o.fewest
	q.most += o.most
	q.longest = max(q.longest, o.longest)
	q.passes += o.passes
	q.overlaps += o.overlaps
	q.clientCPU += o.clientCPU
	q.err = cmp.Or(q.err, o.err)
}
