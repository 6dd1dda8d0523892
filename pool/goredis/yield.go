package goredis

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// longYield is longer than it takes callers to queue, also hundreds of them, and shorter than the 10 ms for which a
	// goroutine that computes keeps a processor.
	longYield = 5 * time.Millisecond
	// yieldRest is for how many times as long as a long yield took there is no other: what they cost is then bounded
	// by a hundredth.
	yieldRest = 100
)

// yielding lets the goroutines that are ready to run go first, as long as these are callers and their like, who soon wait
// for something again. Behind goroutines that compute, a yield takes many milliseconds, which may be more than a command has.
//
// The zero value is ready for use. It is safe for concurrent use.
type yielding struct {
	rest atomic.Int64 // until when there is none, in nanoseconds since epoch; 0 if none was long
}

// epoch is what yielding counts from.
var epoch = time.Now()

func (y *yielding) yield() {
	start := time.Since(epoch)
	if rest := y.rest.Load(); rest != 0 && int64(start) < rest {
		return
	}
	runtime.Gosched()
	end := time.Since(epoch)
	if took := end - start; took > longYield {
		y.rest.Store(int64(end + yieldRest*took))
	}
}
