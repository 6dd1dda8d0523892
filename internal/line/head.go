package line

import (
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/turn"
)

// maxDelays is how many retry delays pass between two attempts, at most, because turns will be
// heard in a moment. With more of them, some wait for too long after a partition.
const maxDelays = 3

// minDelays is how many pass at least. With 1 instead of 2, 256 processes that come once send 122
// commands a turn instead of 118: every third makes another attempt.
const minDelays = 2

// maxExpiries is how many attempts within one retry delay may be made because keys are about to
// expire.
const maxExpiries = 3

// head is what a waiter knows at the head of the line. Attempts for other reasons than overdue
// leave the retry delay as it is, unless the key was released.
type head struct {
	expiries int  // attempts within the delay because keys had expired
	denied   bool // the latest stay was

	led, asked time.Time // since when it is the head, and when it last asked since then
}

// lead is the wait at the head of the line. It makes an attempt whenever there is reason for one,
// and stands in the queue on the nodes where turns can be heard. It begins with a new retry delay.
// A follower that becomes the head with one try left keeps the delay that it has begun.
func (w *Waiter) lead() (won bool, err error) {
	defer w.watch()()
	ln := w.line
	if w.used+1 != w.Tries || w.due.IsZero() {
		w.draw(0)
	}
	w.led = time.Now()
	w.asked = w.led
	why, ask := arrived, false
	for {
		if ask {
			if won, done, err := w.attemptFor(why); done {
				return won, err
			}
		}
		listener, held := w.lines.listening(w.Key, ln)
		var ready <-chan struct{} // after which turns can be heard, for somebody who wants that
		if listener != nil && (why == queued || !held) && w.lines.patience(w.ctx) > 0 {
			ready = listener.Ready()
		}
		if r := ln.refusal(); r != nil && r.Failing() {
			ready = nil // its turn would not help: it asks again after the retry delay
		}
		if ready != nil && w.hears(listener) {
			ready = nil
			end, err := w.stay(listener)
			switch {
			case err != nil:
				return false, err
			case end == served:
				ln.taken = true
				w.lines.granted(w.Key, ln, queued, w.Expiry)
				return true, nil
			case end == lastTry:
				why, ask = overdue, true
				continue
			}
			w.denied = end == denied
		}
		w.asker.GiveBack()
		if !ln.taken { // nobody has found out yet
			why, ask = arrived, true
			continue
		}
		if why, err = w.sleep(listener, ready); err != nil {
			return false, err
		}
		ask = why != queued && why != heard
	}
}

// attemptFor makes an attempt for a reason. It reports whether the wait at the head is over: the
// key is granted, or there is an error.
func (w *Waiter) attemptFor(why reason) (won, done bool, err error) {
	ln := w.line
	ln.taken = false // if this is cut short, the next head tries
	answer := w.attempt(why == overdue)
	w.asked = time.Now()
	if answer.Won || answer.Refusal != nil {
		ln.taken = true
	}
	if w.denied && (answer.Won || answer.Refusal != nil && answer.Refusal.Answered()) {
		w.lines.deny(w.Key, time.Now())
	}
	w.denied = false
	switch {
	case answer.Won:
		w.lines.granted(w.Key, ln, why, w.Expiry)
		return true, true, nil
	case answer.Err != nil:
		return false, true, answer.Err
	}
	switch why {
	case overdue, freed:
		w.draw(0)
	}
	return false, false, nil
}

// hears reports whether turns can be heard. An attempt that is not settled yet is worth a moment's
// wait for that: to stand in the queue settles it. To wait longer saves commands. But a node may
// grant the attempt afterwards, and 1,000 processes that begin at once then block each other.
func (w *Waiter) hears(listener *turn.Listener) bool {
	if w.asker.Unsettled() {
		t := time.NewTimer(w.NodeTimeout / 4)
		defer t.Stop()
		select {
		case <-listener.Ready():
		case <-w.line.bell:
			signal(w.line.bell) // sleep hears what it was
		case <-t.C:
		case <-w.ctx.Done():
		case <-w.lines.closed:
		}
	}
	return listener.Hears()
}

// sleep waits until there is reason for an attempt, or to stand in the queue on the nodes: when
// ready is closed, for instance.
func (w *Waiter) sleep(l *turn.Listener, ready <-chan struct{}) (why reason, err error) {
	ln := w.line
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		at, why := w.due, overdue
		free := ln.keys.time()
		if !free.IsZero() && w.expiries < maxExpiries && free.Before(at) {
			at, why = free, expired
		}
		ln.plan(at)
		t.Reset(clock.Ahead(time.Until(at)))
		isReady, isRung := false, false
		select {
		case <-t.C:
		case <-ready:
			isReady = true
		case <-ln.keys.told:
		case <-ln.bell:
			isRung = true
		case <-w.ctx.Done():
			return 0, w.stopped()
		case <-w.lines.closed:
			return 0, w.stopped()
		}
		// What comes at the same time is looked at in the same order.
		if isRung || received(ln.bell) {
			switch why := ln.hear(); why {
			case arrived: // which is nothing
			case left:
				w.due = sooner(w.due, maxRest)
			default:
				return why, nil
			}
		}
		switch {
		case isReady || received(ready):
			return heard, nil
		case time.Now().Before(at):
		case why == overdue && w.waives(l, ready != nil, time.Now()):
			w.used++
			w.draw(0)
			// As long as a try with an attempt takes, but no longer than nodes are left alone.
			most := clock.Add(max(w.drawn, minTry), maxSpare)
			w.due = time.Now().Add(min(ln.try(w.drawn), most))
		default:
			if why == expired {
				w.expiries++
			}
			return why, nil
		}
	}
}

// waives reports whether a retry delay that is over is no reason for an attempt. The last try is
// never waived. Others are while silent nodes are left alone, and while a subscription is being
// opened, because turns will be heard in a moment. The next attempt comes when minDelays have
// passed since the latest, and as much time as the waiter had been the head by then. But no delay
// is waived once maxDelays of them, or maxDelayQueued, have passed.
//
// Attempts keep subscriptions from being opened. 1,000 processes began at once, beside eight busy
// programs on two cores. They had 3 turns a second in the first 25 seconds. Since delays are waived
// for that, they have 83.
func (w *Waiter) waives(l *turn.Listener, opening bool, now time.Time) bool {
	if w.used+1 == w.Tries {
		return false
	}
	most := min(clock.Times(w.drawn, maxDelays), maxDelayQueued)
	least := clock.Times(w.drawn, minDelays)
	pause := min(max(w.asked.Sub(w.led), least), most)
	return w.line.spare(now) > 0 || opening && !l.Deaf() && now.Sub(w.asked) < pause
}
