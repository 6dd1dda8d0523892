package sim

import (
	"context"

	"github.com/redlock-go/redlock/pool"
)

// Instant is a Link to a node that answers at once, for measuring what a client itself costs:
// what it starts has ended when it returns. No fate, plan, frost or crash may be laid on its
// node.
type Instant struct{ *Link }

var _ pool.Starter = Instant{}

// Instants returns one new Instant to each node for the client of that name.
func (ns Nodes) Instants(client string) []pool.Pool {
	pools := make([]pool.Pool, len(ns))
	for i, n := range ns {
		pools[i] = Instant{n.Link(client)}
	}
	return pools
}

// Start implements pool.Starter.
func (i Instant) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	to.Receive(c.Run(ctx, i))
}
