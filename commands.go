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
	case (script == acquireScript || script == claimScript || script == healScript) && i < 0:
		return 0, &GuardError{Wait: clock.Times(time.Second, -max(i, -math.MaxInt64))}
	}
	return i, nil
}

// inOneSlot is integer for a command on a shared counter. A node of a cluster refuses two keys that
// lie in different slots.
func inOneSlot(c *pool.Command, reply any, err error) (int64, error) {
	if err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") {
		return 0, fmt.Errorf("%w: this node is part of a cluster, where fencing needs "+
			"WithFencePerName", err)
	}
	return integer(c, reply, err)
}

// acquire asks a node for the lock: by a plain SET NX where that is enough.
func (m *Mutex) acquire(value string) quorum.Command {
	if !m.cfg.fencing && !m.cfg.guarded {
		return ask(pool.SetNX(m.key, value, m.cfg.expiry))
	}
	return m.acquireScripted(acquireScript, value, m.guard(), m.core.proposal())
}

// guard is what a node's uptime_in_seconds must show before it grants the lock, or 0.
func (m *Mutex) guard() int64 {
	if !m.cfg.guarded {
		return 0
	}
	return uptime(m.cfg.guard)
}

// uptime is what a node's uptime_in_seconds must show after d. Redis cuts it off: one second more.
func uptime(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds + 1
}

// acquireAgain heals a node, and lifts its counter to the token. It need not wait for as long as
// the restart guard makes others wait: the node is to refuse them, not the holder. But a
// contender may have counted the node's vote just before the restart, and must have come to its
// end before the node's vote is the holder's: see Mutex.deadline.
func (m *Mutex) acquireAgain(l *lease) quorum.Command {
	guard := int64(0)
	if m.cfg.guarded {
		guard = uptime(attemptRounds * min(m.cfg.nodeTimeout, m.cfg.guard/attemptRounds))
	}
	return m.acquireScripted(healScript, l.value, guard, l.token)
}

func (m *Mutex) acquireScripted(script *pool.Script, value string, guard int64, proposal uint64,
	more ...any) quorum.Command {
	keys, args := m.lockKey(), append(make([]any, 0, 5), value, m.cfg.expiry.Milliseconds())
	if m.cfg.fencing && proposal > 0 { // the token of a lock that was handed over is not known
		keys, args = m.keys[:], append(args, int64(proposal), m.fenceTTL())
	}
	if guard > 0 {
		args = append(args, guard)
	}
	c := ask(pool.Eval(script, keys, append(args, more...)...))
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

// handedOn is a release's reply where the next in the queue has the key now.
const handedOn = 2

// deletion releases the lock on a node, and the place in the queue, if the lease has one.
func (m *Mutex) deletion(l *lease) quorum.Command {
	switch {
	case l.member != "":
		return ask(pool.Eval(releaseScript, m.queue[:], l.value, m.cfg.window, l.member))
	case m.cfg.announce:
		return ask(pool.Eval(releaseScript, m.queue[:], l.value, m.cfg.window))
	}
	return ask(pool.Eval(releaseScript, m.lockKey(), l.value))
}

// leave gives up a place in the queue on a node, and a key that holds the value.
func (m *Mutex) leave(member, value string) quorum.Command {
	if value == "" {
		value = member
	}
	return ask(pool.Eval(releaseScript, m.queue[:], value, m.cfg.window, member))
}

// stand stands in the queue on a node. The reply is the member's ticket, twice, and one more if the
// key is reserved for it. What else the node says goes to seen.
func (m *Mutex) stand(s *stay, seen *ranks) quorum.Command {
	args := append(make([]any, 0, 7), m.cfg.window, s.member, s.ticket, 0, queueTTL.Milliseconds(),
		rollGrace)
	if s.agreed {
		args[3] = 1
	}
	if s.value != "" {
		args = append(args, s.value)
	}
	return m.askStand(seen, args...)
}

func (m *Mutex) askStand(seen *ranks, args ...any) quorum.Command {
	keys := []string{m.key, m.queue[1], ticketKey(m.key), rollKey(m.key)}
	return quorum.Command{Command: pool.Eval(standScript, keys, args...),
		Reply: func(_ *pool.Command, reply any, err error) (int64, error) {
			if err != nil {
				return 0, err
			}
			fields, ok := reply.([]any)
			var n [3]int64
			ok = ok && len(fields) == len(n)
			for i := range n {
				if ok {
					n[i], ok = fields[i].(int64)
				}
			}
			if !ok {
				return 0, &ReplyError{Script: standScript.Name, Reply: reply}
			}
			seen.add(rank{n[1], time.Duration(n[2]) * time.Millisecond})
			if n[1] < 0 {
				return 2*n[0] + 1, nil
			}
			return 2 * n[0], nil
		}}
}

// claim asks a node for the lock if that is free, or reserved for the id of the lease's place.
func (m *Mutex) claim(l *lease) quorum.Command {
	return m.acquireScripted(claimScript, l.value, m.guard(), m.core.proposal(), l.member)
}

// notALock is the reply to takeBack of a node that has something else than a string under the
// lock's key.
const notALock = math.MinInt64

// takeBack is the deletion after an attempt that did not win. That the key is of another type is
// an answer then, which the refusal of a SET NX did not give.
//
// One that queues keeps its place.
func (m *Mutex) takeBack(l *lease) quorum.Command {
	c := m.deletion(l)
	if l.ticket != 0 {
		c = ask(pool.Eval(releaseScript, m.queue[:], l.value, m.cfg.window, l.member, l.ticket,
			queueTTL.Milliseconds()))
	}
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
