package line

import (
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/turn"
	"github.com/redlock-go/redlock/internal/wire"
)

const (
	// maxDelayQueued bounds how long one in the queue waits before asking again, unless perWaiter
	// for each before it is more. It is less than [wire.RollGrace].
	maxDelayQueued = 3 * time.Second
	perWaiter      = 10 * time.Millisecond
	// maxSilences is how many rounds without a quorum of answers are made in a row.
	maxSilences = 3
	// maxClaims is how many claims may fail. After the first it waits for claimDelay at most, and
	// twice as long after each further one. During a silence, messages may be reason for more.
	maxClaims  = 6
	claimDelay = 4 * time.Millisecond
	// renewal is how often those who stay renew it.
	renewal = 10 * time.Second
)

// A stay is one waiter's wait in the queue that the nodes keep.
//
// The waiter stands in the queue of every node, and each gives it a ticket. It agrees with a
// quorum of them on one, see agreed. So the nodes keep one order, and a quorum knows the waiter
// before anybody who comes later. A release hands the key on: each node reserves its key for the
// first in its queue that listens, and tells that one. A waiter that a quorum has told claims the
// key.
//
// A release also tells the next one. That one bids: it tells the nodes what it will claim, and the
// next release gives it the key. Three processes and more hand a key on in one round trip like that
// instead of two. 64 that hold it for 5 ms have 177 turns a second instead of 172, and 84 instead
// of 57 where the nodes are 5 ms away (2026-11-26, two cores, five nodes).
//
// A minority may have its turn on a node too early, because commands reach nodes in different
// orders. It stands there again, which hands the key on to the first.
//
// Nothing relies on messages. The waiter asks again after its retry delay, the later the more are
// before it, or later if a majority is silent. A command to stand at a free key hands that on, too.
// Such a key is free because somebody has died; those in the queue who do not ask again within a
// grace leave it together.
type stay struct {
	*Waiter
	call      *turn.Call
	member    wire.Member
	footprint quorum.Footprint // of the place; what is asked for in its turn has its own

	// Rounds of standing: the first, until slow nodes have the ticket, or nil; and the latest, with
	// those that nodes had not answered when the next began.
	first  *quorum.Round
	rounds []*quorum.Round

	silences int       // rounds without a quorum of answers, in a row
	refused  bool      // in the latest of them, nodes denied their queue
	claims   int       // that failed
	partial  int       // rounds in a row after which it had its turn on less than a quorum
	doubted  time.Time // until then nothing that may have been missed is reason to ask

	bids    bool          // a bid is on the nodes, which may take it up
	bidEnds time.Time     // until then they may, and the waiter does not ask
	took    time.Duration // the latest round of all nodes, until a quorum had answered

	renewed time.Time // when nodes were last asked to keep the queue

	noted chan struct{} // a node has said in a round that it is the waiter's turn; room for one
}

// ending is why a stay is over.
type ending uint8

const (
	none     ending = iota // it is not over
	served                 // the key was granted
	lastTry                // one try is left, and its delay has passed: that is an attempt
	unheard                // the nodes do not answer to one who stands in the queue
	unserved               // claims fail
	denied                 // so many nodes deny their queue that the others are no quorum
	late                   // there is no time left for a turn
)

// stay waits in the queue. Each retry delay costs a try, as it would outside.
func (w *Waiter) stay(listener *turn.Listener) (end ending, err error) {
	s := &stay{
		Waiter: w, call: listener.Expect(), noted: make(chan struct{}, 1),
	}
	s.footprint.Open(w.Lanes, w.NodeTimeout, wire.QueueTTL)
	defer s.call.End()
	s.member = wire.Member{ID: w.lines.source.Channel + s.call.Number, Value: w.asker.Settle(true)}
	if !time.Now().Before(w.due) && w.used+1 != w.Tries {
		w.draw(minTry)
	}
	w.line.inQueue(true)
	defer w.line.inQueue(false)
	defer func() { s.leave(end == served) }() // also if a function of the caller's panics
	sleep(s.ctx, s.lines.handsOver(s.Key))
	return s.wait()
}

