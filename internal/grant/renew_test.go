package grant

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// lease is a Renewer whose renewal is a function.
type lease func() bool

func (l lease) Renew() bool { return l() }

// Those with the earliest deadlines come first, where there are too few places. A place whose
// goroutine has ended is free again.
func TestTheEarliestDeadlineComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Renewals
		now, busy := time.Now(), make(chan struct{})
		for range maxPlaces - 1 {
			q.Add(lease(func() bool { <-busy; return true }), now)
		}
		q.Add(lease(func() bool { time.Sleep(time.Millisecond); runtime.Goexit(); return true }),
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
			q.Add(lease(func() bool {
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				return true
			}), now.Add(time.Duration(i)*time.Second))
		}
		assert.Empty(t, so(), "all places are taken")
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, []int{0, 1, 2, 3}, so())
		close(busy)
		synctest.Wait()
		assert.Zero(t, q.placed.Len())
	})
}

// A renewal keeps its place while any is confirmed, and loses it after the patience otherwise.
func TestSilenceCostsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Renewals
		now := time.Now()
		answered := make(chan struct{})
		for range maxPlaces {
			q.Add(lease(func() bool { <-answered; return false }), now)
		}
		began := make(chan time.Duration, 1)
		q.Add(lease(func() bool { began <- time.Since(now); return true }), now)
		assert.Equal(t, patience, <-began)
		close(answered)
		synctest.Wait()
		assert.Zero(t, q.placed.Len())
		assert.Nil(t, q.timer)
	})
}
