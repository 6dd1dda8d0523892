package queue

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// wakes is how far apart the moments are at which waiters behind the head wake. To wake each by
// itself costs more than half of the processor time of a wait: see together.
const wakes = 10 * time.Millisecond

// Waiter is one who has a place in a local queue.
type Waiter struct {
	Long func(LongWait) // is told when the head has waited for long, or nil; must not block

	request  Request
	key      string
	queues   *Queues
	local    *local
	head     chan struct{} // closed when the waiter is the head
	since    time.Time
	acquirer Acquirer
	ctx      context.Context
	used     int // tries

	drawn time.Duration // the retry delay
	due   time.Time     // when it is over

	// At the head. Attempts for other reasons than overdue leave the retry delay as it is, unless
	// the key was released.
	asked    time.Time       // when it last did, or became the head
	expiries int             // attempts within the delay because keys had expired
	ready    <-chan struct{} // while it polls: when turns can be heard, or nil
}

// Wait waits until the acquirer has been granted the key, and returns an error if that does not
// come about: the tries are used up, or ctx is done, for instance. Then it leaves the place. What
// the latest attempt may have left on the nodes is settled.
func (w *Waiter) Wait(ctx context.Context, a Acquirer) error {
	w.ctx, w.acquirer = ctx, a
	defer a.Settle(false)
	defer w.queues.leave(w)
	if won, err := w.follow(); won || err != nil {
		return err
	}
	return w.lead()
}

// follow waits until the waiter is the head, and then returns without an error, and without having
// won. A try lasts for a retry delay and the duration of an attempt, as for the head. Then it is
// used up. The head asks for all, and is woken to do so by a waiter that sees nobody ask during a
// retry delay of its own, unless they back off from silent nodes. The last try is an attempt.
func (w *Waiter) follow() (won bool, err error) {
	l := w.local
	if w.leads() {
		return false, nil
	}
	w.acquirer.Settle(false) // a node may have granted it when the others had refused
	w.draw()
	since, try := time.Now(), l.try(w.drawn)
	begun := since // the try
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		w.due = begun.Add(try)
		t.Reset(clock.TimerDelay(time.Until(w.together(try))))
		select {
		case <-w.head:
			return false, nil
		case <-t.C:
		case <-w.ctx.Done():
			return false, w.stopped()
		case <-w.queues.Open.Done():
			return false, w.stopped()
		}
		if w.used++; w.used == w.request.Tries {
			answer := w.attempt()
			if answer.Won {
				w.queues.granted(w, overdue)
			}
			return answer.Won, answer.Err
		}
		begun = w.due
		w.draw()
		try = l.try(w.drawn)
		now := time.Now()
		if l.idle(since, now, now.Add(try)) {
			l.ring(missed)
		}
		if since = now; now.Sub(begun) > 2*wakes { // the process stood still
			begun = now
		}
	}
}

// together is the moment at which a waiter wakes whose try is over when it is due. That is with
// others. The delays do not add up, because the next try begins when this one was over. A last try,
// and short ones, are on time.
func (w *Waiter) together(try time.Duration) time.Time {
	if try < 2*wakes || w.hasOneTry() {
		return w.due
	}
	return w.due.Add(wakes - time.Duration(w.due.Nanosecond())%wakes)
}

// attempt makes an attempt that the local queue hears of.
func (w *Waiter) attempt() Answer {
	l, began := w.local, time.Now()
	l.begin(began)
	final := w.used == w.request.Tries
	may, _ := w.queues.mayQueue(w)
	answer := w.acquirer.Attempt(Attempt{
		Final: final, Keep: !final && may && w.leads(), Free: l.told, Latest: l.refusal(),
	})
	took := time.Since(began)
	if answer.Refusal != nil {
		l.refused(answer.Refusal, took)
	}
	if answer.answered() {
		w.queues.answered(took)
	}
	return answer
}

// draw begins a retry delay.
func (w *Waiter) draw() {
	w.drawn = w.request.delay(w.used)
	w.due = time.Now().Add(w.drawn)
	w.expiries = 0
}

// leads reports whether the waiter is the head.
func (w *Waiter) leads() bool { return received(w.head) }

// hasOneTry reports whether one try is left.
func (w *Waiter) hasOneTry() bool { return w.used+1 == w.request.Tries }

// stopped returns why the wait is over, or nil if it is not.
func (w *Waiter) stopped() error { return w.acquirer.Stopped(w.local.refusal()) }

// sleep waits for d, or until ctx is done or the process waits for nothing any more.
func (q *Queues) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-q.Open.Done():
	}
}
