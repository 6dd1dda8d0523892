package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/announce"
	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/fifo"
)

const (
	// turn is how much longer a process waits after a release than another that has gone without the
	// lock for longer.
	turn = time.Millisecond
	// fresh is how long after a release somebody else may be about to take the lock.
	fresh = 10 * time.Millisecond
	// splitDelay is the longest delay after a first split vote; it doubles with each further one.
	splitDelay = 2 * time.Millisecond
	// maxSplits is how many attempts may follow a split vote, from one release to the next, without waiting for
	// the retry delay. What looks like a split vote may be a holder who lacks a node.
	maxSplits = 5
)

// A line is what the waiters of one process for one key share: only the first of them
// talks to the nodes. It exists while somebody waits.
//
// How long a waiter waits can be told if those that it waits with do not come back: in the line nobody is
// overtaken, and of the heads of the lines of all processes each asks at least once per retry delay. So
// a lock that is free is taken within a delay, a node timeout where a node is silent, and another for a vote
// that was split; W waiters, of whom each keeps the lock for H, have all had it after
//
//	W × (H + longest delay + 2 × node timeout) + one expiry for each holder that died, and for what was left behind before
//
// whatever becomes of the announcements. Those who do come back again and again take turns with
// the others as far as announcements arrive (see rivalry); without them it is left to the random delays.
type line struct {
	queue fifo.Queue

	// lines.mu guards these.
	users int    // in the queue or on the way
	own   string // the value that this process released last

	// Who is at the head of the queue guards these.
	listener *announce.Listener // nil before it was needed
	taken    bool               // somebody has found the lock taken, or has taken it, and has heard of no release since

	mu   sync.Mutex // guards last
	last error      // what the latest attempt came to
}

func (ln *line) lastError() error {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.last
}

func (ln *line) setLast(err error) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.last = err
}

// lines are the lines of one process.
type lines struct {
	mu      sync.Mutex // guards what follows
	lines   map[string]*line
	asking  map[string]bool // somebody of this process asks without having waited
	rivalry map[string]*rivalry
	swept   time.Time // when old rivalries were forgotten last
}

// rivalry is what a process knows of others that wait for the same key. They are all woken by a
// release, and none knows the others; but each knows how many of them heard its last release, and how
// many have released since. If they take turns, the next is who has seen every other.
type rivalry struct {
	others   int       // that heard the last release by this process
	seen     int       // releases by others since then
	released time.Time // by this process
}

// patience is how long to wait after a release, so that those go first who have waited for longer.
func (r *rivalry) patience() time.Duration {
	switch {
	case r.seen >= r.others:
		return 0
	case 2*r.seen >= r.others:
		return turn
	case r.seen > 0:
		return 2 * turn
	default:
		return 3 * turn
	}
}

// arrive takes the last place in the line for a key, if there is one or somebody of this process is asking
// for the key without having waited; else the caller is the one who asks, and calls asked when it has.
func (ls *lines) arrive(key string) (*line, *fifo.Place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.lines[key] == nil && !ls.asking[key] {
		ls.asking[key] = true
		return nil, nil
	}
	return ls.join(key)
}

// asked ends what arrive began. A caller who was refused takes the last place in the line.
func (ls *lines) asked(key string, refused bool) (*line, *fifo.Place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.asking, key)
	if !refused {
		return nil, nil
	}
	return ls.join(key)
}

// join takes the last place in the line for a key. The caller holds mu.
func (ls *lines) join(key string) (*line, *fifo.Place) {
	ln := ls.lines[key]
	if ln == nil {
		ln = &line{taken: true}
		ls.lines[key] = ln
	}
	ln.users++
	return ln, ln.queue.Join()
}

// leave gives a place up. The last to leave ends the line.
func (ls *lines) leave(key string, ln *line, place *fifo.Place) {
	place.Leave()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.users--
	if ln.users > 0 {
		return
	}
	delete(ls.lines, key)
	if ln.listener != nil {
		ln.listener.Close()
	}
}

// releasing notes that this process is about to release a key. Its own waiter will hear of that, perhaps
// before the release has returned.
func (ls *lines) releasing(key, value string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.lines[key]; ln != nil {
		ln.own = value
	}
}

