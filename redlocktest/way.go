package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// way is one client's connection to one node.
type way struct {
	c    *Cluster
	node *Node
	link *sim.Link

	// The node's gate guards these.
	cut     bool // by Cut
	away    bool // by AtEveryCommand
	planned bool // something else may become of commands than their execution
}

var (
	_ pool.Starter    = (*way)(nil)
	_ pool.Subscriber = (*way)(nil)
)

// SetNX implements pool.Pool.
func (w *way) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	w.c.calls.Add(1)
	defer w.c.calls.Add(-1)
	ok, err := w.link.SetNX(ctx, key, value, expiry)
	w.c.executed(call{w.node.id, "set", key, value})
	return ok, failure(err)
}

// Eval implements pool.Pool.
func (w *way) Eval(
	ctx context.Context, script *pool.Script, keys []string, args ...any,
) (any, error) {
	w.c.calls.Add(1)
	defer w.c.calls.Add(-1)
	reply, err := w.link.Eval(ctx, script, keys, args...)
	if len(keys) > 0 && len(args) > 0 {
		value, _ := args[0].(string)
		w.c.executed(call{w.node.id, script.Name, keys[0], value})
	}
	return reply, failure(err)
}

// Subscribe implements pool.Subscriber.
func (w *way) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	w.c.calls.Add(1)
	defer w.c.calls.Add(-1)
	s, err := w.link.Subscribe(ctx, channel)
	return s, failure(err)
}

// Start implements pool.Starter. If nothing stands in the way, it executes the command before it
// returns: the commands of a test then come in the same order each time.
func (w *way) Start(ctx context.Context, command *pool.Command, to pool.Receiver) {
	w.node.gate.RLock()
	if !w.planned && !w.node.down && !w.node.frozen {
		reply, err := command.Run(ctx, w.link)
		w.node.gate.RUnlock()
		w.c.executed(w.describe(command))
		to.Receive(reply, failure(err))
		return
	}
	w.node.gate.RUnlock()
	w.c.calls.Add(1)
	go func() { // ends with its call
		defer w.c.calls.Add(-1)
		to.Receive(command.Run(ctx, w))
	}()
}

// call is a command that a node has been sent.
type call struct {
	node  int
	name  string
	lock  string // the key
	value string // of the lock's acquisition, or ""
}

// describe returns what a node has been sent.
func (w *way) describe(command *pool.Command) call {
	c, line := call{node: w.node.id, name: "set"}, command.Args()
	keys, args := line[1:2], line[2:]
	if s := command.Script(); s != nil {
		n, _ := line[2].(int64) // after EVALSHA and the ID
		c.name, keys, args = s.Name, line[3:3+n], line[3+n:]
	}
	if len(keys) > 0 && len(args) > 0 {
		c.lock, _ = keys[0].(string)
		c.value, _ = args[0].(string)
	}
	return c
}

// plan lays down what becomes of the way's commands. The caller holds the node's gate.
func (w *way) plan() {
	plan := w.node.fates()
	if w.cut || w.away {
		plan = func(sim.Op) sim.Fate { return sim.Hang() }
	}
	w.planned = plan != nil
	w.link.Plan(plan)
}

// change changes what becomes of the way's commands.
func (w *way) change(what func()) {
	w.node.gate.Lock()
	defer w.node.gate.Unlock()
	what()
	w.plan()
}

// errOver is the error of a call that comes when the test is over, or that the end has interrupted.
var errOver = errors.New("redlocktest: the test is over")

// failure is an error as clients of real servers return it.
func failure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sim.ErrRefused):
		return pool.NotSent(fmt.Errorf("dial: %w", syscall.ECONNREFUSED))
	case errors.Is(err, sim.ErrReset):
		return fmt.Errorf("read: %w", syscall.ECONNRESET)
	case errors.Is(err, sim.ErrClosed):
		return errOver
	}
	return err
}
