// Package batch lets the commands of an adapter share round trips. It makes the adapter a
// [pool.Pool] and a [pool.Starter]: no command needs a goroutine of its own. The adapter brings one
// function, which sends some commands on one connection and answers them:
//
//	type calls = batch.Batcher // an embedded field that is not exported
//
//	type Pool struct {
//		*calls
//		…
//	}
//
//	func NewPool(…) *Pool {
//		p := &Pool{…}
//		p.calls = batch.New(p.send, batch.Options{}) // send answers each call that it is given
//		return p
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
	// fewBatches is the same of batches, where the group has one node. Eight callers came at random
	// times to one half a millisecond away. With 3, they took 1.2 times as long as without sharing,
	// with 6 1.03 times.
	fewBatches = 6
	// maxCalls bounds the calls of one batch.
	maxCalls = 256
	// maxBatches bounds the batches under way. So a node that does not answer can tie up no more
	// connections and goroutines.
	maxBatches = 16
	// Beyond that there is one more batch every rescue, up to maxStuck. So batches that wait for
	// replies on lost connections do not keep a node unasked that has come back.
	rescue   = 100 * time.Millisecond
	maxStuck = 48
	// patience is how long a call waits before it goes in one more batch, on another connection if
	// others are under way.
	patience = time.Millisecond
	// watch is how often the batches under way are looked at for contexts that have ended.
	watch = 10 * time.Millisecond
)

// Batcher sends the calls of one node in batches. A call that finds fewer than three others under
// way is sent at once, or fewer than six batches if its command is [pool.Command.Alone]. One that
// finds more waits for a batch to return, and goes together with all that have come meanwhile. So a
// batch grows for as long as those before it take. Beside or after large batches, it also waits for
// others that are about to come.
//
// A call waits for a millisecond at most. Then it goes in one more batch, beside those under way,
// unless MaxSends are. At most 16 batches of up to 256 calls are under way. On a node that does not
// answer there is one more every 100 ms, up to 48.
//
// A call is sent at most once, with two exceptions. Where the node does not know a script, the EVAL
// that follows the refused EVALSHA goes with a later batch. And a command that was sent together
// with others, and not done, is sent again: see OneServer.
//
// A Batcher is safe for concurrent use and needs no Close: it has no goroutine and no timer when it
// has been idle for 60 ms.
type Batcher struct {
	sends   func(ctx context.Context, calls []*Call)
	options Options
	idle    chan *batch // to an idle worker

	rest atomic.Int64 // until then workers do not yield, see clock.Ticks

	// Those that are over are used again. Without that, the locks of 64 callers on 5 nodes make 12
	// more allocations.
	calls, batches sync.Pool

	mu       sync.Mutex  // guards what follows
	queue    []*Call     // that wait, in order
	sending  []*batch    // the batches under way
	underWay int         // calls of those
	largest  int         // calls of the largest recent batch, unless it was Alone
	full     time.Time   // when a batch became one of maxBatches or more
	waiting  *time.Timer // calls hurry, or nil
	watching bool        // look will be called
	apart    bool        // the node refuses keys of several slots
}

// Options are what is particular about a client.
type Options struct {
	// OneServer says that one server has all keys, whatever their names. Then one of the calls
	// that are sent may stand for several commands that name the same [pool.Command.Joint]. A
	// command that their joint script leaves undone is sent again by itself: a release, for
	// instance, when somebody queues for the lock. If the server refuses keys of several slots,
	// all commands go by themselves from then on.
	OneServer bool

	// MaxSends bounds how many batches are under way, for a client with few connections. If 0,
	// there is no other bound than the Batcher's own. A call that would need one more waits.
	MaxSends int

	// Abandon makes the sending of some calls return soon, for which nobody waits any more: their
	// contexts have ended, up to 10 ms ago. It is called from another goroutine, every 10 ms until
	// they have been sent, and does not block. If nil, send returns when the client does.
	Abandon func(calls []*Call)
}

// New returns a Batcher that sends calls by the function send.
//
// Send sends the calls in one round trip, and calls [Call.Answer] for each of them before it
// returns. It does not send a call whose context has ended. The context has the values of the first
// call's, and the last of the calls' deadlines. It ends when the contexts of all calls have ended,
// within 10 ms. Send may be called for several batches at the same time.
//
// A panic is the outcome of the calls that have not been answered, and of no other. A call that
// send does not answer fails. After send has returned, it does not use the calls any more: the
// Batcher makes other calls of them.
func New(send func(ctx context.Context, calls []*Call), o Options) *Batcher {
	if o.MaxSends <= 0 {
		o.MaxSends = maxStuck
	}
	return &Batcher{sends: send, options: o, idle: make(chan *batch)}
}

// SetNX implements [pool.Pool].
func (b *Batcher) SetNX(
	ctx context.Context, key, value string, expiry time.Duration,
) (bool, error) {
	ok, err := b.wait(ctx, pool.SetNX(key, value, expiry))
	return ok == true, err
}

// Eval implements [pool.Pool].
func (b *Batcher) Eval(
	ctx context.Context, script *pool.Script, keys []string, args ...any,
) (any, error) {
	return b.wait(ctx, pool.Eval(script, keys, args...))
}

