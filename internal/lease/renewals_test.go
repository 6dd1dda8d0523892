package lease

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/test/sim"
)

// Those with the earliest deadlines come first, where there are too few places. A place whose
// goroutine has ended is free again.
func TestTheEarliestDeadlineComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Renewals
		now, busy := time.Now(), make(chan struct{})
		for range maxPlaces - 1 {
			q.Add(func() bool { <-busy; return true }, now)
		}
		q.Add(func() bool { time.Sleep(time.Millisecond); runtime.Goexit(); return true },
			now)
		var mu sync.Mutex // guards order
		var order []int
		so := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return order
		}
		for _, i := range []int{2, 0, 3, 1} {
			q.Add(func() bool {
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				return true
			}, now.Add(time.Duration(i)*time.Second))
		}
		assert.Empty(t, so(), "all places are taken")
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, []int{0, 1, 2, 3}, so())
		close(busy)
		synctest.Wait()
		assert.Empty(t, q.placed)
	})
}

// A renewal keeps its place while any is confirmed, and loses it after the patience otherwise.
func TestSilenceCostsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Renewals
		now := time.Now()
		answered := make(chan struct{})
		for range maxPlaces {
			q.Add(func() bool { <-answered; return false }, now)
		}
		began := make(chan time.Duration, 1)
		q.Add(func() bool { began <- time.Since(now); return true }, now)
		assert.Equal(t, patience, <-began)
		close(answered)
		synctest.Wait()
		assert.Empty(t, q.placed)
		assert.Nil(t, q.timer)
	})
}

// The end of a lease, and letting it go, ends the renewal under way, and waits for it. One that
// begins later asks nobody.
func TestTheEndOfALeaseStopsItsRenewal(t *testing.T) {
	for name, end := range map[string]func(l *Lease) Effects{
		"released": func(l *Lease) Effects { return l.releasing(EndReleased) },
		"let go":   func(l *Lease) Effects { return l.LetGo(EndMargin, failed(0, "late")) },
	} {
		with(t, 1, Options{}, func(t *testing.T, nodes sim.Nodes, k *Lock, _ func(string) *Lease) {
			l, f := k.Get(t.Context(), 1, nil)
			assert.Nil(t, f)
			k.Mu.Lock()
			assert.True(t, l.Keep(func(EndReason, error) {}))
			k.Mu.Unlock()
			nodes[0].Always(sim.Hang())
			var renewed *Failure
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, renewed = l.Renew(t.Context(), k.NodeTimeout, nil)
			}()
			synctest.Wait()
			start := time.Now()
			k.Mu.Lock()
			after := end(l)
			k.Mu.Unlock()
			after.Run()
			assert.Nil(t, l.stop, "Run has waited")
			<-over
			assert.Zero(t, time.Since(start))
			assert.Contains(t, renewed.Reason, context.Canceled.Error())
			_, f = l.Renew(t.Context(), k.NodeTimeout, nil)
			assert.Equal(t, map[string]string{
				"released": "not held", "let go": context.Canceled.Error(),
			}[name], f.Reason)
		})
	}
}
