package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// stand takes a place in the queue, or keeps it, and notes where it is the waiter's turn. It asks
// only those nodes, all if nil. It returns after what time to ask again, and whether a quorum of
// nodes answered.
func (s *stay) stand(only []bool) (next time.Duration, answered bool) {
	said, answered := s.ask(only)
	if answered && !s.agreed {
		agree := 0
		s.ticket, agree = agreed(said, s.m.core.quorum)
		s.agreed = true
		if agree >= s.m.core.quorum {
			s.first = s.rounds[len(s.rounds)-1]
		} else {
			differs := make([]bool, len(said))
			for i, o := range said {
				differs[i] = o.Err != nil || o.Number != s.ticket
			}
			var again quorum.Outcomes
			again, answered = s.ask(differs)
			for i, o := range again {
				if o.Err == nil {
					said[i] = o
				}
			}
		}
	}
	if !answered {
		return 0, false
	}
	return s.pace(said), true
}

// caughtUp returns a channel that is closed when the nodes that were not waited for have answered,
// or nil.
func (s *stay) caughtUp() <-chan struct{} {
	if s.first == nil {
		return nil
	}
	return s.first.Over()
}

// catchUp tells the agreed ticket to nodes that answered late and have given a greater one. They
// would let others go first: beside nodes that cannot be heard, no quorum might tell anybody. It
// does not wait.
func (s *stay) catchUp() {
	outcomes := s.first.Outcomes()
	s.first = nil
	late := make([]bool, len(outcomes))
	for i, o := range outcomes {
		late[i] = o.Err == nil && o.Number > s.ticket
	}
	if slices.Contains(late, true) {
		s.send(late)
	}
}

// agreed returns the ticket that the waiter takes, and how many nodes have given exactly that. It
// is the least that fewer than a quorum of nodes exceed; nodes that have not answered count as if
// they did.
//
// Whoever a quorum knows before this waiter's first command has a smaller one, because each node
// of that quorum gives a greater one. A minority where others came first by chance makes no
// difference.
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

// ask asks the nodes for a place with the ticket, only those or all if nil. It reports whether so
// many have answered that no more than a minority of all is left out.
func (s *stay) ask(only []bool) (quorum.Outcomes, bool) {
	began := s.m.core.now()
	r := s.send(only)
	won, err := r.Wait(s.ctx)
	if !won || err != nil {
		r.Abandon()
	}
	if d := s.defeat(r, began); only == nil && (err == nil || d.troubled()) {
		s.failed(d)
		s.line.stood(d)
	}
	return r.Outcomes(), won && err == nil
}

// send sends what ask asks.
func (s *stay) send(only []bool) *quorum.Round {
	m, question := s.m, s.call.Ask(only)
	spec := quorum.Spec{
		Command: m.wire.stand(s.member, s.ticket, s.agreed, s.value, queueTTL),
		Need:    m.core.quorum,
		Vote: func(node int, reply quorum.Reply) bool { // also of those that reply later
			if reply.Means == quorum.Turn {
				s.call.Note(node, question)
				select {
				case s.noted <- struct{}{}:
				default:
				}
			}
			return reply.Yes()
		},
	}
	if only != nil {
		spec.Skip = func(node int) bool { return !only[node] }
		for _, asked := range only {
			if !asked {
				spec.Need = max(spec.Need-1, 1)
			}
		}
	}
	s.rounds = slices.DeleteFunc(s.rounds, func(r *quorum.Round) bool {
		return !slices.Contains(open(r, nil), true)
	})
	r := s.standing.Write(s.ctx, spec)
	s.rounds = append(s.rounds, r)
	return r
}

// defeat says that the waiter only stands in the queue. A key that is reserved for it counts as
// granted.
func (s *stay) defeat(r *quorum.Round, began time.Time) *defeat {
	return &defeat{m: s.m, began: began, met: r.Outcomes(), asked: r, stood: true}
}

// pace returns when to ask again, from what nodes said of the waiter's place.
func (s *stay) pace(said quorum.Outcomes) time.Duration {
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
	delay := max(s.drawn, minQueued)
	next := min(clock.Add(delay, clock.Times(delay/ranksPerDelay, max(before, 0))), maxDelayQueued)
	// It asks before a reservation for it has expired, if each before it has a turn until then.
	next = min(next, clock.Times(s.m.cfg.nodeTimeout/2, max(before, 0)+1))
	ln, now := s.line, time.Now()
	if q := s.m.core.quorum; len(free) >= q {
		slices.Sort(free)
		ln.ends = now.Add(max(free[q-1], time.Millisecond))
	}
	if now.Before(ln.ends) {
		next = min(next, ln.ends.Sub(now))
	}
	return next
}

// open adds to nodes those that have not answered a round that was sent to them.
func open(r *quorum.Round, nodes []bool) []bool {
	outcomes := r.Outcomes()
	if nodes == nil {
		nodes = make([]bool, len(outcomes))
	}
	for i, o := range outcomes {
		nodes[i] = nodes[i] || o.Err != nil && !errors.Is(o.Err, quorum.ErrUnsent)
	}
	return nodes
}
