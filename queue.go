package redlock

import (
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/turn"
)

const (
	// One in the queue asks again after a retry delay, and one more for each ranksPerDelay before
	// it.
	ranksPerDelay = 10
	// maxDelayQueued bounds how long one in the queue waits before asking again.
	maxDelayQueued = 3 * time.Second
	// maxSilences is how many rounds without a quorum of answers are made in a row.
	maxSilences = 3
	// maxClaims is how many claims may fail.
	maxClaims = 6
	// queueTTL is how long a queue outlives the last who stood in it.
	queueTTL = time.Minute
	// rollGrace is how many seconds those in the queue have to ask again when somebody has died.
	// Nodes cut their clocks off: it may be a second less. It is more than maxDelayQueued.
	rollGrace = 5
)

// A stay is one waiter's wait in the queue that the nodes keep.
//
// The waiter stands in the queue of every node, and each gives it a ticket. It agrees with a
// quorum of them on one, see agreed. So the nodes keep one order, and a quorum knows the waiter
// before anybody who comes later. A release hands the key on: each node reserves its key for the
// first in its queue that listens, and tells that one. A waiter that a quorum has told claims the
// lock.
//
// A minority may have its turn on a node too early, because commands reach nodes in different
// orders. It stands there again, which hands the key on to the first.
//
// Nothing relies on messages. The waiter asks again after its retry delay, the later the more are
// before it. A command to stand at a free key hands that on, too. Such a key is free because
// somebody has died; those in the queue who do not ask again within a grace leave it together.
type stay struct {
	*waiter
	call     *turn.Call
	member   string
	standing quorum.Claim // on the nodes; what is claimed has its own
	value    string       // of the attempt that was refused before, or ""
	ticket   int64
	agreed   bool // a quorum of nodes has the ticket

	// Rounds of standing: the first, until late nodes have the ticket, or nil; and the latest, with
	// those that nodes had not answered when the next began.
	first  *quorum.Round
	rounds []*quorum.Round

	silences int       // rounds without a quorum of answers, in a row
	claims   int       // that failed
	partial  int       // rounds in a row after which it had its turn on less than a quorum
	doubted  time.Time // until then nothing that may have been missed is reason to ask

	noted chan struct{} // a node has said in a round that it is the waiter's turn; room for one
}

// standIn waits in the queue until the waiter has the lock. It returns neither a lease nor an
// error if asking for the lock, or letting somebody else of the line, is all that is left to do:
// the nodes do not answer, claims fail, or one try is left. Each retry delay costs a try, as it
// would outside.
func (w *waiter) standIn(listener *turn.Listener) (*lease, error) {
	m := w.m
	s := &stay{
		waiter: w, call: listener.Expect(), ticket: max(m.core.now().UnixMicro(), 1),
		noted: make(chan struct{}, 1),
	}
	s.standing.Open(m.lanes, m.cfg.nodeTimeout, queueTTL)
	defer s.call.End()
	s.member = m.core.source.Channel + s.call.Number
	s.value = w.settle(true)
	w.used, w.unheard = max(w.used, 1), false
	if !time.Now().Before(w.due) && w.used+1 != w.tries {
		s.draw()
	}
	w.line.stand(true)
	defer w.line.stand(false)
	var l *lease
	defer func() { s.leave(l != nil) }() // also if a function of the caller's panics
	l, err := s.wait()
	if l != nil {
		l.adopt(w.ctx, w.told)
	}
	return l, err
}

// leave gives the place up. One who is served has none any more but where an answer is missing.
func (s *stay) leave(served bool) {
	spec := quorum.Spec{Command: s.m.wire.leave(s.member, s.value)}
	if served {
		var unsure []bool
		for _, r := range s.rounds {
			unsure = open(r, unsure)
		}
		if !slices.Contains(unsure, true) {
			return
		}
		spec.Skip = func(node int) bool { return !unsure[node] }
	}
	s.standing.Undo(s.ctx, spec)
}

// wait stands in the queue, and claims the lock when its turn has come.
func (s *stay) wait() (*lease, error) {
	var only []bool // nodes to ask; nil: all
	for {
		next, answered := s.stand(only)
		only = nil
		if err := s.stopped(); err != nil {
			return nil, err
		}
		over, err := s.pause(next, answered)
		if over || err != nil {
			return nil, err
		}
		switch turns := s.call.Heard(); {
		case turns >= s.m.core.quorum:
			if l := s.claim(); l != nil {
				return l, nil
			}
		case turns > 0:
			// It hands on what it has, and keeps its place. The first time, the others have just
			// been asked.
			if s.partial++; s.partial == 1 && s.agreed {
				only = s.call.Where()
			}
		default:
			s.partial = 0
		}
	}
}

