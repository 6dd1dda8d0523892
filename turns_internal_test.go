package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/turn"
)

// lesson L100: what a process knows of keys that nobody has wanted for long is forgotten. Names
// do not pile up.
func TestOldTurnsAreForgotten(t *testing.T) {
	ls := newLines(turn.NewSource(nil, nil, ""))
	now := time.Now()
	for i := range 10 * maxTurns {
		ls.released(fmt.Sprint("key", i), true, true, now)
		now = now.Add(10 * time.Millisecond)
		kept := int((turnsKept + time.Second) / (10 * time.Millisecond))
		assert.LessOrEqual(t, len(ls.turns), max(maxTurns, kept)+1)
	}
	assert.Greater(t, len(ls.turns), maxTurns/2, "others are kept")
	last := len(ls.turns)
	ls.released(fmt.Sprint("key", 10*maxTurns-1), true, false, now)
	assert.Len(t, ls.turns, last-1, "nobody wants it any more")
}

// A release that nobody has heard of yet is not lost behind a doubt.
func TestAReleaseIsNotLostBehindADoubt(t *testing.T) {
	ln := &line{bell: make(chan struct{}, 1)}
	ln.tell(missed)
	ln.tell(freed)
	ln.tell(missed)
	<-ln.bell
	assert.Equal(t, freed, ln.heard())
	assert.Equal(t, arrived, ln.heard())
}

// lesson L88: that somebody else of this process has the lock, or asks for it at the same time,
// says nothing of other processes. Else a process alone slept for half of the time after that.
func TestARefusalByItsOwnProcessIsNoSignOfOthers(t *testing.T) {
	ls, ln := newLines(turn.NewSource(nil, nil, "")), &line{keys: newExpiries(1)}
	now := time.Now()
	tn := ls.turnsOf("key", now)
	tn.rest, tn.quiet = time.Second, 2*quietRests
	ls.releasing("key", now)
	ls.taken("key", now.Add(time.Millisecond))
	ls.tried("key", ln, passedOn, false, time.Second, now.Add(2*time.Millisecond))
	assert.Equal(t, 2*quietRests, tn.quiet)
	ls.releasing("key", now.Add(3*time.Millisecond))
	ls.tried("key", ln, passedOn, false, time.Second, now.Add(4*time.Millisecond))
	assert.Zero(t, tn.quiet)

	asked := &defeat{}
	ln.begin(now)
	ln.begin(now)
	assert.False(t, ln.end(asked, now))
	assert.False(t, ln.end(asked, now), "not alone all the time")
	ln.begin(now)
	assert.True(t, ln.end(nil, now))
}
