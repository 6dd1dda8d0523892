package batch_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
)

// carry lets the goroutine of a caller send a SET NX.
func (n *node) carry(ctx context.Context, key string) *outcome {
	o := &outcome{n: n, key: key, began: time.Now()}
	batch.StartCarried(ctx, n.calls, pool.SetNX(key, "v", time.Minute), o)
	return o
}

// told reports whether the outcome was told, without giving goroutines time for it.
func (o *outcome) told() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.times == 1
}

// An adapter that only embeds a Batcher is no Carrier: its client may take longer than it is given.
func TestABatcherIsNoCarrier(t *testing.T) {
	var p any = struct{ *batch.Batcher }{}
	if _, ok := p.(pool.Starter); !ok {
		t.Error("a pool that embeds a Batcher is no Starter")
	}
	if _, ok := p.(pool.Carrier); ok {
		t.Error("a pool that embeds a Batcher is a Carrier")
	}
}

func TestALoneCallerSendsItsOwnCall(t *testing.T) {
	inBubble(t, func(n *node) {
		for range 3 {
			if o := n.carry(n.Context(), "k"); !o.told() {
				t.Error("StartCarried has returned before the outcome was told")
			} else {
				o.granted()
			}
			if n := workers(); n > 0 {
				t.Errorf("there are %d workers, want none", n)
			}
		}
		n.want([]string{"k"}, []string{"k"}, []string{"k"})
	})
}

// Others wait for a worker's batch then.
func TestAFewCallersSendTheirOwnCalls(t *testing.T) {
	inBubble(t, func(n *node) {
		for range 3 {
			done := make(chan *outcome)
			for range few {
				go func() { done <- n.carry(n.Context(), "slow") }()
			}
			if w := workers(); w > 0 {
				t.Errorf("there are %d workers, want none", w)
			}
			go func() { done <- n.carry(n.Context(), "slow, one more") }()
			one := <-done // it is not sent
			if !one.open() {
				t.Errorf("a call was sent beside %d others", few)
			}
			for range few + 1 {
				n.gate <- struct{}{}
			}
			for range few {
				(<-done).granted()
			}
			one.granted()
			time.Sleep(idle)
		}
	})
}

// No more callers send their own calls than the client has connections for.
func TestCarriedCallsAreBounded(t *testing.T) {
	inBubble(t, func(n *node) {
		n.calls = batch.New(n.send, batch.Options{MaxSends: 2})
		done := make(chan *outcome, 4)
		for range cap(done) {
			go func() { done <- n.carry(n.Context(), "slow") }()
		}
		n.want([]string{"slow"}, []string{"slow"})
		close(n.gate)
		for range cap(done) {
			(<-done).granted()
		}
	})
}

// A Receive that panics leaves nothing behind that the next callers use.
func TestACallerWhoseReceiveFails(t *testing.T) {
	inBubble(t, func(n *node) {
		n.calls = batch.New(n.send, batch.Options{MaxSends: 1}) // which the panic does not use up
		for range 3 {
			n.carry(n.Context(), "k").granted()
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("StartCarried does not panic")
				}
			}()
			batch.StartCarried(n.Context(), n.calls, pool.SetNX("k", "v", time.Minute),
				receive(func(any, error) { panic("Receive") }))
		}()
		done := make(chan *outcome, 8)
		for range 3 {
			for range cap(done) {
				go func() { done <- n.carry(n.Context(), "slow") }()
			}
			synctest.Wait() // until all are under way
			for range cap(done) {
				n.gate <- struct{}{}
			}
			for range cap(done) {
				(<-done).granted()
			}
		}
		time.Sleep(20 * time.Millisecond) // so that the large batch is forgotten
		n.start(n.Context(), "k").granted()
	})
}

// A call that waits already is not sent by the caller of another one.
func TestACallerSendsNobodyElsesCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var carried []bool
		calls := batch.New(func(_ context.Context, all []*batch.Call) {
			for _, c := range all {
				carried = append(carried, c.Carried())
				c.Answer("OK", nil)
			}
		}, batch.Options{MaxSends: 1})
		command := pool.SetNX("k", "v", time.Minute)
		nobody := receive(func(any, error) {})
		batch.StartCarried(t.Context(), calls, command, receive(func(any, error) {
			calls.Start(t.Context(), command, nobody)
			batch.StartCarried(t.Context(), calls, command, nobody)
		}))
		synctest.Wait()
		if !slices.Equal(carried, []bool{true, false, false}) {
			t.Errorf("sent by their callers: %v", carried)
		}
		time.Sleep(idle)
	})
}

