package batch_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
)

const (
	fewCallers = 7   // are no crowd
	crowdCalls = 128 // in 4 ms are one
)

// rush lets so many callers come who come back at once, until many calls were sent. Each time they
// come, it takes as long as trip says.
func (n *node) rush(callers int, trip time.Duration) {
	n.Helper()
	for range 2*crowdCalls/callers + 1 {
		n.gate = make(chan struct{})
		var slow outcomes
		for range callers {
			slow = append(slow, n.start(n.Context(), "slow"))
		}
		time.Sleep(trip)
		close(n.gate)
		slow.granted()
	}
	n.gate = make(chan struct{})
}

// within returns a context that ends after so long.
func (n *node) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(n.Context(), d)
	n.Cleanup(cancel)
	return ctx
}

// sizes returns the sizes of the batches after the first so many.
func (n *node) sizes(after int) (sizes []int) {
	for _, keys := range n.sent()[after:] {
		sizes = append(sizes, len(keys))
	}
	return sizes
}

// A crowd goes in two equal batches, each with half of it.
func TestACrowdGoesInHalves(t *testing.T) {
	for callers, want := range map[int][]int{8: {4, 4}, 16: {8, 8}, 64: {32, 32}} {
		inBubbleOf(t, true, func(n *node) {
			n.rush(callers, 0)
			before := len(n.sent())
			var slow outcomes
			for range callers {
				slow = append(slow, n.start(n.Context(), "slow"))
			}
			if got := n.sizes(before); !slices.Equal(got, want) {
				t.Errorf("%d callers: batches of %d calls go at once, want %d", callers, got, want)
			}
			for range callers - 1 { // who wait until a batch returns
				slow = append(slow, n.start(n.Context(), "slow"))
			}
			if got := n.sizes(before); !slices.Equal(got, want) {
				t.Errorf("%d callers: more than two batches are under way, of %d calls", callers,
					got)
			}
			close(n.gate)
			time.Sleep(time.Millisecond) // the last are no half of a crowd
			slow.granted()
			if want = append(want, callers/2, callers/2-1); !slices.Equal(n.sizes(before), want) {
				t.Errorf("%d callers: the batches are of %d calls, want %d", callers,
					n.sizes(before), want)
			}
		})
	}
}

// On several nodes a crowd goes in one batch after the other, which has a fourth of it at least.
func TestACrowdOnSeveralNodesGoesTogether(t *testing.T) {
	inBubble(t, func(n *node) {
		n.rush(64, 0)
		before := len(n.sent())
		var slow outcomes
		for range 64 {
			slow = append(slow, n.start(n.Context(), "slow"))
		}
		if got := n.sizes(before); !slices.Equal(got, []int{16}) {
			t.Errorf("batches of %d calls go at once, want 16", got)
		}
		close(n.gate)
		slow.granted()
		if got := n.sizes(before); !slices.Equal(got, []int{16, 48}) {
			t.Errorf("the batches are of %d calls, want 16 and 48", got)
		}
	})
}

// No batch has more than half of a crowd. So the rest finds callers to go with.
func TestNoBatchHasMoreThanHalfOfACrowd(t *testing.T) {
	inBubbleOf(t, true, func(n *node) {
		n.rush(8, 0)
		before := len(n.sent())
		n.calls.MaxSends = 1
		var slow outcomes
		for range 4 + 8 {
			slow = append(slow, n.start(n.Context(), "slow"))
		}
		n.calls.MaxSends = 0
		for range 4 {
			n.gate <- struct{}{} // to the first
		}
		if got := n.sizes(before); !slices.Equal(got, []int{4, 4, 4}) {
			t.Errorf("the batches are of %d calls, want 4, 4 and 4", got)
		}
		close(n.gate)
		slow.granted()
	})
}