// leave ends the place. One who is served has none any more but where an answer is missing.
func (s *stay) leave(served bool) {
	s.withdraw(false)
	spec := quorum.Spec{Command: s.asker.Leave(s.member)}
	if served {
		var unsure []bool
		for _, r := range s.rounds {
			unsure = unanswered(r, unsure)
		}
		if !slices.Contains(unsure, true) {
			return
		}
		spec.Skip = func(node int) bool { return !unsure[node] }
	}
	s.footprint.Undo(s.ctx, spec)
}

// wait stands in the queue, and claims the key when its turn has come.
func (s *stay) wait() (ending, error) {
	var only []bool // nodes to ask; nil: all
	for {
		// To stand on a node that has taken the bid up would not hand the key on.
		s.withdraw(true)
		next, answered := s.stand(only)
		only = nil
		if err := s.stopped(); err != nil {
			return none, err
		}
		if end, err := s.pause(next, answered); end != none || err != nil {
			return end, err
		}
		switch turns := s.call.Heard(); {
		case turns >= s.lines.quorum:
			s.bids = false
			began := time.Now()
			answer := s.asker.Claim(s.member, s.call.TakenUp())
			if answer.Won {
				return served, nil
			}
			s.call.EndBid()
			if r := answer.Refusal; r != nil && r.Failing() {
				s.line.refused(r, time.Since(began))
				return unserved, s.stopped()
			}
			s.partial = 0
			s.claims++
		case turns > 0:
			// A minority has reserved the key for it. To stand there again hands the key on, and
			// keeps the place. The first time in a row it asks only these nodes: that saves 6 % of
			// the commands of 64 processes that come back.
			if s.partial++; s.partial == 1 && s.member.Agreed {
				only = s.call.Where()
			}
		default:
			s.partial = 0
		}
	}
}

// bid tells the nodes in advance what it will claim, once, because it is the next.
func (s *stay) bid() {
	if s.bids || !s.member.Agreed {
		return
	}
	now := time.Now()
	life := s.asker.Bid(s.member, s.call.Bid(s.Key))
	if life == 0 {
		s.call.EndBid()
		return
	}
	// As long as a reservation for the one before it lasts, which may be dead.
	s.bids, s.bidEnds = true, now.Add(min(life, s.NodeTimeout))
}

// withdraw takes the bid back, if there is one.
func (s *stay) withdraw(stays bool) {
	if s.bids {
		s.bids = false
		s.call.EndBid()
		s.asker.Withdraw(stays)
	}
}

// isServed reports whether some nodes have said that it is the waiter's turn, and it has bid. The
// others will say so, too, in as much time as they need for an answer. To ask takes the bid back:
// on nodes that are 1 to 20 ms away, four processes that hold the key for 2 ms have a turn in 65 ms
// like that, and in 20 ms if they wait for the others.
func (s *stay) isServed() bool {
	turns := s.call.Heard()
	return s.bids && turns > 0 && turns < s.lines.quorum
}

// standsBack reports whether not to ask although it is time. No node has taken up the bid yet, but
// they may: somebody else has the key, or has it reserved.
func (s *stay) standsBack(now time.Time) bool {
	return s.bids && s.call.Heard() == 0 && now.Before(s.bidEnds)
}

// pause waits until there is reason to claim the key or to stand again: after next, or earlier.
func (s *stay) pause(next time.Duration, answered bool) (ending, error) {
	received(s.noted)
	turns := s.call.Heard()
	switch {
	case !answered && s.refused:
		return denied, nil
	case !answered:
		// The nodes, or the way to them, may be overloaded. To leave and come again adds to that.
		if s.silences++; s.silences == maxSilences {
			return unheard, nil
		}
	case s.claims >= maxClaims:
		return unserved, nil
	case s.claims > 0:
		// What the nodes say meanwhile is not heard: they may say it again and again.
		end, err := s.await(true, s.lines.jitter(claimDelay<<(s.claims-1))+time.Millisecond)
		if end != none || err != nil {
			return end, err
		}
	}
	if answered {
		s.silences = 0
	}
	if s.call.Heard() >= s.lines.quorum {
		return none, nil
	}
	if answered && turns > 0 { // else a minority is no reason to ask silent nodes
		next = min(next, s.moment())
	}
	return s.await(false, next)
}

