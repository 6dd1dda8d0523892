package doctor

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// meet finds out which pools reach one server, where a node does not tell its run id. All nodes are
// asked for one key, each with a value of its own. A server that has several pools has the value of
// one of them. It returns for each node which pool's that is: its own, unless they meet. It
// takes three node timeouts at most.
func (p *plan) meet(ctx context.Context, reports []NodeReport) []int {
	owner, silent := make([]int, len(reports)), false
	var all []*quorum.Node
	for i, n := range reports {
		owner[i] = i
		if !fails(&n) {
			all = append(all, p.Nodes[i])
			silent = silent || n.RunID == ""
		}
	}
	if !silent || len(reports) == 1 {
		return owner
	}
	lock, secret, timeout := p.newLock(), rand.Text()+" ", p.Terms.NodeTimeout
	value := func(n *quorum.Node) string { return secret + strconv.Itoa(n.Index) }
	quorum.Survey(ctx, all, timeout, func(ctx context.Context, n *quorum.Node) (bool, error) {
		return n.Pool.SetNX(ctx, lock.Key(), value(n), lock.Expiry)
	})
	found := quorum.Survey(ctx, all, timeout,
		func(ctx context.Context, n *quorum.Node) (wire.Stored, error) {
			return wire.Look(ctx, n.Pool, []string{lock.Key()})
		})
	quorum.Survey(ctx, all, timeout, func(ctx context.Context, n *quorum.Node) (any, error) {
		return lock.Release(value(n), "").Command.Run(ctx, n.Pool)
	})
	for i, n := range all {
		of, ours := strings.CutPrefix(found[i].Value.Value, secret)
		if other, err := strconv.Atoi(of); ours && err == nil {
			owner[n.Index] = other
		}
	}
	return owner
}
