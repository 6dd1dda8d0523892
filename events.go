package redlock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redlock-go/redlock/internal/errtext"
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
	// Acquire is called when Lock, TryLock, Hold, Adopt or Do begins, and for each name that DoAll,
	// DoAny and their siblings try. The function that it returns, if not nil, is called when the
	// lock is granted or the call fails. Clients are given the values of the context that it
	// returns: what they trace is part of what is begun here. The end of that context has no
	// meaning. If it is nil, it stands for ctx. The same is true of Extend and Release.
	Acquire func(ctx context.Context, a Acquiring) (context.Context, func(Acquired))
	// Extend is called when Extend, or a renewal of a hold, begins.
	Extend func(ctx context.Context, e Extending) (context.Context, func(Extended))
	// Release is called when Unlock begins, or Close releases what a hold holds.
	Release func(ctx context.Context, r Releasing) (context.Context, func(Released))

	// End is called once for each lock whose grant Acquire has told, when its holder relies on it
	// no more: it is being released, or was lost. A held context is done before. If a lock is not
	// held by Hold and is left to expire, its end is told when its mutex is locked again.
	End func(e Ended)
	// Lost is called before End if the holder has lost the lock: for the reasons [EndLost],
	// [EndMargin] and [EndMaxHold].
	Lost func(e Ended)
	// Overrun is called once for a lock whose first Unlock, or an Extend, comes after
	// [Mutex.Until], unless Close came before it. Work whose hold was lost has a node timeout more
	// to stop. The work under the lock went on for too long, and somebody else may have had it.
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
	// NodeState is called when a node is marked down, which is at the third error in a row to
	// commands of one kind. It is called again when the node answers such commands and has failed
	// none for a second, or answers any command and has failed none for a minute. An error says
	// nothing if the node has answered a command of that kind since the one that failed was sent.
	// NodeState is told by the mutexes with this function that use the node.
	NodeState func(s NodeState)
	// Node is called for each command when the client has returned from it. The operation that the
	// command is a part of may have ended before. It costs more than the others.
	Node func(c NodeCall)
}

// Acquiring is an acquisition that begins: see [Events].
type Acquiring struct {
	Name, Key string // of the lock, without and with the prefix of WithKeyPrefix
	Tries     int    // how many it may make, or Unlimited
	Fencing   bool   // WithFencing is set
	Shared    bool   // WithShared is set
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

// Operation is what somebody asked of a lock.
type Operation string

// The operations that can fail.
const (
	OperationAcquire Operation = "acquire" // Lock and its siblings
	OperationExtend  Operation = "extend"  // Extend, or by a hold
	OperationRelease Operation = "release" // Unlock, or by Do or Close
)

// Overrun is an Unlock or Extend that came too late.
type Overrun struct {
	Name, Key string        // of the lock, see Acquiring
	Token     uint64        // see Mutex.FencingToken; 0 without fencing
	Operation Operation     // OperationExtend or OperationRelease
	By        time.Duration // since Until
	// Err is what the call returns. It is nil if a quorum still had the lock: then nobody else has
	// had it.
	Err error
}

// Failure is an operation that has failed.
type Failure struct {
	Name, Key string    // of the lock, see Acquiring
	Operation Operation // what has failed
	Err       error     // what the call returns
}

// NodeState is a node that was marked down, or answers again.
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
	Command   string        // "acquire" if it is SET, or the script's name: see Scripts
	Took      time.Duration // how long the command took
	Err       error         // nil if the node has answered, whatever the answer
}

// WithEvents tells e what happens to the locks. The functions are copied. The option may be given
// several times, also to [New]'s Redlock by [Redlock.With] and to one of its mutexes. Then all are
// told, in the order of the options, and each is given the context of the one before. Nil is an
// [*OptionError]. Default: nobody is told, which costs nothing.
func WithEvents(e *Events) Option {
	if e == nil {
		return option(func(c *config) {
			c.wrong.add("WithEvents", nil, "needs events that are not nil")
		})
	}
	p, copied := &panics{}, *e
	own := nobody.join(p, &copied)
	return option(func(c *config) {
		if c.events == nobody {
			c.events = own // the same for all mutexes: they share reads by it
		} else {
			c.events = c.events.join(p, &copied)
		}
	})
}

// join returns Events that tell e, and then next. The functions of next may panic: p recovers that.
func (e *Events) join(p *panics, next *Events) *Events {
	return &Events{
		Acquire:   nested(e.Acquire, guardBegin(p, "Acquire", next.Acquire)),
		Extend:    nested(e.Extend, guardBegin(p, "Extend", next.Extend)),
		Release:   nested(e.Release, guardBegin(p, "Release", next.Release)),
		End:       both(e.End, guard(p, "End", next.End)),
		Lost:      both(e.Lost, guard(p, "Lost", next.Lost)),
		Overrun:   both(e.Overrun, guard(p, "Overrun", next.Overrun)),
		NoQuorum:  both(e.NoQuorum, guard(p, "NoQuorum", next.NoQuorum)),
		Waiting:   both(e.Waiting, guard(p, "Waiting", next.Waiting)),
		LongHold:  both(e.LongHold, guard(p, "LongHold", next.LongHold)),
		NodeState: both(e.NodeState, guard(p, "NodeState", next.NodeState)),
		Node:      both(e.Node, guard(p, "Node", next.Node)),
	}
}

