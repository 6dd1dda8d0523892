package goredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	request  *pool.Command // or nil
	to       pool.Receiver // nil for a caller that sends it itself
	withheld bool          // the arguments were last asked for after ctx had ended
	asked    atomic.Bool   // for the arguments, in time, of it or a clone: it may have been sent
	original *command      // of which it is a clone, or nil
	room     [6]any        // for the request's arguments, unless they are more: hooks may change them, and they are all nodes'
}

// ping takes the place of a command whose context ended before it was written: a
// pipeline must write something for it, because it will read a reply for it.
var ping = []any{"PING"}

var errNoReply = errors.New("goredis: the client returned neither a reply nor an error")

// newCommand returns the command with the given arguments, which it does not change.
func newCommand(ctx context.Context, args []any) *command {
	return &command{Cmd: *redis.NewCmd(ctx, args...), ctx: ctx}
}

// newRequest returns the command that a request asks for.
func newRequest(ctx context.Context, request *pool.Command) *command {
	c := &command{ctx: ctx, request: request}
	c.Cmd = *redis.NewCmd(ctx, append(c.room[:0], request.Args()...)...)
	return c
}

// isSet reports whether the command is a SET NX.
func (c *command) isSet() bool { return c.request != nil && c.request.Script() == nil }

// withSource returns the EVAL for an EVALSHA that was answered with err, or nil if that is no reason to send one.
func (c *command) withSource(err error) *command {
	if c.request == nil || c.isSet() || !pool.IsNoScript(err) {
		return nil
	}
	args := slices.Clone(c.request.Args())
	args[0], args[1] = "EVAL", c.request.Script().Source
	return newCommand(c.ctx, args)
}

// NoRetry tells go-redis never to send the command a second time.
func (c *command) NoRetry() bool { return true }

// Args returns what is written to the node. The names and keys by which go-redis routes
// the command to a shard do not come from here, and stay what they were.
func (c *command) Args() []any {
	before := c.asked.Swap(true) // ahead of the look at ctx: see unsent
	if c.withheld = c.ctx.Err() != nil; c.withheld {
		c.asked.Store(before)
		return ping
	}
	if c.original != nil {
		c.original.asked.Store(true)
	}
	return c.Cmd.Args()
}

// unsent marks the error of a command that was certainly not sent: nobody has asked for its arguments while
// its context lasted. It is called when the command has come to its end, or the context to its own.
func (c *command) unsent(err error) error {
	if c.asked.Load() {
		return err
	}
	return pool.NotSent(err)
}

// Clone keeps the type, and with it the promises above.
func (c *command) Clone() redis.Cmder {
	clone := newCommand(c.ctx, slices.Clone(c.Cmd.Args()))
	clone.original = c
	if c.original != nil {
		clone.original = c.original
	}
	clone.SetVal(c.Val())
	clone.SetErr(c.Err())
	return clone
}

// outcome is what to tell of the command, after it ran with the given error; or else the one to send in its place.
func (c *command) outcome(err error) (reply any, next *command, _ error) {
	reply, err = c.reply(err)
	if c.isSet() {
		reply, err = granted(reply, err)
		return reply, nil, err
	}
	return reply, c.withSource(err), err
}

// granted is what a reply to SET NX means.
func granted(reply any, err error) (bool, error) {
	switch {
	case err != nil:
		return false, err
	case reply == nil:
		return false, nil
	case reply == "OK":
		return true, nil
	}
	return false, fmt.Errorf("goredis: SET NX was answered by %T %v, not by OK or null", reply, reply)
}

// reply is the outcome, after the command ran with the given error.
func (c *command) reply(err error) (any, error) {
	val := c.Val()
	switch {
	case c.withheld:
		return nil, c.unsent(c.ctx.Err())
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, c.unsent(err)
	case val == nil:
		// A hook that answers in the client's place may do this.
		return nil, errNoReply
	}
	return val, nil
}
