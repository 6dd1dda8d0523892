package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// lesson L100: what a process knows of many keys is forgotten. Names do not pile up.
func TestRivalsAreForgotten(t *testing.T) {
	qs := New(Config{})
	for i := range 10 * maxRivals {
		qs.Released(fmt.Sprint("key", i), true, true)
		assert.Len(t, qs.rivals, min(i+1, maxRivals))
	}
	last := fmt.Sprint("key", 10*maxRivals-1)
	assert.Contains(t, qs.rivals, last)
	qs.Released(last, true, false)
	assert.NotContains(t, qs.rivals, last, "nobody wants it any more")
}
