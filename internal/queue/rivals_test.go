package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// lesson L100: what a process knows of keys that nobody has wanted for long is forgotten. Names
// do not pile up.
func TestOldRivalsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := New(Config{})
		for i := range 10 * maxRivals {
			qs.Released(fmt.Sprint("key", i), true, true)
			time.Sleep(10 * time.Millisecond)
			kept := int((rivalsKept + time.Second) / (10 * time.Millisecond))
			assert.LessOrEqual(t, len(qs.rivals), max(maxRivals, kept)+1)
		}
		assert.Greater(t, len(qs.rivals), maxRivals/2, "others are kept")
		last := len(qs.rivals)
		qs.Released(fmt.Sprint("key", 10*maxRivals-1), true, false)
		assert.Len(t, qs.rivals, last-1, "nobody wants it any more")
	})
}