// released notes that this process has released a key, and how many connections were told.
func (ls *lines) released(key string, heard int, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.lines[key] != nil {
		heard-- // its own
	}
	if heard <= 0 {
		delete(ls.rivalry, key)
		return
	}
	if len(ls.rivalry) >= 1000 && now.Sub(ls.swept) > time.Second {
		ls.swept = now
		for k, r := range ls.rivalry {
			if now.Sub(r.released) > time.Second {
				delete(ls.rivalry, k)
			}
		}
	}
	ls.rivalry[key] = &rivalry{others: heard, released: now}
}

// woken notes that a release of a value was announced, and returns how long this process should
// leave the key to others.
func (ls *lines) woken(key, value string) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := ls.rivalry[key]
	if r == nil {
		return 0
	}
	switch ln := ls.lines[key]; {
	case value == "": // nobody knows what was missed
	case ln != nil && ln.own == value:
		r.seen = 0
	default:
		r.seen++
	}
	return r.patience()
}

// unwoken returns how long this process should leave a key to others that have just been woken, if it
// wants the lock without having waited.
func (ls *lines) unwoken(key string, now time.Time) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := ls.rivalry[key]
	if r == nil || now.Sub(r.released) > fresh {
		return 0
	}
	return r.patience()
}

// waiter is one Lock that may have to wait.
type waiter struct {
	m     *Mutex
	ctx   context.Context
	tries int // that it may use, or Unlimited
	used  int
	last  error // what its own latest attempt came to
}

// lock makes attempts until one wins, tries of them have failed, or ctx is done.
//
// A free lock is asked for directly. Who finds it taken, or finds others of this process
// waiting, joins the line.
func (m *Mutex) lock(ctx context.Context, tries int) (*lease, error) {
	if m.err != nil {
		return nil, m.misuse("not acquired", ErrFailed)
	}
	w := &waiter{m: m, ctx: ctx, tries: tries}
	if tries == 1 {
		l, d := w.attempt(everywhere, true)
		if d != nil {
			return nil, d.err
		}
		return l, nil
	}
	ln, place := m.core.lines.arrive(m.key)
	if ln == nil {
		w.pause(m.core.lines.unwoken(m.key, time.Now()))
		l, d := w.attempt(everywhere, true)
		ln, place = m.core.lines.asked(m.key, d != nil && !d.final)
		switch {
		case d == nil:
			return l, nil
		case d.final:
			return nil, d.err
		}
	}
	defer m.core.lines.leave(m.key, ln, place)
	select {
	case <-place.Head():
		return w.lead(ln)
	default:
		return w.queue(ln, place)
	}
}

// attempt makes an attempt, and notes it as a try if it counts as one. The last try is final.
func (w *waiter) attempt(first int, counts bool) (*lease, *defeat) {
	m := w.m
	if counts {
		w.used++
	}
	final := w.used == w.tries
	// An attempt that was refused by its own key is made anew. A pool that always refuses is no reason
	// to do that for ever.
	for again := 3; ; again-- {
		if w.ctx.Err() != nil {
			return nil, w.ended()
		}
		if m.core.isClosed() {
			return nil, &defeat{final: true, err: closedError(m.name)}
		}
		l, d := m.attempt(w.ctx, first, final)
		switch {
		case d == nil:
			m.mu.Lock()
			m.cur = l
			m.mu.Unlock()
			return l, nil
		case w.ctx.Err() != nil:
			if d.err != nil {
				w.last = d.err
			}
			return nil, w.ended()
		case d.own && again > 0:
			continue
		}
		d.final = d.final || final
		w.last = d.err
		return nil, d
	}
}

// ended is the defeat of a Lock whose context is done.
func (w *waiter) ended() *defeat {
	return &defeat{final: true, err: ended(w.ctx, w.m.name, "not acquired", w.last, ErrFailed)}
}

// closedError is what locking comes to after Close.
func closedError(name string) *Error {
	return &Error{Name: name, failed: "not acquired", kinds: []error{ErrFailed, ErrClosed}, reason: "closed"}
}

