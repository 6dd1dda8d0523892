package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What a process knows of keys that nobody has wanted for long is forgotten, so that names do not pile up.
func TestOldTurnsAreForgotten(t *testing.T) {
	ls := newLines(nil)
	now := time.Now()
	for i := range 10 * maxTurns {
		ls.released(fmt.Sprint("key", i), "value", 1, now)
		now = now.Add(10 * time.Millisecond)
		kept := int((turnsKept + time.Second) / (10 * time.Millisecond))
		assert.LessOrEqual(t, len(ls.turns), max(maxTurns, kept)+1)
	}
	assert.Greater(t, len(ls.turns), maxTurns/2, "others are kept")
	last := len(ls.turns)
	ls.released(fmt.Sprint("key", 10*maxTurns-1), "value", 0, now)
	assert.Len(t, ls.turns, last-1, "nobody wants it any more")
}
