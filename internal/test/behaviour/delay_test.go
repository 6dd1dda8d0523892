package behaviour_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// seen is the least and the most that a delay function returned for a try.
func seen(f redlock.DelayFunc, try int) (least, most time.Duration) {
	least = math.MaxInt64
	for range 3000 {
		d := f(try)
		least, most = min(least, d), max(most, d)
	}
	return least, most
}

func TestConstantDelay(t *testing.T) {
	for _, try := range []int{1, 2, 1000} {
		least, most := seen(redlock.ConstantDelay(time.Second), try)
		assert.Equal(t, time.Second, least)
		assert.Equal(t, time.Second, most)
	}
}

func TestUniformDelayIsBetweenItsBoundsInclusive(t *testing.T) {
	for _, tt := range []struct{ shortest, longest, least, most time.Duration }{
		{5, 9, 5, 9},
		{0, 1, 0, 1},
		{7, 7, 7, 7},
		{7, 3, 7, 7},
		{-5, -3, 0, 0},
		{-5, 2, 0, 2},
	} {
		for _, try := range []int{1, 2, 1000} {
			least, most := seen(redlock.UniformDelay(tt.shortest, tt.longest), try)
			assert.Equal(t, tt.least, least, tt)
			assert.Equal(t, tt.most, most, tt)
		}
	}
	least, _ := seen(redlock.UniformDelay(0, math.MaxInt64), 1)
	assert.Greater(t, least, time.Duration(0))
}

func TestExponentialDelayDoublesUpToItsLimit(t *testing.T) {
	f := redlock.ExponentialDelay(10, 1000)
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000} {
		least, most := seen(f, i+1)
		assert.Less(t, least, want/5+1)
		assert.LessOrEqual(t, most, want)
		assert.Greater(t, most, want*9/10-1)
	}
	for _, try := range []int{0, -1, math.MinInt} {
		_, most := seen(f, try)
		assert.Equal(t, time.Duration(10), most)
	}
	for _, tt := range []struct{ base, limit, most time.Duration }{
		{0, 0, 1}, {-1, -1, 1}, {5, 3, 5}, {0, 1, 1},
	} {
		_, most := seen(redlock.ExponentialDelay(tt.base, tt.limit), 100)
		assert.Equal(t, tt.most, most, tt)
	}
	for _, limit := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64/2 + 1} {
		least, most := seen(redlock.ExponentialDelay(time.Second, limit), math.MaxInt)
		assert.GreaterOrEqual(t, least, time.Duration(0))
		assert.Greater(t, most, limit/2)
	}
}

func TestTheDefaultDelayIsRandomWithinItsConstants(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Always(sim.Fail(errOops))
		m := rl.NewMutex("x", redlock.WithTries(2), redlock.WithPolling())
		least, most := time.Hour, time.Duration(0)
		for range 500 {
			start := time.Now()
			assert.Error(t, m.Lock())
			least, most = min(least, time.Since(start)), max(most, time.Since(start))
		}
		assert.GreaterOrEqual(t, least, 50*time.Millisecond)
		assert.Less(t, least, 70*time.Millisecond)
		assert.Greater(t, most, 230*time.Millisecond)
		assert.LessOrEqual(t, most, 250*time.Millisecond)
	})
}
