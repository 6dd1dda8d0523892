package quorum

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redlock-go/redlock/pool"
)

// Op is a command on one node. A positive reply is a yes. It is called on a goroutine of the
// lane's and may return late; the context ends when the node's time is up.
type Op func(ctx context.Context, node *Node) (reply int64, err error)

// Command is what an Op does, for clients that carry it out without a goroutine that waits for it.
type Command struct {
	*pool.Command
	// Reply makes of the client's reply to c what an Op would have returned.
	Reply func(c *pool.Command, reply any, err error) (int64, error)
}

// Run is the Op.
func (c Command) Run(ctx context.Context, node *Node) (int64, error) {
	reply, err := c.Command.Run(ctx, node.Pool)
	return c.Reply(c.Command, reply, err)
}

// work is what a round does on its nodes. A client that panics while it does it is one node's
// failure, which the others outvote, and not the end of a process that cannot recover from it.
type work struct {
	op      Op
	command Command // if there is no op
}

// errGoexit is the outcome of a node whose client ended the goroutine that it was called on.
var errGoexit = errors.New("the client called runtime.Goexit")

// starts reports whether the node's client does the work without a goroutine that waits for it.
func (w *work) starts(n *Node) bool { return w.op == nil && n.Starter != nil }

// startOn hands the work to the client, which tells to the outcome.
func (w *work) startOn(ctx context.Context, n *Node, to pool.Receiver) {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = pool.Recovered(p)
		}
		if err != nil {
			to.Receive(nil, err)
		}
	}()
	n.Starter.Start(ctx, w.command.Command, to)
	err = nil
}

// read makes of the client's reply what an Op would have returned.
func (w *work) read(reply any, err error) (_ int64, failed error) {
	defer guard(&failed)
	return w.command.Reply(w.command.Command, reply, err)
}

// do carries out the work and waits for its outcome.
func (w *work) do(ctx context.Context, n *Node) (_ int64, err error) {
	defer guard(&err)
	if w.op != nil {
		return w.op(ctx, n)
	}
	return w.command.Run(ctx, n)
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
