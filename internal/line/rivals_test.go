package line

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
		ls := New(Config{})
		for i := range 10 * maxRivals {
			ls.Released(fmt.Sprint("key", i), true, true)
			time.Sleep(10 * time.Millisecond)
			kept := int((rivalsKept + time.Second) / (10 * time.Millisecond))
			assert.LessOrEqual(t, len(ls.rivals), max(maxRivals, kept)+1)
		}
		assert.Greater(t, len(ls.rivals), maxRivals/2, "others are kept")
		last := len(ls.rivals)
		ls.Released(fmt.Sprint("key", 10*maxRivals-1), true, false)
		assert.Len(t, ls.rivals, last-1, "nobody wants it any more")
	})
}
