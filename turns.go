package redlock

import (
	"time"

	"github.com/redlock-go/redlock/internal/announce"
)

const (
	// turn is how much longer a process waits after a release than another that has gone without
	// the lock for longer.
	turn = time.Millisecond
	// fresh is how long after a release somebody else may be about to take the lock.
	fresh = 10 * time.Millisecond
	// maxRest bounds how long a process leaves a free lock to processes that poll.
	maxRest = time.Second
	// quietRests is after how many rests without another process slices become longer, and
	// maxDoubled how often they do.
	quietRests = 8
	maxDoubled = 4
	// Beyond maxTurns keys, those are forgotten that nobody has wanted for turnsKept.
	maxTurns  = 1000
	turnsKept = 10 * time.Second
)

// turns is what a process knows of other processes that want the same key again and again. No
// process can ask another.
//
// With announcements, all processes that wait hear each release. A process knows how many
// connections heard its own last release, and how many releases by others it has heard since. If
// all take turns, the next is the process that has heard one from every other.
//
// Without announcements, the others poll. A process passes the lock on within itself for a slice
// of time. Then it rests: it leaves the lock free for one retry delay, within which everybody
// else asks once. If nobody has taken it by then, the next slice is longer. A process that finds
// others at it keeps to short slices.
//
// lines.mu guards its fields.
type turns struct {
	used time.Time // latest

	// With announcements.
	own      string    // the value that this process released last
	released time.Time // when
	others   int       // connections that heard of it
	heard    int       // releases by others since then
	alone    int       // releases by this process in a row with none by others in between

	// Without announcements.
	won     time.Time     // when this process last took the lock, as far as it has noted that
	leaving time.Time     // when this process last began to release the key
	passed  time.Time     // when it last had, and told nobody but its own line
	unheard time.Time     // when a line of this process could last not hear a release; others may have polled then
	refused time.Time     // when it was last refused
	rest    time.Duration // the latest; slices are measured by it; 0 before the first slice
	quiet   int           // rests in a row in which nobody else was noticed
	ends    time.Time     // of the slice
	resting bool          // the slice is over, and it is not known yet whether anybody else has made use of that
}

// patience is how long to wait after a release, to let those go first that have waited for
// longer. A connection that nobody releases anything through, between several releases of this
// process, is no rival's.
func (t *turns) patience() time.Duration {
	switch {
	case t.heard >= t.others || t.alone >= 2:
		return 0
	case 2*t.heard >= t.others:
		return turn
	case t.heard > 0:
		return 2 * turn
	default:
		return 3 * turn
	}
}

// slice begins a slice.
func (t *turns) slice(now time.Time) {
	t.ends = now.Add(t.rest / 2 << min(max(t.quiet-quietRests, 0), maxDoubled))
}

// taken reports whether this process has had the lock since it last began to release it.
func (t *turns) taken() bool { return t.won.After(t.leaving) }

// pass returns how long a key that this process has released is left to others: 0 within a slice.
func (t *turns) pass(delay time.Duration, now time.Time) time.Duration {
	if t.rest == 0 {
		t.drawn(delay)
		t.quiet = quietRests + 1
		t.slice(now)
	}
	t.drawn(delay)
	left := t.passed.Add(t.rest).Sub(now)
	if now.Before(t.ends) || left <= 0 {
		return 0
	}
	t.resting = true
	return left
}

// drawn notes a retry delay of this process. Others draw theirs alike.
func (t *turns) drawn(delay time.Duration) {
	if delay = min(delay, maxRest); t.rest == 0 {
		t.rest = delay
	}
	t.rest += (delay - t.rest) / 8
}

// tried notes what an attempt came to that was made for a reason.
func (t *turns) tried(why reason, won bool, now time.Time) {
	switch {
	case t.resting && won: // nobody else has wanted it, or has had it and gone
		t.quiet++
		t.slice(now)
	case t.resting: // somebody else has it
		t.quiet, t.ends = 0, time.Time{}
	case why == passedOn && !won: // somebody else was faster
		t.quiet, t.ends = 0, time.Time{}
	case won && (why == overdue || why == expired) && !t.leaving.After(t.refused): // somebody else had it
		t.quiet = 0
		t.slice(now)
	}
	t.resting = false
	if won {
		t.won = now
	} else {
		t.refused = now
	}
}

