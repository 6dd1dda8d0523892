package clock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRemainingIsThePessimisticOfTwoClocks(t *testing.T) {
	now := time.Now()
	until := now.Add(10 * time.Second)
	assert.Equal(t, 10*time.Second, Remaining(now, until))
	assert.Equal(t, time.Duration(0), Remaining(until, until))
	assert.Equal(t, -time.Second, Remaining(until.Add(time.Second), until))

	// Without its monotonic reading a time is compared by the wall clock alone: that is how
	// a wall clock that went on by a minute during a suspend is made here.
	wallAhead := now.Add(time.Minute).Round(0)
	assert.Equal(t, -50*time.Second, Remaining(wallAhead, until))
}

// lesson L45: a wall clock that is set back does not prolong a lease.
func TestRemainingIgnoresAWallClockSetBack(t *testing.T) {
	now := time.Now()
	until := now.Add(10 * time.Second)
	later := now.Add(4 * time.Second)
	assert.LessOrEqual(t, Remaining(later, until), 6*time.Second)
}
