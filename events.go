package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/notify"
)

// Events are functions that are told what happens to locks. Nil ones are skipped. Give them to
// [WithEvents]. [LogEvents] makes some that write a log, and the module otelredlock some that
// make spans and metrics.
//
// Lost, Overrun, NoQuorum, Waiting and NodeState tell of trouble, and cost next to nothing as long
// as there is none. The others are told of everything.
//
// The functions must be safe for concurrent use and must not block: callers, renewals and the
// goroutines of clients wait for them. They are called without any lock of the library. What
// becomes of one mutex is told in the order in which it happened, one after the other: how Acquire,
// Extend and Release end, End, Lost and Overrun. If several goroutines use the mutex, one of them
// may tell what another has done, and that one returns earlier.
//
// A panic in one of the functions is recovered: it would leave a lock locked, or end the process.
// The first is reported to [slog.Default], with its stack.
type Events struct {
	// Acquire is called when Lock, TryLock, Hold or Do begins. The function that it returns, if not
	// nil, is called when the lock is granted or the call fails. Clients are given the values of
	// the context that it returns: what they trace is part of what is begun here. The end of that
	// context has no meaning. If it is nil, it stands for ctx. The same is true of Extend and
	// Release.
	Acquire func(ctx context.Context, a Acquiring) (context.Context, func(Acquired))
	// Extend is called when Extend, or a renewal of a hold, begins.
	Extend func(ctx context.Context, e Extending) (context.Context, func(Extended))
	// Release is called when Unlock begins, or Close releases what a hold holds.
	Release func(ctx context.Context, r Releasing) (context.Context, func(Released))

	// End is called once for each lock whose grant Acquire has told, when its holder relies on it
	// no more: it is being released, or was lost. A held context is done before. If a lock is not
	// held by Hold and is left to expire, its end is told when its mutex is locked again.
	End func(e Ended)
	// Lost is called before End if the lock was not released by its holder: its Err is then not
	// [ErrReleased].
	Lost func(e Ended)
	// Overrun is called once for a lock whose Unlock or Extend is called after [Mutex.Until].
	// The work under the lock went on for too long, and somebody else may have had the lock.
	Overrun func(o Overrun)
	// NoQuorum is called when an operation has failed because too few nodes answered. It is also
	// called when the last attempt before the end of the context had failed so. Of the renewals
	// that fail in a row only the first is told.
	NoQuorum func(f Failure)
	// Waiting is called when a Lock has waited for two seconds, and then each time it has waited
	// twice as long. Of the callers of a process who wait for one lock only the first in line is
	// told of, and the pauses are theirs together. Nothing need be wrong: see Err.
	Waiting func(w Waiting)
	// LongHold is called when a lock has been held for the time of [WithLongHold], and then each
	// time it has been held for twice as long: perhaps somebody has forgotten its Unlock.
	LongHold func(h LongHold)
	// NodeState is called when a node goes out of order, which is at the third error in a row to
	// commands of one kind. It is called again when the node answers such commands and has failed
	// none for a second, or answers any command and has failed none for a minute. An error says
	// nothing if the node has answered a command of that kind since the one that failed was sent.
	// NodeState is told by the mutexes with this function that use the node.
	NodeState func(s NodeState)
	// Node is called for each command when the client has returned from it. The operation that the
	// command is a part of may have ended before. It costs more than the others.
	Node func(c NodeCall)
}

// Acquiring is a Lock, TryLock, Hold or Do that begins.
type Acquiring struct {
	Name, Key string // of the lock, without and with the prefix of WithKeyPrefix
	Tries     int    // how many it may make, or Unlimited
	Fencing   bool   // WithFencing is set
}