// LogEvents returns [Events] that write to a logger, or to [slog.Default] if it is nil. Level Warn
// tells of lost locks, overruns, operations without a quorum, nodes that are marked down or answer
// again, long holds, and calls that wait for long because of the nodes. Level Info tells of those
// that wait because somebody else has the lock, and level Debug how every Lock, extension and
// Unlock ends. A level that is off costs next to nothing. Single commands and their errors are not
// logged.
func LogEvents(l *slog.Logger) *Events {
	if l == nil {
		l = slog.Default()
	}
	e := eventLog{l}
	return &Events{
		Acquire: logged[Acquiring](e, func(ctx context.Context, a Acquired) {
			e.ended(ctx, "acquired", a.Name, a.Token, a.Err, slog.Duration("took", a.Took),
				slog.Int("attempts", a.Attempts), slog.Bool("queued", a.Queued))
		}),
		Extend: logged[Extending](e, func(ctx context.Context, x Extended) {
			e.ended(ctx, "extended", x.Name, x.Token, x.Err, slog.Duration("took", x.Took),
				slog.Duration("left", x.Left), slog.Bool("renewal", x.Renewal))
		}),
		Release: logged[Releasing](e, func(ctx context.Context, r Released) {
			e.ended(ctx, "released", r.Name, r.Token, r.Err, slog.Duration("took", r.Took))
		}),
		Lost: e.lost, Overrun: e.overrun, NoQuorum: e.noQuorum, Waiting: e.waiting,
		LongHold: e.longHold, NodeState: e.nodeState,
	}
}

type eventLog struct{ *slog.Logger }

// logged returns what logs the ends of operations, if their level is on when they begin.
func logged[B, E any](e eventLog, end func(context.Context, E)) beginFunc[B, E] {
	return func(ctx context.Context, _ B) (context.Context, func(E)) {
		if !e.Enabled(ctx, slog.LevelDebug) {
			return ctx, nil
		}
		return ctx, func(what E) { end(ctx, what) }
	}
}

// ended writes how an operation ended.
func (e eventLog) ended(ctx context.Context, what, name string, token uint64, err error,
	more ...slog.Attr) {
	if err != nil {
		what = "not " + what
	}
	e.log(ctx, slog.LevelDebug, "lock "+what, name, token, err, more...)
}

// log writes one line about a lock, if the level is on. The token is left out if it is 0, and err
// if it is nil.
func (e eventLog) log(
	ctx context.Context, level slog.Level, text, name string, token uint64, err error,
	more ...slog.Attr,
) {
	if !e.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 3+len(more))
	attrs = append(attrs, slog.String("lock", errtext.Cut(name)))
	if token != 0 {
		attrs = append(attrs, slog.Uint64("token", token))
	}
	attrs = append(attrs, more...)
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	e.LogAttrs(ctx, level, "redlock: "+text, attrs...)
}

func (e eventLog) warn(text, name string, token uint64, err error, more ...slog.Attr) {
	e.log(context.Background(), slog.LevelWarn, text, name, token, err, more...)
}

func (e eventLog) lost(d Ended) {
	e.warn("lock lost", d.Name, d.Token, d.Err, slog.String("reason", string(d.Reason)),
		slog.Duration("held", d.Held), slog.Duration("overdue", d.Overdue))
}

func (e eventLog) overrun(o Overrun) {
	e.warn("lock used after its end", o.Name, o.Token, o.Err,
		slog.String("operation", string(o.Operation)), slog.Duration("by", o.By))
}

func (e eventLog) noQuorum(f Failure) {
	e.warn("no quorum of nodes", f.Name, 0, f.Err, slog.String("operation", string(f.Operation)))
}

func (e eventLog) waiting(w Waiting) {
	level := slog.LevelWarn
	if w.Err == nil || errors.Is(w.Err, ErrTaken) {
		level = slog.LevelInfo
	}
	e.log(context.Background(), level, "still waiting for the lock", w.Name, 0, w.Err,
		slog.Duration("waited", w.Waited), slog.Int("callers", w.Callers),
		slog.Int("ahead", w.Ahead))
}

func (e eventLog) longHold(h LongHold) {
	e.warn("lock held for long", h.Name, h.Token, nil, slog.Duration("held", h.Held))
}

func (e eventLog) nodeState(s NodeState) {
	ctx, node := context.Background(), slog.String("node", nodeName(s.Node, s.Addr))
	if s.Up {
		e.LogAttrs(ctx, slog.LevelWarn, "redlock: node answers again", node)
	} else {
		e.LogAttrs(ctx, slog.LevelWarn, "redlock: node down", node, slog.Any("err", s.Err))
	}
}
