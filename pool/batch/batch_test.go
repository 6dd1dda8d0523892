package batch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
)

// node answers batches. A call to a key that begins with "slow" waits for the gate first.
type node struct {
	*testing.T
	calls *batch.Batcher
	gate  chan struct{}

	mu        sync.Mutex
	batches   [][]string    // keys, in order
	abandoned []time.Time   // when batches were
	leave     chan struct{} // closed when a batch is abandoned: the node gives it up; or nil
}

type call = batch.Call

// inBubble runs f in virtual time. The bubble fails if a goroutine is left 60 ms later.
func inBubble(t *testing.T, f func(n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{T: t, gate: make(chan struct{})}
		n.calls = batch.New(n.send, batch.Options{Abandon: n.abandon})
		f(n)
		time.Sleep(idle)
	})
}

// idle is how long it takes until an idle Batcher has no goroutine.
const idle = 61 * time.Millisecond

func (n *node) send(ctx context.Context, calls []*call) {
	var keys []string
	for _, c := range calls {
		keys = append(keys, key(c))
	}
	n.mu.Lock()
	n.batches = append(n.batches, keys)
	leave := n.leave
	n.mu.Unlock()
	for _, c := range calls {
		switch k := key(c); {
		case strings.HasPrefix(k, "slow"):
			select {
			case <-n.gate:
			case <-leave:
				return
			}
		case k == "panic":
			panic(errors.New("the node panics"))
		case k == "unreadable":
			c.Answer(nil, (*unreadable)(nil))
			continue
		case k == "exit":
			runtime.Goexit()
		}
		if key(c) == "slow, then exit" {
			runtime.Goexit()
		}
		c.Answer("OK", nil)
	}
}

func (n *node) abandon([]*call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.abandoned = append(n.abandoned, time.Now())
	if n.leave != nil && len(n.abandoned) == 1 {
		close(n.leave)
	}
}

func key(c *call) string { return fmt.Sprint(c.Args()[1]) }

// sent returns the batches so far.
func (n *node) sent() [][]string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.batches)
}

func (n *node) want(batches ...[]string) {
	n.Helper()
	if got := n.sent(); !slices.EqualFunc(got, batches, slices.Equal) {
		n.Errorf("the batches are %q, want %q", got, batches)
	}
}

// outcome is told to a receiver.
type outcome struct {
	n     *node
	key   string
	began time.Time

	mu    sync.Mutex
	times int
	reply any
	err   error
	after time.Duration
}

func (o *outcome) Receive(reply any, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.times, o.reply, o.err, o.after = o.times+1, reply, err, time.Since(o.began)
}

// start starts a SET NX, and returns when all goroutines wait for something.
func (n *node) start(ctx context.Context, key string) *outcome {
	o := n.begin(ctx, key)
	synctest.Wait()
	return o
}

func (n *node) begin(ctx context.Context, key string) *outcome {
	o := &outcome{n: n, key: key, began: time.Now()}
	n.calls.Start(ctx, pool.SetNX(key, "v", time.Minute), o)
	return o
}

// alone is begin where the group has one node.
func (n *node) alone(key string) *outcome {
	o := &outcome{n: n, key: key, began: time.Now()}
	command := pool.SetNX(key, "v", time.Minute)
	command.Alone = true
	n.calls.Start(n.Context(), command, o)
	return o
}

// few is how many calls are under way before others wait.
const few = 3

// fewBatches is how many batches are, where the group has one node.
const fewBatches = 6

// occupy starts a few calls, which wait for the gate. What comes then waits for a batch to return.
func (n *node) occupy() (slow outcomes) {
	for range few {
		slow = append(slow, n.start(n.Context(), "slow"))
	}
	return slow
}

// occupy does so for any Batcher. The outcomes are the receiver's.
func occupy(ctx context.Context, calls *batch.Batcher, to pool.Receiver) {
	for range few {
		calls.Start(ctx, pool.SetNX("slow", "v", time.Minute), to)
		synctest.Wait()
	}
}

