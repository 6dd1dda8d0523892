package line

import "time"

// longWait is how long a waiter waits before [Wish].Long is called.
const longWait = 2 * time.Second

// LongWait is what is told of a waiter at the head of a line that has waited for long.
type LongWait struct {
	Waiters int     // in the line
	Ahead   int     // processes before this one in the nodes' queue, as far as is known
	Latest  Refusal // of anybody in the line, or nil
}

// watch calls Long, if there is one, when the waiter at the head has waited for longWait, and then
// again each time as long as it had waited. A line of many has a new head again and again: the
// pause is the line's, so that it says the more rarely the longer they wait. When stop returns,
// Long is not called any more.
func (w *Waiter) watch() (stop func()) {
	if w.Long == nil {
		return func() {}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	t := time.AfterFunc(w.line.quietFor(w.since), func() {
		defer close(ended)
		w.tell(over)
	})
	return func() {
		if !t.Stop() {
			close(over)
			<-ended
		}
	}
}

// tell calls Long whenever it is time, until over is closed.
func (w *Waiter) tell(over <-chan struct{}) {
	for {
		t := time.NewTimer(w.line.quietFor(w.since))
		select {
		case <-t.C:
		case <-over:
			t.Stop()
			return
		}
		if wait, due := w.line.longWait(w.since); due {
			w.Long(wait)
		}
	}
}

// quietFor returns for how long Long is not called about a waiter who waits since a time.
func (ln *line) quietFor(since time.Time) time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return max(time.Until(since.Add(longWait)), time.Until(ln.told.Add(ln.quiet)), 0)
}

// longWait returns what Long is told, and whether it is time for that.
func (ln *line) longWait(since time.Time) (wait LongWait, due bool) {
	waiters := ln.places.Len()
	ln.mu.Lock()
	defer ln.mu.Unlock()
	now := time.Now()
	if now.Before(ln.told.Add(ln.quiet)) {
		return LongWait{}, false
	}
	ln.told, ln.quiet = now, max(now.Sub(since), longWait)
	return LongWait{Waiters: waiters, Ahead: int(ln.ahead), Latest: ln.latest}, true
}
