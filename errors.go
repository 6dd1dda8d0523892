package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/grant"
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

	// ErrSelf is returned by Lock and its siblings when the caller has the lock itself, and would
	// wait for itself. Its context is that of a hold of the same lock, or was derived from it. The
	// error matches ErrTaken too, and nothing was sent. See [Mutex.Hold].
	ErrSelf = errors.New("redlock: lock held by the caller itself")

	// ErrNoQuorum is returned when too few nodes answered. Redis is in trouble, or the way to it
	// is. After Lock, what may be left on nodes that did not answer expires by itself. After
	// Unlock, nodes may still hold the lock until its expiry, and Unlock may be called again.
	// After Extend or Valid, the lock is still held until [Mutex.Until].
	ErrNoQuorum = errors.New("redlock: no quorum of nodes answered")

	// ErrExpired is returned when the lock, or the attempt to get it, ran out of time. It is also
	// returned when the nodes proved that the lock is gone. The lock is not held any more.
	ErrExpired = errors.New("redlock: lock expired")

	// ErrNotReleased matches every error of an Unlock, and no other: alone, or joined with the
	// error of the function that Do has called. The work under the lock was done. What is left of
	// the lock on the nodes expires by itself.
	ErrNotReleased = errors.New("redlock: lock not released")

	// ErrNotHeld is returned by Unlock, Extend and Valid on a mutex that never locked or is
	// already unlocked. Nothing was sent.
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

// decisions are the errors that speak of the whole quorum. One node's error never
// counts as one of them, nor as the end of the caller's context.
var decisions = []error{
	ErrFailed, ErrTaken, ErrSelf, ErrNoQuorum, ErrExpired, ErrNotReleased, ErrNotHeld, ErrLost,
	ErrReleased, ErrClosed, context.Canceled, context.DeadlineExceeded,
}

// Error is the error of an operation on a lock. With [errors.Is] it matches the package's Err
// variables and the context's errors only if they are true of the whole operation. [ErrNodeTimeout]
// and any other error match if they are true of one of the nodes. With [errors.As] it yields the
// first [*NodeError], or a *multierror.Error of hashicorp/go-multierror. That has a NodeError for
// every node that did not do as it was asked, in node order.
type Error struct {
	// Name is the lock's name, without the key prefix.
	Name string
	// Owner is the text that the holder of the lock gave to [WithOwner], cut to 64 bytes. It is ""
	// if the holder gave none, or if the error does not match ErrTaken. It is also "" if a mutex
	// without an owner had a single try or was ended by its context, or if the nodes have not told
	// in time: see WithOwner.
	Owner string

	failed string  // what did not happen: "not acquired"
	kinds  []error // the decisions that this error matches
	reason string  // why, in words
	more   string  // follows the reason, and what is known of the owner
	causes []error // errors.Is looks into these; they are not in the text
	last   *Error  // what the last attempt had come to; one of the causes
	nodes  *multierror.Error
}

// Error says in one line what failed, why, and which nodes did what.
func (e *Error) Error() string {
	return fmt.Sprintf("redlock: %s %s: %s", errtext.Name(e.Name), e.failed, e.why())
}

// why says why it failed, and which nodes did what.
func (e *Error) why() string {
	text := e.reason
	if e.Owner != "" && e.last == nil {
		text += fmt.Sprintf(" by %q", e.Owner)
	}
	text = errtext.Text(text + e.more)
	if e.last != nil {
		text += "; the last attempt: " + e.last.why()
	}
	if e.nodes != nil {
		text += " (" + errtext.List(e.nodes.Errors) + ")"
	}
	return text
}

// Is makes [errors.Is] work as the type's comment says.
func (e *Error) Is(target error) bool {
	for _, k := range e.kinds {
		if k == target {
			return true
		}
	}
	for _, d := range decisions {
		if d == target {
			return false
		}
	}
	return e.nodes != nil && errors.Is(e.nodes, target)
}

