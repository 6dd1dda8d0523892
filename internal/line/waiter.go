package line

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/fifo"
)

// wakes is how far apart the moments are at which followers wake. To wake each by itself costs more
// than half of the processor time of a wait: see together.
const wakes = 10 * time.Millisecond

// Waiter is one who has a place in a line.
type Waiter struct {
	Wish
	lines *Lines
	line  *line
	place *fifo.Place
	since time.Time // in the line
	asker Asker
	ctx   context.Context
	used  int // tries

	drawn time.Duration // the retry delay
	due   time.Time     // when it is over

	head
}

// Wait waits until the asker has been granted the key, and returns an error if that does not come
// about: the tries are used up, or ctx is done, for instance. Then it leaves the place. What the
// latest attempt may have left on the nodes is settled.
func (w *Waiter) Wait(ctx context.Context, asker Asker) error {
	w.ctx, w.asker = ctx, asker
	defer asker.Settle(false)
	defer func() { w.lines.leave(w.Key, w.line, w.place) }()
	won, err := w.follow()
	if !won && err == nil {
		_, err = w.lead()
	}
	return err
}

// follow waits until the waiter is the head, and then returns without an error, and without having
// won. For a follower a try lasts for a retry delay and the duration of an attempt, as for the
// head. Then the try is used up. The head asks for all. A follower asks by itself if it sees nobody
// ask during a retry delay of its own and no silent nodes are left alone, or has one try left.
func (w *Waiter) follow() (won bool, err error) {
	ln, head := w.line, w.place.Head()
	w.due = time.Time{}
	if w.leads() {
		return false, nil
	}
	w.asker.Settle(false) // a node may have granted it when the others had refused
	w.draw(0)
	since, try := time.Now(), ln.try(w.drawn)
	begun := since // the try
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		w.due = begun.Add(try)
		t.Reset(clock.Ahead(time.Until(w.together(try))))
		select {
		case <-head:
			return false, nil
		case <-t.C:
		case <-w.ctx.Done():
			return false, w.stopped()
		case <-w.lines.closed:
			return false, w.stopped()
		}
		ended, now := w.due, time.Now()
		w.used++
		last := w.used == w.Tries
		if !last {
			w.draw(0)
			try = ln.try(w.drawn)
		}
		if last || ln.idle(since, now, now.Add(try)) {
			answer := w.attempt(false)
			if answer.Won {
				w.lines.granted(w.Key, ln, overdue, w.Expiry)
			}
			if answer.Won || answer.Err != nil {
				return answer.Won, answer.Err
			}
			ended = ended.Add(time.Since(now))
		}
		since = time.Now()
		if begun = ended; since.Sub(ended) > 2*wakes { // the process stood still
			begun = since
		}
	}
}

// together is the moment at which a follower wakes whose try is over when it is due. That is with
// others. The delays do not add up, because the next try begins when this one was over. A last try,
// and short ones, are on time.
func (w *Waiter) together(try time.Duration) time.Time {
	if try < 2*wakes || w.used+1 == w.Tries {
		return w.due
	}
	return w.due.Add(wakes - time.Duration(w.due.Nanosecond())%wakes)
}

// attempt makes an attempt that the line hears of.
func (w *Waiter) attempt(counts bool) Answer {
	if counts {
		w.used++
	}
	began := time.Now()
	w.line.begin(began)
	final := w.used == w.Tries
	listener, _ := w.lines.listening(w.Key, w.line)
	answer := w.asker.Attempt(Attempt{
		Final: final, Keys: w.line.keys, Latest: w.line.refusal(),
		Keep: !final && listener != nil && w.leads() && w.lines.source.Able(),
	})
	if answer.Refusal != nil {
		w.line.refused(answer.Refusal, time.Since(began))
	}
	w.lines.answered(answer, began)
	if answer.Won {
		w.line.keys.forget(time.Now()) // what was free is taken
	}
	return answer
}

// draw begins a retry delay, which is at least so long.
func (w *Waiter) draw(least time.Duration) {
	w.drawn = max(w.delay(w.used), least)
	w.due = time.Now().Add(w.drawn)
	w.expiries = 0
}

// leads reports whether the waiter is the head of the line.
func (w *Waiter) leads() bool { return received(w.place.Head()) }

// stopped returns why the wait is over, or nil if it is not.
func (w *Waiter) stopped() error { return w.asker.Stopped(w.line.refusal()) }

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
