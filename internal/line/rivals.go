package line

import "time"

const (
	// handedFor is how long a process that has handed a key on takes it that others queue for it.
	handedFor = time.Second
	// handOver is how long a process that has handed a key on leaves the nodes to the one that
	// claims it, if somebody was before it in the queue the last time.
	handOver = time.Millisecond
	// slice is for how long a process that polls passes a key on within itself. Then it leaves the
	// key free for a retry delay, or for maxRest if that is less: others that poll ask within that.
	slice   = time.Second
	maxRest = time.Second
	// Beyond maxRivals keys, those are forgotten that nobody has wanted for rivalsKept.
	maxRivals  = 1000
	rivalsKept = 10 * time.Second
)

// rivals is what a process knows of other processes that want the same key.
//
// Where turns can be heard, the nodes keep a queue of processes. A process whose release handed the
// key on knows that there is one, and stands in it without asking for the key first. Elsewhere the
// others poll, and the process leaves the key to them from time to time.
//
// Lines.mu guards its fields.
type rivals struct {
	used   time.Time // latest
	handed time.Time // when this process last handed the key on
	before int64     // how many were before this process in the queue when it last asked
	denied time.Time // when nodes last denied to let this process queue, although they answered
	ends   time.Time // the slice of this process; zero: it has not polled for the key
	left   time.Time // when this process last left the key to others that poll
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
	for _, ln := range ls.lines[key] {
		ln.again = false
	}
}

// HandedOff notes that this process has given a key away to another one, which releases it. So the
// heads of its own lines queue among other processes.
func (ls *Lines) HandedOff(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.lines[key] {
		ln.held = time.Time{}
		ln.ring(queued)
	}
}

// Released notes that this process has released a key, and tells its own lines, unless it has the
// key again. Announced says whether it tells other processes of its releases; handedOn, whether one
// who queues has the key.
func (ls *Lines) Released(key string, announced, handedOn bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if handedOn {
		ls.rivalsOf(key, now).handed = now
	}
	r, lines := ls.rivals[key], ls.lines[key]
	polls := !announced || !ls.source.Able() || ls.denies(key, now)
	for _, ln := range lines {
		polls = polls || ls.deaf(key, ln, now)
	}
	leaves := r != nil && polls && !r.ends.IsZero() && now.After(r.ends)
	if leaves {
		r.used, r.left, r.ends = now, now, now.Add(slice)
	}
	for _, ln := range lines {
		if ln.again {
			continue
		}
		ln.held = time.Time{}
		switch {
		case leaves:
			ln.ring(left)
		case handedOn && !ls.deaf(key, ln, now):
			ln.ring(queued)
		default:
			ln.ring(freed)
		}
	}
	switch {
	case r == nil || handedOn:
	case lines == nil && r.ends.IsZero() && !ls.denies(key, now):
		delete(ls.rivals, key)
	default:
		r.handed = time.Time{}
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

// others reports whether others queue for a key, as far as this process knows, and since when it
// leaves the key to others that poll.
func (ls *Lines) others(key string) (queue bool, left time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := ls.rivals[key]
	if r == nil {
		return false, time.Time{}
	}
	return time.Since(r.handed) < handedFor, r.left
}

// granted notes that one of the line has the key: for the expiry, if it never releases that. Where
// others poll, a slice begins if this process had not passed the key on within itself.
func (ls *Lines) granted(key string, ln *line, why reason, expiry time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	for _, other := range ls.lines[key] {
		other.held, other.again = now.Add(expiry), true
	}
	received(ln.bell)
	ln.hear() // the release of somebody who had it before
	if why != freed && ls.deaf(key, ln, now) {
		ls.rivalsOf(key, now).ends = now.Add(slice)
	}
}