// queue waits in the line and leads it in the end. The wait costs as many tries as it would have cost outside.
func (w *waiter) queue(ln *line, place *fifo.Place) (*lease, error) {
	start := time.Now()
	var patience time.Duration
	var out <-chan time.Time
	if w.tries != Unlimited {
		for try := max(w.used, 1); try < w.tries; try++ {
			patience += max(w.m.cfg.delay(try), 0)
		}
		t := time.NewTimer(clock.Ahead(patience))
		defer t.Stop()
		out = t.C
	}
	select {
	case <-place.Head():
		if w.tries != Unlimited {
			share := float64(time.Since(start)) / float64(max(patience, 1))
			w.used = min(w.used+int(share*float64(w.tries-w.used)), w.tries-1)
		}
		return w.lead(ln)
	case <-out:
		w.used = w.tries - 1
		l, d := w.attempt(everywhere, true)
		if d != nil {
			return nil, d.err
		}
		return l, nil
	case <-w.ctx.Done():
		if w.last == nil {
			w.last = ln.lastError()
		}
		return nil, w.ended().err
	case <-w.m.core.closed:
		return nil, closedError(w.m.name)
	}
}

// lead is the wait at the head of the line: an attempt whenever there is reason for one.
func (w *waiter) lead(ln *line) (*lease, error) {
	ask := !ln.taken
	if ln.listener == nil && w.m.cfg.announce {
		w.listen(ln)
		ask = true // it may have been released before anybody listened
	}
	first, counts, splits := everywhere, false, 0
	var d *defeat
	for {
		if ask {
			var l *lease
			ln.taken = false // if this is cut short, the next one tries
			l, d = w.attempt(first, counts)
			if d == nil || !d.final || d.back != nil {
				ln.taken = true
			}
			if d == nil {
				return l, nil
			}
			ln.setLast(w.last)
			if d.final {
				return nil, d.err
			}
		}
		delay := w.m.cfg.delay(max(w.used, 1))
		if d != nil && d.split && w.m.cfg.announce && splits < maxSplits {
			// Nobody has it, so nobody will announce its release.
			delay, counts = w.m.core.jitter(splitDelay<<splits), false
			splits++
		} else {
			counts = true
		}
		release, err := w.sleep(ln, d, delay)
		if err != nil {
			return nil, err
		}
		ask, first = true, everywhere
		if release != nil {
			first, counts, splits = release.First, false, 0
			ln.taken = false
			w.pause(w.m.core.lines.woken(w.m.key, release.Value))
		}
	}
}

// listen subscribes to the lock's releases, and waits until a quorum of nodes has
// confirmed it or a node timeout has passed.
func (w *waiter) listen(ln *line) {
	m := w.m
	ln.listener = announce.Listen(m.core.nodes, m.core.tracker, announceChannel(m.key), m.cfg.nodeTimeout, m.cfg.expiry/4)
	t := time.NewTimer(m.cfg.nodeTimeout)
	defer t.Stop()
	select {
	case <-ln.listener.Ready():
	case <-t.C:
	case <-w.ctx.Done():
	case <-m.core.closed:
	}
}

// sleep waits for a release, at most for the delay or until the keys that the attempt d met have expired.
// The release is nil if none was announced.
func (w *waiter) sleep(ln *line, d *defeat, delay time.Duration) (*announce.Release, error) {
	t := time.NewTimer(clock.Ahead(delay))
	defer t.Stop()
	start := time.Now()
	var wake <-chan announce.Release
	if ln.listener != nil {
		wake = ln.listener.Wake()
	}
	var told <-chan struct{}
	if d != nil {
		told = d.back.Done()
	}
	for {
		select {
		case r := <-wake:
			return &r, nil
		case <-t.C:
			return nil, nil
		case <-told:
			told = nil
			if free, ok := d.freeIn(w.m.core.quorum); ok && free < delay {
				t.Reset(clock.Ahead(free - time.Since(start)))
			}
		case <-w.ctx.Done():
			return nil, w.ended().err
		case <-w.m.core.closed:
			return nil, closedError(w.m.name)
		}
	}
}

// pause waits for d, or until ctx is done.
func (w *waiter) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}