// wait starts a command and waits for its outcome, or until ctx is done.
func (b *Batcher) wait(ctx context.Context, command *pool.Command) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, pool.NotSent(err)
	}
	told := make(receiver, 1)
	b.Start(ctx, command, told)
	select {
	case o := <-told:
		return o.reply, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// receiver is that of a caller who waits.
type receiver chan outcome

type outcome struct {
	reply any
	err   error
}

// Receive implements [pool.Receiver].
func (r receiver) Receive(reply any, err error) { r <- outcome{reply, err} }

// Start implements [pool.Starter].
//
// A call that is still queued when ctx ends is not sent. It fails within a millisecond, with an
// error that matches [pool.ErrNotSent]. The outcome of a call that is being sent comes when that
// returns: with Abandon, soon after the contexts of all calls of the batch have ended.
func (b *Batcher) Start(ctx context.Context, command *pool.Command, to pool.Receiver) {
	b.start(ctx, command, to, false)
}

// StartCarried is [Batcher.Start] of b for a caller who waits for the outcome, and for nothing
// else. Where no call waits, and its own would go at once, this caller sends it, and StartCarried
// blocks for as long as that takes. Otherwise it returns at once. It is for the Carry of an adapter
// that keeps to the contexts of its calls, see [pool.Carrier]. Any other adapter is no Carrier. It
// is no method, because a pool that embeds the Batcher would have that, too.
//
// The lock of a lone caller on one node, on loopback, takes 0.7 of the time that way.
func StartCarried(ctx context.Context, b *Batcher, command *pool.Command, to pool.Receiver) {
	b.start(ctx, command, to, true)
}

func (b *Batcher) start(ctx context.Context, command *pool.Command, to pool.Receiver, carry bool) {
	if err := ctx.Err(); err != nil {
		to.Receive(nil, pool.NotSent(err))
		return
	}
	c, _ := b.calls.Get().(*Call)
	if c == nil {
		c = &Call{}
	}
	c.ctx, c.command, c.to = ctx, command, to
	b.mu.Lock()
	var s *batch
	first := len(b.queue) == 0 && b.mayGo(command, 1)
	if first {
		c.carried = carry
		s = b.begin(c)
	} else {
		b.put(c)
		s = b.ready()
	}
	b.mu.Unlock()
	if first && carry {
		b.send(s)
		s = b.next()
	}
	if s != nil {
		b.handOver(s)
	}
}

// put puts a call at the end of the queue. The caller holds mu.
func (b *Batcher) put(c *Call) {
	if b.queue = append(b.queue, c); len(b.queue) == 1 {
		b.hurryLater()
	}
}

// mayGo reports whether a batch of so many calls may go at once, which begins with the command. The
// caller holds mu.
//
// If no other node is asked, the batches under way count, and not their calls. Then callers who
// come at random times wait for less, and client and server need not take turns. A batch has as
// many calls as those under way have on average: otherwise small ones would go between large ones,
// and locks of 64 callers took 1.25 times as long.
//
// On several nodes, fewer and larger batches cost less. But a caller comes back when a quorum has
// answered, and finds that the batches of some nodes have gone without it. So a batch waits until
// half as many calls have come as the largest recent one had. Without that, locks of 64 callers on
// five nodes took 1.3 times as long.
func (b *Batcher) mayGo(first *pool.Command, calls int) bool {
	if !b.hasRoom(maxBatches) {
		return false
	}
	if first.Alone {
		return len(b.sending) < fewBatches && calls*len(b.sending) >= b.underWay
	}
	return b.underWay < few && calls >= b.largest/2
}

// hasRoom reports whether fewer batches than so many are under way. The caller holds mu.
func (b *Batcher) hasRoom(most int) bool {
	return len(b.sending) < min(most, b.options.MaxSends)
}

// hurryLater lets the queue wait, but not for long. The caller holds mu.
func (b *Batcher) hurryLater() {
	if b.waiting == nil {
		b.waiting = time.AfterFunc(patience, b.hurry)
	} else {
		b.waiting.Reset(patience)
	}
}

// hurry sees to a queue that has waited for long enough. It takes the calls out whose contexts have
// ended. The others go beside the batches under way.
func (b *Batcher) hurry() {
	b.mu.Lock()
	var ended []*Call
	b.queue = slices.DeleteFunc(b.queue, func(c *Call) bool {
		if c.ctx.Err() == nil {
			return false
		}
		ended = append(ended, c)
		return true
	})
	if len(b.queue) > 0 {
		if b.hasRoom(maxBatches) || b.hasRoom(maxStuck) && time.Since(b.full) >= rescue {
			b.handOver(b.take())
		}
		b.hurryLater()
	}
	b.mu.Unlock()
	for _, c := range ended {
		c.to.Receive(nil, pool.NotSent(c.ctx.Err()))
	}
}

// look abandons the batches for which nobody waits any more. It looks again when that may be so for
// others. It also forgets the largest batch.
func (b *Batcher) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := watch
	for _, s := range b.sending {
		if s.over {
			continue
		}
		waits := slices.IndexFunc(s.calls, func(c *Call) bool { return c.ctx.Err() == nil })
		if waits < 0 {
			s.end()
			if b.options.Abandon != nil {
				b.options.Abandon(s.sent)
			}
		} else if deadline, ends := s.calls[waits].ctx.Deadline(); ends {
			next = min(next, time.Until(deadline))
		}
	}
	if b.watching = len(b.sending) > 0; b.watching {
		time.AfterFunc(max(next, patience), b.look)
	}
	b.largest = 0
}