// occupied is what [node.occupy] sends.
func occupied() (batches [][]string) {
	for range few {
		batches = append(batches, []string{"slow"})
	}
	return batches
}

type outcomes []*outcome

func (all outcomes) granted() {
	for _, o := range all {
		o.n.Helper()
		o.granted()
	}
}

func (o *outcome) granted() {
	o.n.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times != 1 || o.reply != true || o.err != nil {
		o.n.Errorf("%s: %d outcomes, the last is %v, %v, want one, true",
			o.key, o.times, o.reply, o.err)
	}
}

func (o *outcome) failed(want error) {
	o.n.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times != 1 || o.reply == true || !errors.Is(o.err, want) {
		o.n.Errorf("%s: %d outcomes, the last is %v, %v, want one, %v",
			o.key, o.times, o.reply, o.err, want)
	}
}

func (o *outcome) open() bool {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.times == 0
}

func TestACallIsSentAtOnce(t *testing.T) {
	inBubble(t, func(n *node) {
		for range 3 {
			o := n.start(n.Context(), "k")
			o.granted()
			if o.after != 0 {
				t.Errorf("it took %v", o.after)
			}
			ok, err := n.calls.SetNX(n.Context(), "d", "v", time.Minute)
			if !ok || err != nil {
				t.Errorf("SetNX = %v, %v, want true", ok, err)
			}
		}
		n.want(
			[]string{"k"},
			[]string{"d"},
			[]string{"k"},
			[]string{"d"},
			[]string{"k"},
			[]string{"d"},
		)
	})
}

// A few callers who come at random times do not wait for each other.
func TestAFewCallsGoByThemselves(t *testing.T) {
	inBubble(t, func(n *node) {
		for range 5 {
			for i := range few - 1 {
				n.start(n.Context(), "slow")
				o := n.start(n.Context(), "k")
				if o.granted(); o.after != 0 {
					t.Errorf("a call waited for %v behind %d others", o.after, i+1)
				}
			}
			slow := n.start(n.Context(), "slow")
			waits := n.start(n.Context(), "k")
			if slow.open(); !waits.open() {
				t.Errorf("a call was sent beside %d others", few)
			}
			for range few {
				n.gate <- struct{}{}
			}
			if waits.granted(); waits.after != 0 {
				t.Errorf("a call went %v after a batch had returned", waits.after)
			}
		}
	})
}

// Where several nodes are asked, a batch waits for half as many calls as the largest had of late,
// but not for long. Where one is asked, it does not.
func TestABatchWaitsForHalfAsManyCallsAsTheLargest(t *testing.T) {
	inBubble(t, func(n *node) {
		many := func(count int) (all outcomes) {
			for range count {
				all = append(all, n.start(n.Context(), "k"))
			}
			return all
		}
		eight := func() {
			slow := n.occupy()
			all := many(8)
			for range few {
				n.gate <- struct{}{}
			}
			append(slow, all...).granted()
		}
		eight()
		for range 2 {
			all := many(3)
			if !all[0].open() {
				t.Error("three calls were sent after eight")
			}
			append(all, many(1)...).granted()
		}
		four := slices.Repeat([]string{"k"}, 4)
		n.want(append(occupied(), append(four, four...), four, four)...)
		last := many(1)
		if !last[0].open() {
			t.Error("one call was sent after eight")
		}
		time.Sleep(time.Millisecond)
		if last.granted(); last[0].after != time.Millisecond {
			t.Errorf("one call after eight waited for %v, want 1 ms", last[0].after)
		}

		time.Sleep(20 * time.Millisecond)
		many(1).granted()
		eight()
		n.alone("k").granted()

		time.Sleep(20 * time.Millisecond)
		slow := n.occupy()
		for range 8 {
			slow = append(slow, n.alone("k"))
		}
		for range few {
			n.gate <- struct{}{}
		}
		slow.granted()
		many(1).granted()
	})
}

