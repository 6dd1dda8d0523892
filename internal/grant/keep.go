package grant

import (
	"context"
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
)

// Heal sets the key again on the nodes that said in round r that they do not have it. It may,
// because a quorum has confirmed the lock in that round, and nobody counts what it writes: a healed
// node votes in the next round. So much is left until the deadline. When the turn of a node comes,
// the lock must still be kept.
//
// Heal does not wait. A write that is not answered is given up before the next renewal, and keeps
// no node from voting there.
func (g *Grant) Heal(ctx context.Context, r *quorum.Round, left time.Duration, kept func() bool) {
	outcomes := r.Outcomes()
	due := func(node int) bool {
		// A slower node's answer has come by now: the pipeline makes this wait for it. If the lock
		// is over only from here on, the release waits behind this write.
		return r.Outcomes()[node].Gone() && kept()
	}
	g.Write(ctx, quorum.Spec{
		Command: g.lock.Heal(g.Value, g.Token).When(due),
		Budget:  max(min(g.lock.NodeTimeout, left/4), 1),
		Skip:    func(node int) bool { return outcomes[node].Err == nil && !outcomes[node].Gone() },
	})
}

// Release sends the deletion of the key to every node that may have it, and returns the round. The
// spec may say otherwise; by default, a quorum of deletions makes it a success.
func (g *Grant) Release(ctx context.Context, s quorum.Spec) *quorum.Round {
	if s.Command.Command == nil && s.Command.Decide == nil {
		s.Command = g.lock.Release(g.Value, g.Member)
	}
	return g.WriteSet.Release(ctx, s)
}

// Linger returns what is sent to a node instead of the deletion while the minimum hold lies ahead,
// and nil otherwise.
//
// How much is left is asked for each node when its turn comes. A pending release may be sent
// again much later, and must not begin anew. The monotonic clock alone counts: after a wall clock
// was set back, the lock must not linger for longer than the minimum hold.
func (g *Grant) Linger(minHold time.Duration) *quorum.Command {
	if minHold <= 0 || g.Began.IsZero() { // zero: the lock was handed over
		return nil
	}
	end := g.Began.Add(minHold)
	if end.Sub(g.lock.Now()) <= 0 {
		return nil
	}
	return &quorum.Command{Decide: func(int) (c quorum.Command, send bool) {
		left := end.Sub(g.lock.Now())
		if left <= 0 {
			return g.lock.Release(g.Value, g.Member), true
		}
		return g.lock.Linger(g.Value, left), true
	}}
}

// Released returns what all releases together have come to, of which r is the latest: how many
// nodes have deleted the key, and on how many others it is gone.
func (g *Grant) Released(r *quorum.Round) (outcomes quorum.Outcomes, deleted, gone int) {
	outcomes = r.Outcomes()
	for i, o := range outcomes {
		switch {
		case g.ReleasedOn(i):
			outcomes[i] = quorum.Outcome{Reply: quorum.Reply{Means: quorum.Done}}
			deleted++
		case o.Err == nil, errors.Is(o.Err, quorum.ErrUnsent):
			gone++
		}
	}
	return outcomes, deleted, gone
}
