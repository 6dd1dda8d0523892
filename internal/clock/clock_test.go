package clock

import (
	"math"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/clock/clocktest"
)

// lesson L45: a clock that was set back, or stood still, does not prolong a lease.
func TestRemainingIsThePessimisticOfTwoClocks(t *testing.T) {
	start := time.Now()
	now := clocktest.Time(start, time.Minute)
	until := now.Add(10 * time.Second)
	for name, c := range map[string]struct{ wall, monotonic, left time.Duration }{
		"at once":                         {0, 0, 10 * time.Second},
		"at until":                        {10 * time.Second, 10 * time.Second, 0},
		"past until":                      {11 * time.Second, 11 * time.Second, -time.Second},
		"the wall clock was set back":     {-time.Hour, 4 * time.Second, 6 * time.Second},
		"set back, past until":            {-time.Hour, 11 * time.Second, -time.Second},
		"the wall clock was set forwards": {time.Hour, 4 * time.Second, 10*time.Second - time.Hour},
		"the machine was suspended":       {time.Minute, 0, -50 * time.Second},
		"it was for a moment":             {3 * time.Second, 2 * time.Second, 7 * time.Second},
	} {
		later := clocktest.Time(start.Add(c.wall), time.Minute+c.monotonic)
		// As this is what the rest stands on: these are times of two clocks.
		assert.Equal(t, c.monotonic, later.Sub(now), name)
		assert.Equal(t, c.wall, later.Round(0).Sub(now.Round(0)), name)

		assert.Equal(t, c.left, Remaining(later, until), name)
	}
}

// Under the race detector this crashes with timers that are due at once.
func TestManySetTimersAheadTogetherInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goroutines, each = 64, 1000
		var all sync.WaitGroup
		var fired atomic.Int64
		start := time.Now()
		for range goroutines {
			all.Go(func() {
				for range each {
					time.AfterFunc(TimerDelay(-time.Second), func() { fired.Add(1) })
				}
			})
		}
		all.Wait()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.EqualValues(t, goroutines*each, fired.Load())
		assert.Equal(t, time.Nanosecond, time.Since(start))
		assert.Equal(t, time.Second, TimerDelay(time.Second))
	})
}

func TestBriefKeepsThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", 41184: "41.2µs", 999_949: "1ms", 999_999: "1ms",
		400 * time.Millisecond: "400ms",
		2_629_333_333:          "2.63s", 7918 * time.Millisecond: "7.92s", -2_629_333_333: "-2.63s",
		time.Hour + 123*time.Second: "1h2m0s",
		math.MaxInt64:               "2561111h6m40s", math.MinInt64: "-2561111h6m40s",
	} {
		assert.Equal(t, want, Brief(d).String(), "%d", d)
	}
}

// lesson L56, L66: what does not fit is cut off, and nothing changes its sign.
func FuzzReckoning(f *testing.F) {
	extremes := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 2, 1e6,
		math.MaxInt64 / 1_000_000, math.MaxInt64/1_000_000 + 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, a := range extremes {
		for _, b := range extremes {
			f.Add(a, b, 0.05)
		}
		for _, factor := range []float64{0, 0.01, 0.5, math.Nextafter(1, 0), 1} {
			f.Add(a, int64(1), factor)
		}
	}
	f.Fuzz(func(t *testing.T, a, b int64, factor float64) {
		fits := func(x *big.Int) time.Duration {
			switch {
			case x.IsInt64():
				return time.Duration(x.Int64())
			case x.Sign() < 0:
				return math.MinInt64
			default:
				return math.MaxInt64
			}
		}
		x, y := big.NewInt(a), big.NewInt(b)
		assert.Equal(t, fits(new(big.Int).Add(x, y)), Add(time.Duration(a), time.Duration(b)))
		assert.Equal(t, fits(new(big.Int).Sub(x, y)), Sub(time.Duration(a), time.Duration(b)))
		if b >= 0 {
			assert.Equal(t, fits(new(big.Int).Mul(x, y)), Times(time.Duration(a), b))
			assert.Equal(t, fits(new(big.Int).Mul(y, big.NewInt(1e6))), Milliseconds(b))
		}
		if a >= 0 && factor >= 0 && factor <= 1 {
			part := Part(time.Duration(a), factor)
			assert.GreaterOrEqual(t, part, time.Duration(0))
			assert.LessOrEqual(t, part, time.Duration(a))
		}
	})
}
