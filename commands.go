package redlock

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// acquire is the command that asks a node for the lock: a plain SET NX where that is enough.
func (m *Mutex) acquire(value string) quorum.Op {
	if !m.cfg.fencing && !m.cfg.guarded {
		return func(ctx context.Context, n *quorum.Node) (int64, error) {
			return setNX(ctx, n, m.key, value, m.cfg.expiry)
		}
	}
	guard := int64(0)
	if m.cfg.guarded {
		// uptime_in_seconds is truncated: one second more.
		guard = int64((m.cfg.guard+time.Second-1)/time.Second) + 1
	}
	return m.acquireScripted(value, guard, m.core.proposal())
}

// acquireAgain is the command that heals a node: it takes no notice of the restart guard, and
// lifts the node's counter to the token.
func (m *Mutex) acquireAgain(l *lease) quorum.Op {
	if l.token == 0 {
		return func(ctx context.Context, n *quorum.Node) (int64, error) {
			return setNX(ctx, n, m.key, l.value, m.cfg.expiry)
		}
	}
	return m.acquireScripted(l.value, 0, l.token)
}

func (m *Mutex) acquireScripted(value string, guard int64, proposal uint64) quorum.Op {
	keys := []string{m.key}
	args := []any{value, m.cfg.expiry.Milliseconds(), guard}
	if m.cfg.fencing {
		keys = append(keys, fenceKey(m.key))
		args = append(args, int64(proposal), m.cfg.fenceTTL.Milliseconds())
	}
	return func(ctx context.Context, n *quorum.Node) (int64, error) {
		reply, err := eval(ctx, n, acquireScript, keys, args...)
		if reply < 0 {
			return 0, &GuardError{Wait: time.Duration(-reply) * time.Second}
		}
		return reply, err
	}
}

// raise is the command that lifts a node's fence counter to the lease's token.
func (m *Mutex) raise(l *lease) quorum.Op {
	keys := []string{m.key, fenceKey(m.key)}
	args := []any{l.value, int64(l.token), m.cfg.fenceTTL.Milliseconds()}
	return func(ctx context.Context, n *quorum.Node) (int64, error) {
		return eval(ctx, n, raiseScript, keys, args...)
	}
}

// deletion is the command that releases the lock on a node.
func (m *Mutex) deletion(value string) quorum.Op {
	args := []any{value, m.channel}
	return func(ctx context.Context, n *quorum.Node) (int64, error) {
		return eval(ctx, n, releaseScript, m.keys, args...)
	}
}

// askExtend is the command that extends the lock on a node.
func (m *Mutex) askExtend(l *lease) quorum.Op {
	keys := []string{m.key}
	args := []any{l.value, m.cfg.expiry.Milliseconds()}
	if m.cfg.fencing {
		keys = append(keys, fenceKey(m.key))
		args = append(args, m.cfg.fenceTTL.Milliseconds())
	}
	return func(ctx context.Context, n *quorum.Node) (int64, error) {
		return eval(ctx, n, extendScript, keys, args...)
	}
}

// askValid is the command that asks a node whether it has the lock.
func (m *Mutex) askValid(l *lease) quorum.Op {
	return func(ctx context.Context, n *quorum.Node) (int64, error) {
		return eval(ctx, n, validScript, []string{m.key}, l.value)
	}
}

func setNX(ctx context.Context, n *quorum.Node, key, value string, expiry time.Duration) (int64, error) {
	ok, err := n.Pool.SetNX(ctx, key, value, expiry)
	if ok {
		return 1, err
	}
	return 0, err
}

// eval runs a script whose reply is an integer.
func eval(ctx context.Context, n *quorum.Node, s *pool.Script, keys []string, args ...any) (int64, error) {
	reply, err := n.Pool.Eval(ctx, s, keys, args...)
	if err != nil {
		return 0, err
	}
	i, ok := reply.(int64)
	if !ok {
		return 0, &ReplyError{Script: s.Name, Reply: reply}
	}
	return i, nil
}