// Where the group has one node, a few batches go that have as many calls as each other.
func TestAFewBatchesOfOneNodeGo(t *testing.T) {
	inBubble(t, func(n *node) {
		all := n.occupy()
		start := func(count int) {
			for range count {
				all = append(all, n.alone("slow"))
			}
		}
		batches, five := occupied(), slices.Repeat([]string{"slow"}, 5)
		for len(batches) < fewBatches {
			start(1)
			batches = append(batches, five[:1])
		}
		start(5)
		n.want(batches...)
		for range fewBatches {
			n.gate <- struct{}{}
		}
		batches = append(batches, five)
		n.want(batches...)
		for len(batches) < 2*fewBatches {
			start(4)
			n.want(batches...)
			start(1)
			batches = append(batches, five)
			n.want(batches...)
		}
		start(6)
		n.want(batches...)
		close(n.gate)
		all.granted()
		start(1) // beside nothing
		all.granted()
	})
}

// Calls that a batch has no room for do not begin to wait anew.
func TestACallWaitsForAMillisecondBehindALargeBatch(t *testing.T) {
	inBubble(t, func(n *node) {
		n.occupy()
		for range 300 {
			n.begin(n.Context(), "slow")
		}
		time.Sleep(600 * time.Microsecond)
		for range few + 256 {
			n.gate <- struct{}{}
		}
		time.Sleep(400 * time.Microsecond)
		batches := n.sent()
		if last := len(batches[len(batches)-1]); len(batches) != few+2 || last != 44 {
			t.Errorf("%d batches were sent, the last one of %d calls", len(batches), last)
		}
		close(n.gate)
	})
}

func TestCallsThatArriveMeanwhileAreTheNextBatch(t *testing.T) {
	inBubble(t, func(n *node) {
		slow := n.occupy()
		a, b := n.start(n.Context(), "a"), n.start(n.Context(), "b")
		n.want(occupied()...)
		close(n.gate)
		append(slow, a, b).granted()
		n.want(append(occupied(), []string{"a", "b"})...)
	})
}

func TestABatchIsBounded(t *testing.T) {
	inBubble(t, func(n *node) {
		all := n.occupy()
		for i := range 600 {
			all = append(all, n.begin(n.Context(), fmt.Sprint(i)))
		}
		close(n.gate)
		time.Sleep(time.Millisecond) // the last 88 calls wait for more
		for _, o := range all {
			o.granted()
		}
		var sizes []int
		var order []string
		for _, keys := range n.sent() {
			sizes = append(sizes, len(keys))
			order = append(order, keys...)
		}
		if !slices.Equal(sizes[few:], []int{256, 256, 88}) {
			t.Errorf("the batches have sizes %v", sizes)
		}
		for i, k := range order[few:] {
			if k != fmt.Sprint(i) {
				t.Fatalf("call %d is %s: the order is not that of arrival", i, k)
			}
		}
	})
}

func TestALateBatchDoesNotHoldUpTheNext(t *testing.T) {
	inBubble(t, func(n *node) {
		slow := n.occupy()
		for range 5 {
			a, b := n.start(n.Context(), "a"), n.start(n.Context(), "b")
			time.Sleep(time.Millisecond)
			a.granted()
			b.granted()
			if max(a.after, b.after) > time.Millisecond {
				t.Errorf("calls behind a late batch took %v and %v", a.after, b.after)
			}
		}
		if !slow[0].open() {
			t.Error("the late call has an outcome")
		}
		close(n.gate)
		slow.granted()
	})
}

// A call waits behind a late batch for a millisecond, whenever it comes.
func TestHowLongACallWaits(t *testing.T) {
	inBubble(t, func(n *node) {
		slow := n.occupy()
		for i := range 50 {
			time.Sleep(time.Duration(i%7) * 300 * time.Microsecond)
			o := n.start(n.Context(), "a")
			time.Sleep(time.Millisecond)
			if o.granted(); o.after != time.Millisecond {
				t.Errorf("call %d was sent after %v", i, o.after)
			}
		}
		close(n.gate)
		slow.granted()
	})
}

