package redlock

import (
	"context"
	"crypto/rand"

	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/checkup"
	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/oneline"
)

// Check reports what in the deployment makes locks unsafe or unavailable. Package doctor lists what
// it may find. Check tries on every node whether locks with r's options can live there. It asks
// each node about itself, by INFO, TIME and CONFIG GET. It disturbs no lock and can be used in
// production: at the start, on a health page, or by the command "redlock doctor". Do not call it
// before every lock: it sends many commands.
//
// On each node, Check goes through a lock's life, by the commands of a lock. It acquires a key of
// its own, extends it, sees that another value does not release it, and releases it. It also stands
// in the queue for that key, unless [WithoutAnnouncements] is set. If the pool is a
// [pool.Subscriber], it then waits to be told of its turn.
//
// Two programs whose reports have the same [doctor.Report.Fingerprint] know the same nodes.
//
// The key is redlock:check: and 26 random letters, after the prefix of [WithKeyPrefix].
// [WithFencing] raises the shared counter redlock:fence:330d, which stays. With [WithFencePerName],
// the key has a counter of its own instead. Nothing else is written, and the key and its own
// counter are gone when Check returns. On a node that does not answer, or denies the deletion, they
// expire. That takes eleven node timeouts, and at least a second.
//
// If an ACL denies something, Check tries the rights that locks with r's options need, one by one.
// It reports those that are missing. With [WithFencing] it also reports whether an election could
// not have its counter. The page docs/rights.md lists all rights.
//
// Check blocks until all nodes have answered, or until ctx is done. It takes 21 node timeouts
// at most, and one where a node answers nothing. What a node does not tell of itself is reported as
// unknown. So is everything that a pool that is no [pool.Doer] cannot ask. The error is an
// [*OptionError], or the context's; then the report is nil. The Err of a node is a [*GuardError] if
// only the restart guard keeps the node out.
func (r *Redlock) Check(ctx context.Context) (*doctor.Report, error) {
	r.mustBeMade()
	needContext(ctx)
	if r.err != nil {
		return nil, r.err
	}
	plan := checkup.NewPlan(r.core.nodes, r.cfg.prefix, r.core.lines.Channel(),
		func() *grant.Lock { return &r.NewMutex("redlock:check:" + rand.Text()).nodes })
	report := plan.Examine(ctx)
	for i := range report.Nodes {
		n := &report.Nodes[i]
		n.Err, n.Unheard = exported(n.Err), exported(n.Unheard)
		for j := range n.Unknown {
			n.Unknown[j].Why = exported(n.Unknown[j].Why)
		}
	}
	if ctx.Err() != nil {
		text, causes := why(ctx)
		return nil, oneline.Error("redlock: not checked: "+text, causes...)
	}
	return report, nil
}