// Acquired is what became of an Acquiring.
type Acquired struct {
	Acquiring
	Outcome  Outcome       // how it ended
	Attempts int           // how often it has asked for the lock; to stand in a queue is none
	Queued   bool          // it has waited for the lock to be free, or behind others
	Waited   time.Duration // until the attempt that won began, or all of Took
	Took     time.Duration // the whole call
	Raised   bool          // the nodes' fence counters differed, which has cost a round trip
	Token    uint64        // see Mutex.FencingToken
	Until    time.Time     // see Mutex.Until; the zero time if it was not granted
	Err      error         // what the call returns
}

// Waiting is a Lock, Hold or Do that has waited for long, and goes on.
type Waiting struct {
	Acquiring
	Waited  time.Duration // so far
	Callers int           // of this process who wait for the lock, with this one
	Ahead   int           // other processes before this one in the nodes' queue, as far as is known
	// Err is why the lock was not granted, as the nodes have said last: it matches [ErrTaken] if
	// somebody has it, and [ErrNoQuorum] if the nodes are the reason. It is nil if they have not
	// said anything yet.
	Err error
}

// LongHold is a lock that Hold or Do has kept for long, and goes on keeping.
type LongHold struct {
	Name, Key string        // of the lock, see Acquiring
	Token     uint64        // see Mutex.FencingToken; 0 without fencing
	Held      time.Duration // since the attempt that won began
}

// Extending is an Extend, or a renewal, that begins.
type Extending struct {
	Name, Key string // of the lock, see Acquiring
	Token     uint64 // see Mutex.FencingToken; 0 without fencing
	Renewal   bool   // by a hold
}

// Extended is what became of an Extending.
type Extended struct {
	Extending
	Outcome Outcome       // how it ended
	Took    time.Duration // the whole call
	// Left is how much was left of the lock at the end of the call, had it not been extended. With
	// holds this is the early warning: it is about two thirds of the expiry while all is well, and
	// the lock is lost at 0. It is negative if the lock had run out, and 0 if until was not known.
	Left   time.Duration
	Until  time.Time // as moved by this call; the zero time if it failed
	Healed int       // nodes that had lost the key and are being given it again
	Err    error     // what Extend returns
}

// Releasing is an Unlock that begins, or what Close does with a hold.
type Releasing struct {
	Name, Key string // of the lock, see Acquiring
	Token     uint64 // see Mutex.FencingToken; 0 without fencing
	Closing   bool   // by Close
}

// Released is what became of a Releasing.
type Released struct {
	Releasing
	Outcome Outcome       // how it ended
	Took    time.Duration // the whole call
	Err     error         // what Unlock returns
}

// Ended is the end of a lock that was granted.
type Ended struct {
	Name, Key string        // of the lock, see Acquiring
	Token     uint64        // see Mutex.FencingToken; 0 without fencing
	Reason    EndReason     // why
	Held      time.Duration // since the attempt that won began
	Overdue   time.Duration // since Until, or 0 if that lies ahead
	Err       error         // the cause of a held context; of a lock without one, why it has ended
}

// EndReason is why nobody relies on a lock any more.
type EndReason string

// The reasons for which a lock ends.
const (
	EndReleased  EndReason = "released"   // by Unlock
	EndClosed    EndReason = "closed"     // by Close
	EndLost      EndReason = "lost"       // not extended in time, or gone on the nodes
	EndMargin    EndReason = "margin"     // not extended by the margin of WithMargin
	EndMaxHold   EndReason = "max_hold"   // see WithMaxHold
	EndHandedOff EndReason = "handed_off" // by Handoff
	EndReplaced  EndReason = "replaced"   // granted to its own mutex again, without an Unlock
)

// Overrun is an Unlock or Extend that came too late.
type Overrun struct {
	Name, Key string        // of the lock, see Acquiring
	Token     uint64        // see Mutex.FencingToken; 0 without fencing
	Operation string        // "extend" or "release"
	By        time.Duration // since Until
	// Err is what the call returns. It is nil if a quorum still had the lock: then nobody else has
	// had it.
	Err error
}

