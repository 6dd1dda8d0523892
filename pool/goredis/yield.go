package goredis

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

const (
	// longYield is longer than it takes callers to queue, also hundreds of them, and shorter than the 10 ms for which a
	// goroutine that computes keeps a processor.
	longYield = 5 * time.Millisecond
	// After a long yield there is no other for yieldRest times as long as it took: they cost a hundredth of the time at most.
	yieldRest = 100
	// longestRest bounds that. A process that was stopped has yielded for very long.
	longestRest = 10 * time.Second
)

// yielding lets the goroutines that are ready to run go first, as long as these are callers and their like, who soon wait
// for something again. Behind goroutines that compute, a yield takes many milliseconds, which may be more than a command has.
//
// The zero value is ready for use. It is safe for concurrent use.
type yielding struct {
	rest atomic.Int64 // until when there is none, see clock.Ticks; 0 if none was long
}

func (y *yielding) yield() {
	start := clock.Ticks(time.Now())
	// In a bubble of testing/synctest it is another time, at which a rest of the real world is over.
	if left := time.Duration(y.rest.Load() - start); 0 < left && left <= longestRest {
		return
	}
	runtime.Gosched()
	end := clock.Ticks(time.Now())
	if took := time.Duration(end - start); took > longYield {
		y.rest.Store(end + int64(yieldRest*min(took, longestRest/yieldRest)))
	}
}
