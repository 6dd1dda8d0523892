package pool

import (
	"context"
	"slices"
	"time"
)

// Command is a call of [Pool.SetNX] or [Pool.Eval], made once for all the nodes that are asked.
// It is not changed any more, and so safe for concurrent use.
type Command struct {
	// Alone says that no other node is asked, so this one's answer decides. It is set before the
	// command is handed to a Pool.
	Alone bool

	// Joint, if not nil, is a script that does for several commands at once what each of them does:
	// see OneServer of package batch. They are made by Eval, have the same number of keys, and at
	// least one argument. The script is given their first keys, then their second ones, and so on,
	// and then the first argument of each. It replies with their number if the reply to each of
	// them is 1. Otherwise it replies with an array of their replies, which has null for each
	// command that it has left undone. It is set before the command is handed to a Pool.
	Joint *Script

	script *Script // nil for SET NX PX, which has only a line
	keys   []string

	line []any
	room [7]any // for the line, unless it is longer
}

// SetNX returns the command that [Pool.SetNX] sends.
func SetNX(key, value string, expiry time.Duration) *Command {
	c := &Command{}
	c.line = slices.Clip(append(c.room[:0], "SET", key, value, "NX", "PX", expiry.Milliseconds()))
	return c
}

// Eval returns the command that [Pool.Eval] sends. The caller does not change keys afterwards.
func Eval(script *Script, keys []string, args ...any) *Command {
	c := &Command{script: script, keys: keys}
	c.line = append(c.room[:0], "EVALSHA", script.ID, int64(len(keys)))
	for _, key := range keys {
		c.line = append(c.line, key)
	}
	c.line = slices.Clip(append(c.line, args...)) // a Pool may append to it
	return c
}

// Script returns the script that the command runs, or nil if it is a SET NX PX.
func (c *Command) Script() *Script { return c.script }

// Args returns what is sent to the node: SET or EVALSHA, and its arguments, which are strings and
// integers. The caller does not change it.
func (c *Command) Args() []any { return c.line }

// Run carries the command out and waits for the outcome. The reply to a SET NX PX is a bool.
func (c *Command) Run(ctx context.Context, p Pool) (any, error) {
	if c.script != nil {
		return p.Eval(ctx, c.script, c.keys, c.line[3+len(c.keys):]...)
	}
	key, value, ms := c.line[1].(string), c.line[2].(string), c.line[5].(int64)
	return p.SetNX(ctx, key, value, time.Duration(ms)*time.Millisecond)
}
