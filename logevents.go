package redlock

import (
	"context"
	"log/slog"
)

// LogEvents returns [Events] that write to a logger, or to [slog.Default] if it is nil. At level
// Warn it tells of lost locks, overruns, operations without a quorum, and nodes that go out of
// order or answer again; at level Debug of how every Lock, extension and Unlock ends. A level
// that is off costs next to nothing. Single commands and their errors are not logged.
func LogEvents(l *slog.Logger) *Events {
	if l == nil {
		l = slog.Default()
	}
	e := eventLog{l}
	return &Events{
		Acquire: e.acquire, Extend: e.extend, Release: e.release,
		Lost: e.lost, Overrun: e.overrun, NoQuorum: e.noQuorum, NodeState: e.nodeState,
	}
}

type eventLog struct{ *slog.Logger }

// log writes one line about a lock. The token is left out if it is 0, and err if it is nil.
func (e eventLog) log(
	ctx context.Context, level slog.Level, text, name string, token uint64, err error,
	more ...slog.Attr,
) {
	attrs := make([]slog.Attr, 0, 3+len(more))
	attrs = append(attrs, slog.String("lock", name))
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
		text := "lock acquired"
		if a.Err != nil {
			text = "lock not acquired"
		}
		e.log(ctx, slog.LevelDebug, text, a.Name, a.Token, a.Err, slog.Duration("took", a.Took),
			slog.Int("attempts", a.Attempts), slog.Bool("queued", a.Queued))
	}
}

func (e eventLog) extend(ctx context.Context, _ Extending) (context.Context, func(Extended)) {
	if !e.debug(ctx) {
		return ctx, nil
	}
	return ctx, func(x Extended) {
		text := "lock extended"
		if x.Err != nil {
			text = "lock not extended"
		}
		e.log(ctx, slog.LevelDebug, text, x.Name, x.Token, x.Err, slog.Duration("took", x.Took),
			slog.Duration("left", x.Left), slog.Bool("renewal", x.Renewal))
	}
}

func (e eventLog) release(ctx context.Context, _ Releasing) (context.Context, func(Released)) {
	if !e.debug(ctx) {
		return ctx, nil
	}
	return ctx, func(r Released) {
		text := "lock released"
		if r.Err != nil {
			text = "lock not released"
		}
		e.log(ctx, slog.LevelDebug, text, r.Name, r.Token, r.Err, slog.Duration("took", r.Took))
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

func (e eventLog) nodeState(s NodeState) {
	ctx, node := context.Background(), slog.String("node", nodeName(s.Node, s.Addr))
	if s.Up {
		e.LogAttrs(ctx, slog.LevelWarn, "redlock: node answers again", node)
	} else {
		e.LogAttrs(ctx, slog.LevelWarn, "redlock: node out of order", node, slog.Any("err", s.Err))
	}
}