// lesson L58: a node that does not answer ties up a bounded number of workers, and is asked again.
func TestBatchesUnderWayAreBounded(t *testing.T) {
	inBubble(t, func(n *node) {
		count := func(want int, when string) {
			t.Helper()
			if got := len(n.sent()); got != want {
				t.Errorf("%d batches are under way %s, want %d", got, when, want)
			}
		}
		n.start(n.Context(), "slow")
		for range 90 {
			n.start(n.Context(), "slow")
			time.Sleep(time.Millisecond)
		}
		count(16, "after 90 ms")
		for range 250 {
			n.start(n.Context(), "slow")
			time.Sleep(time.Millisecond)
		}
		count(19, "after 340 ms") // one more after 116, 217 and 318 ms, or so
		for range 400 {
			n.start(n.Context(), "slow")
			time.Sleep(10 * time.Millisecond)
		}
		count(48, "after 4 s")
		close(n.gate)
		synctest.Wait()
	})
}

// A client may have fewer connections than that.
func TestSendsUnderWayAreBounded(t *testing.T) {
	for most := 1; most <= 20; most++ {
		inBubble(t, func(n *node) {
			n.calls = batch.New(n.send, batch.Options{MaxSends: most})
			var all outcomes
			for range 300 {
				all = append(all, n.start(n.Context(), "slow"))
				time.Sleep(time.Millisecond)
			}
			if got, want := len(n.sent()), min(most, 18); got != want {
				t.Errorf("%d batches are under way, want %d of at most %d", got, want, most)
			}
			close(n.gate)
			time.Sleep(time.Millisecond) // the last calls wait for more
			all.granted()
		})
	}
}

func TestACallWhoseContextEndsInTheQueueIsNotSent(t *testing.T) {
	inBubble(t, func(n *node) {
		for i := range 16 { // so that there is no other worker
			n.start(n.Context(), fmt.Sprint("slow", i))
			time.Sleep(2 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(n.Context(), 10*time.Millisecond)
		defer cancel()
		started, stays := n.start(ctx, "started"), n.start(n.Context(), "stays")
		_, err := n.calls.SetNX(ctx, "waiting", "v", time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetNX: %v, want that the context has ended", err)
		}
		time.Sleep(time.Millisecond)
		started.failed(context.DeadlineExceeded)
		started.failed(pool.ErrNotSent)
		if started.after > 11*time.Millisecond {
			t.Errorf("the call learned after %v that its context of 10ms had ended", started.after)
		}
		n.start(ctx, "late").failed(pool.ErrNotSent)
		_, err = n.calls.SetNX(ctx, "late", "v", time.Minute)
		if !errors.Is(err, pool.ErrNotSent) {
			t.Errorf("SetNX with a context that has ended: %v", err)
		}
		close(n.gate)
		stays.granted()
		if sent := n.sent(); !slices.Equal(sent[len(sent)-1], []string{"stays"}) ||
			len(sent) != 17 {
			t.Errorf("the batches are %q", sent)
		}
	})
}

// A batch is abandoned when the last context has ended, and not before.
func TestABatchForWhichNobodyWaitsIsAbandoned(t *testing.T) {
	for _, deadlines := range []bool{true, false} { // or else contexts that are cancelled
		inBubble(t, func(n *node) {
			n.leave = make(chan struct{})
			within := func(d time.Duration) context.Context {
				if deadlines {
					ctx, cancel := context.WithTimeout(n.Context(), d)
					n.Cleanup(cancel)
					return ctx
				}
				ctx, cancel := context.WithCancel(n.Context())
				time.AfterFunc(d, cancel)
				return ctx
			}
			slow := n.occupy()
			short := n.start(within(20*time.Millisecond), "slow1")
			long := n.start(within(50*time.Millisecond), "slow2")
			n.gate <- struct{}{} // to the first one alone
			slow[0].granted()
			begun := time.Now()
			time.Sleep(61 * time.Millisecond)
			synctest.Wait()
			n.mu.Lock()
			ends := n.abandoned
			n.mu.Unlock()
			if len(ends) == 0 {
				t.Fatalf("deadlines %v: the batch was not abandoned", deadlines)
			}
			if d := ends[0].Sub(begun); d < 50*time.Millisecond || d > 60*time.Millisecond {
				t.Errorf("deadlines %v: the batch was abandoned after %v, want 50ms to 60ms",
					deadlines, d)
			}
			for _, o := range []*outcome{short, long} {
				if o.open() || o.err == nil {
					t.Errorf("deadlines %v: a call of an abandoned batch has the outcome %v, %v",
						deadlines, o.reply, o.err)
				}
			}
			n.want(append(occupied(), []string{"slow1", "slow2"})...)
		})
	}
}

// A call hears within 10 ms that its context has ended, whatever else there is to do at that time:
// nothing, calls that follow each other at once, or batches that are late.
func TestACallHearsSoonThatItsContextHasEnded(t *testing.T) {
	for name, beside := range map[string]func(*stuckNode){
		"alone":   func(*stuckNode) {},
		"busy":    func(n *stuckNode) { n.callers(4, 300*time.Microsecond, 0) },
		"now":     func(n *stuckNode) { n.callers(3, 700*time.Microsecond, 23*time.Millisecond) },
		"late":    func(n *stuckNode) { n.callers(8, 5*time.Millisecond, 0) },
		"at work": func(n *stuckNode) { n.callers(1, time.Millisecond, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &stuckNode{T: t}
				n.calls = batch.New(n.send, batch.Options{Abandon: n.abandon})
				beside(n)
				for i := range 60 {
					time.Sleep(3*time.Millisecond + 170*time.Microsecond)
					if i%5 == 0 { // the Batcher is idle, and then no more
						time.Sleep(time.Duration(i) * time.Millisecond)
					}
					lasts := time.Duration(1+i%30) * 700 * time.Microsecond
					ctx, cancel := context.WithTimeout(t.Context(), lasts)
					if i%2 == 0 {
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(lasts, cancel)
					}
					begun, told := time.Now(), make(told, 1)
					n.calls.Start(ctx, pool.SetNX("stuck", "v", time.Minute), told)
					if err := <-told; err == nil {
						t.Error("a call that the node does not answer: no error")
					}
					if late := time.Since(begun) - lasts; late < 0 || late > 10*time.Millisecond {
						t.Errorf("call %d heard %v after the end of its context", i, late)
					}
					cancel()
				}
				n.over.Store(true)
				n.all.Wait()
				time.Sleep(idle)
			})
		})
	}
}

