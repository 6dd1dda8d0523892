package quorum

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

const (
	// maxPending is how many releases may be pending for a node. Beyond that the oldest is
	// forgotten, and its key stays until it expires.
	maxPending = 8192
	// maxRetries is how many of them are under way at a time.
	maxRetries = 16
	// leastPending is how long a release is pending at least, unless it is answered. A frozen node
	// executes what it has buffered when it thaws, and only then do the keys begin to expire.
	leastPending = time.Minute
	// never is when nothing more is due.
	never = math.MaxInt64
)

// pending is a Release that its node has not answered, or has answered while a Write could still
// arrive: a key may be on the node, or may yet be set there.
type pending struct {
	release *call // the owner's last one, of which the retries are copies
	expires int64 // when the key does, or leastPending later; see clock.Ticks

	// final is when the Writes have landed: an answer to a Release that is sent from then on leaves
	// nothing to take back. It is 0 if the node has not answered the Release yet. See
	// WriteState.landed. The pipeline's mutex guards it.
	final int64

	// The mutex of the node's retries guards these.
	due   int64 // not sent again before
	retry *call // under way, or nil
}

// pending returns what is, or becomes, pending for the write of a Release. The caller holds the
// pipeline's mu.
func (c *call) pending() *pending {
	if c.write.pending == nil {
		now, keep := time.Duration(clock.NowTicks()), max(c.round.expiry, leastPending)
		c.write.pending = &pending{release: c, expires: int64(clock.Add(now, keep))}
	}
	return c.write.pending
}

// retries are the releases that are pending for a node. Each is sent again when it is due, at most
// maxRetries at a time. If one fails, the others wait until the node answers anything, but until a
// quarter of a budget after that one began at least: the node may answer others and fail these.
// Meanwhile one is sent in a budget, to see whether the node is back, and those whose keys have
// expired are forgotten.
//
// The zero value has none. It is safe for concurrent use.
type retries struct {
	failing atomic.Bool // one has failed, and nothing was answered since; written under mu

	mu       sync.Mutex // guards what follows; taken after a pipeline's mu
	pending  []*pending // the one that was put there first is sent first
	underWay int
	probe    int64       // while failing: when the next is sent, though the node answers nothing
	answers  int64       // while failing: from when on an answer ends that
	timer    *time.Timer // ends in send, or nil
	closing  bool        // a Finish has begun: a node that fails one more is asked no more
	over     bool        // no Finish is under way any more: nothing is pending, or will be
}

// answered lets the retries go on, as the node has answered a command.
func (s *retries) answered() {
	if !s.failing.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if clock.NowTicks() >= s.answers {
		s.failing.Store(false)
		s.send()
	}
}

// set notes what the outcome of c, which may be a retry of p, has made of p: it is due then, or
// never any more. The caller holds the pipeline's mu, so that what follows from the WriteState is
// noted in the order in which it was read. Nil has never been pending.
func (s *retries) set(p *pending, c *call, due int64) {
	if p == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.returned(p, c) {
		s.failing.Store(false)
	}
	if due == never {
		s.take(p)
	} else {
		s.put(p, due)
	}
	s.send()
}

// failed notes that the node has failed c, or has not answered in time. So p is pending, unless c
// is a retry and p was removed meanwhile. The caller holds the pipeline's mu.
func (s *retries) failed(p *pending, c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	retry := s.returned(p, c)
	if c.first == nil {
		p.release = c
	}
	s.failing.Store(true)
	now, budget := clock.NowTicks(), int64(c.round.spec.Budget)
	s.answers = c.began + budget/4
	switch {
	case s.closing && retry:
		s.probe = never
	case s.closing:
		s.probe = now
	default:
		// In virtual time, what follows at the very moment would not be in an order with others.
		s.probe = max(int64(clock.Add(time.Duration(c.began), time.Duration(budget))),
			now+int64(time.Millisecond))
	}
	if !retry || slices.Contains(s.pending, p) {
		s.put(p, c.began)
	}
	s.send()
}

// returned notes that c is not under way any more, and reports whether it was as a retry of p. The
// caller holds mu.
func (s *retries) returned(p *pending, c *call) bool {
	if p.retry != c {
		return false
	}
	p.retry = nil
	s.underWay--
	return true
}

// put puts p at the end. The caller holds mu.
func (s *retries) put(p *pending, due int64) {
	s.take(p)
	if s.over {
		return
	}
	if len(s.pending) == maxPending {
		s.take(s.pending[0])
	}
	p.due = due
	s.pending = append(s.pending, p)
	p.release.pipeline.node.tracker.Enter()
}

// take removes p, if it is there. The caller holds mu.
func (s *retries) take(p *pending) {
	if i := slices.Index(s.pending, p); i >= 0 {
		s.pending = slices.Delete(s.pending, i, i+1)
		p.release.pipeline.node.tracker.Leave()
	}
}

// send sends what is due, and sets the timer for what is not. The caller holds mu.
func (s *retries) send() {
	now, failing, most, next := clock.NowTicks(), s.failing.Load(), maxRetries, int64(never)
	if failing {
		most = 1
	}
	for _, p := range slices.Clone(s.pending) {
		due := p.due
		if failing {
			due = max(due, s.probe)
		}
		switch {
		case p.retry != nil:
		case failing && now > p.expires:
			s.take(p)
		case due > now:
			next = min(next, due)
		case s.underWay < most:
			s.underWay++
			p.retry = p.release.again()
			c, tracker := p.retry, p.retry.pipeline.node.tracker
			tracker.Enter() // now: p may be taken before c is submitted
			go func() {
				defer tracker.Leave()
				c.pipeline.submit(c)
			}()
		}
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	switch {
	case next < never:
		s.timer = time.AfterFunc(clock.TimerDelay(time.Duration(next-now)), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.send()
		})
	case s.underWay == 0: // the node has failed the last one
		s.forget()
	}
}

// forget removes everything. The caller holds mu.
func (s *retries) forget() {
	for len(s.pending) > 0 {
		s.take(s.pending[0])
	}
}

// lastTry sends one more at once to a node that does not answer, and no more unless it answers.
func (s *retries) lastTry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing, s.over, s.probe = true, false, clock.NowTicks()
	s.send()
}

// end forgets everything. Until the next lastTry nothing is pending any more, also if a client
// returns later: nothing is sent by itself after Close.
func (s *retries) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.forget()
}
