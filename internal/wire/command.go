package wire

import (
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// What is said to a node: which of internal/scripts it runs, with which keys and arguments. What
// the replies mean is in reply.go.

// Acquire asks a node for the lock: by a plain SET NX where that is enough.
func (l *Lock) Acquire(value string) quorum.Command {
	if !l.Fencing && l.Guard == 0 && !l.Shared {
		c := pool.SetNX(l.keys[0], value, l.Expiry)
		c.Alone = l.Alone
		return quorum.Command{Command: c, Read: readSetNX}
	}
	return l.acquireBy(scripts.Acquire, value, uptime(l.Guard), l.Tokens.proposal())
}

// AcquireUnguarded asks for the lock without the restart guard.
func (l *Lock) AcquireUnguarded(value string) quorum.Command {
	return l.acquireBy(scripts.Acquire, value, 0, l.Tokens.proposal())
}

// Claim asks a node for the lock if that is free, or reserved for the member of the queue. One that
// is free ends the member's place.
func (l *Lock) Claim(value, member string) quorum.Command {
	return l.acquireBy(scripts.Claim, value, uptime(l.Guard), l.Tokens.proposal(), member)
}

// Bid leaves with the nodes what a member that is next in the queue will claim. The member hears a
// node's number if it has the key there.
func (l *Lock) Bid(value, member string, numbers []string) quorum.Command {
	return quorum.Command{Read: readAcquired, For: func(node int) *pool.Command {
		return l.eval(scripts.Bid, []string{l.keys[0], BidKey(l.keys[0])}, value,
			l.Expiry.Milliseconds(), member, numbers[node], l.BidLife().Milliseconds())
	}}
}

// Swap asks a node for the lock where it has the old value, which was handed off. The restart guard
// is not for that: whoever has handed the lock off had the node's vote.
func (l *Lock) Swap(value, old string) quorum.Command {
	return l.acquireBy(scripts.Swap, value, 0, l.Tokens.proposal(), old)
}

// Heal sets the key of a holder again, and lifts the counter to its token, if that is known. It
// need not wait for as long as the restart guard makes others wait: the node must refuse them,
// not the holder. But a contender may have counted the node's vote just before the restart. Its
// attempt must have come to its end before the node's vote is the holder's: see tooLate of package
// lease.
func (l *Lock) Heal(value string, token uint64) quorum.Command {
	guard := uptime(AttemptRounds * min(l.NodeTimeout, l.Guard/AttemptRounds))
	return l.acquireBy(scripts.Heal, value, guard, token)
}

func (l *Lock) acquireBy(script *pool.Script, value string, guard int64, proposal uint64,
	more ...any) quorum.Command {
	keys, args := l.lockKey(), append(make([]any, 0, 5), value, l.Expiry.Milliseconds())
	if l.Fencing && proposal > 0 {
		keys, args = l.keys[:], append(args, int64(proposal), l.fenceTTL())
	}
	if guard > 0 {
		args = append(args, guard)
	}
	c := quorum.Command{Read: readAcquired}
	if len(keys) > 1 && !l.FencePerName {
		c.Read = readAcquiredInOneSlot
	}
	switch {
	case l.Shared: // a reader sends another script, which also asks who it is
		switch script {
		case scripts.Acquire:
			more = []any{""}
		case scripts.Heal:
			more = []any{Shares}
		}
		script, keys = scripts.Share, append(slices.Clone(keys), l.queue[1], l.seats)
		args = append(args, l.window())
	case script == scripts.Claim:
		keys = append(slices.Clone(keys), l.queue[1])
	}
	c.Command = l.eval(script, keys, append(args, more...)...)
	return c
}

// uptime is what a node's uptime_in_seconds must show after d. Redis cuts it off: one second more.
// It is 0 for 0: the node need not show anything.
func uptime(d time.Duration) int64 {
	if d == 0 {
		return 0
	}
	return int64(clock.Add(d, time.Second-1)/time.Second) + 1
}

// fenceTTL is what scripts are told of how long the counter lives, in milliseconds. A counter that
// names share lives for ever: 0.
func (l *Lock) fenceTTL() int64 {
	if !l.FencePerName {
		return 0
	}
	return l.FenceTTL.Milliseconds()
}

// Raise lifts a node's fence counter to the token.
func (l *Lock) Raise(value string, token uint64) quorum.Command {
	script, keys := scripts.Raise, l.keys[:]
	if l.Shared {
		script, keys = scripts.Lift, l.seated(keys)
	}
	return quorum.Command{
		Command: l.eval(script, keys, value, int64(token), l.fenceTTL()), Read: readHeld,
	}
}

// seated is keys and that of the seats.
func (l *Lock) seated(keys []string) []string { return append(slices.Clone(keys), l.seats) }

// Extend extends the lock on a node, and the life of a counter that is the lock's own.
func (l *Lock) Extend(value string) quorum.Command {
	expiry := l.Expiry.Milliseconds()
	if l.Fencing && l.FencePerName {
		return l.held(scripts.Extend, l.keys[:], value, expiry, l.fenceTTL())
	}
	return l.held(scripts.Extend, l.lockKey(), value, expiry)
}

// held is a command about a lock that is held. A reader is asked for its seat.
func (l *Lock) held(script *pool.Script, keys []string, args ...any) quorum.Command {
	if l.Shared {
		script, keys = scripts.Seat, l.seated(keys)
	}
	return quorum.Command{Command: l.eval(script, keys, args...), Read: readHeld}
}

// Linger leaves the lock taken on a node for so much longer.
func (l *Lock) Linger(value string, left time.Duration) quorum.Command {
	ms := clock.Add(l.Lingering(left), time.Millisecond-1).Milliseconds()
	return l.held(scripts.Extend, l.lockKey(), value, ms)
}

// Valid asks a node whether it has the lock.
func (l *Lock) Valid(value string) quorum.Command {
	return l.held(scripts.Valid, l.lockKey(), value)
}

// Release deletes the lock on a node, or hands it on. The member, if it is not "", leaves the
// queue.
func (l *Lock) Release(value, member string) quorum.Command {
	c := quorum.Command{Read: readReleased}
	switch {
	case member != "":
		c.Command = l.release(value, l.window(), member)
	case l.Queues() || l.Shared:
		c.Command = l.release(value, l.window())
	default:
		c.Command = l.eval(scripts.Release, l.lockKey(), value)
	}
	if member == "" && !l.Shared {
		c.Joint = scripts.Releases
	}
	return c
}

// release runs the script that hands the key on.
func (l *Lock) release(args ...any) *pool.Command {
	if l.Shared {
		return l.eval(scripts.Unshare, l.seated(l.queue[:]), args...)
	}
	return l.eval(scripts.Release, l.queue[:], args...)
}

// TakeBack is Release after an attempt that did not win. A key of another type is an answer then,
// which the refusal of a SET NX did not give. A member with a ticket keeps its place in the queue.
func (l *Lock) TakeBack(value, member string, ticket int64) quorum.Command {
	c := l.Release(value, member)
	if ticket != 0 {
		c.Command = l.release(value, l.window(), member, ticket, QueueTTL.Milliseconds())
	}
	c.Read = readTakenBack
	return c
}

// Leave ends a place in the queue on a node, and frees a key that holds the member's value.
func (l *Lock) Leave(member Member) quorum.Command {
	value := member.Value
	if value == "" {
		value = member.ID
	}
	return l.Release(value, member.ID)
}

// Forget deletes a key other than the lock's if it holds the text.
func (l *Lock) Forget(key, text string) quorum.Command {
	c := l.eval(scripts.Release, []string{key}, text)
	c.Joint = scripts.Releases
	return quorum.Command{Command: c, Read: readReleased}
}

// Stand takes a place in the queue on a node, or keeps it. A ticket that is not agreed on may
// become a greater one. The queue is kept for so long after the last who came, or renewed it.
func (l *Lock) Stand(member Member, keep time.Duration) quorum.Command {
	script, keys := scripts.Stand,
		[]string{l.keys[0], l.queue[1], TicketKey(l.keys[0]), RollKey(l.keys[0])}
	if l.Shared {
		script, keys = scripts.StandShare, l.seated(keys)
	}
	args := append(make([]any, 0, 8), l.window(), member.ID, member.Ticket, 0,
		keep.Milliseconds(), int64(RollGrace/time.Second), 0)
	if member.Agreed {
		args[3] = 1
	}
	if member.Renews {
		args[6] = 1
	}
	if member.Value != "" {
		args = append(args, member.Value)
	}
	return quorum.Command{Command: l.eval(script, keys, args...), Read: readStood}
}

// eval runs a script.
func (l *Lock) eval(script *pool.Script, keys []string, args ...any) *pool.Command {
	c := pool.Eval(script, keys, args...)
	c.Alone = l.Alone
	return c
}
