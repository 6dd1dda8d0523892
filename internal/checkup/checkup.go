// Package checkup examines the nodes of a deployment, for Redlock.Check.
//
// Each step is a file. trial.go lives a lock's life on a node, by the commands of lock.go.
// inquiry.go asks the node about itself, and rights.go finds out what an ACL denies. judge.go
// draws the conclusions; trouble.go knows the words in which servers and clients refuse. Package
// doctor has the result.
package checkup

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/keys"
	"github.com/redlock-go/redlock/internal/quorum"
)

// Plan says which nodes are examined, and what the locks need of them.
type Plan struct {
	Nodes       []*quorum.Node
	Quorum      int
	NodeTimeout time.Duration // for each command
	Guard       time.Duration // of the restart guard; 0: there is none

	// What locks use. Nobody else uses the examples of these names, and nothing is there.
	Key     Name
	Counter Name // for fencing; zero: there is none
	Term    Name // the counter of an election, if that is another one; zero: there is none
	Channel Name // for announcements; zero: there are none

	newLock func() *grant.Lock // with a key that nobody else uses
}

// Name is the name of a key or channel, and what all such names begin with.
type Name struct{ Example, Start string }

// NewPlan returns a plan for such locks, whose keys begin with the prefix. NewLock makes one with a
// key that nobody else uses. Channel is that of a process.
func NewPlan(nodes []*quorum.Node, prefix, channel string,
	newLock func() *grant.Lock) *Plan {
	l := forTrial(newLock())
	p := &Plan{
		Nodes: nodes, Quorum: quorum.Majority(len(nodes)),
		NodeTimeout: l.NodeTimeout, Guard: l.Guard, Key: Name{l.Key(), prefix}, newLock: newLock,
	}
	if l.Fencing {
		p.Counter = Name{l.Counter(), keys.SharedCounters}
		own := Name{Example: keys.OwnCounter(l.Key())}
		own.Start, _, _ = strings.Cut(own.Example, strings.TrimPrefix(l.Key(), prefix))
		if l.FencePerName {
			p.Counter.Start = own.Start
		} else {
			p.Term = own
		}
	}
	if l.Queues() {
		p.Channel = Name{channel, keys.TurnChannel}
	}
	return p
}

// TrialTime is how long the trial of a lock takes at most.
func TrialTime(nodeTimeout time.Duration) time.Duration {
	return clock.Times(nodeTimeout, trialCommands)
}

// Examine examines the nodes, all at the same time. It blocks until all of them have answered, at
// most for 21 node timeouts, or until ctx is done; then the report is worth nothing.
func (p *Plan) Examine(ctx context.Context) *doctor.Report {
	// What a lock asks of a node comes first: it tells who is there at all.
	trials := quorum.Survey(ctx, p.Nodes, TrialTime(p.NodeTimeout),
		func(ctx context.Context, n *quorum.Node) (trial, error) {
			t := trial{lock: newOwner(forTrial(p.newLock()), n.Index), timeout: p.NodeTimeout}
			err := t.run(ctx, n.Pool)
			return t, err
		})
	reports := quorum.Survey(ctx, p.Nodes, clock.Times(p.NodeTimeout, inquiryCommands),
		func(ctx context.Context, n *quorum.Node) (doctor.NodeReport, error) {
			t := trials[n.Index]
			if errors.Is(t.Err, quorum.ErrTimeout) {
				return doctor.NodeReport{}, t.Err
			}
			q := inquiry{plan: p, report: doctor.NodeReport{
				Err: t.Err, Guarded: t.Value.guarded, Unheard: t.Value.unheard,
			}}
			q.run(ctx, n.Pool)
			return q.report, nil
		})
	report := &doctor.Report{Quorum: p.Quorum}
	for i, a := range reports {
		if a.Err != nil {
			a.Value = silent(a.Err)
		}
		a.Value.Node, a.Value.Addr = i, p.Nodes[i].Addr()
		report.Nodes = append(report.Nodes, a.Value)
	}
	p.judge(report, p.meet(ctx, report.Nodes))
	return report
}