type stuckCall = batch.Call

// stuckNode does not answer batches with a call to the key "stuck". The client gives them up when
// they are abandoned, and not before.
type stuckNode struct {
	*testing.T
	calls *batch.Batcher
	takes time.Duration // what it answers

	mu    sync.Mutex
	stuck map[*stuckCall]chan struct{} // by the first call; closed by abandon

	over atomic.Bool
	all  sync.WaitGroup
}

// callers makes n callers call again and again, with a pause.
func (n *stuckNode) callers(callers int, takes, pause time.Duration) {
	n.takes = takes
	for i := range callers {
		n.all.Go(func() {
			time.Sleep(time.Duration(i) * takes / time.Duration(callers))
			for !n.over.Load() {
				// A call that comes along with one that is stuck is stuck, too.
				ctx, cancel := context.WithTimeout(n.Context(), time.Millisecond)
				_, err := n.calls.SetNX(ctx, "k", "v", time.Minute)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					n.Error(err)
				}
				cancel()
				time.Sleep(pause)
			}
		})
	}
}

func (n *stuckNode) send(_ context.Context, calls []*stuckCall) {
	for _, c := range calls {
		if c.Args()[1] != "stuck" || c.Context().Err() != nil { // it is not sent
			continue
		}
		gone := make(chan struct{})
		n.mu.Lock()
		if n.stuck == nil {
			n.stuck = map[*stuckCall]chan struct{}{}
		}
		n.stuck[calls[0]] = gone
		n.mu.Unlock()
		<-gone
		for _, c := range calls {
			c.Answer(nil, errors.New("given up"))
		}
		return
	}
	time.Sleep(n.takes)
	for _, c := range calls {
		if c.Args()[1] == "stuck" {
			c.Answer(nil, pool.NotSent(c.Context().Err()))
		} else {
			c.Answer("OK", nil)
		}
	}
}

