package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"

	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/lease"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// The errors a caller decides by, with [errors.Is]. Every error of a [Mutex] is an
// [*Error], which matches one or more of them and carries what each node said.
var (
	// ErrFailed matches every failed acquisition, whatever the reason. The lock is not held, and
	// nothing is left behind but what expires by itself.
	ErrFailed = errors.New("redlock: lock not acquired")

	// ErrTaken is returned when others hold so many nodes that there is no quorum. It is also
	// returned when a quorum answered, others hold some nodes, and too few granted the lock.
	// Somebody has the lock, or several are after it at the same moment; try later.
	ErrTaken = errors.New("redlock: lock taken")

	// ErrSelf is returned by Lock and its siblings when the context that they are given is that of
	// a hold of the same lock, or was derived from it: the caller would wait for itself. The error
	// matches ErrTaken too, and nothing was sent. See [Mutex.Hold].
	ErrSelf = errors.New("redlock: lock held by the caller itself")

	// ErrNoQuorum is returned when too few nodes answered: Redis or the network is failing.
	// After Lock, what may be left on nodes that did not answer expires by itself. After
	// Unlock, nodes may still hold the lock until its expiry, and Unlock may be called again.
	// After Extend or Valid, the lock is still held until [Mutex.Until].
	ErrNoQuorum = errors.New("redlock: no quorum of nodes answered")

	// ErrExpired is returned when the lock, or the attempt to get it, ran out of time. It is also
	// returned when the nodes proved that the lock is gone. The lock is not held any more.
	ErrExpired = errors.New("redlock: lock expired")

	// ErrNotReleased matches every error of an Unlock, and no other: alone, or joined with the
	// error of the function that Do has called. If it comes from Do, that function has returned,
	// and to call Do again would do the work twice. What is left of the lock on the nodes expires
	// by itself.
	ErrNotReleased = errors.New("redlock: lock not released")

	// ErrNotHeld is returned by Unlock, Extend, Valid and Handoff on a mutex that never locked or
	// is already unlocked. Nothing was sent, unless it was unlocked during the call.
	ErrNotHeld = errors.New("redlock: lock not held")

	// ErrLost is the cause of a held context whose lock cannot be trusted any more, or soon will
	// not be: see [WithMargin] and [WithMaxHold]. Stop working: somebody else may be granted the
	// lock.
	ErrLost = errors.New("redlock: lock lost")

	// ErrReleased is the cause of a held context after Unlock or Handoff, or after the Close of
	// its Redlock.
	ErrReleased = errors.New("redlock: lock released")

	// ErrClosed is returned by Lock and its siblings after Close. It matches ErrFailed too.
	ErrClosed = errors.New("redlock: closed")

	// ErrNodeTimeout is what a [NodeError] matches when the node used up the node timeout. So it
	// does when the node was not asked, because it leaves too many commands unanswered. An [*Error]
	// matches it if one of its nodes does: the operation may have failed for another reason.
	ErrNodeTimeout = quorum.ErrTimeout
)

// decisions are the errors that speak of the whole quorum, and the kinds of the failures that match
// them. One node's error never counts as one of them, nor as the end of the caller's context.
var decisions = []struct {
	error
	kind lease.Kind
}{
	{ErrTaken, lease.Taken}, {ErrSelf, lease.Self}, {ErrNoQuorum, lease.NoQuorum},
	{ErrExpired, lease.Expired}, {ErrNotHeld, lease.NotHeld}, {ErrLost, lease.Lost},
	{ErrReleased, lease.Released}, {ErrClosed, lease.Closed},
	{ErrFailed, 0}, {ErrNotReleased, 0}, {context.Canceled, 0}, {context.DeadlineExceeded, 0},
}

// Error is the error of an operation on a lock. With [errors.Is] it matches the package's Err
// variables and the context's errors only if they are true of the whole operation. [ErrNodeTimeout]
// and any other error match if they are true of one of the nodes. With [errors.As] it yields the
// first [*NodeError], or, as the errors of Redsync do, a *multierror.Error of
// hashicorp/go-multierror with those of all nodes: see [Error.Nodes].
type Error struct {
	// Name is the lock's name, without the key prefix.
	Name string
	// Owner is the text that the holder of the lock gave to [WithOwner], cut to 64 bytes. It is ""
	// if the holder gave none, or if the error does not match ErrTaken. It is also "" if a mutex
	// without an owner had a single try or was ended by its context, or if the nodes have not told
	// in time: see WithOwner.
	Owner string

	failed string         // what did not happen: "not acquired"
	is     error          // the decision that follows from that, or nil
	from   *lease.Failure // why
	causes []error        // errors.Is looks into these; they are not in the text
	last   *Error         // what the last attempt had come to; one of the causes
	nodes  *multierror.Error
}

