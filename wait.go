package redlock

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/fifo"
	"github.com/redlock-go/redlock/internal/turn"
)

const (
	// splitDelay is the longest delay after a first split vote; it doubles with each further one.
	splitDelay = 2 * time.Millisecond
	// maxSplits is how many attempts may follow a split vote, from one release to the next,
	// without waiting for the retry delay. What looks like a split vote may be a holder that
	// lacks a node.
	maxSplits = 5
	// maxExpiries is how many attempts within one retry delay may be made because keys are about
	// to expire.
	maxExpiries = 3
	// minQueued is the least time that a try in the queue takes, where the retry delay is shorter.
	minQueued = 5 * time.Millisecond
	// wakes is how far apart the moments are at which waiters in the queue wake. To wake each by
	// itself costs more than half of the processor time of a wait: see together.
	wakes = 10 * time.Millisecond
)

// How a Lock waits:
//
//	lock    asks for a free lock at once (ask), or joins the line of its process (line.go)
//	queue   waits for the head of the line
//	lead    is the wait of the head: stand in the queue on the nodes (queue.go), or, where turns
//	        cannot be heard, sleep and make an attempt when there is reason for one
//
// The last try of a waiter is an attempt, wherever it waits.

// reason is why an attempt is made.
type reason uint8

const (
	arrived  reason = iota // the waiter is new, or new at the head
	overdue                // the retry delay is over: the only reason that uses up a try
	expired                // the keys of a holder have expired, as far as is known
	split                  // the last attempt was a split vote
	missed                 // something may have been missed: once in a retry delay at most
	passedOn               // this process released the lock, and others poll
	freed                  // this process released the lock, and nobody queues for it
	queued                 // this process released the lock, and others queue: none for an attempt
	heard                  // turns can be heard: none for an attempt
)

// waiter is one Lock that may have to wait.
type waiter struct {
	m     *Mutex
	told  *acquisition // for Events, or nil
	ctx   context.Context
	tries int // that it may use, or Unlimited
	used  int
	last  *defeat // what its own latest attempt, or place in the queue, came to
	// The one before; while the nodes have not had the time to say anything, the first of those.
	prior *defeat
	open  *defeat // that has still something to give back, or nil
	line  *line   // nil before it waits
	place *fifo.Place

	// At the head of the line. Attempts for other reasons than due leave due as it is, unless the
	// lock was released.
	drawn time.Duration // the retry delay
	due   time.Time     // when it is over
	// An attempt has been made within it because an announcement may have been missed.
	missed   bool
	expiries int       // attempts within it because keys had expired
	again    time.Time // when to ask again after a split vote, or zero
	splits   int       // split votes since the last release
	resting  bool      // until due the lock is left to other processes
	unheard  bool      // the nodes do not answer to one who stands in the queue
	over     bool      // the delay before the last try has passed in the queue on the nodes
}

// delay returns the retry delay after the tries used so far.
func (w *waiter) delay() time.Duration { return max(w.m.cfg.delay(max(w.used, 1)), 0) }

// lock makes attempts until one wins, tries of them have failed, or ctx is done.
//
// A free lock is asked for directly. A waiter that finds it taken, or finds others of this
// process waiting, joins the line.
func (m *Mutex) lock(ctx context.Context, tries int, told *acquisition) (*lease, error) {
	if m.err != nil {
		return nil, m.misuse("not acquired", ErrFailed)
	}
	if err := m.self(ctx); err != nil {
		return nil, err
	}
	w := waiter{m: m, ctx: ctx, tries: tries, told: told}
	defer w.settle(false)
	if tries == 1 {
		l, d := w.attempt(true)
		if d != nil {
			return nil, d.explain()
		}
		return l, nil
	}
	ln, place := m.core.lines.arrive(m)
	if ln == nil {
		var l *lease
		var d *defeat
		if l, d, ln, place = w.ask(); ln == nil {
			if d != nil {
				return nil, d.explain()
			}
			return l, nil
		}
	}
	waiting := w // which is an allocation: one that does not wait needs none
	w.open = nil
	waiting.line, waiting.place = ln, place
	return waiting.inLine()
}

