package line

import "time"

const (
	// handedFor is how long a process that has handed a key on takes it that others queue for it.
	handedFor = time.Second
	// handOver is how long a process that has handed a key on leaves the nodes to the one that
	// claims it. Then it stands in the queue again. It does so if somebody was before it the last
	// time. On two cores, three or four processes that hold the key for 5 ms make a tenth more
	// turns with it, and 64 make 1 to 3 % more. Without a hold it makes no difference.
	handOver = time.Millisecond
	// maxRest bounds how long a process leaves a free key to processes that poll.
	maxRest = time.Second
	// quietRests is after how many rests without another process slices become longer, and
	// maxDoubled how often they do.
	quietRests = 8
	maxDoubled = 4
	// Beyond maxRivals keys, those are forgotten that nobody has wanted for rivalsKept.
	maxRivals  = 1000
	rivalsKept = 10 * time.Second
)

// rivals is what a process knows of other processes that want the same key again and again.
//
// Where turns can be heard, the nodes keep a queue of processes. A process whose release handed the
// key on knows that there is one, and stands in it without asking for the key first. If several
// are there, it lets the next one claim the key before that.
//
// Elsewhere the others poll. A process passes the key on within itself for a slice of time. Then it
// rests: it leaves the key free for one retry delay, within which everybody else asks once. If
// nobody has taken it by then, the next slice is longer. A process that finds others at it keeps to
// short slices.
//
// Lines.mu guards its fields.
type rivals struct {
	used   time.Time // latest
	handed time.Time // when this process last handed the key on
	before int64     // how many were before this process in the queue when it last asked
	denied time.Time // when nodes last denied to let this process queue, although they answered

	// Where others poll.
	won     time.Time // when this process last took the key, as far as it has noted that
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
func (r *rivals) slice(now time.Time) {
	r.ends = now.Add(r.rest / 2 << min(max(r.quiet-quietRests, 0), maxDoubled))
}

// retaken reports whether this process has had the key since it last began to release it.
func (r *rivals) retaken() bool { return r.won.After(r.leaving) }

// left returns how long a key that this process has released is left to others: 0 within a slice.
func (r *rivals) left(delay time.Duration, now time.Time) time.Duration {
	if r.rest == 0 {
		r.drawn(delay)
		r.quiet = quietRests + 1
		r.slice(now)
	}
	r.drawn(delay)
	left := r.passed.Add(r.rest).Sub(now)
	if now.Before(r.ends) || left <= 0 {
		return 0
	}
	r.resting = true
	return left
}

// drawn notes a retry delay of this process. Others draw theirs alike.
func (r *rivals) drawn(delay time.Duration) {
	if delay = min(delay, maxRest); r.rest == 0 {
		r.rest = delay
	}
	r.rest += (delay - r.rest) / 8
}

// tried notes what an attempt came to that was made for a reason.
func (r *rivals) tried(why reason, won bool, now time.Time) {
	switch {
	case r.resting && won: // nobody else has wanted it, or has had it and gone
		r.quiet++
		r.slice(now)
	case r.resting: // somebody else has it
		r.quiet, r.ends = 0, time.Time{}
	case why == passedOn && !won: // somebody else was faster
		r.quiet, r.ends = 0, time.Time{}
	// Somebody else had it.
	case won && (why == overdue || why == expired) && !r.leaving.After(r.refused):
		r.quiet = 0
		r.slice(now)
	}
	r.resting = false
	if won {
		r.won = now
	} else {
		r.refused = now
	}
}

// rivalsOf returns what is known of a key's rivals. The caller holds mu.
func (ls *Lines) rivalsOf(key string, now time.Time) *rivals {
	r := ls.rivals[key]
	if r == nil {
		if len(ls.rivals) >= maxRivals && now.Sub(ls.swept) > time.Second {
			ls.swept = now
			for k, r := range ls.rivals {
				if now.Sub(r.used) > rivalsKept {
					delete(ls.rivals, k)
				}
			}
		}
		r = &rivals{}
		ls.rivals[key] = r
	}
	r.used = now
	return r
}

// Releasing notes that this process is about to release a key.
func (ls *Lines) Releasing(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if r := ls.rivals[key]; r != nil {
		r.leaving = time.Now()
	}
}

// HandedOff notes that this process has given a key away to another one, which releases it. So the
// head of its own line queues among other processes.
func (ls *Lines) HandedOff(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.lines[key]; ln != nil {
		ln.held = time.Time{}
		ln.ring(queued)
	}
}

// Released notes that this process has released a key, and tells its own line. Announced says
// whether it tells other processes of its releases; handedOn, whether one who queues has the key.
func (ls *Lines) Released(key string, announced, handedOn bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.lines[key]
	if ln == nil && !handedOn && ls.rivals[key] == nil {
		return
	}
	now := time.Now()
	if handedOn {
		ls.rivalsOf(key, now).handed = now
	}
	if ln != nil {
		ln.held = time.Time{}
		switch {
		case ls.deaf(key, ln, now):
			r := ls.rivalsOf(key, now)
			r.passed, r.unheard = now, now
			ln.ring(passedOn)
		case handedOn:
			ln.ring(queued)
		default:
			ln.ring(freed)
		}
	}
	switch r := ls.rivals[key]; {
	case r == nil || handedOn:
	case r.rest == 0 && ln == nil && !ls.denies(key, now):
		delete(ls.rivals, key)
	default:
		r.handed = time.Time{}
		if !announced || !ls.source.Able() || ls.denies(key, now) ||
			now.Sub(r.unheard) < rivalsKept {
			r.used, r.passed = now, now
		}
	}
}

// deny notes that the nodes deny to let this process queue for a key, although they answer. It
// polls for a while, and then tries to queue again.
func (ls *Lines) deny(key string, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.rivalsOf(key, now).denied = now
}

// denies reports whether the nodes deny to let this process queue for a key. The caller holds mu.
func (ls *Lines) denies(key string, now time.Time) bool {
	r := ls.rivals[key]
	return r != nil && now.Sub(r.denied) < rivalsKept
}

// deaf reports whether a line cannot hear of turns, or there are none. The caller holds mu.
func (ls *Lines) deaf(key string, ln *line, now time.Time) bool {
	return ln.listener == nil || ln.listener.Deaf() || ls.denies(key, now)
}

// stands notes how many are before this process in the queue for a key. It does so also if this
// process has never handed the key on.
func (ls *Lines) stands(key string, before int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.rivalsOf(key, time.Now()).before = before
}

// handsOver returns how long this process leaves the nodes to the one that claims what it has just
// handed on.
func (ls *Lines) handsOver(key string) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if r := ls.rivals[key]; r != nil && r.before > 0 {
		return time.Until(r.handed.Add(handOver))
	}
	return 0
}