// pause waits until there is reason to claim the lock or to stand again: after next, or earlier. It
// reports whether the stay is over without an error.
func (s *stay) pause(next time.Duration, answered bool) (over bool, err error) {
	received(s.noted)
	m, turns := s.m, s.call.Heard()
	switch {
	case !answered:
		// The nodes, or the way to them, may be overloaded. To leave and come again adds to that.
		// But the node timeout may be too short, and another's of the line is not.
		if s.silences++; s.silences == maxSilences || m.core.lines.impatient(s.line, m) {
			s.unheard = true
			return true, nil
		}
		next = min(clock.Times(max(s.drawn, minQueued), 1<<min(s.silences, 2)), maxDelayQueued)
	case s.claims == maxClaims:
		return true, nil
	case s.claims > 0:
		// What the nodes say meanwhile is not heard: they may say it again and again.
		over, err := s.rest(nil, m.core.jitter(splitDelay<<s.claims)+time.Millisecond)
		if over || err != nil {
			return over, err
		}
	}
	if answered {
		s.silences = 0
	}
	if s.call.Heard() >= m.core.quorum {
		return false, nil
	}
	if turns > 0 {
		next = min(next, s.moment())
	}
	return s.rest(s.call.Wake(), next)
}

// moment is how soon to stand again if it is the waiter's turn on a minority. Others have their
// turn on the rest, or will have it in a moment; or a holder has it.
func (s *stay) moment() time.Duration {
	m := s.m
	moment := (time.Millisecond + m.core.jitter(time.Millisecond)) << min(s.partial, 10)
	return min(moment, m.cfg.nodeTimeout/2)
}

// claim asks for the lock, which nodes have reserved for the waiter. It returns nil if it fails.
func (s *stay) claim() *lease {
	s.told.attempt()
	l, d := s.m.attempt(s.ctx, false, false, nil, s)
	if d == nil {
		return l
	}
	if !d.cut || d.troubled() {
		s.failed(d)
	}
	s.partial = 0
	s.claims++
	return nil
}

// rest sleeps for d, or until woken for a reason to stand again. It reports whether only one try is
// left.
func (s *stay) rest(wake <-chan struct{}, d time.Duration) (over bool, err error) {
	until := time.Now().Add(max(d, 0))
	woken, rung, noted := false, false, false
	var late <-chan struct{}
	if wake != nil {
		late = s.noted
	}
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		t.Reset(clock.Ahead(min(time.Until(until), time.Until(s.due))))
		select {
		case <-wake:
			woken = true
		case <-s.line.bell:
			rung = true
		case <-t.C:
		case <-s.caughtUp():
		case <-late:
			noted = true
		case <-s.ctx.Done():
		case <-s.m.core.closed:
		}
		// What comes at the same time is looked at in the same order.
		if err := s.stopped(); err != nil {
			return false, err
		}
		if received(s.caughtUp()) {
			s.catchUp()
		}
		if noted || received(late) {
			noted = false
			until = s.sooner(until)
		}
		if woken || received(wake) {
			woken = false
			if s.call.Heard() > 0 || s.doubts() {
				return false, nil
			}
		}
		if rung || received(s.line.bell) {
			rung = false
			// A release by this process that handed the key to nobody, although somebody stands
			// there.
			if why := s.line.heard(); why == freed || why == passedOn {
				return false, nil
			}
		}
		now := time.Now()
		if !now.Before(s.due) {
			if s.used == s.tries-1 {
				s.over = true
				return true, nil
			}
			s.used++
			s.draw()
		}
		if !now.Before(until) {
			return false, nil
		}
	}
}

// sooner returns when to stand again, at a time or earlier, after a node has said that it is the
// waiter's turn while nobody waited for that node. Messages of the others may be lost.
func (s *stay) sooner(than time.Time) time.Time {
	if soon := time.Now().Add(s.moment()); s.call.Heard() > 0 && soon.Before(than) {
		return soon
	}
	return than
}

// received reports whether there was something to receive, or the channel is closed.
func received(from <-chan struct{}) bool {
	select {
	case <-from:
		return true
	default:
		return false
	}
}

// draw begins the next retry delay.
func (s *stay) draw() {
	s.waiter.rest()
	if s.drawn < minQueued {
		s.drawn, s.due = minQueued, time.Now().Add(minQueued)
	}
}

// doubts reports whether to ask because messages may have been missed: once in a retry delay.
func (s *stay) doubts() bool {
	now := time.Now()
	if now.Before(s.doubted) {
		return false
	}
	s.doubted = now.Add(max(s.drawn, minQueued))
	return true
}

// stopped is the error of a stay that is over, or nil.
func (s *stay) stopped() error {
	switch {
	case s.ctx.Err() != nil:
		return s.ended().err
	case s.m.core.isClosed():
		return closedError(s.m.name)
	}
	return nil
}