// inLine waits in the line, where the waiter has a place.
func (w *waiter) inLine() (*lease, error) {
	defer w.settle(false)
	defer func() { w.m.core.lines.leave(w.m.key, w.line, w.place) }()
	w.told.queue()
	w.used = max(w.used, 1) // who joined the line at once has left the first try to somebody else
	for {
		l, err := w.queue()
		if l == nil && err == nil {
			l, err = w.lead()
		}
		if l != nil || err != nil {
			return l, err
		}
	}
}

// ask makes an attempt without having waited. If it is refused, it takes a place in the line,
// unless it was the last try.
func (w *waiter) ask() (l *lease, d *defeat, ln *line, place *fifo.Place) {
	m := w.m
	defer func() { // also if a function of the caller's panics, or ends the goroutine
		var keys *expiries
		if d != nil && !d.final {
			keys = d.keys
		}
		ln, place = m.core.lines.asked(m, l != nil, d != nil && d.asked != nil, keys)
	}()
	now := time.Now()
	if m.cfg.announce && m.core.lines.crowd(m.key, now) {
		return nil, &defeat{keys: newExpiries(len(m.lanes))}, nil, nil // which takes a place
	}
	if m.core.lines.polled(m.key, now) {
		rest, _ := m.core.lines.pass(m.key, w.delay(), now)
		w.pause(rest)
	}
	l, d = w.attempt(true)
	return
}

// attempt makes an attempt, and notes it as a try if it counts as one. The last try is final.
func (w *waiter) attempt(counts bool) (*lease, *defeat) {
	m := w.m
	if counts {
		w.used++
	}
	final := w.used == w.tries
	w.settle(false)
	var keys *expiries
	keep := m.cfg.announce
	if w.line != nil {
		keys = w.line.keys
		listener, _ := m.core.lines.listening(w.line)
		keep = listener != nil && w.atHead()
	}
	keep = keep && !final && m.core.source.Able()
	// An attempt that was refused by its own key is made anew. A pool that always refuses is no
	// reason to do that for ever.
	for again := 3; ; again-- {
		if w.ctx.Err() != nil {
			return nil, w.ended()
		}
		if m.core.isClosed() {
			return nil, &defeat{final: true, err: closedError(m.name)}
		}
		w.told.attempt()
		l, d := m.attempt(w.ctx, final, keep, keys, nil)
		switch {
		case d == nil:
			if w.line != nil {
				w.line.keys.forget(time.Now()) // what was free is taken
			}
			l.adopt(w.ctx, w.told)
			return l, nil
		case d.lease != nil:
			w.open = d
		}
		switch {
		case w.ctx.Err() != nil:
			if !d.cut || d.troubled() {
				w.failed(d)
			}
			return nil, w.ended()
		case d.own && again > 0:
			continue
		}
		d.final = d.final || final
		w.failed(d)
		return nil, d
	}
}

// settle gives back what the latest attempt may have been granted. One who is about to stand in the
// queue takes the value returned there, if there is one, instead.
func (w *waiter) settle(stands bool) (value string) {
	value = w.open.settle(w.ctx, stands)
	w.open = nil
	return value
}

// atHead reports whether the waiter is at the head of the line.
func (w *waiter) atHead() bool { return received(w.place.Head()) }

// failed notes what an attempt came to.
func (w *waiter) failed(d *defeat) {
	if w.prior == nil || w.last.settled() {
		w.prior = w.last
	}
	w.last = d
}

// ended is the defeat of a Lock whose context is done.
func (w *waiter) ended() *defeat {
	d := w.last
	switch {
	case d == nil && w.line != nil:
		d = w.line.latest()
	case w.prior != nil && !d.settled():
		d = w.prior
	}
	var last error
	if d != nil {
		last = d.explain()
	}
	return &defeat{final: true, err: ended(w.ctx, w.m.name, "not acquired", last, ErrFailed)}
}

