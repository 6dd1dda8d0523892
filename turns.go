package redlock

import "time"

const (
	// crowded is how long a process that has handed a key on takes it that others queue for it.
	crowded = time.Second
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

// turns is what a process knows of other processes that want the same key again and again.
//
// With announcements, the nodes keep a queue of processes. A process whose release handed the key
// on knows that there is one, and stands in it without asking for the lock first.
//
// Without announcements, the others poll. A process passes the lock on within itself for a slice
// of time. Then it rests: it leaves the lock free for one retry delay, within which everybody
// else asks once. If nobody has taken it by then, the next slice is longer. A process that finds
// others at it keeps to short slices.
//
// lines.mu guards its fields.
type turns struct {
	used   time.Time // latest
	handed time.Time // when this process last handed the key on

	// Without announcements.
	won     time.Time // when this process last took the lock, as far as it has noted that
	leaving time.Time // when this process last began to release the key
	passed  time.Time // when it last had, and told nobody but its own line
	// When a line of this process could last not hear a release; others may have polled then.
	unheard time.Time
	refused time.Time     // when it was last refused
	rest    time.Duration // the latest; slices are measured by it; 0 before the first slice
	quiet   int           // rests in a row in which nobody else was noticed
	ends    time.Time     // of the slice
	// The slice is over, and it is not known yet whether anybody else has made use of that.
	resting bool
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
	// Somebody else had it.
	case won && (why == overdue || why == expired) && !t.leaving.After(t.refused):
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

// releasing notes that this process is about to release a key.
func (ls *lines) releasing(key string, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if t := ls.turns[key]; t != nil {
		t.leaving = now
	}
}

// released notes that this process has released a key, whether it tells other processes of its
// releases, and whether it has handed the key on to one who queues. Its own line is told.
func (ls *lines) released(key string, announced, handedOn bool, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.lines[key]
	if handedOn {
		ls.turnsOf(key, now).handed = now
	}
	if ln != nil {
		ln.held = time.Time{}
		switch {
		case ln.deaf():
			t := ls.turnsOf(key, now)
			t.passed, t.unheard = now, now
			ln.tell(passedOn)
		case handedOn:
			ln.tell(queued)
		default:
			ln.tell(freed)
		}
	}
	switch t := ls.turns[key]; {
	case t == nil || handedOn:
	case t.rest == 0 && ln == nil:
		delete(ls.turns, key)
	default:
		t.handed = time.Time{}
		if !announced || !ls.source.Able() || now.Sub(t.unheard) < turnsKept {
			t.used, t.passed = now, now
		}
	}
}

// crowd reports whether others queue for a key, as far as this process knows.
func (ls *lines) crowd(key string, now time.Time) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.turns[key]
	return t != nil && now.Sub(t.handed) < crowded
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

// polled returns whether others may be polling for a key that this process has just released, and
// pass tells for how long it leaves the key to them.
func (ls *lines) polled(key string, now time.Time) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.turns[key]
	return t != nil && t.rest > 0 && now.Sub(t.passed) < maxRest
}

// tried notes what the head's attempt came to, where no announcements tell what others do.
func (ls *lines) tried(key string, ln *line, why reason, won bool, delay time.Duration,
	now time.Time) {
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
