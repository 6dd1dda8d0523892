package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/announce"
)

// lesson L100: what a process knows of keys that nobody has wanted for long is forgotten. Names
// do not pile up.
func TestOldTurnsAreForgotten(t *testing.T) {
	ls := newLines(announce.NewSource(nil, nil))
	now := time.Now()
	for i := range 10 * maxTurns {
		ls.released(fmt.Sprint("key", i), "value", 1, true, now)
		now = now.Add(10 * time.Millisecond)
		kept := int((turnsKept + time.Second) / (10 * time.Millisecond))
		assert.LessOrEqual(t, len(ls.turns), max(maxTurns, kept)+1)
	}
	assert.Greater(t, len(ls.turns), maxTurns/2, "others are kept")
	last := len(ls.turns)
	ls.released(fmt.Sprint("key", 10*maxTurns-1), "value", 0, true, now)
	assert.Len(t, ls.turns, last-1, "nobody wants it any more")
}

// Who has heard of a release may be known only after this process has had the lock again. Then it
// is no news for the line.
func TestLateWordOfAReleaseWakesNobodyTwice(t *testing.T) {
	ls := newLines(announce.NewSource(nil, nil))
	now := time.Now()
	ls.released("key", "first", 3, true, now)
	tn, ln := ls.turns["key"], &line{bell: make(chan struct{}, 1)}
	ls.lines["key"] = ln
	ls.heard("key", "first", 0, now)
	assert.NotNil(t, ln.heard(), "nobody has told the line")
	ls.heard("key", "first", 4, now)
	ln.heard()

	ls.releasing("key", "second", now)
	ls.heard("key", "first", 5, now)
	assert.Nil(t, ln.heard())
	assert.Equal(t, "second", tn.own)
	assert.Equal(t, 5, tn.others)
}

// While it is not known who has heard of a release, those count who heard of the one before.
func TestRivalsAreRememberedUntilMoreIsKnown(t *testing.T) {
	ls := newLines(announce.NewSource(nil, nil))
	start := time.Now()
	assert.True(t, ls.released("key", "first", 3, true, start))
	now := start.Add(time.Minute)
	ls.releasing("key", "second", now)
	assert.False(t, ls.released("key", "second", 0, false, now))
	patience, _ := ls.unwoken("key", now)
	assert.Equal(t, 3*turn, patience)
	ls.heard("key", "second", 0, now)
	assert.Empty(t, ls.turns, "nobody wants it any more")

	assert.False(t, ls.released("key", "third", 0, false, now))
	assert.Empty(t, ls.turns)
	ls.lines["key"] = &line{bell: make(chan struct{}, 1)}
	assert.True(t, ls.released("key", "fourth", 0, false, now),
		"a line that hears nothing is told at once")
	assert.NotNil(t, ls.lines["key"].heard())
}

// A release that nobody has heard of yet is joined with another, but not with a mere doubt
// whether there was one.
func TestAReleaseIsNotLostBehindADoubt(t *testing.T) {
	ln := &line{bell: make(chan struct{}, 1)}
	doubt, first, second := announce.Release{First: -1}, announce.Release{Value: "a", First: 1},
		announce.Release{Value: "b", First: 2}
	ln.tell(doubt)
	ln.tell(first)
	ln.tell(second)
	ln.tell(doubt)
	<-ln.bell
	assert.Equal(t, &first, ln.heard())
	assert.Nil(t, ln.heard())
}

// lesson L88: that somebody else of this process has the lock, or asks for it at the same time,
// says nothing of other processes. Else a process alone slept for half of the time after that.
func TestARefusalByItsOwnProcessIsNoSignOfOthers(t *testing.T) {
	ls, ln := newLines(announce.NewSource(nil, nil)), &line{keys: newExpiries(1)}
	now := time.Now()
	tn := ls.turnsOf("key", now)
	tn.rest, tn.quiet = time.Second, 2*quietRests
	ls.releasing("key", "value", now)
	ls.taken("key", now.Add(time.Millisecond))
	ls.tried("key", ln, passedOn, false, time.Second, now.Add(2*time.Millisecond))
	assert.Equal(t, 2*quietRests, tn.quiet)
	ls.releasing("key", "another", now.Add(3*time.Millisecond))
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
