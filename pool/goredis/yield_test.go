package goredis

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

func TestAYieldLetsOthersGoFirstUnlessThatTakesLong(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var y yielding

	first := 0
	for range 20 {
		var went atomic.Bool
		go went.Store(true)
		y.yield()
		if went.Load() {
			first++
		}
	}
	if first < 15 { // now and then the scheduler chooses otherwise
		t.Errorf("a goroutine that was ready went first %d of 20 times", first)
	}

	var computed atomic.Int64
	var over atomic.Bool
	defer over.Store(true)
	go func() {
		for !over.Load() {
			computed.Add(1)
		}
	}()
	for tries := 0; y.rest.Load() == 0; tries++ {
		if tries == 100 {
			t.Fatal("yields to a goroutine that computes never took long")
		}
		y.yield()
	}
	if left := time.Duration(y.rest.Load() - clock.Ticks(time.Now())); left < longYield*yieldRest/2 {
		t.Errorf("after a long yield there is none for %v, want %v at least", left, longYield*yieldRest)
	}
	before := computed.Load()
	y.yield()
	if after := computed.Load(); after != before {
		t.Error("another yield did not wait for the end of the rest")
	}

	for tries := 0; computed.Load() == before; tries++ {
		if tries == 100 {
			t.Fatal("there was no yield after the rest")
		}
		y.rest.Store(clock.Ticks(time.Now()) - 1)
		y.yield()
	}
}
