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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/pool"
)

const (
	// few is how many calls may be under way before others wait for a batch to return. Two callers
	// came at random times to a node half a millisecond away. With 1, they took 1.43 times as long
	// as without sharing. With 3 they take as long as that.
	few = 3
	// maxCalls bounds the calls of one batch.
	maxCalls = 256
	// maxBatches bounds the batches under way. So a node that does not answer can tie up no more
	// connections and goroutines.
	maxBatches = 16
	// Beyond that there is one more batch every rescue, up to maxStuck. So batches that wait for
	// replies on lost connections do not keep a node unasked that has come back.
	rescue   = 100 * time.Millisecond
	maxStuck = 48
	// patience is how long a call waits for a batch to return before it goes in another one, on
	// another connection.
	patience = time.Millisecond
	// watch is how often the batches under way are looked at for contexts that have ended.
	watch = 10 * time.Millisecond
)

// Batcher sends the calls of one node in batches. A call that finds fewer than three others under
// way is sent at once, or fewer than three batches if its command is [pool.Command.Alone]. One that
// finds more waits for a batch to return, and goes together with all that have come meanwhile. So a
// batch grows for as long as those before it take.
//
// A call waits for a millisecond at most. Then it goes in one more batch, beside those under way,
// unless MaxSends are. At most 16 batches of up to 256 calls are under way. On a node that does not
// answer there is one more every 100 ms, up to 48.
//
// A call is sent at most once, with two exceptions. Where the node does not know a script, the EVAL
// that follows the refused EVALSHA goes with a later batch. And a command that was sent together
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
	// calls have ended, up to 10 ms ago. It is called from another goroutine than Send, at least
	// every 10 ms until that has returned, and does not block. If nil, Send returns when the client
	// does.
	Abandon func(calls []*Call[T])

	// Explain may add to an error what the client knows of its cause. If nil, errors stay as they
	// are.
	Explain func(err error) error

	// OneServer says that one server has all keys, whatever their names. Then one of the calls
	// that Send is given may stand for several commands that name the same [pool.Command.Joint]. A
	// command that their joint script leaves undone is sent again by itself: a release, for
	// instance, when somebody queues for the lock. If the server refuses keys of several slots,
	// all commands go by themselves from then on.
	OneServer bool

	// MaxSends bounds how many calls of Send are under way, for a client with few connections. If
	// 0, there is no other bound than the Batcher's own. A call that would need one more waits.
	MaxSends int

	// Those that are over are used again. Without that, the locks of 64 callers on 5 nodes make 12
	// more allocations.
	calls, batches sync.Pool

	rest atomic.Int64 // until when no worker yields, in nanoseconds since 1970

	mu       sync.Mutex    // guards what follows
	queue    []*Call[T]    // that wait, in order
	sending  []*batch[T]   // the batches under way
	underWay int           // calls of those
	coming   int           // workers that are about to look at the queue
	wakes    chan struct{} // for idle workers
	full     time.Time     // when a worker was added to maxBatches-1 or more
	waiting  *time.Timer   // calls hurry, or nil
	watching *time.Timer   // calls look, or nil if no batch is under way
	apart    bool          // the node refuses keys of several slots
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
	b.add(b.newCall(ctx, command, to))
}

// Carry is Start for a caller who waits for the outcome, and for nothing else: see [pool.Carrier].
// Where no call waits, and its own would go at once, this caller sends it, and Carry blocks for as
// long as Send does. Otherwise it returns at once. An adapter whose Send may take longer than the
// contexts of its calls allow calls Start instead.
//
// The lock of a lone caller on one node, on loopback, takes 0.7 of the time that way.
func (b *Batcher[T]) Carry(ctx context.Context, command *pool.Command, to pool.Receiver) {
	if ctx.Err() != nil {
		b.Start(ctx, command, to) // which fails
		return
	}
	c := b.newCall(ctx, command, to)
	b.mu.Lock()
	if len(b.queue) > 0 || !b.mayGo(c) {
		b.mu.Unlock()
		b.add(c)
		return
	}
	c.carried = true
	s := b.begin(c)
	b.mu.Unlock()
	b.send(s)
}

// newCall returns a call that is not in the queue yet.
func (b *Batcher[T]) newCall(
	ctx context.Context, command *pool.Command, to pool.Receiver,
) *Call[T] {
	c, _ := b.calls.Get().(*Call[T])
	if c == nil {
		c = &Call[T]{}
	}
	c.ctx, c.command, c.to = ctx, command, to
	return c
}

