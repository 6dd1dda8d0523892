package redlock

import (
	"context"
	"errors"

	"github.com/redlock-go/redlock/internal/census"
	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// WithOwner writes a text into the value of each lease, followed by a colon and the random bits:
// for people, and for [Election.Leader] and [Redlock.Inspect], which show it. It takes the place of
// [WithGenValueFunc]. Everybody who may read the nodes can read it. Default: "", the random bits
// alone, and never the host's name by itself.
//
// A Lock that fails with [ErrTaken] then also says whose the lock is: taken on 3 of 5 nodes by
// "pod-7". The text and the Owner of its [*Error] have it. For that it asks the nodes that refused
// once more, after its last attempt. It waits for them for a node timeout at most, or for 5 ms if
// its context is done. A Lock that is granted asks nothing. A Lock without an owner of its own asks
// only if its tries are used up, and were more than one.
func WithOwner(text string) Option {
	return option(func(c *config) {
		c.genValue, c.genValueBy, c.owned = nil, false, text != ""
		if text != "" {
			c.genValue = func() (string, error) { return text, nil }
		}
	})
}

// longestOwner is how many bytes of an owner's text an error shows. Somebody else has written it.
const longestOwner = 64

// sayOwner says in the error of a Lock whose the lock is, if it is taken.
func (m *Mutex) sayOwner(ctx context.Context, err error) {
	var e *Error
	if m.err != nil || !errors.As(err, &e) || !errors.Is(e, ErrTaken) {
		return
	}
	e.Owner = m.askOwner(ctx, e)
	if e.last != nil {
		e.last.Owner = e.Owner
	}
}

// askOwner asks the nodes that refused an attempt whose the lock is. It is "" if they do not tell,
// or if they disagree and none of them has a quorum.
func (m *Mutex) askOwner(ctx context.Context, e *Error) string {
	if e.last != nil {
		e = e.last
	}
	refused := e.refused(m.core.nodes)
	if len(refused) == 0 {
		return ""
	}
	budget := m.cfg.NodeTimeout
	if ctx.Err() != nil {
		ctx, budget = context.WithoutCancel(ctx), min(grant.MinAfterword, budget)
	}
	c := census.Take(ctx, refused, budget, m.key)
	told := len(refused) - c.Silent - c.Free - c.Reserved
	if c.Votes == told || c.Votes >= m.core.quorum {
		return oneline.CutTo(wire.OwnerOf(c.Value), longestOwner)
	}
	return ""
}

// refused returns those of all nodes that said that the lock is taken.
func (e *Error) refused(all []*quorum.Node) (nodes []*quorum.Node) {
	if e.nodes == nil {
		return nil
	}
	for _, err := range e.nodes.Errors {
		var node *NodeError
		if errors.As(err, &node) && node.Err == error(errNodeTaken) {
			nodes = append(nodes, all[node.Node])
		}
	}
	return nodes
}
