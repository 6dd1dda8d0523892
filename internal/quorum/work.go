package quorum

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redlock-go/redlock/pool"
)

// Command is what a round sends to its nodes: one command for all of them, one for each, or one
// that is decided for each when its turn comes.
type Command struct {
	*pool.Command
	// Each, if it is not nil, has the command of each node instead, by the node's index.
	Each []*pool.Command
	// Read reads the client's reply to the command.
	Read func(c *pool.Command, reply any, err error) (Reply, error)
	// Decide, if it is not nil, is asked what to send to a node when the command would be sent. It
	// may be nothing.
	Decide func(node int) (c Command, send bool)
}

// When returns the command with a condition, which is looked at for each node when its turn comes.
func (c Command) When(holds func(node int) bool) Command {
	return Command{Decide: func(node int) (Command, bool) { return c, holds(node) }}
}

// to returns what is sent to a node; nil if that is decided when its turn comes.
func (c *Command) to(n *Node) *pool.Command {
	if c.Each != nil {
		return c.Each[n.Index]
	}
	return c.Command
}

// run sends the command to a node, and waits for the reply.
func (c Command) run(ctx context.Context, n *Node) (Reply, error) {
	if c.Decide != nil {
		var send bool
		if c, send = c.Decide(n.Index); !send {
			return Reply{}, ErrUnsent
		}
	}
	command := c.to(n)
	reply, err := command.Run(ctx, n.Pool)
	return c.Read(command, reply, err)
}

// work is what a round does on its nodes. A client that panics is one node's failure, which the
// others outvote. It does not end the process, which could not recover from it.
type work struct{ command Command }

// errGoexit is the outcome of a node whose client ended the goroutine that it was called on.
var errGoexit = errors.New("the client called runtime.Goexit")

// starts reports whether the node's client does the work without a goroutine that waits for it.
func (w *work) starts(n *Node) bool { return w.command.Decide == nil && n.Starter != nil }

// startOn hands the work to the client, which tells to the outcome. With carry the caller's
// goroutine does the work, where the client allows that.
func (w *work) startOn(ctx context.Context, n *Node, to pool.Receiver, carry bool) {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = pool.Recovered(p)
		}
		if err != nil {
			to.Receive(nil, err)
		}
	}()
	if carry && n.Carrier != nil {
		n.Carrier.Carry(ctx, w.command.to(n), to)
	} else {
		n.Starter.Start(ctx, w.command.to(n), to)
	}
	err = nil
}

// read reads the reply of a node's client.
func (w *work) read(n *Node, reply any, err error) (_ Reply, failed error) {
	defer guard(&failed)
	return w.command.Read(w.command.to(n), reply, err)
}

// do carries out the work and waits for its outcome.
func (w *work) do(ctx context.Context, n *Node) (_ Reply, err error) {
	defer guard(&err)
	return w.command.run(ctx, n)
}

// guard makes of a panic the outcome of a call. It is deferred.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = pool.Recovered(p)
	}
}

// once is for what counts only the first time.
type once struct{ done atomic.Bool }

func (o *once) first() bool { return !o.done.Swap(true) }
