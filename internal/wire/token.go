package wire

import (
	"sync/atomic"
	"time"
)

// Tokens remembers the greatest fencing token that a process has seen. It is safe for concurrent
// use.
type Tokens struct {
	Now  func() time.Time
	last atomic.Uint64
}

// tokenMemory is how far ahead of the clock a token may be to be remembered for the next
// proposals, which are about other names, too: a counter that somebody has moved to its end must
// not take those with it.
const tokenMemory = 24 * time.Hour

// Saw notes a token.
func (t *Tokens) Saw(token uint64) {
	if int64(token) >= t.Now().Add(tokenMemory).UnixMicro() {
		return
	}
	for last := t.last.Load(); token > last; last = t.last.Load() {
		if t.last.CompareAndSwap(last, token) {
			return
		}
	}
}

// proposal is the least token a client would like: greater than any it has seen. As long as clocks
// are roughly right, it is also greater than the counters that a node has lost.
func (t *Tokens) proposal() uint64 {
	return max(t.last.Load()+1, uint64(max(t.Now().UnixMicro(), 1)))
}
