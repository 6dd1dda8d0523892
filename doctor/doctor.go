// Package doctor reports what makes locks on a deployment of Redis nodes unsafe or unavailable.
// [Check] examines the nodes of a [redlock.Redlock] and returns a [Report]. Its [Report.String] is
// for people; [Finding.Code] and [NodeReport] are for programs.
//
// The codes of the findings:
//
//   - same-server: several pools reach the same server, so its vote counts several times
//   - sentinel, replica: a node is no master
//   - replicas: a node has replicas, and a failover to one of them forgets locks
//   - cluster: a node is part of a cluster, whose failover also forgets locks
//   - refused, name, tls, timeout, closed: a node cannot be reached, or does not answer
//   - noauth, wrongpass: a node wants a password, or another one
//   - noperm: an ACL denies what a lock needs, what makes many releases cheap, or what an election
//     needs
//   - command: a node does not know a command that a lock needs
//   - crossslot: a node of a cluster refuses the counter that names share; locks there need
//     WithFencePerName
//   - moved, clusterdown, loading, readonly, oom, misconf, noreplicas, busy, maxclients: a node
//     refuses locks with that error
//   - unreachable: a node cannot take part in locks for another reason
//   - announcements: a node does not wake waiters
//   - eviction: a node may drop locks when its memory is full
//   - restart: a node forgets locks when it restarts, and there is no WithRestartGuard
//   - guard: the restart guard still keeps a node out
//   - clock: clocks differ by more than a second
//   - version: a server is too old
//   - even, single: the number of nodes
//   - other-nodes: the nodes are not those of redlock doctor -expect, which alone reports it
//   - unknown: something could not be found out
package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Each step of a Check is a file. trial.go lives a lock's life on a node, by the commands of
// lock.go. inquiry.go asks the node about itself, and rights.go finds out what an ACL denies.
// meet.go looks for pools that reach one server. judge.go draws the conclusions; trouble.go knows
// the words in which servers and clients refuse. The result is in report.go, and its text in
// text.go.

// Check reports what in the deployment makes locks unsafe or unavailable: it tries on every node
// whether locks with the options of rl can live there, and asks the node about itself, by INFO,
// TIME and CONFIG GET. It disturbs no lock and can be used in production: at the start, on a health
// page, or by the command "redlock doctor". Do not call it before every lock: it sends many
// commands. The comment of the package lists what it may find.
//
// On each node, Check goes through a lock's life, by the commands of a lock. It acquires a key of
// its own, extends it, sees that another value does not release it, and releases it. It also stands
// in the queue for that key, unless [redlock.WithPolling] is set. If the pool is a
// [pool.Subscriber], it then waits to be told of its turn.
//
// Two programs whose reports have the same [Report.Fingerprint] know the same nodes.
//
// The key is redlock:check: and 26 random letters, after the prefix of [redlock.WithKeyPrefix].
// [redlock.WithFencing] raises the shared counter redlock:fence:330d, which stays. With
// [redlock.WithFencePerName], the key has a counter of its own instead. Nothing else is written,
// and the key and its own counter are gone when Check returns. On a node that does not answer, or
// denies the deletion, they expire. That takes eleven node timeouts, and at least a second.
//
// If an ACL denies something, Check tries the rights that locks with these options need, one by
// one, and reports those that are missing. With WithFencing it also reports whether an election
// could not have its counter. The page docs/rights.md lists all rights.
//
// Check blocks until all nodes have answered, or until ctx is done. It takes 21 node timeouts at
// most, and one where a node answers nothing. What a node does not tell of itself is reported as
// unknown. So is everything that a pool that is no [pool.Doer] cannot ask. The error is a
// [*redlock.OptionError], or the context's; then the report is nil. The Err of a node is a
// [*redlock.GuardError] if only the restart guard keeps the node out. Check panics if ctx is nil,
// or if redlock.New did not make rl.
func Check(ctx context.Context, rl *redlock.Redlock) (*Report, error) {
	d, err := wire.DeploymentOf(rl)
	if ctx == nil {
		panic("redlock: nil context")
	}
	if err != nil {
		return nil, err
	}
	report := newPlan(d).examine(ctx)
	for i := range report.Nodes {
		n := &report.Nodes[i]
		n.Err, n.Unheard = d.Exported(n.Err), d.Exported(n.Unheard)
		for j := range n.Unknown {
			n.Unknown[j].Why = d.Exported(n.Unknown[j].Why)
		}
	}
	if err := ctx.Err(); err != nil {
		text, cause := err.Error(), context.Cause(ctx)
		if cause != err {
			text += fmt.Sprintf(" (%s)", errtext.Text(cause.Error()))
		}
		return nil, errtext.Error("redlock: not checked: "+text, err, cause)
	}
	return report, nil
}

