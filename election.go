package redlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/lease"
	"github.com/redlock-go/redlock/internal/quorum"
)

// Election is one candidate of an election: the leader is who holds the lock of that name. It is
// made by [Redlock.NewElection], is safe for concurrent use, and must not be copied.
//
// A lease tells nobody that its process stood still. A leader may be paused for longer than its
// lock lives. It then goes on for a moment, beside the next leader, until it learns that its
// context has ended. Where that must not do harm, hand the term to the store that the leader
// writes to. The store refuses a term lower than one it has seen: see [WithFencing], and package
// fence for SQL databases.
type Election struct {
	_     [0]sync.Mutex // go vet tells of copies
	locks *Redlock      // with the election's options
	m     *Mutex
}

// Leader is who leads. The zero Leader is nobody.
type Leader struct {
	// Owner is the text of [WithOwner], "" if the leader gave none.
	Owner string
	// Term is the leader's fencing token: each leader has a greater one than those before. It is 0
	// if the nodes do not agree on it. It may be greater than [Election.Term] after a node's key,
	// but not its counter, was deleted; it is less than that of any later leader even then.
	Term uint64
	// TTL is how long the leader stays it unless it extends its lock. It is 0 only if nobody
	// leads, and [NoExpiry] if somebody has made the keys last for ever.
	TTL time.Duration
	// Self tells whether it is the Election that was asked.
	Self bool
}

// NewElection returns a candidate for the lead of that name. It does no I/O. Candidates exclude
// each other, and all who lock the name. The election's mutex has unlimited tries and waiters,
// whatever the options say, and the options [WithFencing] and [WithFencePerName]: each term has a
// token.
//
// [WithOwner] names the candidate for [Election.Leader]. [WithExpiry] bounds for how long nobody
// leads after a leader's crash. [WithMaxHold] bounds a term. [WithMinHold] is an [*OptionError] on
// first use: after Resign nobody could lead for the rest of it.
func (r *Redlock) NewElection(name string, opts ...Option) *Election {
	waits := option(func(c *config) {
		c.tries, c.NoWait, c.MaxWaiters = Unlimited, false, Unlimited
	})
	all := slices.Concat([]Option{WithFencing(), WithFencePerName()}, opts, []Option{waits})
	locks := r.With(all...)
	e := &Election{locks: locks, m: locks.NewMutex(name)}
	switch d := locks.cfg.MinHold; {
	case e.m.lock.Misuse != nil:
	case locks.cfg.Shared:
		e.m.mistaken(notShared("NewElection"))
	case d != 0:
		e.m.mistaken(&OptionError{"WithMinHold", d,
			"must be 0 in an election: after Resign nobody could lead for the rest of it"})
	}
	return e
}

// mustBeMade panics if NewElection did not make e.
func (e *Election) mustBeMade() {
	if e == nil || e.m == nil {
		panic("redlock: this Election is nil or the zero value: make it with NewElection")
	}
}

// Run stands for election, calls fn whenever it is won, and resigns when fn returns. It blocks
// until fn returns within its term, or ctx is done and fn has returned. The context of fn is that
// of [Election.Campaign]: it ends with the term, and fn must return then. [FencingToken] of it is
// the term.
//
// The term may end before fn returns, by a loss, [WithMaxHold] or [Election.Resign]. Run then drops
// what fn returns, leaves the lead to others for one retry delay, and campaigns again. So fn may be
// called many times, one call after the other.
//
// Run returns the error of fn, or of resigning, or one that wraps both. It is nil only if both are.
// If ctx ends, or the Redlock is closed, while another leads, it returns what [Mutex.LockContext]
// does. The lead is resigned even if fn panics.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	e.mustBeMade()
	if fn == nil {
		return e.m.error(notAcquired, lease.Because(needsFunction("Run")))
	}
	for {
		held, err := e.Campaign(ctx)
		if err != nil {
			return err
		}
		again, err := e.lead(ctx, held, fn)
		if !again {
			return err
		}
		e.m.core.Pause(ctx, max(e.m.cfg.Delay(1), 0))
	}
}

// lead calls fn in a term, and resigns. It reports whether the term ended before fn returned.
func (e *Election) lead(
	ctx, held context.Context, fn func(ctx context.Context) error,
) (again bool, err error) {
	defer func() {
		again = held.Err() != nil && ctx.Err() == nil
		resigned := e.m.unlock(ctx, held.(*heldContext).h.l, byOwner)
		switch {
		case again:
			err = nil
		case !errors.Is(resigned, ErrNotHeld): // or else Resign or Close has done it
			err = errtext.Join(err, resigned)
		}
	}()
	return false, fn(held)
}

// Campaign blocks until the election is won, or ctx is done. It is [Mutex.Hold] with unlimited
// tries, and returns its errors: one that matches [ErrTaken] or [ErrNoQuorum] only if ctx ended the
// wait. The returned context is done when the term is over: see Hold.
//
// [Election.Resign] must follow, also when the term was lost, with the returned context: a second
// Campaign waits until the first one's term is over, as any other candidate does, and may have been
// elected by then. With a context of that term it would wait for itself, and fails at once with
// [ErrSelf].
func (e *Election) Campaign(ctx context.Context) (context.Context, error) {
	e.mustBeMade()
	return e.m.Hold(ctx)
}

// Leading reports whether e leads at this moment: its term has begun, and the term's context has
// not ended, for whatever reason. It looks at the clock and asks nobody. No two candidates lead at
// a time.
//
// A true answer grows old: the process may stand still, and lose the lead, right after it. Work
// that takes time belongs under the context of the term.
func (e *Election) Leading() bool {
	e.mustBeMade()
	e.m.lock.Mu.Lock()
	h := e.m.held
	e.m.lock.Mu.Unlock()
	return h != nil && !h.isOver()
}

