package queue

import (
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// ranksPerDelay is how many before a waiter make it ask again one more retry delay later.
const ranksPerDelay = 10

// enroll takes a place in the queue, or keeps it, and notes where it is the waiter's turn. It
// returns after what time to ask again, and whether a quorum of nodes answered. The ticket is of
// this moment until a round is answered: an older one would be less than what some nodes have given
// meanwhile, and they would differ.
func (s *queuedWait) enroll() (next time.Duration, answered bool) {
	q := s.w.queues
	if !s.member.Agreed {
		s.member.Ticket = max(q.Now().UnixMicro(), 1)
	}
	r, answered := s.round(nil)
	said := r.Outcomes()
	if answered && !s.member.Agreed {
		agree := 0
		s.member.Ticket, agree = agreed(said, q.quorum)
		s.member.Agreed = true
		if s.first = r; agree < q.quorum {
			s.first = nil
			_, answered = s.round(s.differing(said))
		}
	}
	if answered {
		next = s.pace(said)
	} else {
		s.refused = denialsIn(said) > len(said)-q.quorum
		next = min(max(s.w.drawn, minTry), maxDelayQueued)
	}
	return max(next, s.w.local.spare(time.Now())), answered
}

// differing returns which nodes have not said that they have the ticket.
func (s *queuedWait) differing(said quorum.Outcomes) (nodes []bool) {
	for _, o := range said {
		nodes = append(nodes, o.Err != nil || o.Number != s.member.Ticket)
	}
	return nodes
}

// caughtUp returns a channel that is closed when the nodes that were not waited for have answered,
// or nil.
func (s *queuedWait) caughtUp() <-chan struct{} {
	if s.first == nil {
		return nil
	}
	return s.first.Done()
}

// catchUp tells the agreed ticket to nodes that answered late and have given another one. With a
// greater one they would let others go first. It does not wait.
func (s *queuedWait) catchUp() {
	if differ := s.differing(s.first.Outcomes()); slices.Contains(differ, true) {
		s.start(differ)
	}
	s.first = nil
}

// agreed returns the ticket that the waiter takes, and how many nodes have given exactly that. It
// is the least that fewer than a quorum of nodes exceed; nodes that have not answered count as if
// they did.
//
// A waiter that a quorum knows before this one's first command has a smaller one: each node of that
// quorum gives a greater one. A minority where others came first by chance makes no difference.
func agreed(said quorum.Outcomes, q int) (ticket int64, nodes int) {
	var tickets []int64
	for _, o := range said {
		if o.Err == nil {
			tickets = append(tickets, o.Number)
		}
	}
	slices.Sort(tickets)
	ticket = tickets[len(said)-q]
	for _, t := range tickets {
		if t == ticket {
			nodes++
		}
	}
	return ticket, nodes
}

// round asks the nodes for a place with the ticket: those that differ, all if nil. It reports
// whether a quorum has answered, or has the ticket.
func (s *queuedWait) round(differ []bool) (r *quorum.Round, answered bool) {
	w, began, start := s.w, s.w.queues.Now(), time.Now()
	if s.member.Renews = start.Sub(s.renewed) >= renewal; s.member.Renews {
		s.renewed = start
	}
	r = s.start(differ)
	won, err := r.Wait(w.ctx)
	took := time.Since(start)
	if answered = won && err == nil; answered && differ == nil {
		s.took = took
		w.queues.answered(took)
	}
	if differ == nil {
		if refusal := w.acquirer.Waits(r, began, err != nil); refusal != nil {
			w.local.refused(refusal, took)
		}
	}
	return r, answered
}

// start starts a round, and does not wait for it.
func (s *queuedWait) start(differ []bool) *quorum.Round {
	question := s.note.ask(differ)
	return s.written.Write(s.w.ctx, quorum.Spec{
		Command: s.w.request.Lock.Stand(s.member, wire.QueueTTL),
		Have:    func(node int) bool { return differ != nil && !differ[node] },
		Vote: func(node int, reply quorum.Reply) bool { // also of those that reply later
			if reply.Means == quorum.Turn {
				s.note.replied(node, question)
			}
			return reply.Yes()
		},
	})
}

// pace returns when to ask again, from what nodes said of the waiter's place.
func (s *queuedWait) pace(said quorum.Outcomes) time.Duration {
	before := int64(-1)
	var free []time.Duration
	for _, o := range said {
		switch {
		case o.Err != nil:
		case o.Means == quorum.Turn:
			free = append(free, 0)
		default:
			if b := int64(o.Before); before < 0 || b < before {
				before = b
			}
			if o.Left >= 0 {
				free = append(free, clock.Add(o.Left, time.Millisecond))
			}
		}
	}
	before = max(before, 0)
	w := s.w
	w.local.placed(before + 1)
	delay := max(w.drawn, minTry)
	next := min(clock.Add(delay, clock.Times(delay/ranksPerDelay, before)), latest(before))
	// It asks before a reservation for it has expired, if each before it has a turn until then.
	next = min(next, clock.Times(w.request.Lock.NodeTimeout/2, before+1))
	if q := w.queues.quorum; len(free) >= q {
		slices.Sort(free)
		next = min(next, max(free[q-1], time.Millisecond))
	}
	return next
}

// latest is how long a waiter with so many before it waits at most before it asks again. The nodes
// keep its place for longer. With fewer than 300 before it, they keep the place for
// [wire.RollGrace] after they find that somebody has died. With 300 or more, they keep it for
// [wire.RollGrace] and 10 ms for each of these, counted from when the waiter last asked. See
// stand.lua.
func latest(before int64) time.Duration {
	return max(maxDelayQueued, min(clock.Times(perWaiter, before), wire.QueueTTL/2))
}

// denials are in the errors of servers and proxies that do not let a user have the commands of the
// queue. A server with any other error is in trouble, as one that does not answer.
var denials = append([]string{"unknown command"}, quorum.Denials...)

// denialsIn returns how many nodes have denied their queue.
func denialsIn(said quorum.Outcomes) int {
	return said.Count(func(o quorum.Outcome) bool { return quorum.Says(o.Err, denials) })
}
