package main

import (
	"cmp"
	"slices"
	"time"
)

// queueing is what the logs of shifts come to.
type queueing struct {
	granted   int // turns
	elapsed   time.Duration
	longest   time.Duration // a wait, finished or cut off by the end
	overlaps  int           // two holders at a time
	clientCPU time.Duration
	sent      int64 // commands; judge does not know of them
	err       string
}

// judge looks at all turns of a shift that ended at end.
func judge(logs []shiftLog, end time.Time) (q queueing) {
	var held []turn
	until := end.UnixNano()
	first := until
	for _, l := range logs {
		q.clientCPU += l.CPU
		q.err = cmp.Or(q.err, l.Err)
		for _, t := range slices.Concat(l.Turns...) {
			if t.Asked >= until {
				continue
			}
			first = min(first, t.Asked)
			waited := until
			if t.Granted != 0 && t.Granted < until {
				waited, held = t.Granted, append(held, t)
			}
			q.longest = max(q.longest, time.Duration(waited-t.Asked))
		}
	}
	q.granted = len(held)
	slices.SortFunc(held, func(a, b turn) int { return cmp.Compare(a.Granted, b.Granted) })
	released := first
	for _, t := range held {
		if t.Granted < released {
			q.overlaps++
		}
		released = max(released, t.Released)
	}
	q.elapsed = time.Duration(min(until, released) - first)
	return q
}

// join adds a shift that came after those of q.
func (q *queueing) join(o queueing) {
	q.granted += o.granted
	q.elapsed += o.elapsed
	q.longest = max(q.longest, o.longest)
	q.overlaps += o.overlaps
	q.clientCPU += o.clientCPU
	q.err = cmp.Or(q.err, o.err)
}