func TestACallThatIsCarriedJoinsTheOthers(t *testing.T) {
	inBubble(t, func(n *node) {
		slow := n.occupy()
		a, b := n.carry(n.Context(), "a"), n.start(n.Context(), "b")
		if a.told() || !a.open() {
			t.Error("a call was sent beside those under way")
		}
		close(n.gate)
		append(slow, a, b).granted()
		n.want(append(occupied(), []string{"a", "b"})...)
	})
}

// carryAndOccupy is [node.occupy] with a first call that is carried.
func (n *node) carryAndOccupy() (carried chan *outcome, slow outcomes) {
	carried = make(chan *outcome, 1)
	go func() { carried <- n.carry(n.Context(), "slow") }()
	n.want([]string{"slow"})
	for range few - 1 {
		slow = append(slow, n.start(n.Context(), "slow"))
	}
	return carried, slow
}

// The caller that sends its own call does not send what comes next.
func TestCallsBehindACarriedOne(t *testing.T) {
	t.Run("go when it has returned", func(t *testing.T) {
		inBubble(t, func(n *node) {
			carried, slow := n.carryAndOccupy()
			a, b := n.start(n.Context(), "a"), n.carry(n.Context(), "b")
			n.gate <- struct{}{} // to the carried one, which came first
			outcomes{<-carried, a, b}.granted()
			if a.after != 0 || b.after != 0 {
				t.Errorf("they went %v and %v after it", a.after, b.after)
			}
			close(n.gate)
			slow.granted()
			n.want(append(occupied(), []string{"a", "b"})...)
		})
	})
	t.Run("do not wait for long", func(t *testing.T) {
		inBubble(t, func(n *node) {
			carried, slow := n.carryAndOccupy()
			a := n.start(n.Context(), "a")
			time.Sleep(time.Millisecond)
			a.granted()
			close(n.gate)
			append(slow, <-carried).granted()
		})
	})
}

func TestACarriedCallThatFailsFailsAlone(t *testing.T) {
	inBubble(t, func(n *node) {
		for range 3 {
			var why *pool.PanicError
			if o := n.carry(n.Context(), "panic"); !o.told() || !errors.As(o.err, &why) {
				t.Errorf("a call whose client panics: %v, %v", o.reply, o.err)
			}
			exit := &outcome{n: n, key: "exit", began: time.Now()}
			go func() {
				batch.StartCarried(n.Context(), n.calls, pool.SetNX("exit", "v", time.Minute), exit)
				t.Error("Goexit does not end the caller's goroutine")
			}()
			if exit.open() || exit.err == nil {
				t.Errorf("a call whose client ends the goroutine: %v, %v", exit.reply, exit.err)
			}
			n.carry(n.Context(), "after").granted()
			n.start(n.Context(), "after").granted()
		}
	})
}

func TestACarriedCallWhoseContextHasEndedIsNotSent(t *testing.T) {
	inBubble(t, func(n *node) {
		ended, cancel := context.WithCancel(n.Context())
		cancel()
		n.carry(ended, "k").failed(pool.ErrNotSent)
		n.want()

		n.leave = make(chan struct{})
		brief, cancel := context.WithTimeout(n.Context(), 45*time.Millisecond)
		defer cancel()
		o := n.carry(brief, "slow")
		if !o.told() || o.err == nil || o.after > 46*time.Millisecond {
			t.Errorf("after %v: %v, want an error after 45 ms", o.after, o.err)
		}
	})
}

// The next command of a lock is sent when the outcome of the last is told.
func TestReceiveMayCarry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := batch.New(func(_ context.Context, all []*batch.Call) {
			for _, c := range all {
				if strings.HasPrefix(c.Args()[0].(string), "EVALSHA") {
					c.Answer(nil, errNoScript)
				} else {
					c.Answer("OK", nil)
				}
			}
		}, batch.Options{})
		done := make(chan error)
		command, left := pool.Eval(script, []string{"k"}, "v"), 10
		var next receive
		next = func(_ any, err error) {
			if left--; left == 0 || err != nil {
				go func() { done <- err }()
				return
			}
			batch.StartCarried(t.Context(), calls, command, next)
		}
		batch.StartCarried(t.Context(), calls, command, next)
		if err := <-done; err != nil || left != 0 {
			t.Errorf("%v, with %d calls left", err, left)
		}
		time.Sleep(idle)
	})
}

type receive func(reply any, err error)

func (r receive) Receive(reply any, err error) { r(reply, err) }
