package batch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/redlock-go/redlock/pool"
)

// A worker is a goroutine that sends batches one after the other, for as long as calls come. A few
// of them then wait a while for the next call. A new goroutine has a small stack, which has to grow
// in several steps: without idle workers a lone caller's lock on one node took 1.25 times as long,
// and 1.4 times the processor time.

const (
	// stay is how long an idle worker stays.
	stay = 50 * time.Millisecond
	// longYield is longer than it takes callers to queue, also hundreds of them, and shorter than
	// the 10 ms for which a goroutine that computes keeps a processor.
	longYield = 5 * time.Millisecond
	// longestRest is for a process that was stopped during a yield.
	longestRest = 10 * time.Second
)

func (b *Batcher[T]) work() {
	defer b.leave()
	idle := time.NewTimer(stay)
	defer idle.Stop()
	for s := b.next(true, idle); s != nil; s = b.next(false, idle) {
		several := len(s.calls) > 1
		b.send(s)
		if several {
			b.yield()
		}
	}
}

// yield lets the goroutines that are ready to run go first. They are callers who have just been
// told their outcomes, and what they want next is then in the next batch. Without it, the locks of
// eight callers on five nodes took 1.3 times as long, and 1.3 times the processor time.
//
// Behind goroutines that compute, a yield takes many milliseconds, which may be more than a call
// has. So no worker yields for a while after a long one, and yields cost a hundredth of the time at
// most.
func (b *Batcher[T]) yield() {
	start := time.Now()
	if start.UnixNano() < b.rest.Load() {
		return
	}
	runtime.Gosched()
	if took := time.Since(start); took > longYield {
		b.rest.Store(start.Add(min(100*took, longestRest)).UnixNano())
	}
}

// leave counts out a worker that ends, perhaps because a client or a receiver ends the goroutine.
func (b *Batcher[T]) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coming--
	b.serve()
}

// next takes the queue as the next batch of a worker that was called for it, or has just sent one.
// It waits a while for a call, and returns nil if none comes.
func (b *Batcher[T]) next(called bool, idle *time.Timer) *batch[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.coming--; len(b.queue) == 0 || !called && !b.mayGo(b.queue[0]); b.coming-- {
		b.mu.Unlock()
		idle.Reset(stay)
		select {
		case <-b.wakes:
			called = true
		case <-idle.C:
			called = false
		}
		b.mu.Lock()
		if !called {
			b.coming++ // for leave
			return nil
		}
	}
	n := min(len(b.queue), maxCalls)
	s := b.begin(b.queue[:n]...)
	b.queue = slices.Delete(b.queue, 0, n)
	if len(b.queue) > 0 {
		b.wait()
		b.serve()
	}
	return s
}

// batch is some calls a batch under way.
type batch[T any] struct {
	calls []*Call[T]
	sent  []*Call[T] // what Send is given of them: see join
	ctx   context.Context
	end   context.CancelFunc
}

// begin makes a batch of the calls, which is under way from now on. The caller holds mu, and calls
// send next.
func (b *Batcher[T]) begin(calls ...*Call[T]) *batch[T] {
	s, _ := b.batches.Get().(*batch[T])
	if s == nil {
		s = &batch[T]{}
	}
	s.calls = append(s.calls, calls...)
	s.ctx, s.end = contextOf(s.calls)
	s.sent = b.join(s.ctx, s.calls)
	for _, c := range calls {
		c.handed = true
	}
	b.sending = append(b.sending, s)
	b.underWay += len(calls)
	if b.watching == nil {
		b.watching = time.AfterFunc(watch, b.look)
	}
	return s
}

// contextOf returns the context with which the calls are sent, and its end.
func contextOf[T any](calls []*Call[T]) (context.Context, context.CancelFunc) {
	first := calls[0].ctx
	if len(calls) == 1 {
		return first, func() {}
	}
	values := context.WithoutCancel(first)
	var last time.Time
	for _, c := range calls {
		deadline, ends := c.ctx.Deadline()
		if !ends {
			return context.WithCancel(values)
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(values, last)
}

// abandonIfEnded abandons a batch if nobody waits for any of its calls. It returns after what time
// that may be. The caller holds mu.
func (b *Batcher[T]) abandonIfEnded(s *batch[T]) time.Duration {
	for _, c := range s.calls {
		if c.ctx.Err() == nil {
			if deadline, ends := c.ctx.Deadline(); ends {
				return time.Until(deadline)
			}
			return watch
		}
	}
	if end, ends := s.ctx.Deadline(); !ends || time.Now().Before(end) {
		s.end() // or it ends by itself, for another reason
	}
	if b.Abandon != nil {
		b.Abandon(s.sent)
	}
	return watch
}

var errNotAnswered = errors.New("pool: the client returned neither a reply nor an error")

// send sends a batch and tells the outcomes, also if the client panics or ends the goroutine.
func (b *Batcher[T]) send(s *batch[T]) {
	defer func() {
		err := errNotAnswered
		if why := recover(); why != nil {
			err = pool.Recovered(why)
		}
		b.deliver(s, err)
	}()
	b.Send(s.ctx, s.sent)
}

// deliver tells the outcomes. Err is that of the calls that the client has not answered. If it has
// answered all, nobody has the batch any more, and its memory is used again.
func (b *Batcher[T]) deliver(s *batch[T], err error) {
	over := true
	for _, c := range s.sent {
		if !c.answered {
			over = false
			c.Answer(nil, err)
		}
	}
	b.mu.Lock()
	i := slices.Index(b.sending, s)
	b.sending = slices.Delete(b.sending, i, i+1)
	b.underWay -= len(s.calls)
	b.part(s.sent[0])
	if s.calls[0].carried {
		b.serve()
	} else {
		b.coming++ // the worker comes back
	}
	b.mu.Unlock()
	s.end()
	for _, c := range s.calls {
		if next := c.next(); next != nil {
			b.add(next)
			continue
		}
		to := c.to
		reply, err := c.outcome(b.explain)
		if over && !c.kept {
			*c = Call[T]{}
			b.calls.Put(c)
		}
		to.Receive(reply, err)
	}
	if over {
		clear(s.calls)
		*s = batch[T]{calls: s.calls[:0]}
		b.batches.Put(s)
	}
}