// Error says in one line what failed, why, and which nodes did what.
func (e *Error) Error() string {
	return fmt.Sprintf("redlock: %s %s: %s", errtext.Name(e.Name), e.failed, e.why())
}

// why says why it failed, and which nodes did what.
func (e *Error) why() string {
	from := e.failure()
	text := from.Reason
	if e.Owner != "" && e.last == nil {
		text += fmt.Sprintf(" by %q", e.Owner)
	}
	text = errtext.Text(text + from.More)
	if e.last != nil {
		text += "; the last attempt: " + e.last.why()
	}
	if e.nodes != nil {
		text += " (" + errtext.List(e.nodes.Errors) + ")"
	}
	return text
}

// failure is why it failed, and empty for an Error that the package has not made.
func (e *Error) failure() *lease.Failure { return cmp.Or(e.from, &lease.Failure{}) }

// Is makes [errors.Is] work as the type's comment says.
func (e *Error) Is(target error) bool {
	for _, d := range decisions {
		if d.error == target {
			return e.failure().Kind&d.kind != 0 || e.is == target
		}
	}
	return e.nodes != nil && errors.Is(e.nodes, target)
}

// As makes [errors.As] find the nodes' errors. A list of them is a copy.
func (e *Error) As(target any) bool {
	if e.nodes == nil {
		return false
	}
	list := *e.nodes
	list.Errors = slices.Clone(list.Errors)
	return errors.As(&list, target)
}

// Nodes returns what each node said that did not do as it was asked, in node order. It is empty if
// no node was asked. The caller owns the slice.
func (e *Error) Nodes() []*NodeError {
	var all []*NodeError
	if e.nodes != nil {
		for _, err := range e.nodes.Errors {
			all = append(all, err.(*NodeError))
		}
	}
	return all
}

// Unwrap returns the causes: the context's error and cause, the last attempt's error, or a
// mistake in the options.
func (e *Error) Unwrap() []error { return e.causes }

// NodeError is what one node said, or did not say.
type NodeError struct {
	// Node is the index of the node's pool in the call of New.
	Node int
	// Addr is the node's address, or "" if its pool does not tell, see [pool.Addressed].
	Addr string
	// Err is the client's error, or one of the package's. The text of the client's is cut to 500
	// bytes, and without the arguments of a command, which nodes may repeat. It matches ErrTaken if
	// somebody else has the lock on this node, and ErrExpired if the node has it no more. It
	// matches ErrNodeTimeout if the node has not answered in time.
	Err error
}

// Error begins with the node, "node 3 (10.0.0.3:6379)", and is one line.
func (e *NodeError) Error() string {
	return nodeName(e.Node, e.Addr) + ": " + errtext.Text(fmt.Sprint(e.Err))
}

// Unwrap returns Err.
func (e *NodeError) Unwrap() error { return e.Err }

// OptionError is a mistake in the options, the name or the pools. It is returned on
// first use, before anything is sent.
type OptionError struct {
	Option string // what is wrong: "WithExpiry"
	Value  any    // its value
	Rule   string // what it must be
}

func (e *OptionError) Error() string {
	return errtext.Text(fmt.Sprintf("redlock: %s(%v): %s", e.Option, e.Value, e.Rule))
}

// ReplyError is the outcome of a node that answered a script with something else than the script
// returns: an integer, usually. It is never taken for a yes. Its fields are Script, the script's
// name, and Reply, which is what came instead.
type ReplyError = wire.ReplyError

// GuardError is the outcome of a node that has not been up long enough; see [WithRestartGuard]. Its
// field Wait is how long the node will go on refusing, rounded up to whole seconds.
type GuardError = wire.GuardError

// exported returns the error of a node so that its text can be shown: see [errtext.Said].
func exported(err error) error {
	if err == nil {
		return nil
	}
	if text := errtext.Said(err.Error()); text != err.Error() {
		return errtext.Error(text, err)
	}
	return err
}

// What a node says of a key that should be ours, and what that matches when it is looked at alone.
var (
	errNodeTaken        = errtext.Error("taken", ErrTaken)
	errNodeGone         = errtext.Error("the key is gone", ErrExpired)
	errNodeNotHandedOff = errtext.Error("the key is not that of the handoff", ErrExpired)
	errNodeForeign      = errtext.Error("the key is somebody else's", ErrExpired)
)

