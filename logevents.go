package redlock

import (
	"context"
	"errors"
	"log/slog"

	"github.com/redlock-go/redlock/internal/errtext"
)

// LogEvents returns [Events] that write to a logger, or to [slog.Default] if it is nil. Level Warn
// tells of lost locks, overruns, operations without a quorum, nodes that go out of order or answer
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
		Acquire: e.acquire, Extend: e.extend, Release: e.release,
		Lost: e.lost, Overrun: e.overrun, NoQuorum: e.noQuorum, Waiting: e.waiting,
		LongHold: e.longHold, NodeState: e.nodeState,
	}
}

type eventLog struct{ *slog.Logger }

// ended writes how an operation ended.
func (e eventLog) ended(ctx context.Context, what, name string, token uint64, err error,
	more ...slog.Attr) {
	if err != nil {
		what = "not " + what
	}
	e.log(ctx, slog.LevelDebug, "lock "+what, name, token, err, more...)
}

// log writes one line about a lock. The token is left out if it is 0, and err if it is nil.
func (e eventLog) log(
	ctx context.Context, level slog.Level, text, name string, token uint64, err error,
	more ...slog.Attr,
) {
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

func (e eventLog) debug(ctx context.Context) bool { return e.Enabled(ctx, slog.LevelDebug) }

func (e eventLog) acquire(ctx context.Context, _ Acquiring) (context.Context, func(Acquired)) {
	if !e.debug(ctx) {
		return ctx, nil
	}
	return ctx, func(a Acquired) {
		e.ended(ctx, "acquired", a.Name, a.Token, a.Err, slog.Duration("took", a.Took),
			slog.Int("attempts", a.Attempts), slog.Bool("queued", a.Queued))
	}
}

func (e eventLog) extend(ctx context.Context, _ Extending) (context.Context, func(Extended)) {
	if !e.debug(ctx) {
		return ctx, nil
	}
	return ctx, func(x Extended) {
		e.ended(ctx, "extended", x.Name, x.Token, x.Err, slog.Duration("took", x.Took),
			slog.Duration("left", x.Left), slog.Bool("renewal", x.Renewal))
	}
}

func (e eventLog) release(ctx context.Context, _ Releasing) (context.Context, func(Released)) {
	if !e.debug(ctx) {
		return ctx, nil
	}
	return ctx, func(r Released) {
		e.ended(ctx, "released", r.Name, r.Token, r.Err, slog.Duration("took", r.Took))
	}
}

func (e eventLog) warn(text, name string, token uint64, err error, more ...slog.Attr) {
	if ctx := context.Background(); e.Enabled(ctx, slog.LevelWarn) {
		e.log(ctx, slog.LevelWarn, text, name, token, err, more...)
	}
}

func (e eventLog) lost(d Ended) {
	e.warn("lock lost", d.Name, d.Token, d.Err, slog.String("reason", string(d.Reason)),
		slog.Duration("held", d.Held), slog.Duration("overdue", d.Overdue))
}

func (e eventLog) overrun(o Overrun) {
	e.warn("lock used after its end", o.Name, o.Token, o.Err,
		slog.String("operation", o.Operation), slog.Duration("by", o.By))
}

func (e eventLog) noQuorum(f Failure) {
	e.warn("no quorum of nodes", f.Name, 0, f.Err, slog.String("operation", f.Operation))
}

func (e eventLog) waiting(w Waiting) {
	ctx, level := context.Background(), slog.LevelWarn
	if w.Err == nil || errors.Is(w.Err, ErrTaken) {
		level = slog.LevelInfo
	}
	if e.Enabled(ctx, level) {
		e.log(ctx, level, "still waiting for the lock", w.Name, 0, w.Err,
			slog.Duration("waited", w.Waited), slog.Int("callers", w.Callers),
			slog.Int("ahead", w.Ahead))
	}
}

func (e eventLog) longHold(h LongHold) {
	e.warn("lock held for long", h.Name, h.Token, nil, slog.Duration("held", h.Held))
}

func (e eventLog) nodeState(s NodeState) {
	ctx, node := context.Background(), slog.String("node", nodeName(s.Node, s.Addr))
	if s.Up {
		e.LogAttrs(ctx, slog.LevelWarn, "redlock: node answers again", node)
	} else {
		e.LogAttrs(ctx, slog.LevelWarn, "redlock: node out of order", node, slog.Any("err", s.Err))
	}
}