// As makes [errors.As] find the nodes' errors.
func (e *Error) As(target any) bool {
	if e.nodes == nil {
		return false
	}
	if t, ok := target.(**multierror.Error); ok {
		*t = e.nodes
		return true
	}
	return errors.As(e.nodes, target)
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
	return nodeName(e.Node, e.Addr) + ": " + errtext.Text(e.Err.Error())
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
// returns: an integer, usually. It is never taken for a yes.
type ReplyError struct {
	Script string // the script's name
	Reply  any    // what came instead
}

func (e *ReplyError) Error() string { return (*wire.ReplyError)(e).Error() }

// GuardError is the outcome of a node that has not been up long enough; see [WithRestartGuard].
type GuardError struct {
	// Wait is how long the node will go on refusing, rounded up to whole seconds.
	Wait time.Duration
}

func (e *GuardError) Error() string { return (*wire.GuardError)(e).Error() }

// exported returns the error of a node so that a user finds those of package wire in it, and so
// that its text can be shown: see [errtext.Said].
func exported(err error) error {
	if err == nil {
		return nil
	}
	text := errtext.Said(err.Error())
	var found error
	var guard *wire.GuardError
	var reply *wire.ReplyError
	switch {
	case errors.As(err, &guard):
		found = (*GuardError)(guard)
	case errors.As(err, &reply):
		found = (*ReplyError)(reply)
	case text == err.Error():
		return err
	default:
		return errtext.Error(text, err)
	}
	if found.Error() == err.Error() {
		return found
	}
	return errtext.Error(text, err, found)
}

// What a node says of a key that should be ours.
var (
	errNodeTaken        = &nodeAnswer{"taken", ErrTaken}
	errNodeGone         = &nodeAnswer{"the key is gone", ErrExpired}
	errNodeNotHandedOff = &nodeAnswer{"the key is not that of the handoff", ErrExpired}
	errNodeForeign      = &nodeAnswer{"the key is somebody else's", ErrExpired}
)

// nodeAnswer is an answer, not a failure, of a node.
type nodeAnswer struct {
	text string
	is   error // what it matches when it is looked at alone
}

func (a *nodeAnswer) Error() string { return a.text }

func (a *nodeAnswer) Is(target error) bool { return target == a.is }

// What errors say that has not happened when a Lock or an Unlock fails.
const (
	notAcquired = "not acquired"
	notReleased = "not released"
)

// newError returns the error of an operation on the lock of that name. It matches the kinds, and
// that of an Unlock matches ErrNotReleased.
func newError(name, failed, reason string, kinds ...error) *Error {
	if failed == notReleased {
		kinds = append(kinds, ErrNotReleased)
	}
	return &Error{Name: name, failed: failed, reason: reason, kinds: kinds}
}

// causedBy adds causes, which errors.Is finds too.
func (e *Error) causedBy(causes ...error) *Error {
	e.causes = append(e.causes, causes...)
	return e
}

// adding adds text that follows the reason, and what is known of the owner.
func (e *Error) adding(text string) *Error {
	e.more += text
	return e
}

// of adds what the nodes did.
func (e *Error) of(nodes *multierror.Error) *Error {
	e.nodes = nodes
	return e
}

// closedError is what an operation comes to that has begun after Close.
func closedError(name, failed string) *Error {
	return newError(name, failed, "closed", ErrFailed, ErrClosed)
}

// attemptError is the error of an attempt that did not win, or nil if there is none.
func (m *Mutex) attemptError(d *grant.FailedAttempt) error {
	switch {
	case d == nil:
		return nil
	case d.Err != nil:
		return d.Err
	}
	w := d.Why()
	n, q, kind, reason, more := len(w.Outcomes), m.core.quorum, ErrTaken, w.Late, ""
	switch w.Kind {
	case grant.Late:
		kind = ErrExpired
	case grant.Taken:
		reason = fmt.Sprintf("taken on %d of %d nodes", w.Refused, n)
	case grant.Divided:
		reason = fmt.Sprintf("taken on %d of %d nodes", w.Refused, n)
		more = fmt.Sprintf(", granted by %d, %d needed", w.Granted, q)
	default:
		kind = ErrNoQuorum
		reason = fmt.Sprintf("no quorum: granted by %d of %d nodes, taken on %d, %d needed",
			w.Granted, n, w.Refused, q)
	}
	taken := func(quorum.Reply) error { return errNodeTaken }
	return newError(m.name, notAcquired, reason, ErrFailed, kind).adding(more).
		of(m.core.nodeErrors(w.Outcomes, taken))
}

// nodeErrors lists the nodes that did not do as they were asked; answer says what
// a reply that is not a yes means.
func (c *core) nodeErrors(outcomes quorum.Outcomes,
	answer func(quorum.Reply) error) *multierror.Error {
	list := &multierror.Error{ErrorFormat: errtext.List}
	for i, o := range outcomes {
		err := exported(o.Err)
		if o.No() {
			err = answer(o.Reply)
		}
		if err != nil {
			node := &NodeError{Node: i, Addr: c.nodes[i].Addr(), Err: err}
			list.Errors = append(list.Errors, node)
		}
	}
	if len(list.Errors) == 0 {
		return nil
	}
	return list
}

// misuse is the error of a mutex with a mistake in the options.
func (m *Mutex) misuse(failed string, kinds ...error) *Error {
	return newError(m.name, failed, m.err.Error(), kinds...).causedBy(m.err)
}

// fail is the error of an operation on the lock.
func (m *Mutex) fail(failed string, kind error, reason string, causes ...error) *Error {
	return newError(m.name, failed, reason, kind).causedBy(causes...)
}

// ended is the error of an operation that the caller's context ended; last is
// what the last attempt before that had come to, or nil.
func ended(ctx context.Context, name, failed string, last error, kinds ...error) *Error {
	reason, causes := why(ctx)
	e := newError(name, failed, reason, kinds...).causedBy(causes...)
	e.after(last)
	return e
}

// after adds what the last attempt had come to, or nil.
func (e *Error) after(last error) {
	if errors.As(last, &e.last) {
		e.causes = append(e.causes, last)
	}
}

// why says for what reason ctx is done, and returns its error and its cause.
func why(ctx context.Context) (text string, causes []error) {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err.Error(), []error{err}
	}
	return fmt.Sprintf("%v (%s)", err, errtext.Text(cause.Error())), []error{err, cause}
}

// nodeName is what errors and reports call a node.
func nodeName(node int, addr string) string {
	if addr == "" {
		return fmt.Sprintf("node %d", node)
	}
	return fmt.Sprintf("node %d (%s)", node, addr)
}
