package redlock

import (
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/keys"
	"github.com/redlock-go/redlock/internal/line"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// What is said to a node: which of internal/scripts it runs, with which keys and arguments. What
// the replies mean is in wire.go.

// Acquire asks a node for the lock: by a plain SET NX where that is enough.
func (w *wire) Acquire(value string) quorum.Command {
	if !w.cfg.fencing && !w.cfg.guarded {
		return quorum.Command{
			Command: pool.SetNX(w.keys[0], value, w.cfg.expiry), Read: readSetNX,
		}
	}
	return w.acquireBy(scripts.Acquire, value, w.guard(), w.tokens.proposal())
}

// AcquireUnguarded asks for the lock without the restart guard.
func (w *wire) AcquireUnguarded(value string) quorum.Command {
	return w.acquireBy(scripts.Acquire, value, 0, w.tokens.proposal())
}

// Claim asks a node for the lock if that is free, or reserved for the member of the queue.
func (w *wire) Claim(value, member string) quorum.Command {
	return w.acquireBy(scripts.Claim, value, w.guard(), w.tokens.proposal(), member)
}

// Swap asks a node for the lock where it has the old value, which was handed off. The restart guard
// is not for that: whoever has handed the lock off had the node's vote.
func (w *wire) Swap(value, old string) quorum.Command {
	return w.acquireBy(scripts.Swap, value, 0, w.tokens.proposal(), old)
}

// Heal sets the key of a holder again, and lifts the counter to its token, which is 0 if it is not
// known. It need not wait for as long as the restart guard makes others wait: the node must refuse
// them, not the holder. But a contender may have counted the node's vote just before the restart.
// Its attempt must have come to its end before the node's vote is the holder's: see lease.inTime.
func (w *wire) Heal(value string, token uint64) quorum.Command {
	guard := int64(0)
	if w.cfg.guarded {
		guard = uptime(attemptRounds * min(w.cfg.nodeTimeout, w.cfg.guard/attemptRounds))
	}
	return w.acquireBy(scripts.Heal, value, guard, token)
}

func (w *wire) acquireBy(script *pool.Script, value string, guard int64, proposal uint64,
	more ...any) quorum.Command {
	keys, args := w.lockKey(), append(make([]any, 0, 5), value, w.cfg.expiry.Milliseconds())
	if w.cfg.fencing && proposal > 0 {
		keys, args = w.keys[:], append(args, int64(proposal), w.fenceTTL())
	}
	if guard > 0 {
		args = append(args, guard)
	}
	c := quorum.Command{
		Command: pool.Eval(script, keys, append(args, more...)...), Read: readAcquired,
	}
	if len(keys) > 1 && !w.cfg.fencePerName {
		c.Read = readAcquiredInOneSlot
	}
	return c
}

// guard is what a node's uptime_in_seconds must show before it grants the lock, or 0.
func (w *wire) guard() int64 {
	if !w.cfg.guarded {
		return 0
	}
	return uptime(w.cfg.guard)
}

// uptime is what a node's uptime_in_seconds must show after d. Redis cuts it off: one second more.
func uptime(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds + 1
}

// fenceTTL is what scripts are told of how long the counter lives, in milliseconds. A counter that
// names share lives for ever: 0.
func (w *wire) fenceTTL() int64 {
	if !w.cfg.fencePerName {
		return 0
	}
	return w.cfg.fenceTTL.Milliseconds()
}

// Raise lifts a node's fence counter to the token.
func (w *wire) Raise(value string, token uint64) quorum.Command {
	return quorum.Command{
		Command: pool.Eval(scripts.Raise, w.keys[:], value, int64(token), w.fenceTTL()),
		Read:    readHeld,
	}
}

// Extend extends the lock on a node, and the life of a counter that is the lock's own.
func (w *wire) Extend(value string) quorum.Command {
	expiry := w.cfg.expiry.Milliseconds()
	c := quorum.Command{Read: readHeld}
	if w.cfg.fencing && w.cfg.fencePerName {
		c.Command = pool.Eval(scripts.Extend, w.keys[:], value, expiry, w.fenceTTL())
	} else {
		c.Command = pool.Eval(scripts.Extend, w.lockKey(), value, expiry)
	}
	return c
}

// Linger lets the key expire on a node after so long.
func (w *wire) Linger(value string, left time.Duration) quorum.Command {
	ms := clock.Add(left, time.Millisecond-1).Milliseconds()
	return quorum.Command{
		Command: pool.Eval(scripts.Extend, w.lockKey(), value, ms), Read: readHeld,
	}
}

// Valid asks a node whether it has the lock.
func (w *wire) Valid(value string) quorum.Command {
	return quorum.Command{Command: pool.Eval(scripts.Valid, w.lockKey(), value), Read: readHeld}
}

// Release deletes the lock on a node, or hands it on. The member, if it is not "", leaves the
// queue.
func (w *wire) Release(value, member string) quorum.Command {
	c := quorum.Command{Read: readReleased}
	switch {
	case member != "":
		c.Command = pool.Eval(scripts.Release, w.queue[:], value, w.cfg.window, member)
	case w.cfg.announce:
		c.Command = pool.Eval(scripts.Release, w.queue[:], value, w.cfg.window)
	default:
		c.Command = pool.Eval(scripts.Release, w.lockKey(), value)
	}
	return c
}

// TakeBack is Release after an attempt that did not win. A key of another type is an answer then,
// which the refusal of a SET NX did not give. A member with a ticket keeps its place in the queue.
func (w *wire) TakeBack(value, member string, ticket int64) quorum.Command {
	c := w.Release(value, member)
	if ticket != 0 {
		c.Command = pool.Eval(scripts.Release, w.queue[:], value, w.cfg.window, member, ticket,
			line.QueueTTL.Milliseconds())
	}
	c.Read = readTakenBack
	return c
}

// Leave gives up a place in the queue on a node, and a key that holds the member's value.
func (w *wire) Leave(member line.Member) quorum.Command {
	value := member.Value
	if value == "" {
		value = member.ID
	}
	return w.Release(value, member.ID)
}

// Forget deletes a key other than the lock's if it holds the text.
func (w *wire) Forget(key, text string) quorum.Command {
	return quorum.Command{
		Command: pool.Eval(scripts.Release, []string{key}, text), Read: readReleased,
	}
}

// Stand takes a place in the queue on a node, or keeps it. A ticket that is not agreed on may
// become a greater one. The queue is kept for so long after that.
func (w *wire) Stand(member line.Member, keep time.Duration) quorum.Command {
	keys := []string{w.keys[0], w.queue[1], keys.Ticket(w.keys[0]), keys.Roll(w.keys[0])}
	args := append(make([]any, 0, 7), w.cfg.window, member.ID, member.Ticket, 0,
		keep.Milliseconds(), int64(line.RollGrace/time.Second))
	if member.Agreed {
		args[3] = 1
	}
	if member.Value != "" {
		args = append(args, member.Value)
	}
	return quorum.Command{Command: pool.Eval(scripts.Stand, keys, args...), Read: readStood}
}
