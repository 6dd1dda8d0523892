// Package lease is one acquisition of a lock: how it is asked for, extended and released, and what
// it can be in between.
//
// It asks the nodes, and decides by votes and clocks. It knows no Mutex and tells no Events: a
// change of state returns its [Effects], and what has failed is a [Failure]. Package redlock makes
// errors and events of these.
//
// lease.go has the states. acquire.go gets a lease, by attempts, of which attempt.go makes one and
// failed.go tells why it did not win. extend.go extends a lease, release.go ends it, and handoff.go
// passes it on. The renewals of a process take turns in renewals.go.
package lease

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Process is what the leases of a process share.
type Process struct {
	Nodes  []*quorum.Node
	Queues *queue.Queues
	Open   context.Context // when it is done, nothing is acquired any more
	Now    func() time.Time
}

// Ended reports whether ctx or the process has ended.
func (p *Process) Ended(ctx context.Context) bool { return ctx.Err() != nil || p.Open.Err() != nil }

// Pause waits, and reports whether neither ctx nor the process has ended.
func (p *Process) Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-p.Open.Done():
	}
	return !p.Ended(ctx)
}

// Options are on what terms leases are acquired and released.
type Options struct {
	wire.Terms
	Delay      func(tries int) time.Duration // between two tries
	MaxWaiters int                           // of this process; below 1: any number
	NoWait     bool                          // nobody waits for the release of a lock that is taken
	MinHold    time.Duration                 // for which a released lock stays taken; or 0
	// GenValue returns what values begin with; nil: they are random only.
	GenValue func() (string, error)
	Owner    string // what they begin with if that is always the same, or ""
}

// Lock is what all leases of one mutex have in common, of which one at most is the current one. It
// is not copied.
type Lock struct {
	wire.Lock                   // what is said to the nodes
	Pipelines []quorum.Pipeline // to them
	Process   *Process
	Options   *Options
	Misuse    *Failure // a mistake in the options, for which nothing is ever sent; or nil
	// Denied is what a reply says that denies a key to be ours.
	Denied func(quorum.Reply) error
	Ender  Ender
	// OnLongWait is told when one of so many tries has waited for long, and again and again. It may
	// be nil, and must not block.
	OnLongWait func(tries int, waited time.Duration, l queue.LongWait)

	Mu       sync.Mutex // guards what follows, and the marked fields of leases
	current  *Lease     // nil: never acquired, or released
	unlocked *sync.Cond // told when an Unlock ends; nil until somebody waits for that
	notes
}

// Ender is told when leases end.
type Ender interface {
	// Ended is called once for each lease when its owner relies on it no more, under Mu. It must
	// not block. What has ended it is nil if it is being released. Ended returns the cause for the
	// one who keeps the lease.
	Ended(l *Lease, reason EndReason, why *Failure) (cause error)
}

func (k *Lock) now() time.Time { return k.Process.Now() }

// Current returns the lease that the mutex has: a released one if it has none.
func (k *Lock) Current() *Lease {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	if k.current == nil {
		return &Lease{lock: k, Standing: Standing{State: StateReleased}}
	}
	return k.current
}

// TakeOver makes a lease current that somebody else has acquired with that value.
func (k *Lock) TakeOver(value string) {
	k.current = k.open(value)
	k.current.TakeOver(false)
}

// Lease is a lock that was acquired, or handed over. This is all it can be:
//
//	        a third of the validity has passed
//	held ----------------------------------------> renewing
//	|  ^     a quorum confirmed: until moves         |  |
//	|  +---------------------------------------------+  |
//	|  |     too few answered: again, sooner         |  |
//	|  +---------------------------------------------+  |
//	|                                                   |
//	+---------+--------------------------+--------------+
//	          |                          |
//	          | WithMaxHold, WithMargin, | a quorum is proven impossible; or, under
//	          | or Close has begun       | a Hold, until has passed
//	          v        the same          v
//	       let go --------------------> lost
//	          |                          |
//	          +-------------+------------+      Unlock leads from each state above
//	                        |
//	                        v   too few nodes answered
//	                    releasing --------------------> unreleased
//	                        |  ^                          |
//	                        |  +--------------------------+
//	                        v             Unlock again
//	                    released
//
// A lease that is handed off is released in the same way, without a word to the nodes.
//
// Only a Hold renews a lease and lets it go. Its owner relies on a lease that is held or renewing.
// The held context is done, and Events are told of the end, when the lease leaves these two.
//
// It is safe for concurrent use once it is acquired, and is not copied.
type Lease struct {
	Value  string
	Member string    // of the queue on the nodes; "" if the lock was free
	Ticket int64     // of the member
	Began  time.Time // the attempt; zero if the lock was handed over
	Token  uint64    // for fencing
	Raised bool      // it took a second round to settle the token

	quorum.WriteSet
	lock *Lock

	// The lock's Mu guards these once the lease is acquired.
	Standing
	stop    func() // cancels the renewal under way, and waits for its end; nil if there is none
	overran bool   // see Overrun
}

// Standing is how a lease stands.
type Standing struct {
	State State
	Until time.Time              // zero: not known
	Loss  *Failure               // why it was lost; nil if it was not
	hold  func(EndReason, error) // ends what keeps it extended; nil if nothing does
}

// Kept reports whether somebody keeps the lease extended.
func (s Standing) Kept() bool { return s.hold != nil && s.State.relied() }

// Look returns how the lease stands. The caller does not hold Mu.
func (l *Lease) Look() Standing {
	l.lock.Mu.Lock()
	defer l.lock.Mu.Unlock()
	return l.Standing
}

