package batch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
)

const (
	// stay is how long an idle worker waits for another batch. A new goroutine has a small stack,
	// which has to grow in several steps: without idle workers a lone caller's lock on one node
	// took 1.25 times as long, and 1.4 times the processor time.
	stay = 50 * time.Millisecond
	// longYield is longer than it takes callers to queue, also hundreds of them, and shorter than
	// the 10 ms for which a goroutine that computes keeps a processor.
	longYield = 5 * time.Millisecond
	// longestRest is for a process that was stopped during a yield.
	longestRest = 10 * time.Second
)

// handOver gives a batch to a worker: a goroutine that sends batches for as long as calls come.
func (b *Batcher) handOver(s *batch) {
	select {
	case b.idle <- s:
	default: // no worker is idle
		go b.work(s)
	}
}

func (b *Batcher) work(s *batch) {
	timer := time.NewTimer(stay)
	defer timer.Stop()
	for s != nil {
		b.send(s)
		if s = b.next(); s != nil {
			continue
		}
		timer.Reset(stay)
		select {
		case s = <-b.idle:
		case <-timer.C:
		}
	}
}

// next takes the queue as the next batch, or returns nil if that may not go.
func (b *Batcher) next() *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready()
}

// ready is next for a caller who holds mu.
func (b *Batcher) ready() *batch {
	if len(b.queue) == 0 || !b.mayGo(b.queue[0].command, len(b.queue)) {
		return nil
	}
	return b.take()
}

// take makes a batch of the queue. The timer of what is left goes on. The caller holds mu.
func (b *Batcher) take() *batch {
	n := min(len(b.queue), maxCalls)
	s := b.begin(b.queue[:n]...)
	b.queue = slices.Delete(b.queue, 0, n)
	return s
}

// batch is some calls under way.
type batch struct {
	calls []*Call
	sent  []*Call // what is sent of them: see join
	ctx   context.Context
	end   context.CancelFunc
	over  bool // its calls have their answers; the Batcher's mu guards it
	free  bool // nobody else has it, or its calls
}

// begin makes a batch of the calls, which is under way from now on. The caller holds mu, and sends
// it next.
func (b *Batcher) begin(calls ...*Call) *batch {
	s, _ := b.batches.Get().(*batch)
	if s == nil {
		s = &batch{}
	}
	s.calls = append(s.calls, calls...)
	s.ctx, s.end = contextOf(s.calls)
	s.sent = b.join(s.ctx, s.calls)
	b.sending = append(b.sending, s)
	b.underWay += len(calls)
	if !calls[0].command.Alone {
		b.largest = max(b.largest, len(calls))
	}
	if len(b.sending) >= maxBatches {
		b.full = time.Now()
	}
	if !b.watching {
		b.watching = true
		time.AfterFunc(watch, b.look)
	}
	return s
}

// contextOf returns the context with which the calls are sent, and its end.
func contextOf(calls []*Call) (context.Context, context.CancelFunc) {
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

var errNotAnswered = errors.New("pool: the client returned neither a reply nor an error")

// yield lets the goroutines that are ready to run go before other calls. They are callers who have
// just been told their outcomes, and what they want next is then in the next batch. Without it, the
// locks of eight callers on five nodes took 1.3 times as long, and 1.3 times the processor time.
//
// Behind goroutines that compute, a yield takes many milliseconds, which may be more than a call
// has. So there is none for a while after a long one, and yields cost a hundredth of the time at
// most.
func (b *Batcher) yield() {
	start := clock.NowTicks()
	if start < b.rest.Load() {
		return
	}
	runtime.Gosched()
	if took := clock.NowTicks() - start; took > int64(longYield) {
		b.rest.Store(start + min(100*took, int64(longestRest)))
	}
}

// send sends a batch and tells the outcomes, also if the client panics or ends the goroutine.
func (b *Batcher) send(s *batch) {
	defer b.remove(s)
	defer func() {
		err := errNotAnswered
		if why := recover(); why != nil {
			err = pool.Recovered(why)
		}
		b.deliver(s, err)
		if len(s.calls) > 1 {
			b.yield()
		}
	}()
	b.sends(s.ctx, s.sent)
}

// deliver tells the outcomes. Err is that of the calls that the client has not answered. If it has
// answered all, nobody has the batch any more, and its memory is used again.
func (b *Batcher) deliver(s *batch, err error) {
	s.free = true
	for _, c := range s.sent {
		if !c.answered {
			s.free = false
			c.Answer(nil, err)
		}
	}
	b.mu.Lock()
	b.part(s.sent[0])
	s.over = true
	for _, c := range s.calls {
		if next := c.next(); next != nil {
			c.again = true
			b.put(next)
		}
	}
	b.mu.Unlock()
	s.end()
	for _, c := range s.calls {
		if c.again {
			continue
		}
		to := c.to
		reply, err := c.outcome()
		if s.free {
			*c = Call{}
			b.calls.Put(c)
		}
		to.Receive(reply, err)
	}
}

// remove counts a batch out.
func (b *Batcher) remove(s *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.sending, s)
	b.sending = slices.Delete(b.sending, i, i+1)
	b.underWay -= len(s.calls)
	if s.free {
		clear(s.calls)
		*s = batch{calls: s.calls[:0]}
		b.batches.Put(s)
	}
}
