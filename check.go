package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/checkup"
	"github.com/redlock-go/redlock/internal/keys"
	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/internal/quorum"
)

// Check reports what in the deployment makes locks unsafe or unavailable. Package doctor lists what
// it may find. Check tries on every node whether locks with r's options can live there. It asks
// each node about itself, by INFO, TIME and CONFIG GET. It disturbs no lock and can be used in
// production: at the start, on a health page, or by the command "redlock doctor". It is too
// much for every lock.
//
// On each node, Check goes through a lock's life, by the commands of a lock. It acquires a key of
// its own, extends it, sees that another value does not release it, and releases it. Unless
// [WithoutAnnouncements] is set, it also stands in the queue for that key, and waits to be told
// of its turn if the pool is a [pool.Subscriber].
//
// The key is redlock:check: and 26 random letters, after the prefix of [WithKeyPrefix].
// [WithFencing] raises the shared counter redlock:fence:330d, which stays. With [WithFencePerName],
// the key has a counter of its own instead. Nothing else is written, and the key and its own
// counter are gone when Check returns. On a node that does not answer, or denies the deletion, they
// expire. That takes eleven node timeouts, and at least a second.
//
// If an ACL denies something, Check tries the rights that locks with r's options need, one by one.
// It reports those that are missing. The page docs/rights.md lists them all.
//
// Check blocks until all nodes have answered, or until ctx is done. It takes 18 node timeouts
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
	report := r.checkup().Examine(ctx)
	if ctx.Err() != nil {
		text, causes := why(ctx)
		return nil, oneline.Error("redlock: not checked: "+text, causes...)
	}
	return report, nil
}

// checkup says what is examined.
func (r *Redlock) checkup() *checkup.Plan {
	m, c := r.newTrialMutex(), r.cfg
	plan := &checkup.Plan{
		Nodes:       r.core.nodes,
		Addr:        r.core.addr,
		Quorum:      r.core.quorum,
		NodeTimeout: c.nodeTimeout,
		Key:         checkup.Name{Example: m.key, Start: c.prefix},
		NewLock:     r.newTrial,
	}
	switch {
	case c.fencing && c.fencePerName:
		plan.Counter = checkup.Name{Example: m.wire.keys[1], Start: keys.RelatedStart(c.prefix)}
	case c.fencing:
		plan.Counter = checkup.Name{Example: m.wire.keys[1], Start: keys.SharedCounters}
	}
	if c.announce {
		plan.Channel = checkup.Name{Example: m.core.lines.Channel(), Start: keys.TurnChannel}
	}
	if c.guarded {
		plan.Guard = c.guard
	}
	return plan
}

// newTrial returns a lock for a node, under a name that nobody else uses.
func (r *Redlock) newTrial(n *quorum.Node) checkup.Lock {
	m := r.newTrialMutex()
	l := checkup.Lock{
		Commands: &m.wire, Lane: m.lanes[n.Index : n.Index+1], Key: m.key,
		Announced: m.cfg.announce, Denied: heldBy,
		Guarded: func(err error) time.Duration {
			var guard *GuardError
			if errors.As(err, &guard) {
				return guard.Wait
			}
			return 0
		},
	}
	if m.cfg.fencing && m.cfg.fencePerName {
		l.Counter = m.wire.keys[1]
	}
	return l
}

func (r *Redlock) newTrialMutex() *Mutex {
	m := r.NewMutex("redlock:check:" + rand.Text())
	cfg := *m.cfg
	cfg.expiry = checkup.Life(cfg.nodeTimeout)
	cfg.fenceTTL = cfg.expiry
	m.cfg, m.wire.cfg = &cfg, &cfg
	if cfg.fencing && !cfg.fencePerName {
		m.wire.keys[1] = keys.SharedCounter("redlock:check:") // one for all trials: it stays
	}
	return m
}
