package goredis

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
)

// command is a redis.Cmd that goes to the node at most once, and not at all after
// its context has ended.
//
// go-redis sends a command again when its reply is lost. For SET NX that means a node
// that says "taken" because of our own first SET, so NoRetry forbids it. And
// go-redis may hold a command for seconds before it writes it, waiting for a free
// connection or dialling, while its caller has long gone; so the arguments are
// looked at again when they are written.
type command struct {
	redis.Cmd
	ctx      context.Context
	withheld bool        // the arguments were last asked for after ctx had ended
	asked    atomic.Bool // for the arguments, in time, or for a clone: it may have been sent
	// For the arguments, unless they are more; see set. Those of a release are seven. With room for
	// six, it made one more allocation on each node, of 192 bytes.
	room [7]any
}

// ping takes the place of a command whose context ended before it was written: a
// pipeline must write something for it, because it will read a reply for it.
var ping = []any{"PING"}

var errNoReply = errors.New("goredis: the client returned neither a reply nor an error")

// newCommand returns the command with the given arguments.
func newCommand(ctx context.Context, args []any) *command {
	c := &command{}
	c.set(ctx, args)
	return c
}

// set makes it the command with the given arguments. It copies them: hooks may change them, and
// they are those of all nodes.
func (c *command) set(ctx context.Context, args []any) {
	c.Cmd, c.ctx = *redis.NewCmd(ctx, append(c.room[:0], args...)...), ctx
}

// NoRetry tells go-redis never to send the command a second time.
func (c *command) NoRetry() bool { return true }

// Args returns what is written to the node. The names and keys by which go-redis routes
// the command to a shard do not come from here, and stay what they were.
func (c *command) Args() []any {
	if c.withheld = c.ctx.Err() != nil; c.withheld {
		return ping
	}
	c.asked.Store(true)
	return c.Cmd.Args()
}

// Clone keeps the type, and with it the promises above.
func (c *command) Clone() redis.Cmder {
	c.asked.Store(true)
	clone := newCommand(c.ctx, c.Cmd.Args())
	clone.SetVal(c.Val())
	clone.SetErr(c.Err())
	return clone
}

// reply is the outcome, after the command ran with the given error. That of a command that was
// certainly not sent is marked: nobody has asked for its arguments while its context lasted.
func (c *command) reply(err error) (any, error) {
	val := c.Val()
	switch {
	case c.withheld:
		err = c.ctx.Err()
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err == nil && val == nil:
		// A hook that answers in the client's place may do this.
		err = errNoReply
	}
	switch {
	case err == nil:
		return val, nil
	case !c.asked.Load():
		err = pool.NotSent(err)
	}
	return nil, err
}
