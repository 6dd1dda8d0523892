package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// answer is what one node said to a survey.
type answer[T any] struct {
	value T
	err   error
}

// survey asks every node and waits for all of them, each at most for the budget, or until ctx is done. Unlike a
// round of the quorum it wants every answer. A client that does not come back is left behind with its goroutine, which
// the tracker counts.
func survey[T any](ctx context.Context, c *core, budget time.Duration, ask func(context.Context, *quorum.Node) (T, error)) []answer[T] {
	type arrival struct {
		node int
		answer[T]
	}
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	arrivals := make(chan arrival, len(c.nodes))
	for i, n := range c.nodes {
		c.tracker.Enter()
		go func() {
			defer c.tracker.Leave()
			v, err := one(limited, n, ask)
			if err != nil && limited.Err() != nil {
				if errors.Is(err, context.DeadlineExceeded) {
					err = nil // says nothing more
				}
				err = n.Timeout(budget, err)
			}
			arrivals <- arrival{i, answer[T]{v, err}}
		}()
	}
	answers := make([]answer[T], len(c.nodes))
	arrived := make([]bool, len(c.nodes))
	for range c.nodes {
		select {
		case a := <-arrivals:
			answers[a.node], arrived[a.node] = a.answer, true
		case <-limited.Done():
			for i, n := range c.nodes {
				if !arrived[i] {
					answers[i].err = n.Timeout(budget, nil)
				}
			}
			return answers
		}
	}
	return answers
}

// one asks a node. A client that panics is that node's failure.
func one[T any](ctx context.Context, n *quorum.Node, ask func(context.Context, *quorum.Node) (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = pool.Recovered(p)
		}
	}()
	return ask(ctx, n)
}