// Failure is an operation that has failed.
type Failure struct {
	Name, Key string // of the lock, see Acquiring
	Operation string // "acquire", "extend" or "release"
	Err       error  // what the call returns
}

// NodeState is a node that has gone out of order, or answers again.
type NodeState struct {
	Node int    // its place in the call of New
	Addr string // or "" if its pool does not tell
	Up   bool   // it answers again
	Err  error  // of its last command, if it is not up
}

// NodeCall is one command on one node.
type NodeCall struct {
	Name, Key string        // of the lock, see Acquiring
	Node      int           // its place in the call of New
	Addr      string        // or "" if its pool does not tell
	Operation string        // "acquire", "raise", "extend", "valid", "release", "heal" and others
	Took      time.Duration // how long the command took
	Err       error         // nil if the node has answered, whatever the answer
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
	if err == nil {
		return OutcomeOK
	}
	for _, o := range []struct {
		is error
		Outcome
	}{
		{ErrClosed, OutcomeClosed},
		{context.Canceled, OutcomeCancelled},
		{context.DeadlineExceeded, OutcomeCancelled},
		{ErrNotHeld, OutcomeNotHeld},
		{ErrTaken, OutcomeTaken},
		{ErrNoQuorum, OutcomeNoQuorum},
		{ErrExpired, OutcomeExpired},
	} {
		if errors.Is(err, o.is) {
			return o.Outcome
		}
	}
	var invalid *OptionError
	if errors.As(err, &invalid) {
		return OutcomeInvalid
	}
	return OutcomeFailed
}

// WithEvents tells e what happens to the locks. The functions are copied. The option may be given
// several times, also to [New]'s Redlock by [Redlock.With] and to one of its mutexes. Then all are
// told, in the order of the options, and each is given the context of the one before. Nil is an
// [*OptionError]. Default: nobody is told, which costs nothing.
func WithEvents(e *Events) Option {
	if e == nil {
		return option(func(c *config) {
			c.eventsErr = &OptionError{"WithEvents", nil, "needs events that are not nil"}
		})
	}
	own := e.guarded()
	return option(func(c *config) { c.events = c.events.join(own) })
}

// join returns events that tell both. The first may be nil.
func (e *Events) join(next *Events) *Events {
	if e == nil {
		return next
	}
	return &Events{
		Acquire:   notify.Nested(e.Acquire, next.Acquire),
		Extend:    notify.Nested(e.Extend, next.Extend),
		Release:   notify.Nested(e.Release, next.Release),
		End:       notify.Both(e.End, next.End),
		Lost:      notify.Both(e.Lost, next.Lost),
		Overrun:   notify.Both(e.Overrun, next.Overrun),
		NoQuorum:  notify.Both(e.NoQuorum, next.NoQuorum),
		Waiting:   notify.Both(e.Waiting, next.Waiting),
		LongHold:  notify.Both(e.LongHold, next.LongHold),
		NodeState: notify.Both(e.NodeState, next.NodeState),
		Node:      notify.Both(e.Node, next.Node),
	}
}

// guarded returns a copy of e whose functions do not panic.
func (e *Events) guarded() *Events {
	p := &notify.Panics{}
	return &Events{
		Acquire:   notify.GuardBegin(p, "Acquire", e.Acquire),
		Extend:    notify.GuardBegin(p, "Extend", e.Extend),
		Release:   notify.GuardBegin(p, "Release", e.Release),
		End:       notify.Guard(p, "End", e.End),
		Lost:      notify.Guard(p, "Lost", e.Lost),
		Overrun:   notify.Guard(p, "Overrun", e.Overrun),
		NoQuorum:  notify.Guard(p, "NoQuorum", e.NoQuorum),
		Waiting:   notify.Guard(p, "Waiting", e.Waiting),
		LongHold:  notify.Guard(p, "LongHold", e.LongHold),
		NodeState: notify.Guard(p, "NodeState", e.NodeState),
		Node:      notify.Guard(p, "Node", e.Node),
	}
}
