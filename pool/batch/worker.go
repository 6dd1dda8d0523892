package batch

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/term"
	"github.com/redlock-go/redlock/pool"
)

const (
	// longYield is longer than it takes callers to queue, also hundreds of them, and shorter than
	// the 10 ms for which a goroutine that computes keeps a processor.
	longYield = 5 * time.Millisecond
	// yieldRest says for how long a worker does not yield after a long one: for that many times as
	// long as it took. So yields cost a hundredth of the time at most.
	yieldRest = 100
	// longestRest bounds that. A process that was stopped has yielded for very long.
	longestRest = 10 * time.Second
)

// worker is a goroutine that sends batches one after the other, for as long as calls come. A few
// workers of a Batcher then wait a while for the next call. A new goroutine has a small stack,
// which has to grow in several steps: without idle workers a lone caller's lock on one node took
// 1.25 times as long, and 1.4 times the processor time.
type worker[T any] struct {
	batcher *Batcher[T]

	// While the batch is under way, the Batcher's mu guards these.
	calls []*Call[T] // of the batch
	sent  []*Call[T] // what Send is given of them: see join
	term  *term.Term // the context of several calls, or nil

	room []*Call[T] // of the last batch, empty; behind its end are calls that are over
	last int        // how many calls the last batch had, or 0 before the first
	rest time.Time  // until when the worker does not yield
	over bool       // it ends as it should

	carries bool // it is no goroutine: callers send with it, one after the other
}

func (w *worker[T]) work() {
	defer w.leave()
	for w.next() {
		w.send()
	}
	w.over = true
}

// leave counts out a worker that a client has ended by [runtime.Goexit].
func (w *worker[T]) leave() {
	if w.over {
		return
	}
	w.batcher.mu.Lock()
	defer w.batcher.mu.Unlock()
	w.batcher.retire()
}

// retire counts out a worker that takes no other batch. The caller holds mu.
func (b *Batcher[T]) retire() {
	b.active--
	if len(b.queue) > 0 && b.wantsWorker() {
		b.startWorker()
	}
}

// next takes the next batch. It waits a while for one, and returns false if none comes.
//
// A worker that comes back leaves the queue to others, unless little is under way. Otherwise the
// callers of a small batch would stay by themselves for ever: the locks of 256 callers on one node
// took 1.2 times as long.
func (w *worker[T]) next() bool {
	b := w.batcher
	called := w.last == 0 // for the queue that there is
	for {
		if w.last > 1 {
			w.yield()
		}
		b.mu.Lock()
		if len(b.queue) > 0 && (called || b.isReadyFor(b.queue[0], len(b.queue))) {
			w.begin()
			b.mu.Unlock()
			return true
		}
		b.active--
		if b.idle == fewAlone {
			b.mu.Unlock()
			return false
		}
		b.idle++
		if b.wakes == nil {
			b.wakes = make(chan bool, maxStuck+1)
		}
		b.mu.Unlock()
		if !<-b.wakes {
			return false
		}
		called = true
	}
}

// begin takes the queue as the next batch, which is under way from now on. The caller holds the
// Batcher's mu.
func (w *worker[T]) begin() {
	b := w.batcher
	w.calls = b.take(w.room)
	w.calls[0].crowded = b.isCrowdFor(w.calls[0])
	for _, c := range w.calls {
		c.carried = w.carries
	}
	w.sent = w.calls
	b.sending = append(b.sending, w)
	b.underWay += len(w.calls)
	b.noteCalls()
	b.noteSent(len(w.calls))
	if len(b.queue) > 0 && b.wantsWorker() { // for the rest of a crowd
		b.startWorker()
	}
}

// yield lets the goroutines that are ready to run go first. They are callers who have just been
// told their outcomes, and what they want next is then in the next batch. Without it, the locks
// of eight callers took 1.2 times as long, on one node and on five, and 1.25 times the processor
// time. A worker that is called yields as well: other callers may be about to queue. Without that,
// the locks of 64 callers on five nodes took 1.1 times as long.
//
// Behind goroutines that compute, a yield takes many milliseconds, which may be more than a call
// has. So there is a rest after a long one.
func (w *worker[T]) yield() {
	start := time.Now()
	if start.Before(w.rest) {
		return
	}
	runtime.Gosched()
	end := time.Now()
	if took := end.Sub(start); took > longYield {
		w.rest = end.Add(min(yieldRest*min(took, longestRest), longestRest))
	}
}

// send sends the batch and tells the outcomes, also if the client panics or ends the goroutine.
func (w *worker[T]) send() {
	defer func() {
		err := errNotAnswered
		if why := recover(); why != nil {
			err = pool.Recovered(why)
		}
		w.deliver(err)
	}()
	ctx := w.context()
	w.join(ctx)
	w.batcher.Send(ctx, w.sent)
}

// context returns the context with which the batch is sent. That of several calls has no timer,
// because the Batcher looks at the batches under way: with one, the locks of 64 callers on 5 nodes
// took 2 % more processor time.
func (w *worker[T]) context() context.Context {
	first := w.calls[0].ctx
	if len(w.calls) == 1 {
		return first
	}
	ctx := &term.Term{Context: context.WithoutCancel(first)}
	for _, c := range w.calls {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			ctx.Limit = time.Time{}
			break
		}
		if deadline.After(ctx.Limit) {
			ctx.Limit = deadline
		}
	}
	w.batcher.mu.Lock()
	defer w.batcher.mu.Unlock()
	w.term = ctx
	return ctx
}

// abandonIfEnded abandons the batch if nobody waits for any of its calls. Else it returns a time
// until which somebody does, if it knows one. The caller holds the Batcher's mu.
func (w *worker[T]) abandonIfEnded() (until time.Time) {
	for _, c := range w.calls {
		if c.ctx.Err() == nil {
			until, _ = c.ctx.Deadline()
			return until
		}
	}
	switch {
	case w.term == nil:
	case w.term.Limit.IsZero(), time.Now().Before(w.term.Limit):
		w.term.Cancel()
	default:
		w.term.Expire()
	}
	if w.batcher.Abandon != nil {
		w.batcher.Abandon(w.sent)
	}
	return time.Time{}
}

// deliver tells the outcomes. Err is that of the calls that the client has not answered.
func (w *worker[T]) deliver(err error) {
	b := w.batcher
	b.mu.Lock()
	i := slices.Index(b.sending, w)
	b.sending = slices.Delete(b.sending, i, i+1)
	b.underWay -= len(w.calls)
	if w.carries { // now, because a Receive may panic
		b.retire()
	}
	b.mu.Unlock()
	if w.term != nil {
		w.term.Cancel()
		w.term = nil
	}
	w.part()
	w.tell(0, err)
	w.last = len(w.calls)
	w.room = nil
	if cap(w.calls) <= 4*maxCalls {
		w.room = w.calls[:0]
	}
	w.calls, w.sent = nil, nil
}

// tell tells the outcomes from a call on. One whose Receive panics, or ends the goroutine, keeps
// nobody else from being told.
func (w *worker[T]) tell(from int, err error) {
	i := from
	defer func() {
		if i < len(w.calls) {
			w.tell(i+1, err)
		}
	}()
	for ; i < len(w.calls); i++ {
		c := w.calls[i]
		over := c.answered && !c.kept && !c.again // so nobody has it any more
		if !c.answered {
			c.Answer(nil, err)
		}
		w.batcher.deliver(c)
		if over {
			*c = Call[T]{} // for newCall
		} else {
			w.calls[i] = nil
		}
	}
}
