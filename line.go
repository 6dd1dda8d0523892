package redlock

import (
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/fifo"
	"github.com/redlock-go/redlock/internal/turn"
)

// A line is what the waiters of one process for one key share. It exists while somebody waits.
// The first waiter, the head, asks the nodes. The others ask only where the head does not ask as
// often as their own options say.
//
// Nobody in the line is overtaken by anybody whose options are the same. The heads of the
// processes stand in the queue on the nodes, and each asks again after a retry delay at the
// latest when it is the first there. So whatever becomes of messages, W waiters, of whom each
// keeps the lock for H, have all had it after
//
//	W × (H + longest delay + 2 × node timeout)
//	  + one expiry for each holder that died, and for what was left behind before
//
// Among processes that only poll, waiters that come back again and again take turns, see turns.
type line struct {
	queue fifo.Queue
	bell  chan struct{} // rung for a release; has room for one
	keys  *expiries     // what attempts have learnt

	// lines.mu guards these.
	users    int            // in the queue or on the way
	listener *turn.Listener // nil if nobody wants announcements
	held     time.Time      // until then, one of the line has the lock; zero: it has been released
	longest  time.Duration  // node timeout of those who have joined

	// The head of the queue guards these.
	ends  time.Time // when a quorum of keys will have expired, as the first in the queue is told
	taken bool      // it was found taken, or was taken; no release has been heard of since

	mu     sync.Mutex    // guards what follows
	rings  reason        // what the bell was rung for
	last   *defeat       // what the latest attempt came to
	asked  time.Time     // when the latest attempt began
	took   time.Duration // that, or the one before
	next   time.Time     // when the head asks again if nothing happens
	stands bool          // the head, in the queue on the nodes
	asking int           // attempts under way
	rivals bool          // two of the line have asked at a time, since nobody did
}

// deaf reports whether the line cannot hear announcements. The caller holds lines.mu.
func (ln *line) deaf() bool { return ln.listener == nil || ln.listener.Deaf() }

// tell rings the bell for a reason. Of two that wait to be heard, the one counts that says more.
func (ln *line) tell(why reason) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.rings = max(ln.rings, why)
	select {
	case ln.bell <- struct{}{}:
	default:
	}
}

// heard returns what the bell was rung for.
func (ln *line) heard() reason {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	why := ln.rings
	ln.rings = arrived
	return why
}

// begin notes that somebody in the line asks the nodes.
func (ln *line) begin(now time.Time) {
	ln.keys.forget(now)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.asked = now
	ln.asking++
	ln.rivals = ln.rivals || ln.asking > 1
}

// end notes what that came to, if it was not cut short, and reports whether nobody else in the
// line has asked at the same time.
func (ln *line) end(d *defeat, now time.Time) (alone bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	alone = !ln.rivals
	ln.asking--
	ln.rivals = ln.rivals && ln.asking > 0
	if d != nil && d.asked != nil {
		ln.last, ln.took = d, now.Sub(ln.asked)
	}
	return alone
}

// stand notes whether the head stands in the queue on the nodes.
func (ln *line) stand(stands bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.stands = stands
}

// stood notes what that has come to so far.
func (ln *line) stood(d *defeat) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.last = d
}

// try returns how long a try takes that somebody else in the line makes, with a retry delay.
func (ln *line) try(delay time.Duration) time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return clock.Add(max(delay, minQueued), ln.took)
}

// plan notes when the head is going to ask again.
func (ln *line) plan(next time.Time) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.next = next
}

// idle reports whether nobody has asked since a time, and the head is not about to ask before
// another. A head that stands in the queue on the nodes asks all the time.
func (ln *line) idle(since, now, before time.Time) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.stands {
		return false
	}
	soon := ln.next.After(now.Add(-minQueued)) && !ln.next.After(before)
	return ln.asked.Before(since) && !soon
}

// latest returns what the latest attempt came to, or nil.
func (ln *line) latest() *defeat {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.last
}

// lines are the lines of one process.
type lines struct {
	source *turn.Source

	mu     sync.Mutex // guards what follows
	lines  map[string]*line
	asking map[string]bool // somebody of this process asks without having waited
	turns  map[string]*turns
	swept  time.Time // when old turns were forgotten last
}

func newLines(source *turn.Source) lines {
	return lines{source: source, lines: map[string]*line{}, asking: map[string]bool{},
		turns: map[string]*turns{}}
}

// arrive takes the last place in the line for a mutex's key, if there is a line or somebody of
// this process is asking for the key without having waited. Otherwise the caller asks, and calls
// asked when it has.
func (ls *lines) arrive(m *Mutex) (*line, *fifo.Place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.lines[m.key] == nil && !ls.asking[m.key] {
		ls.asking[m.key] = true
		return nil, nil
	}
	return ls.join(m, nil)
}

// asked ends what arrive began. A caller that was refused has learnt about keys, and takes the last
// place in the line. So does one that has not tried because others queue.
func (ls *lines) asked(m *Mutex, won, tried bool, keys *expiries) (*line, *fifo.Place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.asking, m.key)
	if t := ls.turns[m.key]; t != nil && (won || tried && keys != nil) {
		t.tried(arrived, won, time.Now())
	}
	if keys != nil {
		first := ls.lines[m.key] == nil
		ln, place := ls.join(m, keys)
		if first {
			ln.taken = tried
		}
		return ln, place
	}
	if ln := ls.lines[m.key]; ln != nil && !won {
		ln.tell(missed) // it joined because somebody asked, and was not told anything
	}
	return nil, nil
}

// join takes the last place in the line for a mutex's key. The line listens as soon as one waiter
// wants it to. The caller holds mu.
func (ls *lines) join(m *Mutex, keys *expiries) (*line, *fifo.Place) {
	ln := ls.lines[m.key]
	if ln == nil {
		if keys == nil {
			keys = newExpiries(len(m.lanes))
		}
		ln = &line{taken: true, bell: make(chan struct{}, 1), keys: keys}
		ls.lines[m.key] = ln
	}
	ln.users++
	ln.longest = max(ln.longest, m.cfg.nodeTimeout)
	if m.cfg.announce && ln.listener == nil {
		ln.listener = ls.source.Use()
		if ln.users > 1 {
			ln.tell(missed) // the head does not listen
		}
	}
	return ln, ln.queue.Join()
}

// leave gives a place up. The last to leave ends the line.
func (ls *lines) leave(key string, ln *line, place *fifo.Place) {
	place.Leave()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.users--
	if ln.users == 0 {
		delete(ls.lines, key)
		if ln.listener != nil {
			ls.source.Done()
		}
	}
}

// impatient reports whether a mutex gives the nodes less time than another of the line does.
func (ls *lines) impatient(ln *line, m *Mutex) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return m.cfg.nodeTimeout < ln.longest && ln.queue.Len() > 1
}

// hold notes that one of the line has the lock. Whoever never releases it has it for the expiry.
func (ls *lines) hold(ln *line, expiry time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.held = time.Now().Add(expiry)
}

// listening returns what the line hears of its turns by, or nil, and whether one of the line has
// the lock.
func (ls *lines) listening(ln *line) (l *turn.Listener, held bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ln.listener, time.Now().Before(ln.held)
}