func (n *stuckNode) abandon(calls []*stuckCall) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if gone := n.stuck[calls[0]]; gone != nil {
		close(gone)
		delete(n.stuck, calls[0])
	}
}

// The context of a batch has the first one's values, and ends with the last one's context.
func TestTheContextOfABatch(t *testing.T) {
	type name struct{}
	synctest.Test(t, func(t *testing.T) {
		var last context.Context
		gate := make(chan struct{})
		calls := batch.New(func(ctx context.Context, all []*batch.Call) {
			last = ctx
			<-gate
			for _, c := range all {
				c.Answer(nil, nil)
			}
		}, batch.Options{})
		start := func(ctx context.Context) {
			calls.Start(ctx, pool.SetNX("k", "v", time.Minute), make(told, 1))
			synctest.Wait()
		}
		base := context.WithValue(t.Context(), name{}, "first")
		first, cancel := context.WithTimeout(base, 20*time.Millisecond)
		defer cancel()
		second, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		third, end := context.WithCancel(t.Context())
		defer end()
		for _, endless := range []bool{false, true} {
			for range few {
				start(first)
				if last != first {
					t.Error("the context of a lone call is not the call's")
				}
			}
			start(first)
			start(second)
			if endless {
				start(third)
			}
			gate <- struct{}{}
			synctest.Wait()
			deadline, ok := last.Deadline()
			if want, _ := second.Deadline(); ok == endless || !endless && deadline != want {
				t.Errorf("the deadline is %v, %v, want the last one's, %v", deadline, ok, want)
			}
			if last.Value(name{}) != "first" {
				t.Error("the context does not have the values of the first call's")
			}
			for range few {
				gate <- struct{}{}
			}
			synctest.Wait()
		}
		time.Sleep(idle)
	})
}

// A call fails with the error of its own context, whatever the batch's says, and with the client's.
func TestTheErrorIsThatOfTheCallsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		errRefused := errors.New("refused")
		calls := batch.New(func(ctx context.Context, all []*batch.Call) {
			if len(all) == 1 {
				<-gate
				return
			}
			<-ctx.Done()
			all[0].Answer(nil, pool.NotSent(context.DeadlineExceeded))
			all[1].Answer(nil, context.Canceled)
			all[2].Answer(nil, errRefused)
		}, batch.Options{})
		first := make(told, few)
		occupy(t.Context(), calls, first)
		canceled, cancel := context.WithCancel(t.Context())
		late, stop := context.WithTimeout(t.Context(), 7*time.Millisecond)
		defer stop()
		outcomes := []told{make(told, 1), make(told, 1), make(told, 1)}
		for i, ctx := range []context.Context{canceled, late, late} {
			calls.Start(ctx, pool.SetNX("k", "v", time.Minute), outcomes[i])
		}
		close(gate)
		<-first
		cancel()
		err := <-outcomes[0]
		if !errors.Is(err, context.Canceled) || !errors.Is(err, pool.ErrNotSent) {
			t.Errorf("a call that was cancelled and not sent: %v", err)
		}
		if err := <-outcomes[1]; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call whose deadline has passed: %v", err)
		}
		if err := <-outcomes[2]; err != errRefused {
			t.Errorf("a call that was refused: %v", err)
		}
		time.Sleep(idle)
	})
}

// A batch whose contexts have all ended has a context that has ended.
func TestTheContextOfAnAbandonedBatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		calls := batch.New(func(ctx context.Context, all []*batch.Call) {
			if len(all) == 1 {
				<-gate
			} else {
				<-ctx.Done()
			}
		}, batch.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		first, all := make(told, few), make(told, 2)
		occupy(ctx, calls, first)
		for range 2 {
			calls.Start(ctx, pool.SetNX("k", "v", time.Minute), all)
		}
		close(gate)
		<-first
		cancel()
		begun := time.Now()
		<-all
		<-all
		if d := time.Since(begun); d > 10*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		time.Sleep(idle)
	})
}