// It is no crowd if there are few, or if they come more slowly.
func TestWhoIsNoCrowd(t *testing.T) {
	for _, c := range []struct {
		what    string
		alone   bool
		callers int
		trip    time.Duration
		want    int // calls by themselves
	}{
		{"a crowd", true, fewCallers + 1, 0, 0},
		{"a crowd behind a network", true, 64, time.Millisecond, 0},
		{"few", true, fewCallers, 0, fewAlone},
		{"slow ones", true, fewCallers + 1, time.Millisecond / 2, fewAlone},
		{"a crowd on several nodes", false, fewCallers + 1, 0, 0},
		{"few on several nodes", false, fewCallers, 0, few},
		{"slow ones on several nodes", false, fewCallers + 1, time.Millisecond / 2, few},
	} {
		inBubbleOf(t, c.alone, func(n *node) {
			n.rush(c.callers, c.trip)
			if got := n.byThemselves(); got != c.want {
				t.Errorf("%s: %d calls go by themselves, want %d", c.what, got, c.want)
			}
		})
	}
}

// byThemselves returns how many calls go by themselves.
func (n *node) byThemselves() (calls int) {
	before := len(n.sent())
	var slow outcomes
	for range fewAlone + 1 {
		slow = append(slow, n.start(n.Context(), "slow"))
	}
	sizes := n.sizes(before)
	for calls < len(sizes) && sizes[calls] == 1 {
		calls++
	}
	close(n.gate)
	time.Sleep(time.Millisecond) // for the last of a crowd
	slow.granted()
	n.gate = make(chan struct{})
	return calls
}

// When a crowd has gone, those who are left wait for no more than a millisecond, and soon not at
// all.
func TestACrowdIsForgotten(t *testing.T) {
	for _, alone := range []bool{false, true} {
		inBubbleOf(t, alone, func(n *node) {
			n.rush(64, 0)
			time.Sleep(2 * time.Millisecond)
			k := n.start(n.Context(), "k")
			if !k.open() {
				t.Errorf("alone %v: there was no crowd", alone)
			}
			time.Sleep(time.Millisecond)
			if k.granted(); k.after > time.Millisecond {
				t.Errorf("alone %v: a call has waited for %v", alone, k.after)
			}
			time.Sleep(10 * time.Millisecond)
			if k := n.start(n.Context(), "k"); k.open() {
				t.Errorf("alone %v: a call waits for a crowd that has gone 10 ms ago", alone)
			}
		})
	}
	inBubbleOf(t, true, func(n *node) {
		n.rush(64, 0)
		time.Sleep(idle)
		if got := n.byThemselves(); got != fewAlone {
			t.Errorf("%d calls go by themselves, want %d", got, fewAlone)
		}
	})
}

// The caller of the last call of a batch sends all of it.
func TestACallerSendsForACrowd(t *testing.T) {
	brief := func(n *node) context.Context { return n.within(time.Second) }
	for _, c := range []struct {
		what     string
		does     bool
		ctx      func(n *node) context.Context // of the others
		others   int                           // calls that wait
		maxSends int
	}{
		{"one of half a crowd", true, brief, 3, 0},
		{"one before half of it is there", false, brief, 2, 0},
		{"one whose context ends before others", false, func(n *node) context.Context {
			return n.within(time.Minute)
		}, 3, 0},
		{"one whose context ends, and others do not", false, (*node).Context, 3, 0},
		{"one for whom the client has no connection", false, brief, 3, 1},
	} {
		inBubbleOf(t, true, func(n *node) {
			n.rush(8, 0)
			n.calls.MaxSends = c.maxSends
			before := len(n.sent())
			var all outcomes
			for range 4 {
				all = append(all, n.start(n.Context(), "slow"))
			}
			for range c.others {
				o := n.carry(c.ctx(n), "slow")
				if all = append(all, o); !o.open() {
					t.Errorf("%s: one of the others was sent", c.what)
				}
			}
			own := brief(n)
			returned := make(chan *outcome, 1)
			go func() { returned <- n.carry(own, "slow") }()
			synctest.Wait()
			if carries := len(returned) == 0; carries != c.does {
				t.Errorf("%s sends for them: %v, want %v", c.what, carries, c.does)
			}
			if c.does {
				if got := n.sizes(before); !slices.Equal(got, []int{4, 4}) {
					t.Errorf("the batches are of %d calls, want 4 and 4", got)
				}
			}
			close(n.gate)
			time.Sleep(time.Millisecond)
			append(all, <-returned).granted()
		})
	}
}