// others reports whether others queue for a key, as far as this process knows. It also reports
// whether they may be polling for it, because this process has just released it. Then leaveTo tells
// for how long it leaves the key to them.
func (ls *Lines) others(key string) (queue, poll bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := ls.rivals[key]
	if r == nil {
		return false, false
	}
	now := time.Now()
	return now.Sub(r.handed) < handedFor, r.rest > 0 && now.Sub(r.passed) < maxRest
}

// leaveTo returns how long the line should leave to others what its own process has released
// without an announcement. It also returns whether that has been taken again meanwhile: an attempt
// may win while the line is told why to make one.
func (ls *Lines) leaveTo(
	key string, delay time.Duration, now time.Time,
) (rest time.Duration, retaken bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := ls.rivalsOf(key, now)
	if r.retaken() {
		return 0, true
	}
	return r.left(delay, now), false
}

// won notes that a follower has won.
func (ls *Lines) won(key string, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if r := ls.rivals[key]; r != nil {
		r.won = now
	}
}

// tried notes what the head's attempt came to, where no announcements tell what others do.
func (ls *Lines) tried(
	key string, ln *line, why reason, won bool, delay time.Duration, now time.Time,
) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := ls.rivals[key]
	if r == nil || r.rest == 0 {
		if !won || !ls.deaf(key, ln, now) {
			return
		}
		r = ls.rivalsOf(key, now)
	}
	if ls.deaf(key, ln, now) {
		r.unheard = now
	}
	r.drawn(delay)
	if won || !r.retaken() { // else somebody of this process has it
		r.tried(why, won, now)
	}
}
