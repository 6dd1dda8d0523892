package quorum

import (
	"context"
	"errors"
	"time"
)

// Answer is what one node said to a [Survey].
type Answer[T any] struct {
	Value T
	Err   error
}

// Survey asks every node and returns the answers in node order. Unlike a [Round] it wants all of
// them. It blocks for the budget at most, or until ctx is done. A client that does not come back is
// left behind with its goroutine, which the tracker counts.
func Survey[T any](
	ctx context.Context, nodes []*Node, budget time.Duration,
	ask func(context.Context, *Node) (T, error),
) []Answer[T] {
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	arrivals := make([]chan Answer[T], len(nodes))
	for i, n := range nodes {
		arrivals[i] = make(chan Answer[T], 1)
		n.tracker.Enter()
		go func() {
			defer n.tracker.Leave()
			var a Answer[T]
			func() {
				defer guard(&a.Err)
				a.Value, a.Err = ask(limited, n)
			}()
			if a.Err != nil && limited.Err() != nil {
				if errors.Is(a.Err, context.DeadlineExceeded) {
					a.Err = nil // says nothing more
				}
				a.Err = n.Timeout(budget, a.Err)
			}
			arrivals[i] <- a
		}()
	}
	answers := make([]Answer[T], len(nodes))
	for i, n := range nodes {
		select {
		case answers[i] = <-arrivals[i]:
		case <-limited.Done():
			select {
			case answers[i] = <-arrivals[i]:
			default:
				answers[i].Err = n.Timeout(budget, nil)
			}
		}
	}
	return answers
}
