package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// ErrUnsent is the outcome of a command that was certainly not sent: its round was over
// before its turn came, or it had nothing to take back.
var ErrUnsent = errors.New("not sent: an earlier command to this node has not been answered")

// errNothing is the outcome of a Release that has nothing to take back. It matches [ErrUnsent].
var errNothing error = unsent("not asked: nothing was sent to this node that it could have kept")

type unsent string

func (e unsent) Error() string { return string(e) }

// Is reports whether target is [ErrUnsent].
func (e unsent) Is(target error) bool { return target == ErrUnsent }

// ErrUnanswered stands for the outcome of a node that had not answered when the round was decided
// without it, or when its caller left.
var ErrUnanswered = errors.New("no answer yet")

// ErrTimeout is matched by the outcome of a node that used up its time. So it is if the node was
// not asked in that time, because it leaves too many commands unanswered.
var ErrTimeout = errors.New("redlock: node timeout")

// TimeoutError is the outcome of a node that used up its time. It matches [ErrTimeout].
type TimeoutError struct {
	Budget time.Duration
	Err    error // what the client said, or nil if it has not returned
}

func (e *TimeoutError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("no answer within %v", clock.Brief(e.Budget))
	}
	return fmt.Sprintf("no answer within %v: %v", clock.Brief(e.Budget), e.Err)
}

// Is reports whether target is [ErrTimeout].
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// Unwrap returns what the client said.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Round is one command for all pipelines, and the context of that: it has the values of the
// caller's, and ends a moment before its time is over, or when every node has answered. It is safe
// for concurrent use.
type Round struct {
	context.Context // values only
	kind            Kind
	spec            Spec          // with its defaults
	expiry          time.Duration // of the key that a Release takes back
	start, limit    time.Time     // the limit is the deadline of the context
	calls           []call

	mu       sync.Mutex  // guards what follows, and the outcomes in calls
	timer    *time.Timer // ends in expire
	tally    tally
	hasty    bool // a no was heard in a hasty round
	decided  bool
	decision sync.Cond     // decided, or the context of somebody who waits for that has ended
	err      error         // of the context; not nil once that has ended
	done     chan struct{} // closed when it ends; nil as long as nobody asks for it
}

// few is how many nodes most locks have at most. What belongs to each of them then has its place in
// what belongs to the lock, without an allocation of its own.
const few = 5

// newRound makes a round of n calls, which get their pipelines before it begins.
func newRound(ctx context.Context, kind Kind, s Spec, expiry time.Duration, n int) *Round {
	var r *Round
	if n > 1 && n <= few {
		both := &struct {
			Round
			calls [few]call
		}{}
		r = &both.Round
		r.calls = both.calls[:n]
	} else {
		r = &Round{calls: make([]call, n)}
	}
	r.Context, r.kind, r.spec, r.expiry, r.start = ctx, kind, s, expiry, time.Now()
	r.decision.L = &r.mu
	r.tally.Pending, r.limit = n, r.deadline().Add(-min(s.Budget/16, lastWord))
	for i := range r.calls {
		r.calls[i].round, r.calls[i].outcome.Err = r, ErrUnanswered
	}
	return r
}

// begin lets the time of the round run.
func (r *Round) begin() {
	r.mu.Lock() // so that nobody looks for the timer before there is one
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(clock.TimerDelay(r.limit.Sub(r.start)), r.expire)
}

// deadline is when the nodes must have answered.
func (r *Round) deadline() time.Time { return r.start.Add(r.spec.Budget) }

// lastWord is how much earlier than the round the context of its commands ends.
const lastWord = time.Millisecond

// tally counts the votes of a round.
type tally struct {
	Yes, No, Failed, Pending int
}

// settle records the outcome of a call, once.
func (r *Round) settle(c *call, reply Reply, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.outcome.Err != ErrUnanswered {
		return
	}
	yes := reply.Yes()
	if err == nil && r.spec.Vote != nil {
		yes = r.spec.Vote(c.pipeline.node.Index, reply)
	}
	c.outcome = Outcome{reply, err}
	r.tally.Pending--
	switch {
	case err != nil:
		r.tally.Failed++
	case yes:
		r.tally.Yes++
	default:
		r.tally.No++
		if r.spec.Hasty && !r.hasty && !r.decided {
			r.hasty = true
			time.AfterFunc(max(8*min(time.Since(r.start), r.spec.Budget/8), minPatience), r.giveUp)
		}
	}
	if r.won() || r.tally.Yes+r.tally.Pending < r.spec.Need { // no missing vote can change it
		r.decide()
	}
	if r.tally.Pending == 0 {
		r.timer.Stop()
		r.end(context.Canceled)
	}
}

// won reports whether the needed votes were given. The caller holds mu.
func (r *Round) won() bool { return r.tally.Yes >= r.spec.Need }

// decide ends the round, unless it is decided. The caller holds mu.
func (r *Round) decide() {
	if r.decided {
		return
	}
	r.decided = true
	r.decision.Broadcast()
}

// minPatience is the least time that a hasty round waits after a no.
const minPatience = 4 * time.Millisecond

// giveUp ends a hasty round.
func (r *Round) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decide()
}

// expire ends the context of the commands, and leaves clients a moment to say why they have no
// answer. Then it counts every missing answer as a failure, and lets the pipelines go on without
// it.
func (r *Round) expire() {
	r.mu.Lock()
	r.end(context.DeadlineExceeded)
	left := time.Until(r.deadline())
	if left > 0 && r.tally.Pending > 0 {
		r.timer.Reset(left)
	}
	r.mu.Unlock()
	if left > 0 {
		return
	}
	for i := range r.calls {
		c := &r.calls[i]
		c.pipeline.expire(c)
		r.settle(c, Reply{}, c.pipeline.node.Timeout(r.spec.Budget, nil))
	}
}

// Wait blocks until the round is decided, which takes no longer than the budget, or until ctx is
// done. It reports whether the needed votes were given; the error is nil or the context's.
func (r *Round) Wait(ctx context.Context) (bool, error) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.decision.Broadcast()
		})()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.decided && ctx.Err() == nil {
		r.decision.Wait()
	}
	if !r.decided {
		return false, ctx.Err()
	}
	return r.won(), nil
}

// Heard reports whether a node has replied so far with that meaning.
func (r *Round) Heard(m Meaning) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.calls {
		if o := r.calls[i].outcome; o.Err == nil && o.Means == m {
			return true
		}
	}
	return false
}

// Outcomes returns what each node has answered so far.
func (r *Round) Outcomes() Outcomes {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(Outcomes, len(r.calls))
	for i := range r.calls {
		out[i] = r.calls[i].outcome
	}
	return out
}

// Deadline implements [context.Context].
func (r *Round) Deadline() (time.Time, bool) { return r.limit, true }

// Done implements [context.Context].
func (r *Round) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil {
		r.done = make(chan struct{})
		if r.err != nil {
			close(r.done)
		}
	}
	return r.done
}

// Err implements [context.Context].
func (r *Round) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// end ends the context for a reason, unless it has ended. The caller holds mu.
func (r *Round) end(err error) {
	if r.err != nil {
		return
	}
	r.err = err
	if r.done != nil {
		close(r.done)
	}
}
