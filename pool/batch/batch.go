// Package batch lets the commands of an adapter share round trips. It makes the adapter a
// [pool.Starter] as well: no command needs a goroutine of its own. The adapter brings one function,
// which sends some commands on one connection and answers them:
//
//	type Pool struct {
//		batcher batch.Batcher[struct{}]
//		…
//	}
//
//	func NewPool(…) *Pool {
//		p := &Pool{…}
//		p.batcher.Send = p.send // answers each of the calls that it is given
//		return p
//	}
//
//	func (p *Pool) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
//		p.batcher.Start(ctx, c, to)
//	}
//
// Package [github.com/redlock-go/redlock/pool/pooltest] proves that the result behaves.
package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/pool"
)

const (
	// maxCalls bounds the calls of one batch.
	maxCalls = 256
	// maxWorkers bounds the batches under way. So a node that does not answer can tie up no more
	// connections and goroutines.
	maxWorkers = 16
	// Beyond that there is one more worker every rescue, up to maxStuck. So batches that wait for
	// replies on lost connections do not keep a node unasked that has come back.
	rescue   = 100 * time.Millisecond
	maxStuck = 48
	// patience is how long a call waits for a batch under way before it goes in another one, on
	// another connection.
	patience = time.Millisecond
	// watch is how often the batches under way are looked at for contexts that have ended.
	watch = 10 * time.Millisecond
	// stay is how long an idle worker stays, at least.
	stay = 50 * time.Millisecond
)

// Batcher sends the calls of one node in batches. A call that finds fewer than three others under
// way is sent at once, or fewer than sixteen if its command is [pool.Command.Alone]. Those that
// find more wait for a batch to return, and are the next one. So a batch grows for as long as those
// before take.
//
// More than seven calls at a time, and some 30 in a millisecond, are a crowd. That goes in one
// batch after the other: a call waits until a fourth of the crowd does. A crowd of calls that are
// Alone goes in two batches, with half of it in each: a call waits until half of the crowd does.
//
// A call waits for a millisecond at most, for a crowd that has gone or for a batch that does not
// return soon. Then it goes in another one, beside that, unless MaxSends are under way. At most 16
// batches of up to 256 calls are under way. On a node that does not answer there is one more every
// 100 ms, up to 48.
//
// A call is sent at most once, with two exceptions. Where the node does not know a script, the EVAL
// that follows the refused EVALSHA goes with a later batch. And a release that was sent together
// with others, and not done, is sent again: see OneServer.
//
// T is room for what the client needs to know of a call; see [Call.Client].
//
// A Batcher with the function Send is ready for use. It is safe for concurrent use, is not copied,
// and needs no Close: it has no goroutine and no timer when it has been idle for 60 ms.
type Batcher[T any] struct {
	// Send sends the calls in one round trip, and calls [Call.Answer] for each of them before it
	// returns. It does not send a call whose context has ended. The context has the values of the
	// first call's, and the last of the calls' deadlines. It ends when the contexts of all calls
	// have ended, within 10 ms. Send may be called for several batches at the same time.
	//
	// A panic is the outcome of the calls that have not been answered, and of no other. A call that
	// Send does not answer fails. After Send has returned, it does not use the calls any more: the
	// Batcher makes other calls of them.
	Send func(ctx context.Context, calls []*Call[T])

	// Abandon makes a Send return soon, for which nobody waits any more: the contexts of all its
	// calls have ended, up to 10 ms ago. It is called from another goroutine than Send, every 10
	// ms until that has returned, and does not block. If nil, Send returns when the client does.
	Abandon func(calls []*Call[T])

	// Explain may add to an error what the client knows of its cause. If nil, errors stay as they
	// are.
	Explain func(err error) error

	// OneServer says that one server has all keys, whatever their names. Then one of the calls
	// that Send is given may stand for several releases. A release that is more than a deletion
	// is sent again by itself, as when somebody queues for the lock. If the server refuses keys of
	// several slots, releases go alone from then on.
	OneServer bool

	// MaxSends bounds how many calls of Send are under way, for a client with few connections. If
	// 0, there is no other bound than the Batcher's own. A call that would need one more waits.
	MaxSends int

	apart atomic.Bool // the node refuses keys of several slots

	carriers sync.Pool // of unused workers, for the next callers who send their own calls

	mu       sync.Mutex   // guards what follows
	queue    []*Call[T]   // in order
	active   int          // workers that send, deliver, or are about to, and callers that send
	sending  []*worker[T] // those of them whose batches are under way
	underWay int          // calls of those batches
	idle     int          // further workers, fewAlone at most, which wait for a wake
	wakes    chan bool    // for an idle worker: true is for work, false for its end
	full     time.Time    // when a worker was added to maxWorkers-1 or more
	late     time.Time    // when the queue has waited for long enough
	crowd    crowd
	// When the batches under way are looked at; zero if there is nothing to see.
	look  time.Time
	timer *time.Timer // calls check then
	used  bool        // there was a batch since the last look at an idle Batcher
}