// Do sends a command and waits for its outcome, or until ctx is done. The reply to a SET NX is a
// bool. The error matches [pool.ErrNotSent] if the command was certainly not sent: ctx had ended
// before, or Send said so.
func (b *Batcher[T]) Do(ctx context.Context, command *pool.Command) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, pool.NotSent(err)
	}
	told := make(answer, 1)
	c := &Call[T]{ctx: ctx, command: command, to: told, kept: true}
	b.add(c)
	select {
	case r := <-told:
		return r.reply, r.err
	case <-ctx.Done():
		err := ctx.Err()
		if b.remove(c) {
			err = pool.NotSent(err)
		}
		return nil, b.explain(err)
	}
}

// remove takes a call out of the queue, and reports whether it has not been sent, nor is later.
func (b *Batcher[T]) remove(c *Call[T]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, c); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	return !c.handed
}

// answer is the receiver of a caller that waits.
type answer chan result

type result struct {
	reply any
	err   error
}

// Receive is told the outcome.
func (a answer) Receive(reply any, err error) { a <- result{reply, err} }

// add puts a call at the end of the queue.
func (b *Batcher[T]) add(c *Call[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, c)
	b.serve()
	if len(b.queue) == 1 {
		b.wait()
	}
}

// serve calls a worker for the queue if that may go at once. The caller holds mu.
func (b *Batcher[T]) serve() {
	if len(b.queue) > 0 && b.mayGo(b.queue[0]) {
		b.callWorker()
	}
}

// callWorker calls a worker for the queue, unless one is about to take it. The caller holds mu.
func (b *Batcher[T]) callWorker() {
	if b.coming > 0 {
		return
	}
	if b.coming++; len(b.sending)+b.coming >= maxBatches {
		b.full = time.Now()
	}
	if b.wakes == nil {
		b.wakes = make(chan struct{})
	}
	select {
	case b.wakes <- struct{}{}:
	default: // no worker is idle
		go b.work()
	}
}

// mayGo reports whether a batch that begins with the call may go at once. If no other node is
// asked, the batches under way count, and not their calls. Then callers who come at random times
// wait for less, and client and server need not take turns. On several nodes, fewer and larger
// batches cost less. The caller holds mu.
func (b *Batcher[T]) mayGo(first *Call[T]) bool {
	underWay := b.underWay
	if first.command.Alone {
		underWay = len(b.sending)
	}
	return underWay < few && b.hasRoom(maxBatches)
}

// hasRoom reports whether fewer batches than so many are under way. The caller holds mu.
func (b *Batcher[T]) hasRoom(most int) bool {
	if b.MaxSends > 0 {
		most = min(most, b.MaxSends)
	}
	return len(b.sending)+b.coming < most
}

// wait lets the queue wait for a batch to return, but not for long. The caller holds mu.
func (b *Batcher[T]) wait() {
	if b.waiting == nil {
		b.waiting = time.AfterFunc(patience, b.hurry)
	} else {
		b.waiting.Reset(patience)
	}
}

// hurry sees to a queue that has waited for long enough. It takes the calls out whose contexts have
// ended. The others go beside the batches under way.
func (b *Batcher[T]) hurry() {
	b.mu.Lock()
	var ended []*Call[T]
	b.queue = slices.DeleteFunc(b.queue, func(c *Call[T]) bool {
		if c.ctx.Err() == nil {
			return false
		}
		ended = append(ended, c)
		return true
	})
	if len(b.queue) > 0 {
		if b.hasRoom(maxBatches) || b.hasRoom(maxStuck) && time.Since(b.full) >= rescue {
			b.callWorker()
		}
		b.wait()
	}
	b.mu.Unlock()
	for _, c := range ended {
		c.to.Receive(nil, b.explain(pool.NotSent(c.ctx.Err())))
	}
}

// look abandons the batches for which nobody waits any more.
func (b *Batcher[T]) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := watch
	for _, s := range b.sending {
		next = min(next, b.abandonIfEnded(s))
	}
	b.watching = nil
	if len(b.sending) > 0 {
		b.watching = time.AfterFunc(max(next, patience), b.look)
	}
}

func (b *Batcher[T]) explain(err error) error {
	if err == nil || b.Explain == nil {
		return err
	}
	return b.Explain(err)
}