// moment is how soon to stand again if it is the waiter's turn on a minority. Others have their
// turn on the rest, or will have it in a moment; or a holder has it.
func (s *stay) moment() time.Duration {
	moment := (time.Millisecond + s.lines.jitter(time.Millisecond)) << min(s.partial, 10)
	return min(moment, s.NodeTimeout/2)
}

// await sleeps for d, or until there is a reason to stand again. If deaf, what nodes say is none.
func (s *stay) await(deaf bool, d time.Duration) (ending, error) {
	until := time.Now().Add(max(d, 0))
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		t.Reset(clock.Ahead(min(time.Until(until), time.Until(s.due), s.lines.patience(s.ctx))))
		e := s.listen(deaf, t)
		if err := s.stopped(); err != nil {
			return none, err
		}
		if received(s.caughtUp()) {
			s.catchUp()
		}
		asks := false
		switch {
		case !e.woken:
		case s.isServed():
			until = sooner(until, s.took+time.Millisecond)
		default:
			asks = s.call.Heard() > 0 || s.doubts()
		}
		if e.noted && s.call.Heard() > 0 {
			// Nobody waited for that node. Messages of the others may be lost.
			until = sooner(until, s.moment())
		}
		if e.rung {
			// A release by this process handed the key to none of those who stand there.
			why := s.line.hear()
			asks = asks || why == freed
		}
		if asks {
			return none, nil
		}
		if s.lines.patience(s.ctx) <= 0 {
			return late, nil
		}
		if e.next {
			s.bid()
		}
		now := time.Now()
		if s.tryIsOver(now) {
			return lastTry, nil
		}
		switch {
		case now.Before(until):
		case s.standsBack(now):
			until = s.bidEnds
		default:
			return none, nil
		}
	}
}

// events are what has happened while a stay waited.
type events struct {
	woken bool // it may be the waiter's turn, or messages may have been missed
	noted bool // a node that was not waited for has replied that it is
	next  bool // a node has said that the waiter is the next
	rung  bool // this process has released the key
}

// listen waits for something to happen, or until the timer fires. If deaf, what nodes say is not
// heard. What happens at the same time is always heard together: a catchUp takes signals back.
func (s *stay) listen(deaf bool, t *time.Timer) (e events) {
	var wake, noted, next <-chan struct{}
	if !deaf {
		wake, noted, next = s.call.Wake(), s.noted, s.call.Next()
	}
	select {
	case <-wake:
		e.woken = true
	case <-noted:
		e.noted = true
	case <-next:
		e.next = true
	case <-s.line.bell:
		e.rung = true
	case <-s.caughtUp():
	case <-t.C:
	case <-s.ctx.Done():
	case <-s.lines.closed:
	}
	e.woken = e.woken || received(wake)
	e.noted = e.noted || received(noted)
	e.next = e.next || received(next)
	e.rung = e.rung || received(s.line.bell)
	return e
}

// tryIsOver uses up a try whose delay has passed. It reports whether only the last one is left.
func (s *stay) tryIsOver(now time.Time) (last bool) {
	switch {
	case now.Before(s.due):
		return false
	case s.used == s.Tries-1:
		return true
	}
	s.used++
	s.draw(minTry)
	if s.silences > 0 { // as long as a try with an attempt takes
		s.due = now.Add(s.line.try(s.drawn))
	}
	return false
}

// sooner returns a time, or so much later than now if that is sooner.
func sooner(than time.Time, d time.Duration) time.Time {
	if soon := time.Now().Add(d); soon.Before(than) {
		return soon
	}
	return than
}

// doubts reports whether to ask because messages may have been missed: once in a retry delay.
func (s *stay) doubts() bool {
	now := time.Now()
	if now.Before(s.doubted) {
		return false
	}
	s.doubted = now.Add(max(s.drawn, minTry))
	return true
}