// queue waits until the waiter is at the head of the line, and then returns neither a lease nor
// an error. Each retry delay in the queue, and as long as an attempt takes, costs a try, as it
// would outside. The head asks for all; but a waiter that sees nobody ask during a retry delay of
// its own, or that has one try left, asks by itself.
func (w *waiter) queue() (*lease, error) {
	ln, head := w.line, w.place.Head()
	w.due = time.Time{}
	if w.atHead() {
		return nil, nil
	}
	w.settle(false) // a node may have granted it when the others had refused
	w.rest()
	since, delay := time.Now(), ln.try(w.drawn)
	begun := since // the try
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		w.due = begun.Add(delay)
		t.Reset(clock.Ahead(time.Until(w.together(w.due, delay))))
		select {
		case <-head:
			return nil, nil
		case <-t.C:
		case <-w.ctx.Done():
			return nil, w.ended().err
		case <-w.m.core.closed:
			return nil, closedError(w.m.name)
		}
		over, now := w.due, time.Now()
		w.used++
		last := w.used == w.tries
		if !last {
			w.rest()
			delay = ln.try(w.drawn)
		}
		if last || ln.idle(since, now, now.Add(delay)) {
			l, d, _ := w.askForLine(false)
			if d == nil {
				w.m.core.lines.taken(w.m.key, time.Now())
				return l, nil
			}
			if d.final {
				return nil, d.explain()
			}
			over = over.Add(time.Since(now))
		}
		since = time.Now()
		if begun = over; since.Sub(over) > 2*wakes { // the process stood still
			begun = since
		}
	}
}

// askForLine makes an attempt that the line hears of. It reports whether nobody else in the line
// has asked at the same time.
func (w *waiter) askForLine(counts bool) (l *lease, d *defeat, alone bool) {
	w.line.begin(time.Now())
	// Also if a function of the caller's panics.
	defer func() { alone = w.line.end(d, time.Now()) }()
	l, d = w.attempt(counts)
	return
}

// together is the moment at which a waiter whose try in the queue is over at a time wakes. That
// is with others. The delays do not add up, because the next try begins when this one was over. A
// last try, and short ones, are on time.
func (w *waiter) together(over time.Time, delay time.Duration) time.Time {
	if delay < 2*wakes || w.used+1 == w.tries {
		return over
	}
	return over.Add(wakes - time.Duration(over.Nanosecond())%wakes)
}

// lead is the wait at the head of the line: an attempt whenever there is reason for one, and a
// place in the queue on the nodes where their word can be heard. It begins with a retry delay of
// its own; but a last try that was due in the queue is made then. It returns neither a lease nor
// an error if the waiter has gone back to the end.
func (w *waiter) lead() (*lease, error) {
	m, ln := w.m, w.line
	if w.used+1 != w.tries || w.due.IsZero() {
		w.rest()
	}
	why, ask := arrived, false
	for {
		if ask {
			if l, over, err := w.askFor(why); over {
				return l, err
			}
		}
		listener, held := m.core.lines.listening(ln)
		var ready <-chan struct{} // after which turns can be heard, for somebody who wants that
		if listener != nil && (why == queued || !held) {
			ready = listener.Ready()
		}
		if ready != nil && w.hears(listener) {
			ready = nil
			l, err := w.standIn(listener)
			switch {
			case l != nil:
				ln.taken = true
				m.core.lines.hold(ln, m.cfg.expiry)
				return l, nil
			case err != nil:
				return nil, err
			case w.over:
				why, ask = overdue, true
				continue
			case w.unheard && m.core.lines.impatient(ln, m):
				w.fallBack()
				return nil, nil
			}
		}
		w.settle(false)
		if !ln.taken { // nobody has found out yet
			why, ask = arrived, true
			continue
		}
		var err error
		if why, err = w.sleep(ready); err != nil {
			return nil, err
		}
		ask = why != queued && why != heard
	}
}

// askFor makes an attempt for a reason. It reports whether the wait at the head is over: the lock
// is granted, there is an error, or the waiter has gone back to the end.
func (w *waiter) askFor(why reason) (l *lease, over bool, err error) {
	m, ln := w.m, w.line
	ln.taken = false // if this is cut short, the next head tries
	l, d, alone := w.askForLine(why == overdue)
	if d == nil || d.asked != nil {
		ln.taken = true
	}
	if d == nil || d.asked != nil && alone {
		m.core.lines.tried(m.key, ln, why, d == nil, w.drawn, time.Now())
	}
	switch {
	case d == nil:
		m.core.lines.hold(ln, m.cfg.expiry)
		return l, true, nil
	case d.final:
		return nil, true, d.explain()
	case w.unable(d, why):
		w.fallBack()
		return nil, true, nil
	}
	w.refused(d, why)
	return nil, false, nil
}

