package queue

import (
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

const (
	// maxDelayQueued bounds how long a waiter in the nodes' queue waits before it asks again,
	// unless perWaiter for each before it is more. It is less than [wire.RollGrace].
	maxDelayQueued = 3 * time.Second
	perWaiter      = 10 * time.Millisecond
	// maxSilences is how many rounds without a quorum of answers are made in a row.
	maxSilences = 3
	// maxClaims is how many claims may fail. After the first it waits for claimDelay at most, and
	// twice as long after each further one. During a silence, messages may be reason for more.
	maxClaims  = 6
	claimDelay = 4 * time.Millisecond
	// renewal is how often waiters renew the time for which nodes keep the queue.
	renewal = 10 * time.Second
)

// queuedWait is one head's wait in the queue that the nodes keep.
//
// The waiter enrolls in the queue of every node, and each gives it a ticket. It agrees with a
// quorum of them on one, see agreed. So the nodes keep one order, and a quorum knows the waiter
// before anybody who comes later. A release hands the key on: each node reserves its key for the
// first in its queue that listens, and tells that one. A waiter that a quorum has told claims the
// key.
//
// A minority may have its turn on a node too early, because commands reach nodes in different
// orders. It enrolls there again, which hands the key on to the first.
//
// Nothing relies on messages. The waiter asks again after its retry delay, the later the more are
// before it, or later if a majority is silent. A command to enroll at a free key hands that on,
// too. Such a key is free because somebody has died; those in the queue who do not ask again within
// a grace leave it together.
type queuedWait struct {
	w       *Waiter
	note    *notification
	member  wire.Member
	written quorum.WriteSet // of the place; what is asked for in its turn has its own

	first *quorum.Round // until slow nodes have the ticket, or nil

	silences int       // rounds without a quorum of answers, in a row
	refused  bool      // in the latest of them, nodes denied their queue
	claims   int       // that failed
	partial  int       // rounds in a row after which it had its turn on less than a quorum
	doubted  time.Time // until then nothing that may have been missed is reason to ask

	bids    bool          // a bid is on the nodes, which may take it up
	bidEnds time.Time     // until then they may, and the waiter does not ask
	took    time.Duration // the latest round of all nodes, until a quorum had answered

	renewed time.Time // when nodes were last asked to keep the queue
}

// ending is why a queued wait is over.
type ending uint8

const (
	none     ending = iota // it is not over
	served                 // the key was granted
	lastTry                // one try is left, and its delay has passed: that is an attempt
	denied                 // so many nodes deny their queue that the others are no quorum
	unserved               // the nodes do not answer, claims fail, or no time is left for a turn
)

// enqueue waits in the nodes' queue. Each retry delay costs a try, as it would outside.
func (w *Waiter) enqueue() (end ending, err error) {
	ending := wire.Ending(w.request.Owner, w.request.Lock.Shared)
	s := &queuedWait{w: w, note: w.queues.listener.expect(ending)}
	s.written.Open(w.request.Pipelines, w.request.Lock.NodeTimeout, wire.QueueTTL)
	defer s.note.end()
	s.member = wire.Member{
		ID: w.queues.Channel + s.note.number, Value: w.acquirer.Settle(true),
	}
	w.local.placed(1)
	defer w.local.placed(0)
	defer func() { s.leave(end == served) }() // also if a function of the caller's panics
	return s.wait()
}

// leave ends the place. One who is served has none any more but where an answer is missing.
func (s *queuedWait) leave(served bool) {
	s.withdraw(false)
	leave := quorum.Spec{Command: s.w.request.Lock.Leave(s.member), Trusts: served}
	s.written.Release(s.w.ctx, leave)
}

// wait enrolls, and claims the key when its turn has come.
func (s *queuedWait) wait() (ending, error) {
	for {
		// To enroll on a node that has taken the bid up would not hand the key on.
		s.withdraw(true)
		next, answered := s.enroll()
		if end, err := s.pause(next, answered); end != none || err != nil {
			return end, err
		}
		switch turns := s.note.count(kept); {
		case turns >= s.w.queues.quorum:
			if end, err := s.claim(); end != none {
				return end, err
			}
		case turns > 0:
			// A minority has reserved the key for it. To enroll there again hands the key on, and
			// keeps the place.
			s.partial++
		default:
			s.partial = 0
		}
	}
}

// claim claims the key.
func (s *queuedWait) claim() (ending, error) {
	s.bids = false
	began := time.Now()
	answer := s.w.acquirer.Claim(s.member, s.note.count(taken))
	if answer.Won {
		return served, nil
	}
	s.note.endBid()
	if r := answer.Refusal; r != nil && r.Failing() {
		s.w.local.refused(r, time.Since(began))
		return unserved, s.w.stopped()
	}
	s.partial = 0
	s.claims++
	return none, nil
}

// pause waits until there is reason to claim the key or to enroll again: after next, or earlier.
func (s *queuedWait) pause(next time.Duration, answered bool) (ending, error) {
	known := 0
	switch {
	case !answered && s.refused:
		return denied, nil
	case !answered:
		// The nodes, or the way to them, may be overloaded. To leave and come again adds to that.
		if s.silences++; s.silences == maxSilences {
			return unserved, nil
		}
		known = s.note.count(kept) // a minority is no reason to ask silent nodes
	case s.claims >= maxClaims:
		return unserved, nil
	case s.claims > 0:
		// What the nodes say meanwhile is not heard: they may say it again and again.
		q := s.w.queues
		q.sleep(s.w.ctx, q.Jitter(claimDelay<<(s.claims-1))+time.Millisecond)
	}
	if answered {
		s.silences = 0
	}
	return s.await(next, known)
}

// moment is how soon to enroll again if it is the waiter's turn on a minority. Others have their
// turn on the rest, or will have it in a moment; or a holder has it. If the waiter has bid, the
// rest will say that they have taken the bid up, too, in as much time as they need for an answer.
// To ask would take the bid back: on nodes that are 1 to 20 ms away, four processes that hold the
// key for 2 ms would have a turn in 65 ms instead of 20 ms.
func (s *queuedWait) moment() time.Duration {
	if s.bids {
		return s.took + time.Millisecond
	}
	moment := (time.Millisecond + s.w.queues.Jitter(time.Millisecond)) << min(s.partial, 10)
	return min(moment, s.w.request.Lock.NodeTimeout/2)
}

// await sleeps for d, or until there is a reason to claim the key or to enroll again. That it is
// the waiter's turn on so many nodes is known, and no reason.
func (s *queuedWait) await(d time.Duration, known int) (ending, error) {
	w := s.w
	until := time.Now().Add(max(d, 0))
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		if err := w.stopped(); err != nil {
			return none, err
		}
		if received(s.caughtUp()) {
			s.catchUp()
		}
		turns := s.note.count(kept)
		if turns > known {
			until = sooner(until, s.moment())
		}
		known = turns
		now, patience := time.Now(), w.queues.patience(w.ctx)
		next, missed := s.note.news()
		switch {
		case turns >= w.queues.quorum, missed && s.doubts(now):
			return none, nil
		case w.local.hear() == freed:
			// A release by this process handed the key to none of those who are in the queue.
			return none, nil
		case patience <= 0:
			return unserved, nil
		case s.tryIsOver(now):
			return lastTry, nil
		case now.Before(until):
		case s.bids && turns == 0 && now.Before(s.bidEnds):
			// No node has taken up the bid yet, but they may: somebody else has the key, or has it
			// reserved.
			until = s.bidEnds
		default:
			return none, nil
		}
		if next {
			s.bid()
		}
		t.Reset(clock.TimerDelay(min(time.Until(until), time.Until(w.due), patience)))
		select {
		case <-s.note.wake:
		case <-w.local.bell:
		case <-s.caughtUp():
		case <-t.C:
		case <-w.ctx.Done():
		case <-w.queues.Open.Done():
		}
	}
}

// tryIsOver uses up a try whose delay has passed. It reports whether only the last one is left.
func (s *queuedWait) tryIsOver(now time.Time) (last bool) {
	w := s.w
	switch {
	case now.Before(w.due):
		return false
	case w.hasOneTry():
		return true
	}
	w.used++
	w.draw()
	w.due = now.Add(w.local.try(w.drawn))
	return false
}

// doubts reports whether to ask because messages may have been missed: once in a retry delay.
func (s *queuedWait) doubts(now time.Time) bool {
	if now.Before(s.doubted) {
		return false
	}
	s.doubted = now.Add(max(s.w.drawn, minTry))
	return true
}
