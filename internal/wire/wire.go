// Package wire is all that is said to a node about a lock, and what the node's answers mean.
//
// Each step is a file: wire.go has what the commands depend on, command.go makes them, and reply.go
// reads the replies. keys.go names the keys, value.go has what a lock's key holds, and token.go the
// fencing tokens that a client proposes. census.go asks who has a key.
package wire

import (
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// Terms are on what terms locks are asked for: what the commands of many locks have in common.
// They do not change once a Lock has them.
type Terms struct {
	Expiry       time.Duration // of the key, in whole milliseconds
	DriftFactor  float64       // by how much of the time that passes clocks may differ
	NodeTimeout  time.Duration
	Queue        bool          // waiters stand in a queue on the nodes
	Fencing      bool          // each acquisition has a token
	FencePerName bool          // from a counter that is the lock's own
	FenceTTL     time.Duration // of such a counter
	Guard        time.Duration // how long a node must have been up before it votes; 0: at once
	Shared       bool          // others may have the lock, too, if they share it
}

// driftFloor is the part of the drift that does not depend on the expiry: Redis
// expires keys by whole milliseconds, and so may be one early on either side.
const driftFloor = 2 * time.Millisecond

// Drift is the part of the expiry that is set aside for the clocks.
func (t *Terms) Drift() time.Duration {
	return clock.Add(clock.Part(t.Expiry, t.DriftFactor), driftFloor)
}

// Validity is for how long a lock may be trusted, from when the nodes are asked for it.
func (t *Terms) Validity() time.Duration { return t.Expiry - t.Drift() }

// window is how long a node reserves the lock for somebody, in milliseconds.
func (t *Terms) window() int64 { return max(t.NodeTimeout.Milliseconds(), 1) }

// Lingering is how long the keys of a lock live on that is left taken for so much longer: a node's
// clock may be faster than ours.
func (t *Terms) Lingering(left time.Duration) time.Duration {
	return clock.Add(left, clock.Add(clock.Part(left, t.DriftFactor), driftFloor))
}

// AttemptRounds is how many node timeouts an attempt may take: it asks for votes, then may raise
// the token, and the process may stop for a moment in between.
const AttemptRounds = 3

// Lock is what is said to the nodes about one lock.
type Lock struct {
	*Terms
	Tokens *Tokens
	Alone  bool // one node is all that it is said to

	// What scripts are given, made once.
	keys  [2]string // the lock's, and with fencing its counter's
	queue [2]string // the lock's, and that of those who wait for it, "" if there is none
	seats string    // that of who shares it
}

// NewLock returns the lock with that key.
func NewLock(key string, terms *Terms, tokens *Tokens) Lock {
	l := Lock{
		Terms: terms, Tokens: tokens, keys: [2]string{key}, queue: [2]string{key, QueueKey(key)},
	}
	if terms.Shared {
		l.seats = SeatsKey(key)
	}
	switch {
	case terms.Fencing && terms.FencePerName:
		l.keys[1] = OwnCounter(key)
	case terms.Fencing:
		l.keys[1] = SharedCounter(key)
	}
	return l
}

// Queues reports whether those who wait for the lock stand in a queue on the nodes.
func (l *Lock) Queues() bool { return l.Terms.Queue && l.queue[1] != "" }

// Bids reports whether one who is next in the queue may claim the lock in advance. A release then
// does what [Lock.Acquire] does by a plain SET NX: there is no token to settle, and no node has to
// show how long it has been up.
func (l *Lock) Bids() bool {
	return l.Queues() && !l.Shared && !l.Fencing && l.Guard == 0 && l.BidLife() >= time.Millisecond
}

// BidLife is for how long nodes keep a bid. The validity counts from when it was made: so much of
// it may be over when the lock is granted.
func (t *Terms) BidLife() time.Duration { return t.Validity() / 8 }

// Key is the lock's key.
func (l *Lock) Key() string { return l.keys[0] }

// Counter is the key of the lock's fence counter, or "".
func (l *Lock) Counter() string { return l.keys[1] }

// CountBy lets the lock use another counter.
func (l *Lock) CountBy(counter string) { l.keys[1] = counter }

// Keys are the lock's and its counter's, if it has one.
func (l *Lock) Keys() []string {
	if l.keys[1] == "" {
		return l.lockKey()
	}
	return l.keys[:]
}

// lockKey is the key of scripts that have no business with the counter. Pools may append to it.
func (l *Lock) lockKey() []string { return l.keys[:1:1] }