// What errors say that has not happened, or has.
const (
	notAcquired  = "not acquired"
	notAdopted   = "not adopted"
	notExtended  = "not extended"
	notReleased  = "not released"
	notHandedOff = "not handed off"
	lost         = "lost"
)

// error makes an error of why an operation on the lock has failed, or nil of nil.
func (m *Mutex) error(failed string, f *lease.Failure) error {
	if f == nil {
		return nil
	}
	return m.core.errorOf(m.name, failed, f)
}

// errorOf makes an error of why an operation on the lock of that name has failed.
func (c *core) errorOf(name, failed string, f *lease.Failure) *Error {
	e := &Error{
		Name: name, Owner: f.Owner, from: f, failed: failed, causes: slices.Clone(f.Causes),
		nodes: c.nodeErrors(f.Outcomes, failed),
	}
	switch failed {
	case notAcquired, notAdopted:
		e.is = ErrFailed
	case notReleased:
		e.is = ErrNotReleased
	}
	if f.Before != nil {
		e.causes = append(e.causes, pastLoss{c.errorOf(name, lost, f.Before)})
	}
	if f.Last != nil {
		e.last = c.errorOf(name, failed, f.Last)
		e.Owner, e.causes = e.last.Owner, append(e.causes, e.last)
	}
	return e
}

// pastLoss is why a lease was lost, as a cause of what failed later. That too few nodes answered
// then says nothing about later: ErrNoQuorum means that the lock is still held, or that Unlock may
// be called again.
type pastLoss struct{ loss *Error }

func (p pastLoss) Error() string { return p.loss.Error() }

// Is matches what the loss does, except for ErrNoQuorum.
func (p pastLoss) Is(target error) bool {
	return target != ErrNoQuorum && errors.Is(p.loss, target)
}

// As finds what is in the loss.
func (p pastLoss) As(target any) bool { return errors.As(p.loss, target) }

// nodeErrors lists the nodes that did not do as they were asked when an operation failed.
func (c *core) nodeErrors(outcomes quorum.Outcomes, failed string) *multierror.Error {
	list := &multierror.Error{ErrorFormat: errtext.List}
	for i, o := range outcomes {
		err := exported(o.Err)
		switch {
		case !o.No():
		case failed == notAcquired:
			err = errNodeTaken
		case failed == notAdopted:
			err = errNodeNotHandedOff
		default:
			err = heldBy(o.Reply)
		}
		if err != nil {
			node := &NodeError{Node: i, Addr: c.Nodes[i].Addr(), Err: err}
			list.Errors = append(list.Errors, node)
		}
	}
	if len(list.Errors) == 0 {
		return nil
	}
	return list
}

// heldBy returns the error of a node whose reply denies that the key is ours.
func heldBy(reply quorum.Reply) error {
	if reply.Means == quorum.Gone {
		return errNodeGone
	}
	return errNodeForeign
}

// Outcome is what an operation has come to, in one word: for metrics.
type Outcome string

// The outcomes of operations.
const (
	OutcomeOK        Outcome = "ok"
	OutcomeTaken     Outcome = "taken"     // ErrTaken
	OutcomeNoQuorum  Outcome = "no_quorum" // ErrNoQuorum
	OutcomeExpired   Outcome = "expired"   // ErrExpired
	OutcomeNotHeld   Outcome = "not_held"  // ErrNotHeld
	OutcomeCancelled Outcome = "cancelled" // the context's error
	OutcomeClosed    Outcome = "closed"    // ErrClosed
	OutcomeInvalid   Outcome = "invalid"   // a mistake in the options
	OutcomeFailed    Outcome = "failed"    // anything else, a panic for instance
)

// outcomeOf returns the outcome of an operation. What the last attempt had come to before the
// context ended does not count.
func outcomeOf(err error) Outcome {
	var invalid *OptionError
	switch {
	case err == nil:
		return OutcomeOK
	case errors.Is(err, ErrClosed):
		return OutcomeClosed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return OutcomeCancelled
	case errors.Is(err, ErrNotHeld):
		return OutcomeNotHeld
	case errors.Is(err, ErrTaken):
		return OutcomeTaken
	case errors.Is(err, ErrNoQuorum):
		return OutcomeNoQuorum
	case errors.Is(err, ErrExpired):
		return OutcomeExpired
	case errors.As(err, &invalid):
		return OutcomeInvalid
	}
	return OutcomeFailed
}
