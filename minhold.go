package redlock

import (
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// linger is how long the keys of a lock live on that is left taken for so much longer: a node's
// clock may be faster than ours.
func (c *config) linger(left time.Duration) time.Duration {
	return clock.Add(left, clock.Add(clock.Part(left, c.driftFactor), driftFloor))
}

// linger returns what Unlock sends to a node instead of the deletion while the minimum hold of a
// lease lies ahead, and nil otherwise. The lease may be nil.
//
// How much is left is asked for each node when its turn comes. An Undo that is owed may be sent
// again much later, and must not begin anew. The monotonic clock alone counts: after a wall clock
// was set back, the lock must not linger for longer than the minimum hold.
func (m *Mutex) linger(l *lease) *quorum.Command {
	if m.cfg.minHold <= 0 || l == nil {
		return nil
	}
	m.mu.Lock()
	end := l.granted.Add(m.cfg.minHold)
	known := !l.granted.IsZero() // not if the lock was handed over
	m.mu.Unlock()
	if !known || end.Sub(m.core.now()) <= 0 {
		return nil
	}
	return &quorum.Command{Decide: func(int) (c quorum.Command, send bool) {
		left := end.Sub(m.core.now())
		if left <= 0 {
			return m.wire.release(l.value, l.member), true
		}
		return m.wire.linger(l.value, m.cfg.linger(left)), true
	}}
}
