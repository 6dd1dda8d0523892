package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
)

// watch looks at a hold from outside: how long it could be trusted, and when its context ended.
type watch struct {
	m    *redlock.Mutex
	held context.Context
	over chan struct{} // closed when the held context has ended

	mu    sync.Mutex
	until time.Time // the latest that was seen
	told  time.Time // when the held context ended; zero before
	late  int       // how often the watch has looked after until, and the context had not ended
	timer *time.Timer
}

const (
	// lookAgain is how long after until, or after it has looked, a watch looks again.
	lookAgain = 20 * time.Millisecond
	// tooLate is how often it may have looked in vain. It is not a time, because on a busy
	// machine, or in a process that is paused, the library's timer is late, and so are the looks.
	tooLate = 10
)

// newWatch watches a hold that has just been granted, until stop.
func newWatch(m *redlock.Mutex, held context.Context) *watch {
	w := &watch{m: m, held: held, over: make(chan struct{}), until: m.Until()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(time.Until(w.until), w.tick)
	context.AfterFunc(held, func() {
		w.mu.Lock()
		w.told = time.Now()
		w.mu.Unlock()
		close(w.over)
	})
	return w
}

// tick comes at until and after: until has moved, or the hold ought to be over.
func (w *watch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	if left := time.Until(w.until); left > 0 {
		w.timer.Reset(left)
	} else if w.held.Err() == nil {
		w.late++
		w.timer.Reset(lookAgain)
	}
}

// look notes whether until has moved. The caller holds mu.
func (w *watch) look() {
	if u := w.m.Until(); u.After(w.until) {
		w.until = u
	}
}

// left is how much longer the hold can be trusted, as far as is known.
func (w *watch) left() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	return time.Until(w.until)
}

// stop ends the watch. It tells how long the hold could be trusted, when the held context ended
// (zero: it has not), and how often the watch looked in vain before, see tooLate.
func (w *watch) stop() (until, told time.Time, late int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.look()
	return w.until, w.told, w.late
}
