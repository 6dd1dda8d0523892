package redlock

import (
	"math"
	"math/rand/v2"
	"time"
)

// DelayFunc returns how long to wait before the next attempt; tries, from 1, is how many have been
// made. It is called by many goroutines at once and must not keep state. What it returns
// below zero counts as zero.
type DelayFunc func(tries int) time.Duration

// maxDelay leaves room for the one more that a bound included in a random choice takes.
const maxDelay = math.MaxInt64 - 1

// ConstantDelay always waits for d. Clients that compete with the same constant delay may
// split the vote again and again; prefer [UniformDelay].
func ConstantDelay(d time.Duration) DelayFunc {
	return func(int) time.Duration { return d }
}

// UniformDelay waits for a random time from shortest up to and including longest, both not
// negative. A negative time counts as 0; if longest is less than shortest, it always waits for shortest.
func UniformDelay(shortest, longest time.Duration) DelayFunc {
	shortest = min(max(shortest, 0), maxDelay)
	longest = min(max(longest, shortest), maxDelay)
	return func(int) time.Duration { return shortest + rand.N(longest-shortest+1) }
}

// ExponentialDelay waits for a random time ("full jitter") from 0 up to and including base after
// the first try, 2 base after the second, 4 base after the third, and so on, but never longer than limit:
// with a base of 10 ms and a limit of 1 s, up to 10, 20, 40, 80, 160, 320, 640, 1000, 1000, … ms.
// A base below one nanosecond counts as one; a limit below base as base.
func ExponentialDelay(base, limit time.Duration) DelayFunc {
	base = max(base, 1)
	limit = min(max(limit, base), maxDelay)
	return func(tries int) time.Duration {
		longest := base
		for try := 1; try < tries; try++ {
			if longest > limit/2 {
				longest = limit
				break
			}
			longest *= 2
		}
		return rand.N(min(longest, limit) + 1)
	}
}
