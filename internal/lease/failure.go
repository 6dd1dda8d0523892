package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/quorum"
)

// Kind is what is true of a failure. Several may be.
type Kind uint8

// The kinds of failures.
const (
	Taken    Kind = 1 << iota // others have the lock, or want it at the same moment
	NoQuorum                  // too few nodes answered
	Expired                   // it came too late, or the lock is gone on the nodes
	NotHeld                   // there is no lock
	Lost                      // a lock that was kept extended
	Released                  // it was released by somebody else
	Closed                    // nothing is acquired any more
	Self                      // the caller has the lock itself
)

// Failure is why something has not come about. It is not changed once others have it.
type Failure struct {
	Kind   Kind
	Reason string  // in words
	Owner  string  // of the lock that is taken, or ""
	More   string  // follows the reason, and the owner
	Causes []error // that are no business of the nodes: the context's, for instance
	// Outcomes are what the nodes said, if they are the reason, or nil.
	Outcomes quorum.Outcomes
	Last     *Failure // what the last attempt had come to, or nil
	Before   *Failure // why the lease was lost before, or nil
}

// Because is the failure that an error is the reason for.
func Because(err error) *Failure { return &Failure{Reason: err.Error(), Causes: []error{err}} }

// Error is the reason alone.
func (f *Failure) Error() string { return f.Reason }

// Attempt is what the last attempt of an acquisition has come to.
func (f *Failure) Attempt() *Failure {
	if f.Last != nil {
		return f.Last
	}
	return f
}

// failed returns a failure.
func failed(kind Kind, reason string, args ...any) *Failure {
	return &Failure{Kind: kind, Reason: fmt.Sprintf(reason, args...)}
}

// of adds what the nodes said.
func (f *Failure) of(outcomes quorum.Outcomes) *Failure {
	f.Outcomes = outcomes
	return f
}

// verdict is why too few nodes did as they were asked: so many have, and on so many the lock is
// gone. It is Expired, because it is gone, if these rule a quorum out.
func verdict(said quorum.Outcomes, did, gone int, done, isGone string) *Failure {
	n := len(said)
	if gone >= quorum.Blocking(n) {
		return failed(Expired, isGone, gone, n).of(said)
	}
	return failed(NoQuorum, "no quorum: %s %d of %d nodes, %d needed", done, did, n,
		quorum.Majority(n)).of(said)
}

// lostFor begins the reasons of what proves that a lease is lost.
const lostFor = "lost: "

// loss returns the failure as the one that has ended a lease, which was kept extended or not.
func (f *Failure) loss(kept bool) *Failure {
	loss := *f
	loss.Reason = strings.TrimPrefix(f.Reason, lostFor)
	if kept {
		loss.Kind |= Lost
	}
	return &loss
}

// Lost is the failure of the end of the work under a lease that was lost, or nil.
func (l *Lease) Lost() *Failure { return l.Look().past(l.lock.now()) }

// past is the failure of what is done now with a lease that was lost, or nil. After the process has
// stood still, nobody may have noted the loss yet.
func (s Standing) past(now time.Time) *Failure {
	left := clock.Remaining(now, s.Until)
	switch {
	case s.Loss != nil:
		return lostBefore(s.Loss)
	case s.State.Trusted() && !s.Until.IsZero() && left <= 0:
		return failed(Expired, "expired %v ago", clock.Brief(-left))
	}
	return nil
}

// lostBefore is the failure of an operation on a lease that was lost before.
func lostBefore(loss *Failure) *Failure {
	f := failed(Expired, "lost before: %s", loss.Reason)
	f.Before = loss
	return f
}

// Interrupted is the failure of an operation that the caller's context has ended. Last is what the
// last attempt before that had come to, or nil.
func Interrupted(ctx context.Context, last *Failure) *Failure {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return &Failure{Reason: err.Error(), Causes: []error{err}, Last: last}
	}
	return &Failure{Reason: fmt.Sprintf("%v (%s)", err, errtext.Text(cause.Error())),
		Causes: []error{err, cause}, Last: last}
}

// ErrClosed is the failure of what begins after Close.
var ErrClosed = failed(Closed, "closed")
