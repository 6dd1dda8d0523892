package quorum

import (
	"context"

	"github.com/redlock-go/redlock/pool"
)

// Command is what a round sends to its nodes.
type Command struct {
	*pool.Command // to all of them, unless there is a For
	// For, if it is not nil, is asked what to send to a node when its turn comes. Nil is nothing.
	For func(node int) *pool.Command
	// Read reads the client's reply to the command.
	Read func(c *pool.Command, reply any, err error) (Reply, error)
}

// runner is a Starter that runs each command on a goroutine of its own.
type runner struct{ pool.Pool }

func (r runner) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	go func() {
		reply, err := any(nil), errGoexit
		defer func() { to.Receive(reply, err) }()
		defer guard(&err)
		reply, err = c.Run(ctx, r.Pool)
	}()
}
