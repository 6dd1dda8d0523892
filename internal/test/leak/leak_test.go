package leak_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/test/leak"
)

func TestRemainingShowsGoroutinesThatDoNotEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	end := make(chan struct{})
	go left(end)
	assert.Contains(t, leak.Remaining(before, 20*time.Millisecond), "leak_test.left")
	close(end)
	assert.Empty(t, leak.Remaining(before, 10*time.Second))
}

func left(end chan struct{}) { <-end }