// The context of a batch ends within 10 ms after the last of the calls' contexts. Each call fails
// for the reason that its own has, whichever of the timers came first.
func TestTheContextOfABatchEndsSoonAfterTheCalls(t *testing.T) {
	for want, canceled := range map[error]bool{
		context.DeadlineExceeded: false, context.Canceled: true,
	} {
		synctest.Test(t, func(t *testing.T) {
			gate, outcomes := make(chan struct{}), make(told, 2)
			calls := batch.New(func(ctx context.Context, all []*batch.Call) {
				if len(all) == 1 {
					<-gate
					return
				}
				<-ctx.Done()
				for _, c := range all {
					c.Answer(nil, ctx.Err())
				}
			}, batch.Options{})
			occupy(t.Context(), calls, make(told, few))
			for _, lasts := range []time.Duration{17 * time.Millisecond, 43 * time.Millisecond} {
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				if canceled {
					ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
					time.AfterFunc(lasts, cancel)
				}
				defer cancel()
				calls.Start(ctx, pool.SetNX("k", "v", time.Minute), outcomes)
			}
			begun := time.Now()
			close(gate)
			for range 2 {
				if err := <-outcomes; !errors.Is(err, want) {
					t.Errorf("a call ended with %v, want %v", err, want)
				}
			}
			const last = 43 * time.Millisecond
			latest := last // a deadline is known in advance
			if canceled {
				latest += 10 * time.Millisecond
			}
			if took := time.Since(begun); took < last || took > latest {
				t.Errorf("%v: the context ended after %v, want %v to %v", want, took, last, latest)
			}
			time.Sleep(idle)
		})
	}
}

type told chan error

func (t told) Receive(_ any, err error) { t <- err }

// An error of the client's that cannot be read is a failure of that call, and of no other.
func TestAnErrorThatCannotBeReadIsAnOutcome(t *testing.T) {
	inBubble(t, func(n *node) {
		for range 3 {
			bad, after := n.start(n.Context(), "unreadable"), n.start(n.Context(), "k")
			var why *pool.PanicError
			if synctest.Wait(); !errors.As(bad.err, &why) {
				t.Errorf("the outcome is %v, %v", bad.reply, bad.err)
			}
			if after.err != nil {
				t.Error(after.err)
			}
		}
	})
}

// unreadable is an error whose text panics if it is nil.
type unreadable struct{ text string }

func (e *unreadable) Error() string { return e.text }

func TestAPanicIsTheOutcomeOfCallsWithoutAnAnswer(t *testing.T) {
	inBubble(t, func(n *node) {
		lone := n.start(n.Context(), "panic")
		var why *pool.PanicError
		if !errors.As(lone.err, &why) || lone.reply != nil {
			t.Errorf("a call whose client panics: %v, %v", lone.reply, lone.err)
		}
		slow := n.occupy()
		before := n.start(n.Context(), "before")
		panics := n.start(n.Context(), "panic")
		after := n.start(n.Context(), "after")
		close(n.gate)
		append(slow, before).granted()
		for _, o := range []*outcome{panics, after} {
			if !errors.As(o.err, &why) || o.times != 1 {
				t.Errorf("%s: %d outcomes, %v", o.key, o.times, o.err)
			}
		}
		n.start(n.Context(), "later").granted()
	})
}

// A client that ends the goroutine does not end the Batcher.
func TestGoexitIsAFailure(t *testing.T) {
	inBubble(t, func(n *node) {
		for range 3 {
			exit := n.start(n.Context(), "exit")
			if exit.open() || exit.err == nil {
				t.Errorf("a call whose client ends the goroutine: %v, %v", exit.reply, exit.err)
			}
			n.start(n.Context(), "after").granted()
		}
		var exits outcomes
		for range few {
			exits = append(exits, n.start(n.Context(), "slow, then exit"))
		}
		behind := n.start(n.Context(), "behind")
		n.gate <- struct{}{} // to the first one alone
		time.Sleep(time.Millisecond)
		behind.granted()
		if exits[0].open() || exits[0].err == nil {
			t.Errorf("a call whose client ends the goroutine: %v, %v",
				exits[0].reply, exits[0].err)
		}
		close(n.gate)
		n.start(n.Context(), "later").granted()
	})
}

