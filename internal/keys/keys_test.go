package keys

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Release makes the key of the bid of that of the queue.
func TestABidLiesBesideItsQueue(t *testing.T) {
	for _, key := range []string{"x", "app:{42}:x", "{x}", "x{y", "a:b"} {
		start, ok := strings.CutSuffix(Queue(key), "queue")
		assert.True(t, ok, key)
		assert.Equal(t, start+"bid", Bid(key), key)
	}
	assert.Empty(t, Queue("a}b"))
	assert.Empty(t, Bid("a}b"))
}
