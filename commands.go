package redlock

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// setCommand is SET NX PX.
type setCommand struct {
	key, value string
	expiry     time.Duration
}

func (c *setCommand) Run(ctx context.Context, n *quorum.Node) (int64, error) {
	ok, err := n.Pool.SetNX(ctx, c.key, c.value, c.expiry)
	return c.Reply(ok, err)
}

func (c *setCommand) Start(ctx context.Context, n *quorum.Node, to pool.Receiver) {
	n.Starter.StartSetNX(ctx, c.key, c.value, c.expiry, to)
}

// Reply returns 1 if the key was set.
func (c *setCommand) Reply(reply any, err error) (int64, error) {
	if reply == true {
		return 1, err
	}
	return 0, err
}

// scriptCommand is a script whose reply is an integer.
type scriptCommand struct {
	script *pool.Script
	keys   []string
	args   []any
}

func (c *scriptCommand) Run(ctx context.Context, n *quorum.Node) (int64, error) {
	return c.Reply(n.Pool.Eval(ctx, c.script, c.keys, c.args...))
}

func (c *scriptCommand) Start(ctx context.Context, n *quorum.Node, to pool.Receiver) {
	n.Starter.StartEval(ctx, c.script, c.keys, c.args, to)
}

func (c *scriptCommand) Reply(reply any, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	i, ok := reply.(int64)
	switch {
	case !ok:
		return 0, &ReplyError{Script: c.script.Name, Reply: reply}
	case c.script == acquireScript && i < 0:
		return 0, &GuardError{Wait: time.Duration(-i) * time.Second}
	}
	return i, nil
}

// acquire asks a node for the lock: by a plain SET NX where that is enough.
func (m *Mutex) acquire(value string) quorum.Command {
	if !m.cfg.fencing && !m.cfg.guarded {
		return &setCommand{m.key, value, m.cfg.expiry}
	}
	guard := int64(0)
	if m.cfg.guarded {
		guard = uptime(m.cfg.guard)
	}
	return m.acquireScripted(value, guard, m.core.proposal())
}

// uptime is what a node's uptime_in_seconds must show after d. Redis cuts it off: one second more.
func uptime(d time.Duration) int64 { return int64((d+time.Second-1)/time.Second) + 1 }

// acquireAgain heals a node, and lifts its counter to the token. It need not wait for as long as the restart guard makes others
// wait: the node is to refuse them, not the holder. But a contender may have counted the node's
// vote just before the restart, and must have come to its end before the node's vote is the holder's: it asks
// one node first, then the others, and then may raise the token.
func (m *Mutex) acquireAgain(l *lease) quorum.Command {
	guard := int64(0)
	if m.cfg.guarded {
		guard = uptime(min(3*m.cfg.nodeTimeout, m.cfg.guard))
	}
	if guard == 0 && l.token == 0 {
		return &setCommand{m.key, l.value, m.cfg.expiry}
	}
	return m.acquireScripted(l.value, guard, l.token)
}

func (m *Mutex) acquireScripted(value string, guard int64, proposal uint64) quorum.Command {
	c := &scriptCommand{acquireScript, m.keys, []any{value, m.cfg.expiry.Milliseconds(), guard}}
	if m.cfg.fencing && proposal > 0 { // the token of a lock that was handed over is not known
		c.keys = m.fenceKeys
		c.args = append(c.args, int64(proposal), m.cfg.fenceTTL.Milliseconds())
	}
	return c
}

// raise lifts a node's fence counter to the lease's token.
func (m *Mutex) raise(l *lease) quorum.Command {
	return &scriptCommand{raiseScript, m.fenceKeys, []any{l.value, int64(l.token), m.cfg.fenceTTL.Milliseconds()}}
}

// deletion releases the lock on a node.
func (m *Mutex) deletion(value string) quorum.Command {
	return &scriptCommand{releaseScript, m.keys, []any{value, m.channel}}
}

// askExtend extends the lock on a node.
func (m *Mutex) askExtend(l *lease) quorum.Command {
	c := &scriptCommand{extendScript, m.keys, []any{l.value, m.cfg.expiry.Milliseconds()}}
	if m.cfg.fencing {
		c.keys = m.fenceKeys
		c.args = append(c.args, m.cfg.fenceTTL.Milliseconds())
	}
	return c
}

// askValid asks a node whether it has the lock.
func (m *Mutex) askValid(l *lease) quorum.Command {
	return &scriptCommand{validScript, m.keys, []any{l.value}}
}