// Term returns the fencing token of the current term, as [Mutex.FencingToken] does: after a loss it
// stays until Resign, and it is 0 before the first term and after Resign.
func (e *Election) Term() uint64 {
	e.mustBeMade()
	return e.m.FencingToken()
}

// Resign ends the term, and lets another candidate win at once. With the context of a term, or one
// derived from it, it ends that term and no other; with any other context, the current one. It is
// [Mutex.UnlockContext], returns its errors, and works also if ctx is done. The term's context is
// done first, with the cause [ErrReleased].
func (e *Election) Resign(ctx context.Context) error {
	e.mustBeMade()
	_, err := e.m.UnlockContext(ctx)
	return err
}

// Leader asks the nodes who leads. It is the zero Leader if nobody does. Like [Redlock.Inspect] it
// changes nothing, blocks for a node timeout at most, and returns the same errors. One that
// matches [ErrNoQuorum] means that too few nodes answered to know.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	_, l, err := e.look(ctx)
	return l, err
}

// Observe yields who leads, and then each change of that, also to nobody: the zero Leader. When too
// few nodes answer, and the time of the leader that was seen last is over, it yields the zero
// Leader and the error of [Election.Leader], once: it is not known who leads. An [*OptionError] is
// the last that it yields. It ends when ctx is done, when the Redlock is closed, or with the loop.
//
// It asks the nodes as Leader does, every quarter of the expiry, and when the leader's lock would
// end. A leader that leads for less may go unseen. One whose term is not known yet is yielded with
// the term 0, and again with its term. Terms are never out of order.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	e.mustBeMade()
	needContext(ctx)
	return func(yield func(Leader, error) bool) {
		var seen sight
		for first := true; ; first = false {
			value, l, err := e.look(ctx)
			if e.m.core.Ended(ctx) {
				return
			}
			now := e.m.core.Now()
			news := seen.update(now, value, l, err)
			if (news || first) && !yield(l, err) || e.m.lock.Misuse != nil {
				return
			}
			wait := e.m.cfg.Expiry / 4
			if left := clock.Remaining(now, seen.ends); left > 0 {
				wait = min(wait, clock.Add(left, time.Millisecond))
			}
			if !e.m.core.Pause(ctx, wait) {
				return
			}
		}
	}
}

// sight is what an observer knows of the leader.
type sight struct {
	known bool
	value string    // of the leader's lock, "" if nobody leads
	term  uint64    // 0 if it is not known
	ends  time.Time // when the leader leads no longer, unless it extends its lock
}

// update takes in an answer of the nodes, or why there is none. It reports whether that is news.
func (s *sight) update(now time.Time, value string, l Leader, err error) (news bool) {
	if err != nil {
		news = s.known && clock.Remaining(now, s.ends) <= 0
		s.known = s.known && !news
		return news
	}
	s.ends = now.Add(l.TTL)
	if l.TTL == NoExpiry {
		s.ends = now.Add(math.MaxInt64)
	}
	news = !s.known || value != s.value || s.term == 0 && l.Term != 0
	if news {
		s.known, s.value, s.term = true, value, l.Term
	}
	return news
}

// look asks the nodes who leads, and returns the value of the leader's lock, "" if nobody leads.
func (e *Election) look(ctx context.Context) (value string, l Leader, err error) {
	e.mustBeMade()
	needContext(ctx)
	m := e.m
	if m.lock.Misuse != nil {
		return "", Leader{}, m.error("not inspected", m.lock.Misuse)
	}
	in, err := e.locks.inspect(ctx, m.name, m.lock.Keys()...)
	switch {
	case err != nil:
		return "", Leader{}, err
	case in.Verdict == VerdictUnknown:
		return "", Leader{}, e.unanswered(in)
	case in.Verdict != VerdictHeld:
		return "", Leader{}, nil
	}
	l = Leader{Owner: in.Owner, Term: in.term(), TTL: in.TTL, Self: in.Value == m.Value()}
	if l.TTL == 0 {
		l.TTL = time.Millisecond // that which the node has cut off
	}
	return in.Value, l, nil
}

// unanswered is the error of a question that too few nodes answered.
func (e *Election) unanswered(in *Inspection) *Error {
	outcomes, answered := make(quorum.Outcomes, len(in.Nodes)), 0
	for i, n := range in.Nodes {
		outcomes[i] = quorum.Outcome{Reply: quorum.Reply{Means: quorum.Done}, Err: n.Err}
		if n.Err == nil {
			answered++
		}
	}
	return e.m.core.errorOf(e.m.name, "not inspected", &lease.Failure{
		Kind: lease.NoQuorum, Outcomes: outcomes, Reason: fmt.Sprintf("no quorum: %d of %d nodes "+
			"answered, too few to tell who leads", answered, len(in.Nodes)),
	})
}

// term returns the fencing token that a quorum of nodes stores with the value. It is 0 if the nodes
// that have answered could be wrong about it.
//
// A quorum of all nodes has stored the token, or more. More is on those that granted the lock
// after the others, or were healed. So the token is the counter that exactly a quorum reaches. Each
// node without the value, or without an answer, may have reached it or not.
func (in *Inspection) term() uint64 {
	var counters []uint64
	for _, n := range in.Nodes {
		if n.Err == nil && n.Found && n.Value == in.Value {
			c, _ := strconv.ParseUint(n.counter, 10, 64)
			counters = append(counters, c)
		}
	}
	slices.Sort(counters)
	slices.Reverse(counters)
	unknown := len(in.Nodes) - len(counters)
	if least := counters[in.Quorum-1]; least == counters[in.Quorum-1-unknown] {
		return least
	}
	return 0
}
