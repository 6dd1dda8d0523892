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

// state is what a head does.
type state uint8

const (
	asking  state = iota // it makes an attempt; then it is queued
	queued               // it is in the nodes' queue; then, or if it cannot be there, it polls
	polling              // it sleeps until there is reason to ask, or to queue
)

// lead waits at the head of the local queue, and returns nil if the key is granted. It begins with
// a new retry delay. A waiter that becomes the head with one try left keeps the delay that it has
// begun.
func (w *Waiter) lead() error {
	defer w.watch()()
	if !w.hasOneTry() || w.due.IsZero() {
		w.draw(0)
	}
	w.asked = time.Now()
	now, why := queued, arrived
	for {
		won, err := false, error(nil)
		switch now {
		case asking:
			won, err = w.ask(why)
			now = queued
		case queued:
			won, now, err = w.queue(why)
			why = overdue
		case polling:
			why, err = w.poll()
			if now = asking; why == handed || why == heard {
				now = queued
			}
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
	if why == overdue {
		w.used++
	}
	answer := w.attempt()
	w.asked = time.Now()
	if w.denied && answer.answered() {
		w.queues.deny(w.key, time.Now())
	}
	w.denied = false
	if answer.Won && !l.shared || answer.Refusal != nil {
		l.taken = true
	}
	if answer.Won {
		w.queues.granted(w, why)
	} else if answer.Err == nil && (why == overdue || why == freed) {
		w.draw(0)
	}
	return answer.Won, answer.Err
}

// queue waits in the nodes' queue, if the waiter may and turns can be heard. It returns what the
// waiter does next.
func (w *Waiter) queue(why reason) (won bool, next state, err error) {
	w.ready = nil
	may, held := w.queues.mayQueue(w)
	switch latest := w.local.refusal(); {
	case !may || held && why != handed || w.queues.patience(w.ctx) <= 0:
		return false, polling, nil
	case latest != nil && latest.Failing():
		return false, polling, nil // its turn would not help: it asks again after the retry delay
	}
	if w.ready = w.queues.listener.readiness(); !w.hears(why) {
		return false, polling, nil
	}
	w.ready = nil
	end, err := w.enqueue()
	switch {
	case err != nil:
		return false, polling, err
	case end == served:
		w.local.taken = !w.local.shared
		w.queues.granted(w, handed)
		return true, polling, nil
	case end == lastTry:
		return false, asking, nil
	}
	w.denied = end == denied
	return false, polling, nil
}

// hears reports whether turns can be heard. After an attempt that is worth a moment's wait: to
// enroll in the nodes' queue settles that. To wait longer saves commands, but a node may grant the
// attempt afterwards, and many processes that begin at once then block each other.
func (w *Waiter) hears(why reason) bool {
	listener := w.queues.listener
	if w.local.taken && why != handed && why != heard && !listener.hears() && !listener.deaf() {
		t := time.NewTimer(w.request.Lock.NodeTimeout / 4)
		defer t.Stop()
		select {
		case <-w.ready:
		case <-w.local.bell:
			signal(w.local.bell) // poll hears what it was
		case <-t.C:
		case <-w.ctx.Done():
		case <-w.queues.closed:
		}
	}
	return listener.hears()
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
		free := l.keys.time()
		if !free.IsZero() && w.expiries < maxExpiries && free.Before(at) {
			at, why = free, expired
		}
		l.plan(at)
		t.Reset(clock.TimerDelay(time.Until(at)))
		isReady, isRung := false, false
		select {
		case <-t.C:
		case <-w.ready:
			isReady = true
		case <-l.keys.told:
		case <-l.bell:
			isRung = true
		case <-w.ctx.Done():
			return 0, w.stopped()
		case <-w.queues.closed:
			return 0, w.stopped()
		}
		// What comes at the same time is looked at in the same order.
		if isRung || received(l.bell) {
			switch why := l.hear(); why {
			case arrived: // which is nothing
			case left:
				w.due = sooner(w.due, maxRest)
			default:
				return why, nil
			}
		}
		switch {
		case isReady || received(w.ready):
			return heard, nil
		case time.Now().Before(at):
		case why == expired:
			w.expiries++
			return why, nil
		case !w.waives(time.Now()):
			return why, nil
		default:
			w.used++
			w.draw(0)
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
