package queue

import (
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

const (
	// maxDelays is how many retry delays pass between two attempts while subscriptions are being
	// opened: attempts keep them from that, and turns will be heard in a moment. With more of them,
	// some wait for too long after a partition.
	maxDelays = 3
	// maxExpiries is how many attempts within one retry delay may be made because keys are about to
	// expire.
	maxExpiries = 3
)

// lead waits at the head of the local queue, and returns nil if the key is granted. It begins with
// a new retry delay. A waiter that becomes the head with one try left keeps the delay that it has
// begun.
func (w *Waiter) lead() error {
	defer w.watch()()
	if !w.hasOneTry() || w.due.IsZero() {
		w.draw()
	}
	w.asked = time.Now()
	for why := arrived; ; {
		won, last, err := w.queue(why)
		why = overdue
		if !won && !last && err == nil {
			why, err = w.poll()
		}
		if !won && err == nil && why != handed && why != heard {
			won, err = w.ask(why)
		}
		if won || err != nil {
			return err
		}
	}
}

// ask makes an attempt for a reason.
func (w *Waiter) ask(why reason) (won bool, err error) {
	l := w.local
	l.taken = false // if this is cut short, the next head tries
	l.free = time.Time{}
	if why == overdue {
		w.used++
	}
	answer := w.attempt()
	w.asked = time.Now()
	if answer.Won && !l.shared || answer.Refusal != nil {
		l.taken = true
	}
	if answer.Won {
		w.queues.granted(w, why)
	} else if answer.Err == nil && (why == overdue || why == freed) {
		w.draw()
	}
	return answer.Won, answer.Err
}

// queue waits in the nodes' queue, if the waiter may and turns can be heard. It reports whether the
// last try is due, which is an attempt.
func (w *Waiter) queue(why reason) (won, last bool, err error) {
	may, held := w.queues.mayQueue(w)
	latest := w.local.refusal()
	switch w.ready = nil; {
	case !may, held && why != handed, w.queues.patience(w.ctx) <= 0:
		return false, false, nil
	case latest != nil && latest.Failing():
		return false, false, nil // its turn would not help: it asks again after the retry delay
	}
	if w.ready = w.queues.listener.readiness(); !received(w.ready) {
		return false, false, nil
	}
	w.ready = nil
	end, err := w.enqueue()
	switch end {
	case served:
		w.local.taken = !w.local.shared
		w.queues.granted(w, handed)
	case denied:
		w.queues.deny(w.key)
	}
	return end == served, end == lastTry, err
}

// poll sleeps until there is reason for an attempt, or to queue: when turns can be heard, for
// instance.
func (w *Waiter) poll() (why reason, err error) {
	l := w.local
	w.acquirer.GiveBack()
	if !l.taken {
		return arrived, nil // nobody has found out yet
	}
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		at, why := w.due, overdue
		if !l.free.IsZero() && w.expiries < maxExpiries && l.free.Before(at) {
			at, why = l.free, expired
		}
		l.plan(at)
		t.Reset(clock.TimerDelay(time.Until(at)))
		select {
		case <-t.C:
		case <-w.ready:
		case l.free = <-l.told:
		case <-l.bell:
		case <-w.ctx.Done():
			return 0, w.stopped()
		case <-w.queues.Open.Done():
			return 0, w.stopped()
		}
		// What comes at the same time is looked at in the same order.
		switch why := l.hear(); why {
		case arrived: // which is nothing
		case left:
			w.due = sooner(w.due, maxRest)
		default:
			return why, nil
		}
		switch {
		case received(w.ready):
			return heard, nil
		case time.Now().Before(at):
		case why == expired:
			w.expiries++
			return why, nil
		case !w.waives(time.Now()):
			return why, nil
		default:
			w.used++
			w.draw()
			// As long as a try with an attempt takes, but no longer than a back-off.
			most := clock.Add(max(w.drawn, minTry), maxSpare)
			w.due = time.Now().Add(min(l.try(w.drawn), most))
		}
	}
}

// waives reports whether a retry delay that is over is no reason for an attempt. The last try is
// never waived. Others are while it backs off from silent nodes. While subscriptions are being
// opened, the next attempt comes when all could have been, and maxDelays of them, or
// maxDelayQueued, have passed since the latest.
func (w *Waiter) waives(now time.Time) bool {
	if w.hasOneTry() {
		return false
	}
	pause := min(clock.Times(w.drawn, maxDelays), maxDelayQueued)
	opening := w.ready != nil && !w.queues.listener.deaf()
	early := now.Sub(w.asked) < pause || now.Before(w.local.opening)
	return w.local.spare(now) > 0 || opening && early
}
