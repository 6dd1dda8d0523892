package quorum

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/test/leak"
	"github.com/redlock-go/redlock/pool"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var more = flag.Uint64("more", 1, "how many times as many trials there are")

// op is what a node does in a test. A positive number is a yes.
type op func(ctx context.Context, n *Node) (int64, error)

// opPool is the pool of a node that does as the op it is sent says.
type opPool struct{ node *Node }

func (p *opPool) SetNX(context.Context, string, string, time.Duration) (bool, error) {
	return false, errors.New("an opPool knows only ops")
}

func (p *opPool) Eval(ctx context.Context, _ *pool.Script, _ []string, args ...any) (any, error) {
	return args[0].(op)(ctx, p.node)
}

// newNodes returns nodes that do ops.
func newNodes(n int, tracker *Tracker) []*Node {
	pools := make([]pool.Pool, n)
	for i := range pools {
		pools[i] = &opPool{}
	}
	nodes := Nodes(pools, tracker)
	for i := range nodes {
		pools[i].(*opPool).node = nodes[i]
	}
	return nodes
}

func newPipelines(n int) []Pipeline { return Pipelines(newNodes(n, NewTracker())) }

// said is the reply of a node that says a number. A positive one is a yes.
func said(n int64) Reply {
	if n > 0 {
		return Reply{Means: Done, Number: n}
	}
	return Reply{Number: n}
}

func (o op) command() Command {
	return Command{Command: pool.Eval(&pool.Script{Name: "op"}, nil, o),
		Read: func(_ *pool.Command, reply any, err error) (Reply, error) {
			if err != nil {
				return Reply{}, err
			}
			return said(reply.(int64)), nil
		}}
}

// when is the command, for nodes of which holds is true when their turn comes.
func (c Command) when(holds func(node int) bool) Command {
	said := c.Command
	c.For = func(node int) *pool.Command {
		if holds(node) {
			return said
		}
		return nil
	}
	return c
}

// plan is a Spec, with what the write set knows, and what a node does.
type plan struct {
	Op      op // instead of a command
	Command Command
	Kind    Kind
	Need    int
	Budget  time.Duration
	Expiry  time.Duration
	Hasty   bool
	Waits   bool
	Trusts  bool
	Writes  []WriteState // nil: an acquisition of its own
	Vote    func(node int, reply Reply) bool
	Skip    func(node int) bool
}

func startRound(ctx context.Context, pipelines []Pipeline, p plan) *Round {
	c := WriteSet{pipelines: pipelines, writes: p.Writes, expiry: p.Expiry}
	if c.writes == nil {
		c.writes = make([]WriteState, len(pipelines))
	}
	if p.Op != nil {
		p.Command = p.Op.command()
	}
	return c.start(ctx, p.Kind, Spec{Command: p.Command, Need: p.Need, Budget: p.Budget,
		Hasty: p.Hasty, Waits: p.Waits, Trusts: p.Trusts, Vote: p.Vote, Skip: p.Skip})
}

// votes returns the votes so far.
func (r *Round) votes() tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally
}

// released reports whether what was written on the first pipeline has been taken back.
func released(pipelines []Pipeline, m []WriteState) bool {
	return (&WriteSet{pipelines: pipelines, writes: m}).ReleasedOn(0)
}

// sentBefore makes the states of Writes that somebody else has sent.
func sentBefore(n int) []WriteState {
	c := WriteSet{writes: make([]WriteState, n)}
	c.TakeOver(false)
	return c.writes
}
