package redlock

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/keys"
	"github.com/redlock-go/redlock/internal/line"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// wire is all that is said to a node about one lock, and what the node's replies mean.
type wire struct {
	cfg    *config
	tokens *tokens

	// What scripts are given, made once.
	keys  [2]string // the lock's, and with fencing its counter's
	queue [2]string // the lock's, and that of those who wait for it, "" if there is none
}

func newWire(cfg *config, key string, t *tokens) wire {
	w := wire{cfg: cfg, tokens: t, keys: [2]string{key}, queue: [2]string{key, keys.Queue(key)}}
	switch {
	case cfg.fencing && cfg.fencePerName:
		w.keys[1] = keys.OwnCounter(key)
	case cfg.fencing:
		w.keys[1] = keys.SharedCounter(key)
	}
	return w
}

// lockKey is the key of scripts that have no business with the counter. Pools may append to it.
func (w *wire) lockKey() []string { return w.keys[:1:1] }

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
// Its attempt must have come to its end before the node's vote is the holder's: see
// lease.deadline.
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

// The readers of replies follow. What the numbers mean stands in the files of package scripts.

func readSetNX(_ *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch {
	case err != nil:
		return quorum.Reply{}, err
	case reply == true:
		return quorum.Reply{Means: quorum.Done, Number: 1}, nil
	}
	return quorum.Reply{Means: quorum.Foreign}, nil
}

// number returns the reply of a script that is an integer.
func number(c *pool.Command, reply any, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	if i, ok := reply.(int64); ok {
		return i, nil
	}
	return 0, &ReplyError{Script: c.Script().Name, Reply: reply}
}

func readAcquired(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch i, err := number(c, reply, err); {
	case err != nil:
		return quorum.Reply{}, err
	case i < 0:
		return quorum.Reply{}, &GuardError{Wait: clock.Times(time.Second, -max(i, -math.MaxInt64))}
	case i == 0:
		return quorum.Reply{Means: quorum.Foreign}, nil
	default:
		return quorum.Reply{Means: quorum.Done, Number: i}, nil
	}
}

// readAcquiredInOneSlot is readAcquired for a command on a shared counter. A node of a cluster
// refuses two keys that lie in different slots.
func readAcquiredInOneSlot(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	if err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") {
		return quorum.Reply{}, fmt.Errorf("%w: this node is part of a cluster, where fencing "+
			"needs WithFencePerName", err)
	}
	return readAcquired(c, reply, err)
}

func readHeld(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch i, err := number(c, reply, err); {
	case err != nil:
		return quorum.Reply{}, err
	case i < 0:
		return quorum.Reply{Means: quorum.Foreign}, nil
	case i == 0:
		return quorum.Reply{Means: quorum.Gone}, nil
	default:
		return quorum.Reply{Means: quorum.Done}, nil
	}
}

func readReleased(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch i, err := number(c, reply, err); {
	case err != nil:
		return quorum.Reply{}, err
	case i == -1:
		return quorum.Reply{Means: quorum.Foreign, Left: quorum.Forever}, nil
	case i < 0:
		return quorum.Reply{Means: quorum.Foreign, Left: clock.Milliseconds(-2 - i)}, nil
	case i == 0:
		return quorum.Reply{Means: quorum.Gone}, nil
	case i == 1:
		return quorum.Reply{Means: quorum.Done}, nil
	default:
		return quorum.Reply{Means: quorum.HandedOn}, nil
	}
}

func readTakenBack(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE ") {
		return quorum.Reply{Means: quorum.NoLock}, nil
	}
	return readReleased(c, reply, err)
}

// readStood reads a ticket, how many are before it, and when the key expires.
func readStood(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	if err != nil {
		return quorum.Reply{}, err
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
		return quorum.Reply{}, &ReplyError{Script: c.Script().Name, Reply: reply}
	}
	said := quorum.Reply{Means: quorum.Standing, Number: n[0], Left: quorum.Forever,
		Before: int32(min(n[1], math.MaxInt32))}
	if n[1] < 0 {
		return quorum.Reply{Means: quorum.Turn, Number: n[0], Left: quorum.Forever}, nil
	}
	if n[2] >= 0 {
		said.Left = clock.Milliseconds(n[2])
	}
	return said, nil
}

// inspect asks a node what it has under the key of a lock, and under its counter's if that is given
// too.
func inspect(ctx context.Context, p pool.Pool, of []string) (NodeKey, error) {
	reply, err := p.Eval(ctx, scripts.Inspect, of)
	if err != nil {
		return NodeKey{}, err
	}
	fields, ok := reply.([]any)
	if ok && len(fields) == 0 {
		return NodeKey{}, nil
	}
	k := NodeKey{Found: true, TTL: NoExpiry}
	if len(of) == 2 && len(fields) == 3 {
		if k.counter, ok = fields[2].(string); ok {
			fields = fields[:2]
		}
	}
	if len(fields) == 2 {
		value, isText := fields[0].(string)
		ms, isNumber := fields[1].(int64)
		if isText && isNumber {
			k.Value = value
			if ms >= 0 {
				k.TTL, k.Reserved = clock.Milliseconds(ms),
					strings.HasPrefix(value, keys.Reservation)
			}
			return k, nil
		}
	}
	const wrong = "inspect script: reply %#v of type %T instead of a value and milliseconds"
	return NodeKey{}, fmt.Errorf(wrong, reply, reply)
}
