package queue

import (
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// longWait is how long a waiter waits before [Waiter].Long is called.
const longWait = 2 * time.Second

// LongWait is what is told of a head that has waited for long.
type LongWait struct {
	Waiters int     // of this process
	Ahead   int     // processes before this one in the nodes' queue, as far as is known
	Latest  Refusal // of anybody in the local queue, or nil
}

// watch calls Long, if there is one, when the head has waited for longWait, and then again each
// time as long as it had waited. A queue of many has a new head again and again: the pause is the
// queue's, so that it says the more rarely the longer they wait. When stop returns, Long is not
// called any more.
func (w *Waiter) watch() (stop func()) {
	if w.Long == nil {
		return func() {}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	t := time.AfterFunc(w.quietFor(), func() {
		defer close(ended)
		for again := true; again; {
			w.tell()
			select {
			case <-time.After(w.quietFor()):
			case <-over:
				again = false
			}
		}
	})
	return func() {
		if !t.Stop() {
			close(over)
			<-ended
		}
	}
}

// quietFor returns for how long Long is not called about the waiter.
func (w *Waiter) quietFor() time.Duration {
	l := w.local
	l.mu.Lock()
	defer l.mu.Unlock()
	return clock.TimerDelay(max(time.Until(w.since.Add(longWait)), time.Until(l.quiet)))
}

// tell calls Long.
func (w *Waiter) tell() {
	w.queues.mu.Lock()
	waiters := w.queues.waiting(w.key)
	w.queues.mu.Unlock()
	l, now := w.local, time.Now()
	l.mu.Lock()
	l.quiet = now.Add(max(now.Sub(w.since), longWait))
	wait := LongWait{Waiters: waiters, Ahead: int(max(l.place-1, 0)), Latest: l.latest}
	l.mu.Unlock()
	w.Long(wait)
}
