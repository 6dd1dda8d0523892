package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/internal/quorum"
)

// Close ends every hold of r and of all Redlocks derived from the same New, by unlocking. That
// takes no longer than three node timeouts, and one more for every 256 holds. Then it waits until
// all commands have returned from the clients and no release is owed to a node that answers, for
// one more node timeout at most. The longest node timeout counts, of r or of a hold.
//
// A node may execute a command that sets the key after its release. So such a release is repeated,
// a node timeout after its answer or later. Close may return before, and drops it: that key then
// blocks its node until it expires. [Redlock.CloseContext] waits for it while its context allows.
func (r *Redlock) Close() error {
	r.mustBeMade()
	longest, bound := r.core.closeBound(r.cfg.NodeTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	err := r.core.closeHolds(ctx)
	last, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	quorum.Finish(last, r.core.nodes)
	return err
}

// CloseContext is Close with a bound of the caller's own: it blocks until all that is done, or
// until ctx is done. It returns the first errors of releasing holds, and the number of locks that
// are not released. The context's error follows if ctx ended before. Closing again goes on with
// what is left. A lock that is gone before its Until is an error too: [ErrExpired], as for
// Unlock.
//
// It returns nil if nothing is held any more. A client may then still keep commands to a node
// that does not answer: nobody waits for them, and they change no lock. Of the releases that such
// a node has not answered, one is tried once more, and the others if it answers that. What is left
// is forgotten, and its keys expire.
//
// From the moment Close is called every held context is done, with the cause [ErrReleased].
// Locking fails with [ErrClosed]; only an attempt that is under way may still succeed, for Lock
// but not for Hold. An Unlock of a lock that Close has released returns [ErrNotHeld]. A lock that
// is not held by Hold stays as it is, and Unlock releases it. Close the pools after the Redlock.
func (r *Redlock) CloseContext(ctx context.Context) error {
	r.mustBeMade()
	needContext(ctx)
	err := r.core.closeHolds(ctx)
	quorum.Finish(ctx, r.core.nodes)
	return err
}

// maxReleases is how many releases Close has under way at a time. A client that has a connection
// for each command would need as many for each node.
const maxReleases = 256

// maxErrors is how many of the errors of its releases Close returns; thousands say no more.
const maxErrors = 8

// closeBound returns the longest node timeout, and how long Close may take to release all holds:
// each release takes a node timeout at most, and so may what the clients have in their hands
// before it.
func (c *core) closeBound(nodeTimeout time.Duration) (longest, bound time.Duration) {
	holds := c.holds.All()
	for _, h := range holds {
		nodeTimeout = max(nodeTimeout, h.l.m.cfg.NodeTimeout)
	}
	return nodeTimeout, clock.Times(nodeTimeout, int64(3+len(holds)/maxReleases))
}

// closeHolds lets nothing begin any more and unlocks what is held. All held contexts are
// cancelled at once; of the releases, a bounded number is under way at a time, until ctx is done.
func (c *core) closeHolds(ctx context.Context) error {
	if c.holds.Close() {
		c.queues.End()
	}
	holds := c.holds.All()
	afters := make([]aftermath, len(holds))
	for i, h := range holds {
		afters[i] = h.l.closing()
		afters[i].cancel()
	}
	for i, h := range holds { // when all held contexts are done
		afters[i].run()
		h.l.m.tell.all()
	}
	var errs []error
	left := len(holds)
	// A release ends within the node timeout, which may be later than ctx.
	c.tracker.Each(ctx, len(holds), maxReleases, func(i int) error {
		return c.closeHold(ctx, holds[i])
	}, func(err error) {
		if !errors.Is(err, ErrNoQuorum) {
			left--
		}
		if err != nil && len(errs) < maxErrors {
			errs = append(errs, err)
		}
	})
	if left > 0 {
		err := fmt.Errorf("redlock: close: %d of %d locks not released", left, len(holds))
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, ctx.Err())
		}
		errs = append(errs, err)
	}
	return oneline.Join(errs...)
}

// closeHold unlocks what a hold has held. If too few nodes answer, the hold stays registered for
// another Close.
func (c *core) closeHold(ctx context.Context, h *hold) error {
	err := h.l.unlock(ctx, byClose)
	// The loss has ended its held context before Close was called, and is about to unregister it.
	lost := errors.Is(err, ErrLost)
	if !lost && errors.Is(err, ErrNoQuorum) {
		return err
	}
	c.holds.Remove(h)
	// Its owner may have unlocked it meanwhile, or it ran out before its turn came.
	if lost || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrExpired) && h.l.ranOut() {
		return nil
	}
	return err
}