// A caller that does not dial hands over all that it would have sent.
func TestACallerHandsOverACrowd(t *testing.T) {
	serving(t, func(s *server) {
		carried := false
		send := s.calls.Send
		var dialled int
		s.calls.Send = func(ctx context.Context, calls []*call) {
			for _, c := range calls {
				if carried = c.Carried(); carried {
					c.HandOver()
				}
			}
			if !carried {
				dialled++
				send(ctx, calls)
			}
		}
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		carry := func(i int) *outcome {
			o, command := &outcome{}, release(string(rune('a'+i)))
			if i%4 == 0 {
				command = pool.SetNX("k", "v", time.Minute)
			}
			command.Alone = true
			s.calls.Carry(ctx, command, o)
			return o
		}
		for range 2 * crowdCalls {
			s.gate = make(chan struct{})
			var all outcomes
			for i := range 8 {
				all = append(all, carry(i))
				synctest.Wait()
			}
			close(s.gate)
			synctest.Wait()
			for i, o := range all {
				if o.times != 1 || o.reply != any(int64(1)) && o.reply != true || o.err != nil {
					t.Fatalf("call %d: %d outcomes, %v, %v", i, o.times, o.reply, o.err)
				}
			}
		}
		if dialled == 0 {
			t.Error("nothing was handed over")
		}
	})
}

// Every call of a crowd has one outcome, whoever sends it. That is so if the client panics, or ends
// the goroutine.
func TestACrowdWhoseClientFails(t *testing.T) {
	for _, fails := range []string{"panic", "exit"} {
		inBubbleOf(t, true, func(n *node) {
			for range 3 {
				n.rush(8, 0)
				ctx := n.within(time.Minute)
				var all outcomes
				for range 3 {
					all = append(all, n.carry(ctx, "k"))
				}
				last := &outcome{n: n, key: fails, began: time.Now()}
				go func() {
					command := pool.SetNX(fails, "v", time.Minute)
					command.Alone = true
					n.calls.Carry(ctx, command, last)
				}()
				if last.open() || last.err == nil {
					t.Errorf("%s: %v, %v", fails, last.reply, last.err)
				}
				all.granted()
			}
		})
	}
}

// A Receive that panics on the goroutine of another caller keeps nobody from being told.
func TestACrowdWithAReceiveThatFails(t *testing.T) {
	for what, fail := range map[string]func(){
		"panics":             func() { panic("Receive") },
		"ends the goroutine": runtime.Goexit,
	} {
		inBubbleOf(t, true, func(n *node) {
			n.rush(8, 0)
			ctx := n.within(time.Minute)
			command := pool.SetNX("k", "v", time.Minute)
			command.Alone = true
			a := n.carry(ctx, "a")
			n.calls.Carry(ctx, command, receive(func(any, error) { fail() }))
			b, last := n.carry(ctx, "b"), &outcome{n: n, key: "k", began: time.Now()}
			go func() {
				defer func() { _ = recover() }()
				n.calls.Carry(ctx, command, last)
				t.Errorf("Carry returns although a Receive %s", what)
			}()
			outcomes{a, b, last}.granted()
			after := n.start(n.Context(), "after")
			time.Sleep(time.Millisecond)
			after.granted()
		})
	}
}

// Callers who come back at once end up in equal batches, on their own goroutines.
func TestACrowdThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards sizes
		var sizes []int
		calls := batch.Batcher[struct{}]{}
		calls.Send = func(_ context.Context, all []*batch.Call[struct{}]) {
			mu.Lock()
			sizes = append(sizes, len(all))
			mu.Unlock()
			time.Sleep(50 * time.Microsecond)
			for _, c := range all {
				c.Answer("OK", nil)
			}
		}
		command := pool.SetNX("k", "v", time.Minute)
		command.Alone = true
		done := make(chan struct{})
		for range 8 {
			go func() {
				for range 1000 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					told := make(chan error, 1)
					calls.Carry(ctx, command, receive(func(_ any, err error) { told <- err }))
					if err := <-told; err != nil {
						t.Error(err)
					}
					cancel()
				}
				done <- struct{}{}
			}()
		}
		for range 8 {
			<-done
		}
		if batches := len(sizes); batches > 8000/3 {
			t.Errorf("8,000 calls went in %d batches, want some 2,000", batches)
		}
		if most := slices.Max(sizes[crowdCalls:]); most > 4 {
			t.Errorf("a batch has %d calls, want 4 at most", most)
		}
		time.Sleep(idle)
	})
}
