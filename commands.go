package redlock

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// ask is a command whose reply is an integer: that of a script, and 1 for a key that was set.
func ask(c *pool.Command) quorum.Command { return quorum.Command{Command: c, Reply: integer} }

func integer(c *pool.Command, reply any, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	script := c.Script()
	if script == nil {
		if reply == true {
			return 1, nil
		}
		return 0, nil
	}
	i, ok := reply.(int64)
	switch {
	case !ok:
		return 0, &ReplyError{Script: script.Name, Reply: reply}
	case script == acquireScript && i < 0:
		return 0, &GuardError{Wait: clock.Times(time.Second, -max(i, -math.MaxInt64))}
	}
	return i, nil
}

// inOneSlot is integer for a command on a shared counter. A node of a cluster refuses two keys that
// lie in different slots.
func inOneSlot(c *pool.Command, reply any, err error) (int64, error) {
	if err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") {
		return 0, fmt.Errorf("%w: this node is part of a cluster, where fencing needs WithFencePerName", err)
	}
	return integer(c, reply, err)
}

// acquire asks a node for the lock: by a plain SET NX where that is enough.
func (m *Mutex) acquire(value string) quorum.Command {
	if !m.cfg.fencing && !m.cfg.guarded {
		return ask(pool.SetNX(m.key, value, m.cfg.expiry))
	}
	guard := int64(0)
	if m.cfg.guarded {
		guard = uptime(m.cfg.guard)
	}
	return m.acquireScripted(value, guard, m.core.proposal())
}

// uptime is what a node's uptime_in_seconds must show after d. Redis cuts it off: one second more.
func uptime(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds + 1
}

// acquireAgain heals a node, and lifts its counter to the token. It need not wait for as long as the restart guard makes others
// wait: the node is to refuse them, not the holder. But a contender may have counted the node's
// vote just before the restart, and must have come to its end before the node's vote is the holder's: see
// Mutex.deadline.
func (m *Mutex) acquireAgain(l *lease) quorum.Command {
	guard := int64(0)
	if m.cfg.guarded {
		guard = uptime(attemptRounds * min(m.cfg.nodeTimeout, m.cfg.guard/attemptRounds))
	}
	if guard == 0 && l.token == 0 {
		return ask(pool.SetNX(m.key, l.value, m.cfg.expiry))
	}
	return m.acquireScripted(l.value, guard, l.token)
}

func (m *Mutex) acquireScripted(value string, guard int64, proposal uint64) quorum.Command {
	keys, args := m.lockKey(), append(make([]any, 0, 5), value, m.cfg.expiry.Milliseconds())
	if m.cfg.fencing && proposal > 0 { // the token of a lock that was handed over is not known
		keys, args = m.keys[:], append(args, int64(proposal), m.fenceTTL())
	}
	if guard > 0 {
		args = append(args, guard)
	}
	c := ask(pool.Eval(acquireScript, keys, args...))
	if len(keys) > 1 && !m.cfg.fencePerName {
		c.Reply = inOneSlot
	}
	return c
}

// fenceTTL is what scripts are told of how long the counter lives, in milliseconds. A counter that
// names share lives for ever: 0.
func (m *Mutex) fenceTTL() int64 {
	if !m.cfg.fencePerName {
		return 0
	}
	return m.cfg.fenceTTL.Milliseconds()
}

// lockKey is the key of scripts that have no business with the counter. Pools may append to it.
func (m *Mutex) lockKey() []string { return m.keys[:1:1] }

// raise lifts a node's fence counter to the lease's token.
func (m *Mutex) raise(l *lease) quorum.Command {
	return ask(pool.Eval(raiseScript, m.keys[:], l.value, int64(l.token), m.fenceTTL()))
}

// deletion releases the lock on a node.
func (m *Mutex) deletion(value string) quorum.Command {
	return ask(pool.Eval(releaseScript, m.lockKey(), value, m.channel))
}

// notALock is the reply to takeBack of a node that has something else than a string under the lock's key.
const notALock = math.MinInt64

// takeBack is the deletion after an attempt that did not win. That the key is of another type is an answer then, which
// the refusal of a SET NX did not give.
func (m *Mutex) takeBack(value string) quorum.Command {
	c := m.deletion(value)
	c.Reply = func(c *pool.Command, reply any, err error) (int64, error) {
		if err != nil && strings.Contains(err.Error(), "WRONGTYPE ") {
			return notALock, nil
		}
		return integer(c, reply, err)
	}
	return c
}

// askExtend extends the lock on a node, and the life of a counter that is the lock's own.
func (m *Mutex) askExtend(l *lease) quorum.Command {
	expiry := m.cfg.expiry.Milliseconds()
	if !m.cfg.fencing || !m.cfg.fencePerName {
		return ask(pool.Eval(extendScript, m.lockKey(), l.value, expiry))
	}
	return ask(pool.Eval(extendScript, m.keys[:], l.value, expiry, m.fenceTTL()))
}

// askValid asks a node whether it has the lock.
func (m *Mutex) askValid(l *lease) quorum.Command {
	return ask(pool.Eval(validScript, m.lockKey(), l.value))
}
