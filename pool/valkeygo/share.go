// Code generated from package rueidis by TestCopy; DO NOT EDIT.

package valkeygo

import (
	"context"
	"fmt"
	"strconv"

	"github.com/valkey-io/valkey-go"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
)

// Valkey-go puts concurrent commands together by itself, but each of them needs a goroutine that
// waits for its reply. A batch needs one.

// call is a command that shares round trips.
type call = batch.Call[struct{}]

// send sends the calls in one round trip, and answers them.
func (p *Pool) send(ctx context.Context, calls []*call) {
	unreached := p.link.reach(ctx)
	sent := make([]*call, 0, len(calls))
	commands := make(valkey.Commands, 0, len(calls))
	for _, c := range calls {
		if err := c.Context().Err(); err != nil {
			c.Answer(nil, pool.NotSent(err))
		} else if unreached != nil {
			c.Answer(nil, pool.NotSent(unreached))
		} else {
			sent, commands = append(sent, c), append(commands, p.routed(c))
		}
	}
	switch len(sent) {
	case 0:
	case 1:
		sent[0].Answer(p.reply(p.client.Do(ctx, commands[0])))
	default:
		for i, r := range p.client.DoMulti(ctx, commands...) {
			sent[i].Answer(p.reply(r))
		}
	}
}

// command returns the command with the given name and arguments. Without keys that valkey-go knows
// of, the commands for a server that is no cluster go on one connection, in order.
func (p *Pool) command(args []any) valkey.Completed {
	b := p.client.B().Arbitrary()
	for _, arg := range args {
		b = b.Args(text(arg))
	}
	return b.Build()
}

// carried returns a command that its caller's goroutine sends. As one that blocks, it goes on a
// connection that nobody else uses meanwhile, and waits for nobody else's to be made.
func (p *Pool) carried(args []any) valkey.Completed {
	b := p.client.B().Arbitrary()
	for _, arg := range args {
		b = b.Args(text(arg))
	}
	return b.Blocking()
}

func text(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case int64:
		return strconv.FormatInt(arg, 10)
	}
	return fmt.Sprint(arg)
}

// routed returns a command of a lock, for the master of a cluster that has its first key. One
// without keys goes to the master of "", because valkey-go puts no such command beside others.
func (p *Pool) routed(c *call) valkey.Completed {
	args := c.Args()
	if c.Carried() {
		return p.carried(args)
	}
	command := p.command(args)
	if p.cluster {
		command = command.SetSlot(firstKey(args))
	}
	return command
}

// firstKey returns the first key of a SET, an EVALSHA or an EVAL, or "" if there is none.
func firstKey(args []any) string {
	at := 3
	switch {
	case args[0] == "SET":
		at = 1
	case args[2] == "0":
		return ""
	}
	return args[at].(string)
}

// reply is the outcome of a command.
func (p *Pool) reply(r valkey.ValkeyResult) (any, error) {
	if err := r.NonValkeyError(); err != nil {
		p.link.lost()
		return nil, err
	}
	reply, err := r.ToAny()
	if valkey.IsValkeyNil(err) {
		return nil, nil
	}
	return reply, err
}
