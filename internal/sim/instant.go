package sim

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/pool"
)

// Instant is a Link to a node that answers at once, for measuring what a client itself costs: what it
// starts has ended when it returns. No fate, plan, frost or crash may be laid on its node.
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

// StartSetNX implements pool.Starter.
func (i Instant) StartSetNX(ctx context.Context, key, value string, expiry time.Duration, to pool.Receiver) {
	ok, err := i.SetNX(ctx, key, value, expiry)
	to.Receive(ok, err)
}

// StartEval implements pool.Starter.
func (i Instant) StartEval(ctx context.Context, script *pool.Script, keys []string, args []any, to pool.Receiver) {
	to.Receive(i.Eval(ctx, script, keys, args...))
}