// Start sends a command and tells its outcome to the receiver, under the rules of [pool.Starter].
//
// A call that is still queued when ctx ends is not sent. It fails within a millisecond, with an
// error that matches [pool.ErrNotSent]. The outcome of a call that was handed to Send comes when
// Send returns: with Abandon, that is soon after the contexts of all calls of the batch have ended.
func (b *Batcher[T]) Start(ctx context.Context, command *pool.Command, to pool.Receiver) {
	if err := ctx.Err(); err != nil {
		to.Receive(nil, pool.NotSent(err))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enqueue(b.newCall(ctx, command, to))
}

// Carry is Start for a caller who waits for the outcome, and for nothing else: see [pool.Carrier].
// Where little is under way and no call waits, this caller sends its own. In a crowd the last
// caller of a batch sends all of it. Its context lasts as long as theirs, up to a millisecond.
// Carry blocks for as long as Send does then. Otherwise it returns at once. An adapter whose Send
// may take longer than the contexts of its calls allow calls Start instead.
//
// Locks of four callers on one node took 0.8 to 0.9 of the time that way. Callers send beside
// workers as well. If they did not, a worker would find calls for ever, once it has come. Locks of
// four callers took up to 1.16 times as long.
func (b *Batcher[T]) Carry(ctx context.Context, command *pool.Command, to pool.Receiver) {
	if err := ctx.Err(); err != nil {
		to.Receive(nil, pool.NotSent(err))
		return
	}
	b.mu.Lock()
	c := b.newCall(ctx, command, to)
	if !b.mayCarry(c) {
		b.enqueue(c)
		b.mu.Unlock()
		return
	}
	b.queue = append(b.queue, c)
	b.active++
	w, _ := b.carriers.Get().(*worker[T])
	if w == nil {
		w = &worker[T]{batcher: b, carries: true}
	}
	w.begin()
	b.mu.Unlock()
	w.send()
	b.carriers.Put(w) // unless a Receive has panicked, or Send has ended the goroutine
}

// mayCarry reports whether the caller of c sends it, with all that is queued. Nobody is about to
// take the queue then. The caller holds mu.
func (b *Batcher[T]) mayCarry(c *Call[T]) bool {
	about := len(b.queue) > 0 && b.active > len(b.sending)
	return !about && b.isReadyFor(c, len(b.queue)+1) && b.hasRoom() && b.endsLast(c.ctx)
}

// endsLast reports whether no call in the queue may take longer than a context allows, by more than
// a millisecond: those who come at once have deadlines one after the other. The caller holds mu.
func (b *Batcher[T]) endsLast(ctx context.Context) bool {
	end, ends := ctx.Deadline()
	end = end.Add(patience)
	return !ends || !slices.ContainsFunc(b.queue, func(other *Call[T]) bool {
		last, ends := other.ctx.Deadline()
		return !ends || last.After(end)
	})
}

func (b *Batcher[T]) explain(err error) error {
	if err == nil || b.Explain == nil {
		return err
	}
	return b.Explain(err)
}

// add puts a call at the end of the queue, and sees that a worker comes for it.
func (b *Batcher[T]) add(c *Call[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enqueue(c)
}

// enqueue is add. The caller holds mu.
func (b *Batcher[T]) enqueue(c *Call[T]) {
	b.queue = append(b.queue, c)
	b.noteCalls()
	switch {
	case b.wantsWorker():
		b.startWorker()
	case len(b.queue) == 1:
		now := time.Now()
		b.late = now.Add(patience)
		b.setTimer(now)
	}
}

// wantsWorker reports whether one more worker is to take the queue at once. Little is under way
// then, and no worker is about to take it. The queue is not empty. The caller holds mu.
func (b *Batcher[T]) wantsWorker() bool {
	return b.active == len(b.sending) && b.isReadyFor(b.queue[0], len(b.queue)) && b.hasRoom()
}

// hasRoom reports whether Send may be called once more. The caller holds mu.
func (b *Batcher[T]) hasRoom() bool { return b.MaxSends <= 0 || b.active < b.MaxSends }

// startWorker lets a worker take the queue. The caller holds mu.
func (b *Batcher[T]) startWorker() {
	b.active++
	if b.active >= maxWorkers {
		b.full = time.Now()
	}
	if b.idle > 0 {
		b.idle--
		b.wakes <- true // there is room for all workers
		return
	}
	w := &worker[T]{batcher: b}
	go w.work()
}

// setTimer calls check when the queue is late, or at the next look. The caller holds mu.
func (b *Batcher[T]) setTimer(now time.Time) {
	next := b.look
	if len(b.queue) > 0 && b.late.Before(next) {
		next = b.late
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(next.Sub(now), b.check)
	} else {
		b.timer.Reset(next.Sub(now))
	}
}

// check looks after what is late: the queue, and the batches under way.
func (b *Batcher[T]) check() {
	b.mu.Lock()
	now := time.Now()
	var ended []*Call[T]
	if len(b.queue) > 0 && !now.Before(b.late) {
		ended = b.dropEnded()
		if len(b.queue) > 0 && b.active == len(b.sending) && b.mayGrow() {
			b.startWorker()
		}
		b.late = now.Add(patience)
	}
	if !now.Before(b.look) {
		b.lookAround(now)
	}
	if !b.look.IsZero() {
		b.setTimer(now)
	}
	b.mu.Unlock()
	for _, c := range ended {
		c.to.Receive(nil, b.explain(pool.NotSent(c.ctx.Err())))
	}
}

// lookAround ends the batches for which nobody waits, and the idle workers if there was nothing to
// do for a while. It forgets older crowds. The caller holds mu.
func (b *Batcher[T]) lookAround(now time.Time) {
	soonest, next := now.Add(patience), now.Add(watch)
	b.crowd.look(now)
	for _, w := range b.sending {
		if end := w.abandonIfEnded(); !end.IsZero() && end.Before(next) {
			next = end
		}
	}
	switch {
	case b.active > 0 && next.Before(soonest): // the context is about to end
		b.look = soonest
	case b.active > 0:
		b.look = next
	case b.used:
		b.look, b.used = now.Add(stay), false
	default:
		b.look = time.Time{}
		for ; b.idle > 0; b.idle-- {
			b.wakes <- false
		}
	}
}

// dropEnded takes the calls out of the queue whose contexts have ended. The caller holds mu.
func (b *Batcher[T]) dropEnded() (ended []*Call[T]) {
	b.queue = slices.DeleteFunc(b.queue, func(c *Call[T]) bool {
		if c.ctx.Err() == nil {
			return false
		}
		ended = append(ended, c)
		c.dropped = true
		return true
	})
	return ended
}

// mayGrow reports whether there may be another worker. The caller holds mu.
func (b *Batcher[T]) mayGrow() bool {
	return b.hasRoom() &&
		(b.active < maxWorkers || b.active < maxStuck && time.Since(b.full) >= rescue)
}

// newCall returns a call that the caller puts at the end of the queue next. Where one that is over
// has left its room there, it is used again. Without that, the locks of 64 callers on 5 nodes made
// 10 more allocations, and took 1.06 times the processor time. The caller holds mu.
func (b *Batcher[T]) newCall(
	ctx context.Context, command *pool.Command, to pool.Receiver,
) (c *Call[T]) {
	if end := len(b.queue); end < cap(b.queue) {
		c = b.queue[:end+1][end]
	}
	if c == nil {
		c = &Call[T]{}
	}
	c.ctx, c.command, c.to = ctx, command, to
	return c
}

// take returns the queue, or its beginning, as the next batch. The calls that come then have the
// room of an earlier batch: without it, the locks of 8 callers on 5 nodes made 6 more allocations.
// The caller holds mu.
func (b *Batcher[T]) take(room []*Call[T]) []*Call[T] {
	calls := b.queue
	most := b.limit()
	rest := len(calls) > most
	if rest {
		calls = append(room, b.queue[:most]...)
		b.queue = slices.Delete(b.queue, 0, most)
	} else {
		b.queue = room
	}
	if !b.used || rest {
		now := time.Now()
		b.late = now.Add(patience)
		if !b.used {
			b.look, b.used = now.Add(watch), true
		}
		b.setTimer(now)
	}
	return calls
}

// deliver hands over the outcome of a call, or sends the script of one that the node does not know.
func (b *Batcher[T]) deliver(c *Call[T]) {
	if c.again {
		c.carried, c.crowded, c.again, c.answered = false, false, false, false
		b.add(c)
		return
	}
	reply, err := c.outcome()
	if err != nil {
		if next := c.withSource(); next != nil {
			b.add(next)
			return
		}
		err = b.explain(c.ended(err))
	}
	c.to.Receive(reply, err)
}

var errNotAnswered = errors.New("pool: the client returned neither a reply nor an error")
