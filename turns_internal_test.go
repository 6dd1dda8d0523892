package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/announce"
)

// What a process knows of keys that nobody has wanted for long is forgotten, so that names do not pile up.
func TestOldTurnsAreForgotten(t *testing.T) {
	ls := newLines(announce.NewSource(nil, nil))
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

// A release that nobody has heard of yet is joined with another, but not with a mere doubt whether there was one.
func TestAReleaseIsNotLostBehindADoubt(t *testing.T) {
	ln := &line{bell: make(chan struct{}, 1)}
	doubt, first, second := announce.Release{First: -1}, announce.Release{Value: "a", First: 1}, announce.Release{Value: "b", First: 2}
	ln.tell(doubt)
	ln.tell(first)
	ln.tell(second)
	ln.tell(doubt)
	<-ln.bell
	assert.Equal(t, &first, ln.heard())
	assert.Nil(t, ln.heard())
}
