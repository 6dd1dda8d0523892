package batch

import (
	"context"
	"slices"

	"github.com/redlock-go/redlock/pool"
)

// Do sends a command and waits for its outcome, or until ctx is done. The reply to a SET NX is a
// bool. The error matches [pool.ErrNotSent] if the command was certainly not sent: ctx had ended
// before, or Send said so.
func (b *Batcher[T]) Do(ctx context.Context, command *pool.Command) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, pool.NotSent(err)
	}
	told := make(answer, 1)
	c := &Call[T]{ctx: ctx, command: command, to: told, kept: true}
	b.add(c)
	select {
	case r := <-told:
		return r.reply, r.err
	case <-ctx.Done():
		err := ctx.Err()
		if b.remove(c) {
			err = pool.NotSent(err)
		}
		return nil, b.explain(err)
	}
}

// answer is the receiver of a caller that waits.
type answer chan result

type result struct {
	reply any
	err   error
}

// Receive is told the outcome.
func (a answer) Receive(reply any, err error) { a <- result{reply, err} }

// remove takes a call out of the queue, and reports whether it has not been sent.
func (b *Batcher[T]) remove(c *Call[T]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, c)
	if i < 0 {
		return c.dropped
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return true
}
