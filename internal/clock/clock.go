// Package clock judges how much of a lease is left, and reckons with durations that may be as
// long as they can be.
package clock

import (
	crand "crypto/rand"
	"math"
	"math/rand/v2"
	"time"
)

// Source is implemented by the pools of a simulation in which every client has a clock of its
// own. The first pool of a Redlock lends it its clock. Other modules cannot name Own, so that no
// pool of theirs is a Source by accident.
type Source interface {
	Clock() Own
}

// Own is a clock of a client's own.
type Own struct {
	// Now takes the place of [time.Now]; nil leaves that.
	Now func() time.Time
	// Jitter returns a random duration from 0 up to but excluding limit; nil leaves the choice to
	// math/rand.
	Jitter func(limit time.Duration) time.Duration
	// Name returns the random name of a process, 26 letters and digits; nil leaves that to
	// crypto/rand.
	Name func() string
}

// Of returns the clock that the first of the pools lends, and the usual one where that lends none.
func Of[Pool any](pools []Pool) (own Own) {
	if len(pools) > 0 {
		if source, ok := any(pools[0]).(Source); ok {
			own = source.Clock()
		}
	}
	if own.Now == nil {
		own.Now = time.Now
	}
	if own.Jitter == nil {
		own.Jitter = rand.N[time.Duration]
	}
	if own.Name == nil {
		own.Name = crand.Text
	}
	return own
}

// Remaining returns how much time is left at now before until: the less of what the monotonic and
// the wall clock say. The monotonic clock stops while a machine is suspended. The wall clock may be
// set back. So a clock is not trusted alone when it says that there is more time than the other.
//
// Both times must come from the same Source, or from [time.Now].
func Remaining(now, until time.Time) time.Duration {
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0)))
}

// TimerDelay returns d, but at least a nanosecond: every timer that may be due at once is set with
// it. In a bubble of [testing/synctest] a timer set for now runs on the thread that sets it. So do
// others at the same time, all in one race context that is for one thread at a time. The race
// detector of Go 1.26 crashes then; see unlockAndRun in the runtime's time.go. This spares users
// who test their services that way.
func TimerDelay(d time.Duration) time.Duration { return max(d, time.Nanosecond) }

// epoch is what Ticks counts from.
var epoch = time.Now()

// Ticks is a time as nanoseconds on the monotonic clock.
func Ticks(t time.Time) int64 { return int64(t.Sub(epoch)) }

// NowTicks is the time now, as Ticks.
func NowTicks() int64 { return int64(time.Since(epoch)) }

// Add returns a + b, or the longest or shortest duration if that is out of range.
func Add(a, b time.Duration) time.Duration {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}

// Sub returns a - b, or the longest or shortest duration if that is out of range.
func Sub(a, b time.Duration) time.Duration {
	if b == math.MinInt64 { // of which there is no negative
		return Add(Add(a, math.MaxInt64), 1)
	}
	return Add(a, -b)
}

// Times returns d × n for an n that is not negative. If that is out of range, it returns the
// longest or shortest duration.
func Times(d time.Duration, n int64) time.Duration {
	switch {
	case n == 0:
		return 0
	case d > math.MaxInt64/time.Duration(n):
		return math.MaxInt64
	case d < math.MinInt64/time.Duration(n):
		return math.MinInt64
	default:
		return d * time.Duration(n)
	}
}

// Milliseconds returns n milliseconds, at most the longest duration, for an n that is not
// negative: a node's TTL may be 2^63-1 milliseconds.
func Milliseconds(n int64) time.Duration { return Times(time.Millisecond, n) }

// Part returns the part of d that a factor from 0 to 1 makes. A product of floating-point numbers
// can be greater than either of them once it is an integer again.
func Part(d time.Duration, factor float64) time.Duration {
	part := float64(d) * factor
	if part >= float64(d) {
		return d
	}
	return time.Duration(part)
}

// Brief rounds a duration to three digits, for people.
func Brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 || d/unit <= -1000 {
		unit *= 10
	}
	return d.Round(unit)
}