// plan says which nodes are examined, and what locks need of them. Its terms are those of the
// trials.
type plan struct {
	wire.Deployment

	// What locks use. Nobody else uses the examples of these names, and nothing is there.
	key     name
	counter name // for fencing; zero: there is none
	term    name // the counter of an election, if that is another one; zero: there is none
	channel name // for announcements; zero: there are none
}

// name is the name of a key or channel, and what all such names begin with.
type name struct{ example, start string }

func newPlan(d wire.Deployment) *plan {
	p := &plan{Deployment: d}
	p.Terms.Expiry = p.life()
	p.Terms.FenceTTL = p.life()
	l := p.newLock()
	p.key = name{l.Key(), p.Prefix}
	if l.Fencing {
		p.counter = name{l.Counter(), wire.SharedCounters}
		own := name{example: wire.OwnCounter(l.Key())}
		own.start, _, _ = strings.Cut(own.example, strings.TrimPrefix(l.Key(), p.Prefix))
		if l.FencePerName {
			p.counter.start = own.start
		} else {
			p.term = own
		}
	}
	if l.Queues() {
		p.channel = name{p.Channel, wire.TurnChannel}
	}
	return p
}

// newLock returns a lock with a key that nobody else uses.
func (p *plan) newLock() wire.Lock {
	const start = "redlock:check:"
	l := wire.NewLock(p.Prefix+start+rand.Text(), &p.Terms, p.Tokens)
	if l.Fencing && !l.FencePerName {
		l.CountBy(wire.SharedCounter(start)) // one for all trials: it stays
	}
	return l
}

// budget is how long so many commands take at most, one after the other.
func (p *plan) budget(commands int64) time.Duration {
	return clock.Times(p.Terms.NodeTimeout, commands)
}

// life is how long the keys of a trial live. They are deleted, but the node may have stopped
// answering by then.
func (p *plan) life() time.Duration {
	return max(p.budget(trialCommands), time.Second).Truncate(time.Millisecond)
}

// examine examines the nodes, all at the same time. It blocks until all of them have answered, at
// most for 21 node timeouts, or until ctx is done; then the report is worth nothing.
func (p *plan) examine(ctx context.Context) *Report {
	// What a lock asks of a node comes first: it tells who is there at all.
	trials := quorum.Survey(ctx, p.Nodes, p.budget(trialCommands),
		func(ctx context.Context, n *quorum.Node) (trial, error) {
			t := trial{lock: p.newOwner(n)}
			err := t.run(ctx, n.Pool)
			return t, err
		})
	nodes := quorum.Survey(ctx, p.Nodes, p.budget(inquiryCommands),
		func(ctx context.Context, n *quorum.Node) (NodeReport, error) {
			t := trials[n.Index]
			if errors.Is(t.Err, quorum.ErrTimeout) {
				return NodeReport{}, t.Err
			}
			q := inquiry{plan: p, report: NodeReport{
				Err: t.Err, Guarded: t.Value.guarded, Unheard: t.Value.unheard,
			}}
			q.run(ctx, n.Pool)
			return q.report, nil
		})
	report := &Report{Quorum: quorum.Majority(len(p.Nodes))}
	for i, a := range nodes {
		if a.Err != nil {
			a.Value = silent(a.Err)
		}
		a.Value.Node, a.Value.Addr = i, p.Nodes[i].Addr()
		report.Nodes = append(report.Nodes, a.Value)
	}
	p.judge(report, p.meet(ctx, report.Nodes))
	return report
}
