// Code generated from package rueidis by TestCopy; DO NOT EDIT.

package valkeygo

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

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
	for tries := maxTries; len(calls) > 0; tries-- {
		calls = p.trySend(ctx, calls, tries == 1)
	}
}

// trySend tries once to send the calls in one round trip. It returns those that did not go out, to
// be sent again, and answers the others. The last time it answers all.
func (p *Pool) trySend(ctx context.Context, calls []*call, last bool) (again []*call) {
	unreached := p.link.reach(ctx)
	own := p.isOwn(ctx, calls[0])
	sent := make([]*call, 0, len(calls))
	commands := make(valkey.Commands, 0, len(calls))
	for _, c := range calls {
		if err := c.Context().Err(); err != nil {
			c.Answer(nil, pool.NotSent(err))
		} else if unreached != nil {
			c.Answer(nil, pool.NotSent(unreached))
		} else {
			sent, commands = append(sent, c), append(commands, p.routed(c, own))
		}
	}
	noMaster := false
	answer := func(c *call, r valkey.ValkeyResult) {
		if !last && p.isUnsent(ctx, r) {
			p.link.lost()
			again = append(again, c)
			return
		}
		reply, err := p.outcome(c, r)
		noMaster = noMaster || pool.IsNoMaster(err)
		c.Answer(reply, err)
	}
	switch len(sent) {
	case 0:
	case 1:
		answer(sent[0], p.client.Do(ctx, commands[0]))
	default:
		for i, r := range p.client.DoMulti(ctx, commands...) {
			answer(sent[i], r)
		}
	}
	if noMaster && !p.cluster {
		p.quit(ctx, own)
	}
	return again
}

// quit ends a connection to a server that is not the master: behind one address, the next one may
// reach that. Valkey-go has no method for it, so the server is asked to close the connection. The
// PING behind it fails, and so may others, until the client has noticed. Every user may send QUIT.
// Other commands that are on their way there fail as well, and would have been refused.
func (p *Pool) quit(ctx context.Context, own bool) {
	p.client.DoMulti(ctx, p.command([]any{"QUIT"}, own), p.command([]any{"PING"}, own))
	for range maxTries {
		if p.client.Do(ctx, p.command([]any{"PING"}, own)).NonValkeyError() == nil {
			return
		}
	}
}

// maxTries is how often a command is tried that does not go out: see isUnsent.
const maxTries = 5

// isUnsent reports whether a command with this context did not go out, because of another one.
//
// Valkey-go gives a connection the deadline of the command that is alone on it, and closes the
// connection when that has passed. What others have queued there meanwhile is not written. It
// fails with the error of the first. The deadline of a command that was written has passed when
// that fails so. A wrapper may have other deadlines.
func (p *Pool) isUnsent(ctx context.Context, r valkey.ValkeyResult) bool {
	if !p.bare || r.NonValkeyError() != context.DeadlineExceeded || ctx.Err() != nil {
		return false
	}
	end, ends := ctx.Deadline()
	return !ends || time.Now().Before(end)
}

// isOwn reports whether a call goes on a connection of its own: what its caller carries. The
// goroutine that sends it writes and reads there, unless AlwaysPipelining is set. On the connection
// for all, two other goroutines do that.
func (p *Pool) isOwn(ctx context.Context, c *call) bool {
	_, ends := ctx.Deadline()
	return p.plain && ends && c.Carried()
}

// command returns the command with the given name and arguments. Without keys that valkey-go knows
// of, the commands for a server that is no cluster go on one connection, in order.
//
// Own is for one of the connections that valkey-go keeps for commands that block. Nobody else uses
// it meanwhile. The command waits for no other connection, unless BlockingPoolSize are in use.
func (p *Pool) command(args []any, own bool) valkey.Completed {
	b := p.client.B().Arbitrary()
	for _, arg := range args {
		b = b.Args(p.text(arg))
	}
	if own {
		return b.Blocking()
	}
	return b.Build()
}

// text is an argument as valkey-go takes it. Locks send the same few numbers again and again, such
// as their expiry, so the texts are kept.
func (p *Pool) text(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case int64:
		return p.numbers.text(arg)
	}
	return fmt.Sprint(arg)
}

// numbers keeps the texts of a few numbers, which saves 10 of 50 allocations of a lock on five
// nodes. A number takes the place of another with the same remainder. The divisor is a prime,
// because many of the numbers are round.
//
// The zero value is ready for use. It is safe for concurrent use.
type numbers [31]atomic.Pointer[number]

type number struct {
	value int64
	text  string
}

func (n *numbers) text(value int64) string {
	place := &n[uint64(value)%uint64(len(n))]
	kept := place.Load()
	if kept == nil || kept.value != value {
		kept = &number{value, strconv.FormatInt(value, 10)}
		place.Store(kept)
	}
	return kept.text
}

// routed returns a command of a lock, for the master of a cluster that has its first key. One
// without keys goes to the master of "", because valkey-go puts no such command beside others.
func (p *Pool) routed(c *call, own bool) valkey.Completed {
	args := c.Args()
	command := p.command(args, own)
	if p.cluster { // which has no connection of a call's own
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

// outcome is the reply to a call, or its error. OK is a constant, which saves 5 of 50 allocations
// of a lock on five nodes.
func (p *Pool) outcome(c *call, r valkey.ValkeyResult) (any, error) {
	if c.Args()[0] == "SET" {
		if reply, err := r.ToString(); err == nil && reply == "OK" {
			return "OK", nil
		}
	}
	return p.reply(r)
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