func TestTheReplyToASetIsABool(t *testing.T) {
	errLost := errors.New("lost")
	for _, c := range []struct {
		reply any
		err   error
		want  bool
		fails bool
	}{
		{"OK", nil, true, false},
		{nil, nil, false, false},
		{"OK", errLost, false, true},
		{"QUEUED", nil, false, true},
		{int64(1), nil, false, true},
		{true, nil, false, true},
	} {
		calls := batch.New(func(_ context.Context, all []*batch.Call) {
			all[0].Answer(c.reply, c.err)
		}, batch.Options{})
		reply, err := calls.SetNX(t.Context(), "k", "v", time.Minute)
		if reply != c.want || (err != nil) != c.fails || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%v, %v is %v, %v", c.reply, c.err, reply, err)
		}
	}
}

var script = &pool.Script{
	Name:   "x",
	Source: "return 1",
	ID:     "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
}

var errNoScript = errors.New("NOSCRIPT No matching script")

func TestAScriptThatTheNodeDoesNotKnowIsSent(t *testing.T) {
	known, never := false, false
	var sent []string
	calls := batch.New(func(_ context.Context, all []*batch.Call) {
		args := all[0].Args()
		sent = append(sent, fmt.Sprint(args...))
		if never || args[0] == "EVALSHA" && !known {
			all[0].Answer(nil, errNoScript)
			return
		}
		known = true
		all[0].Answer(int64(1), nil)
	}, batch.Options{})
	command := pool.Eval(script, []string{"k"}, "v")
	for range 2 {
		if reply, err := command.Run(t.Context(), calls); reply != int64(1) || err != nil {
			t.Errorf("Eval = %v, %v, want 1", reply, err)
		}
	}
	evalsha := "EVALSHA" + script.ID + "1kv"
	want := []string{evalsha, "EVAL" + script.Source + "1kv", evalsha}
	if !slices.Equal(sent, want) {
		t.Errorf("%q was sent, want %q", sent, want)
	}
	never = true
	reply, err := command.Run(t.Context(), calls)
	if reply != nil || !errors.Is(err, errNoScript) {
		t.Errorf("Eval on a node that knows no script at all = %v, %v", reply, err)
	}
}

func TestACallWithoutAnAnswerFails(t *testing.T) {
	calls := batch.New(func(context.Context, []*batch.Call) {}, batch.Options{})
	set, eval := pool.SetNX("k", "v", time.Minute), pool.Eval(script, nil)
	for _, command := range []*pool.Command{set, eval} {
		if reply, err := command.Run(t.Context(), calls); reply == true || err == nil {
			t.Errorf("Do = %v, %v, want an error", reply, err)
		}
	}
}

func TestAnIdleBatcherHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := batch.New(func(_ context.Context, all []*batch.Call) {
			time.Sleep(3 * time.Millisecond)
			for _, c := range all {
				c.Answer("OK", nil)
			}
		}, batch.Options{})
		for range 3 {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					time.Sleep(time.Millisecond)
					ok, err := calls.SetNX(t.Context(), "k", "v", time.Minute)
					if !ok || err != nil {
						t.Errorf("SetNX = %v, %v", ok, err)
					}
				})
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			for range 10 {
				if workers() == 0 {
					t.Error("no worker stays for the next call")
				}
				time.Sleep(4900 * time.Microsecond)
			}
			time.Sleep(idle - 49*time.Millisecond)
			if n := workers(); n > 0 {
				t.Errorf("%d workers are left after 60 ms", n)
			}
		}
	})
}

// workers returns how many workers there are in bubbles.
func workers() (n int) {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "synctest bubble") &&
			strings.Contains(stack, "(*Batcher).work") {
			n++
		}
	}
	return n
}