// hears reports whether turns can be heard. An attempt whose lease is not settled yet is worth a
// moment's wait for that.
func (w *waiter) hears(listener *turn.Listener) bool {
	if w.open != nil {
		t := time.NewTimer(w.m.cfg.nodeTimeout / 4)
		defer t.Stop()
		select {
		case <-listener.Ready():
		case <-t.C:
		case <-w.ctx.Done():
		case <-w.m.core.closed:
		}
	}
	return listener.Hears()
}

// fallBack gives the head's place to the next in the line, and takes the last one. The waiter's
// node timeout may be too short for the way to the nodes, and another's is not.
func (w *waiter) fallBack() {
	w.line.taken = false
	back := w.line.queue.Join()
	w.place.Leave()
	w.place = back
}

// unable reports whether an attempt at a lock that was just released has failed, though nobody
// has it and others wait: a node timeout may be too short for the way to the nodes.
func (w *waiter) unable(d *defeat, why reason) bool {
	if why != freed && why != passedOn || w.line.queue.Len() < 2 {
		return false
	}
	_, _, refused, _ := d.count()
	return refused == 0
}

// rest begins a retry delay.
func (w *waiter) rest() {
	w.drawn = w.delay()
	w.due = time.Now().Add(w.drawn)
	w.missed, w.expiries, w.resting = false, 0, false
}

// refused notes when to ask again after an attempt that did not win.
func (w *waiter) refused(d *defeat, why reason) {
	w.again = time.Time{}
	switch why {
	case overdue, passedOn, freed:
		w.rest()
	}
	if d.split && w.m.cfg.announce && w.splits < maxSplits {
		// Nobody has it, so nobody will hand it on.
		w.again = time.Now().Add(w.m.core.jitter(splitDelay << w.splits))
		w.splits++
	}
}

// sleep waits until there is reason for an attempt, or to stand in the queue on the nodes: when
// ready is closed, for instance.
func (w *waiter) sleep(ready <-chan struct{}) (why reason, err error) {
	ln := w.line
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		at, why := w.due, overdue
		if !w.again.IsZero() && w.again.Before(at) {
			at, why = w.again, split
		}
		if free, ok := ln.keys.on(w.m.core.quorum); ok && w.expiries < maxExpiries &&
			free.Before(at) {
			at, why = free, expired
		}
		ln.plan(at)
		t.Reset(clock.Ahead(time.Until(at)))
		isReady, isRung := false, false
		select {
		case <-t.C:
		case <-ready:
			isReady = true
		case <-ln.keys.told:
		case <-ln.bell:
			isRung = true
		case <-w.ctx.Done():
			return 0, w.ended().err
		case <-w.m.core.closed:
			return 0, closedError(w.m.name)
		}
		// What comes at the same time is looked at in the same order.
		if isRung || received(ln.bell) {
			if why, ok := w.rung(ln.heard()); ok {
				return why, nil
			}
		}
		switch {
		case isReady || received(ready):
			return heard, nil
		case !time.Now().Before(at):
			if why == expired {
				w.expiries++
			}
			return why, nil
		}
	}
}

// rung reports whether what the bell was rung for is reason to do something.
func (w *waiter) rung(why reason) (reason, bool) {
	switch why {
	case missed:
		if w.missed {
			return 0, false
		}
		w.missed = true
	case passedOn:
		now := time.Now()
		d, taken := w.m.core.lines.pass(w.m.key, w.drawn, now)
		if taken {
			return 0, false
		}
		if d > 0 {
			if !w.resting {
				w.resting, w.due = true, now.Add(d)
			}
			return 0, false
		}
		w.splits = 0
	case freed, queued:
		w.splits = 0
	default:
		return 0, false
	}
	return why, true
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
