package batch

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

func TestAYieldLetsOthersGoFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var calls Batcher
	first := 0
	for range 20 {
		var went atomic.Bool
		go went.Store(true)
		calls.yield()
		if went.Load() {
			first++
		}
	}
	if first < 15 { // now and then the scheduler chooses otherwise
		t.Errorf("a goroutine that was ready went first %d of 20 times", first)
	}
}

func TestThereIsARestAfterALongYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var over atomic.Bool
	defer over.Store(true)
	go func() {
		for !over.Load() { // which computes
		}
	}()
	var calls Batcher
	begun := clock.NowTicks()
	for tries := 0; calls.rest.Load() == 0; tries++ {
		if tries == 100 {
			t.Fatal("yields to a goroutine that computes never took long")
		}
		calls.yield()
	}
	rest := calls.rest.Load()
	if after := time.Duration(rest - begun); after < 100*longYield ||
		rest-clock.NowTicks() > int64(longestRest) {
		t.Errorf("after a long yield there is none until %v after its beginning", after)
	}
	resting := time.Now()
	for range 100 {
		calls.yield()
	}
	if took := time.Since(resting); took > 500*time.Millisecond {
		t.Errorf("100 yields during the rest took %v", took)
	}
}

// Callers that have just been told their outcomes are in the next batch, nearly all of them. On a
// machine that is busy with other things, yields take long and are left out for a while.
func TestCallersThatAreReadyComeAlong(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, rounds = 8, 20
	var sizes []int
	for range 50 {
		if sizes = batches(t, callers, rounds); len(sizes) <= 2*rounds {
			return
		}
	}
	t.Errorf("%d callers sent %d calls each in %d batches: %v", callers, rounds, len(sizes), sizes)
}

// batches lets callers call again and again, and returns how many calls went in each batch.
func batches(t *testing.T, callers, rounds int) (sizes []int) {
	t.Helper()
	var mu sync.Mutex
	gate := make(chan struct{})
	calls := New(func(_ context.Context, all []*Call) {
		mu.Lock()
		sizes = append(sizes, len(all))
		mu.Unlock()
		<-gate
		for _, c := range all {
			c.Answer("OK", nil)
		}
	}, Options{})
	done := make(chan error, callers)
	for i := range callers {
		go func() {
			var err error
			for range rounds {
				if _, e := calls.SetNX(t.Context(), fmt.Sprint(i), "v", time.Second); e != nil {
					err = e
				}
			}
			done <- err
		}()
	}
	for come := 0; come < callers; runtime.Gosched() {
		calls.mu.Lock()
		come = len(calls.queue)
		come += calls.underWay
		calls.mu.Unlock()
	}
	close(gate)
	for range callers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return sizes
}
