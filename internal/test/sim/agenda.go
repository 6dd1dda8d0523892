package sim

import (
	"container/heap"
	"sync"
	"time"
)

// agenda is what happens between nodes and clients whose plans give each command an order. One
// thing happens at a time: of two at the same nanosecond the one with the smaller order comes
// first, and the other a nanosecond later, when all that follows from the first has happened.
// Otherwise they would come in the order in which goroutines run, and a schedule could not be
// replayed. The zero agenda is ready for use. It is safe for concurrent use.
type agenda struct {
	mu     sync.Mutex // guards what follows
	events events
	timer  *time.Timer // ends in next
	at     time.Time   // when it fires; zero if it is not set
}

// event is one thing on the agenda.
type event struct {
	at    time.Time
	order uint64
	do    func()
	place int // among the events; -1 if it is over
}

// add puts something on the agenda, to be done in d.
func (a *agenda) add(d time.Duration, order uint64, do func()) *event {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := &event{at: time.Now().Add(d), order: order, do: do}
	heap.Push(&a.events, e)
	if a.at.IsZero() || e.at.Before(a.at) {
		a.set(e.at)
	}
	return e
}

// remove takes something off the agenda.
func (a *agenda) remove(e *event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.place >= 0 {
		heap.Remove(&a.events, e.place)
	}
}

// set sets the timer. The caller holds mu.
func (a *agenda) set(at time.Time) {
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), a.next)
	} else {
		a.timer.Reset(time.Until(at))
	}
}

// next does what is due first.
func (a *agenda) next() {
	a.mu.Lock()
	now := time.Now()
	if now.Before(a.at) { // the timer was set anew
		a.mu.Unlock()
		return
	}
	var due *event
	if len(a.events) > 0 && !now.Before(a.events[0].at) {
		due = heap.Pop(&a.events).(*event)
	}
	a.at = time.Time{}
	if len(a.events) > 0 {
		at := a.events[0].at
		if !at.After(now) {
			at = now.Add(1)
		}
		a.set(at)
	}
	a.mu.Unlock()
	if due != nil {
		due.do()
	}
}

// events is a [heap.Interface].
type events []*event

func (e events) Len() int { return len(e) }

func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].order < e[j].order
}

func (e events) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].place, e[j].place = i, j
}

func (e *events) Push(x any) {
	x.(*event).place = len(*e)
	*e = append(*e, x.(*event))
}

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = nil
	*e = (*e)[:len(*e)-1]
	last.place = -1
	return last
}