// turnsOf returns the turns of a key, which are new if there are none. The caller holds mu.
func (ls *lines) turnsOf(key string, now time.Time) *turns {
	t := ls.turns[key]
	if t == nil {
		if len(ls.turns) >= maxTurns && now.Sub(ls.swept) > time.Second {
			ls.swept = now
			for k, t := range ls.turns {
				if now.Sub(t.used) > turnsKept {
					delete(ls.turns, k)
				}
			}
		}
		t = &turns{}
		ls.turns[key] = t
	}
	t.used = now
	return t
}

// releasing notes that this process is about to release a key. Its own waiter will hear of that,
// perhaps before the release has returned.
func (ls *lines) releasing(key, value string, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.turns[key]
	if t == nil || t.own == value {
		return
	}
	t.leaving = now
	if t.alone++; t.heard > 0 {
		t.alone = 0
	}
	t.own, t.heard = value, 0
}

// released notes that this process has released a key, and how many connections were told, or a
// negative number if it tells nobody. Where its own line was not told, it is told now. Where it
// is not sure who was told, and the line may have been, released leaves that to heard, and
// returns false.
func (ls *lines) released(key, value string, told int, sure bool, now time.Time) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t, ln := ls.turns[key], ls.lines[key]
	if sure || ln != nil && ln.deaf() {
		ls.note(key, value, told, now)
		return true
	}
	if t != nil {
		t.own, t.released = value, now
	}
	return false
}

// heard notes how many connections were told of a release that this process made a moment ago.
func (ls *lines) heard(key, value string, told int, at time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.note(key, value, told, at)
}

// note notes how many connections were told of a release, or a negative number for nobody. The
// caller holds mu.
func (ls *lines) note(key, value string, told int, at time.Time) {
	t, ln := ls.turns[key], ls.lines[key]
	listens := ln != nil && ln.listener != nil && ln.listener.Subscribed()
	latest := t == nil || t.own == "" || t.own == value
	switch {
	case !latest: // this process has had the lock again
	case ln != nil && (ln.deaf() || listens && told <= 0):
		t = ls.turnsOf(key, at)
		t.passed, t.unheard = at, at
		ln.tell(announce.Release{Value: value, First: everywhere})
	case t != nil && told <= 0 && (told < 0 || !ls.able || at.Sub(t.unheard) < turnsKept):
		t.used, t.passed = at, at
	}
	if listens {
		told-- // its own connection
	}
	switch {
	case told > 0:
		t = ls.turnsOf(key, at)
		if told > t.others {
			t.alone = 0 // there is somebody new
		}
		t.others = told
		if latest {
			t.own, t.released = value, at
		}
	case t != nil && t.rest == 0 && ln == nil:
		delete(ls.turns, key)
	case t != nil:
		t.others = 0
	}
}

// woken notes that a release of a value was announced, and returns how long this process should
// leave the key to others.
func (ls *lines) woken(key, value string) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.turns[key]
	if t == nil {
		return 0
	}
	if value != "" && value != t.own {
		t.heard++ // else nobody knows what was missed
	}
	return t.patience()
}

// pass returns how long the line should leave to others what its own process has released without
// an announcement, and whether it has been taken again meanwhile: an attempt may win while the
// line is told why to make one.
func (ls *lines) pass(
	key string, delay time.Duration, now time.Time,
) (rest time.Duration, taken bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.turnsOf(key, now)
	if t.taken() {
		return 0, true
	}
	return t.pass(delay, now), false
}

// taken notes that a waiter in the queue has won.
func (ls *lines) taken(key string, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if t := ls.turns[key]; t != nil {
		t.won = now
	}
}

// unwoken returns how long this process should leave a key to others that have just been woken,
// if it wants the lock without having waited; or that others may be polling, and pass tells for
// how long.
func (ls *lines) unwoken(key string, now time.Time) (patience time.Duration, polled bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.turns[key]
	switch {
	case t == nil:
		return 0, false
	case now.Sub(t.released) <= fresh:
		return t.patience(), false
	default:
		return 0, t.rest > 0 && now.Sub(t.passed) < maxRest
	}
}

// tried notes what the head's attempt came to, where no announcements tell what others do.
func (ls *lines) tried(key string, ln *line, why reason, won bool, delay time.Duration, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.turns[key]
	if t == nil || t.rest == 0 {
		if !won || !ln.deaf() {
			return
		}
		t = ls.turnsOf(key, now)
	}
	if ln.deaf() {
		t.unheard = now
	}
	t.drawn(delay)
	if won || !t.taken() { // else somebody of this process has it
		t.tried(why, won, now)
	}
}
