package goredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

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
	set      bool         // it is a SET NX
	script   *pool.Script // of an EVALSHA
	withheld bool         // the arguments were last asked for after ctx had ended
	text     string       // an argument that is passed by its address, which need not be boxed
	room     [8]any       // for the arguments, so that most commands are one allocation
}

// ping takes the place of a command whose context ended before it was written: a
// pipeline must write something for it, because it will read a reply for it.
var ping = []any{"PING"}

var errNoReply = errors.New("goredis: the client returned neither a reply nor an error")

// newCommand returns the command with the given arguments, which may be in c.room.
func newCommand(ctx context.Context, args []any) *command {
	return (&command{ctx: ctx}).with(args)
}

func (c *command) with(args []any) *command {
	c.Cmd = *redis.NewCmd(c.ctx, args...)
	return c
}

// setNX returns the command SET key value NX PX expiry.
func setNX(ctx context.Context, key, value string, expiry any) *command {
	c := &command{ctx: ctx, text: value, set: true}
	return c.with(append(c.room[:0], "SET", key, &c.text, "NX", "PX", expiry))
}

// evalSHA returns the command EVALSHA.
func evalSHA(ctx context.Context, script *pool.Script, keys []string, args []any) *command {
	c := &command{ctx: ctx, text: script.ID, script: script}
	all := append(c.room[:0], "EVALSHA", &c.text, boxed(len(keys)))
	for _, key := range keys {
		all = append(all, key)
	}
	return c.with(append(all, args...))
}

// withSource returns the EVAL for an EVALSHA.
func (c *command) withSource() *command {
	e := &command{ctx: c.ctx, text: c.script.Source}
	all := append(e.room[:0], "EVAL", &e.text)
	return e.with(append(all, c.Cmd.Args()[2:]...))
}

// boxed returns n as go-redis wants it for routing: it looks for "0", as a string.
func boxed(n int) any {
	switch n { // constants need no allocation
	case 0:
		return "0"
	case 1:
		return "1"
	case 2:
		return "2"
	}
	return strconv.Itoa(n)
}

// NoRetry tells go-redis never to send the command a second time.
func (c *command) NoRetry() bool { return true }

// Args returns what is written to the node. The names and keys by which go-redis routes
// the command to a shard do not come from here, and stay what they were.
func (c *command) Args() []any {
	c.withheld = c.ctx.Err() != nil
	if c.withheld {
		return ping
	}
	return c.Cmd.Args()
}

// Clone keeps the type, and with it the promises above.
func (c *command) Clone() redis.Cmder {
	clone := newCommand(c.ctx, slices.Clone(c.Cmd.Args()))
	clone.SetVal(c.Val())
	clone.SetErr(c.Err())
	return clone
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
		return nil, c.ctx.Err()
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, err
	case val == nil:
		// A hook that answers in the client's place may do this.
		return nil, errNoReply
	}
	return val, nil
}