// open returns a lease that has written nothing to the nodes.
func (k *Lock) open(value string) *Lease {
	l := &Lease{Value: value, lock: k}
	l.Open(k.Pipelines, k.NodeTimeout, k.Expiry)
	return l
}

// State is where a lease is in the drawing.
type State uint8

// The states of a lease.
const (
	StateHeld       State = iota // the owner relies on it until its deadline
	StateRenewing                // the same; a renewal is due or under way
	StateLetGo                   // it goes on until its deadline, without renewals
	StateLost                    // nobody may trust it any more; what is left is being released
	StateReleasing               // an Unlock is under way: nothing writes the key any more
	StateUnreleased              // an Unlock has failed for want of a quorum
	StateReleased                // nothing is left to release
)

// arrows are those of the drawing.
var arrows = [...][]State{
	StateHeld:       {StateRenewing, StateLetGo, StateLost, StateReleasing},
	StateRenewing:   {StateHeld, StateLetGo, StateLost, StateReleasing},
	StateLetGo:      {StateLost, StateReleasing},
	StateLost:       {StateReleasing},
	StateReleasing:  {StateUnreleased, StateReleased},
	StateUnreleased: {StateReleasing},
	StateReleased:   {},
}

// relied reports whether the owner relies on a lease in the state.
func (s State) relied() bool { return s <= StateRenewing }

// Trusted reports whether a lease in the state counts until its deadline.
func (s State) Trusted() bool { return s <= StateLetGo }

// EndReason is why nobody relies on a lease any more.
type EndReason string

// The reasons for which a lease ends.
const (
	EndReleased  EndReason = "released"
	EndClosed    EndReason = "closed"
	EndLost      EndReason = "lost"
	EndMargin    EndReason = "margin"
	EndMaxHold   EndReason = "max_hold"
	EndHandedOff EndReason = "handed_off"
	EndReplaced  EndReason = "replaced"
)

// Change moves the lease to a state if an arrow leads there, and does nothing otherwise. If the
// owner relied on the lease before and no longer does, the lease ends, for the reason and because
// of the failure, if there is one. The caller holds Mu, and runs the effects after unlocking it. A
// change that does not end the lease has none.
func (l *Lease) Change(to State, reason EndReason, why *Failure) Effects {
	from := l.State
	if !slices.Contains(arrows[from], to) {
		return Effects{}
	}
	l.State = to
	if !from.relied() || to.relied() {
		return Effects{}
	}
	return Effects{hold: l.hold, reason: reason, cause: l.lock.Ender.Ended(l, reason, why)}
}

// Effects are what follows a change of state. They run without Mu, because they wait.
type Effects struct {
	hold   func(EndReason, error) // that is over, or nil
	reason EndReason
	cause  error  // of the held context
	stop   func() // ends the renewal under way, or nil
}

// Cancel ends the hold, and does not wait.
func (e Effects) Cancel() {
	if e.hold != nil {
		e.hold(e.reason, e.cause)
	}
}

// Run does all that follows.
func (e Effects) Run() {
	e.Cancel()
	if e.stop != nil {
		e.stop()
	}
}

// Lose ends a lease that is gone. The caller holds Mu, and goes on as after Change.
func (l *Lease) Lose(reason EndReason, why *Failure) Effects {
	if !l.State.Trusted() {
		return Effects{}
	}
	l.Loss = why.loss(l.Kept())
	return l.Change(StateLost, reason, l.Loss)
}

// LetGo ends the renewals of the lease. What is left of it is for the end of the work. The caller
// holds Mu, and goes on as after Change.
func (l *Lease) LetGo(reason EndReason, why *Failure) Effects {
	if why != nil {
		why = why.loss(true)
	}
	after := l.Change(StateLetGo, reason, why)
	after.stop = l.stop
	return after
}

// releasing begins a release of the lease. The caller holds Mu, and goes on as after Change.
func (l *Lease) releasing(reason EndReason) Effects {
	after := l.Change(StateReleasing, reason, nil)
	after.stop = l.stop
	return after
}

// Closing lets the lease go for Close. The caller does not hold Mu.
func (l *Lease) Closing() Effects {
	l.lock.Mu.Lock()
	defer l.lock.Mu.Unlock()
	return l.LetGo(EndClosed, nil)
}

// Keep notes that somebody keeps the lease extended from now on, if it is held: end is called, with
// the cause, when that is over. If the lease was lost before, the loss counts as one of a lease
// that was kept. The caller holds Mu.
func (l *Lease) Keep(end func(reason EndReason, cause error)) (kept bool) {
	if l.State == StateHeld {
		l.hold = end
		return true
	}
	if l.Loss != nil {
		l.Loss = l.Loss.loss(true)
	}
	return false
}

// EndHold tells the one who keeps the lease extended that this is over, as the effects do.
func (l *Lease) EndHold(reason EndReason, cause error) {
	Effects{hold: l.hold, reason: reason, cause: cause}.Cancel()
}

// Overrun returns how long ago until was, if the lease was relied on for too long. It does so once:
// later, it returns 0. A release that is tried again is no overrun: the work was over before the
// first. The owner of a kept lease learns of its loss by until, and has a node timeout to stop.
func (l *Lease) Overrun() (by time.Duration) {
	l.lock.Mu.Lock()
	defer l.lock.Mu.Unlock()
	if l.overran || l.State > StateLost || l.Until.IsZero() {
		return 0
	}
	by = max(-clock.Remaining(l.lock.now(), l.Until), 0)
	if l.hold != nil && l.State == StateLost && by <= l.lock.NodeTimeout {
		return 0
	}
	l.overran = by > 0
	return by
}
