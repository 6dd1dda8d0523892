package clocktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTimesOfTwoClocks(t *testing.T) {
	start := time.Now()
	for _, by := range []time.Duration{0, time.Hour, -time.Hour - 1, 999_999_999} {
		set := Time(start.Add(by), time.Second)
		assert.Equal(t, time.Second, set.Sub(Time(start, 0)), "the monotonic clock")
		assert.Equal(t, by, set.Round(0).Sub(start.Round(0)), "the wall clock")
	}
}
