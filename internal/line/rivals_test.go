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

// lesson L88: that somebody else of this process has the key, or asks for it at the same time,
// says nothing of other processes. Else a process alone slept for half of the time after that.
func TestARefusalByItsOwnProcessIsNoSignOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls, ln := New(Config{}), &line{keys: NewExpiries(1)}
		r := ls.rivalsOf("key", time.Now())
		r.rest, r.quiet = time.Second, 2*quietRests
		ls.Releasing("key")
		ls.won("key", time.Now().Add(time.Millisecond))
		ls.tried("key", ln, passedOn, false, time.Second, time.Now().Add(2*time.Millisecond))
		assert.Equal(t, 2*quietRests, r.quiet)
		time.Sleep(3 * time.Millisecond)
		ls.Releasing("key")
		ls.tried("key", ln, passedOn, false, time.Second, time.Now().Add(time.Millisecond))
		assert.Zero(t, r.quiet)

		now := time.Now()
		ln.begin(now)
		ln.begin(now)
		assert.False(t, ln.end(refusal{}, 0))
		assert.False(t, ln.end(refusal{}, 0), "not alone all the time")
		ln.begin(now)
		assert.True(t, ln.end(nil, 0))
	})
}
