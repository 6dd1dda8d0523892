package rueidiscore

import (
	"context"
	"time"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
)

// The clients put concurrent commands together by themselves, but each of them needs a goroutine
// that waits for its reply. A batch needs one.

// send sends the calls in one round trip, and answers them.
func (p *Pool) send(ctx context.Context, calls []*batch.Call) {
	for tries := maxTries; len(calls) > 0; tries-- {
		calls = p.trySend(ctx, calls, tries == 1)
	}
}

// trySend tries once to send the calls in one round trip. It returns those that did not go out, to
// be sent again, and answers the others. The last time it answers all.
func (p *Pool) trySend(ctx context.Context, calls []*batch.Call, last bool) (again []*batch.Call) {
	unreached := p.link.reach(ctx)
	own := p.isOwn(ctx, calls[0])
	sent := make([]*batch.Call, 0, len(calls))
	commands := make([]Command, 0, len(calls))
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
	answer := func(c *batch.Call, r Reply) {
		if !last && p.isUnsent(ctx, r) {
			p.link.lost()
			again = append(again, c)
			return
		}
		reply, err := p.outcome(r)
		noMaster = noMaster || pool.IsNoMaster(err)
		c.Answer(reply, err)
	}
	switch len(sent) {
	case 0:
	case 1:
		answer(sent[0], p.client.Do(ctx, commands[0]))
	default:
		for i, r := range p.client.DoMulti(ctx, commands) {
			answer(sent[i], r)
		}
	}
	if noMaster && !p.cluster {
		p.quit(ctx, own)
	}
	return again
}

// quit ends a connection to a server that is not the master: behind one address, the next one may
// reach that. The clients have no method for it, so the server is asked to close the connection.
// The PING behind it fails, and so may others, until the client has noticed. Every user may send
// QUIT. Other commands that are on their way there fail as well, and would have been refused.
func (p *Pool) quit(ctx context.Context, own bool) {
	ping := Command{Args: ping.Args, Own: own}
	p.client.DoMulti(ctx, []Command{{Args: []any{"QUIT"}, Own: own}, ping})
	for range maxTries {
		if p.client.Do(ctx, ping).Lost == nil {
			return
		}
	}
}

// maxTries is how often a command is tried that does not go out: see isUnsent.
const maxTries = 5

// isUnsent reports whether a command with this context did not go out, because of another one.
//
// The client gives a connection the deadline of the command that is alone on it, and closes the
// connection when that has passed. What others have queued there meanwhile is not written. It
// fails with the error of the first. The deadline of a command that was written has passed when
// that fails so. A wrapper may have other deadlines.
func (p *Pool) isUnsent(ctx context.Context, r Reply) bool {
	if !p.bare || r.Lost != context.DeadlineExceeded || ctx.Err() != nil {
		return false
	}
	end, ends := ctx.Deadline()
	return !ends || time.Now().Before(end)
}

// isOwn reports whether a call goes on a connection of its own: what its caller carries. The
// goroutine that sends it writes and reads there, unless AlwaysPipelining is set. On the connection
// for all, two other goroutines do that.
func (p *Pool) isOwn(ctx context.Context, c *batch.Call) bool {
	_, ends := ctx.Deadline()
	return p.plain && ends && c.Carried()
}

// routed returns a command of a lock, for the master of a cluster that has its first key. One
// without keys goes to the master of "", because the clients put no such command beside others.
func (p *Pool) routed(c *batch.Call, own bool) Command {
	command := Command{Args: c.Args(), Own: own, Routed: p.cluster}
	if p.cluster {
		command.Key = firstKey(command.Args)
	}
	return command
}

// firstKey returns the first key of a SET, an EVALSHA or an EVAL, or "" if there is none.
func firstKey(args []any) string {
	at := 3
	switch {
	case args[0] == "SET":
		at = 1
	case args[2] == int64(0):
		return ""
	}
	return args[at].(string)
}

// outcome is the outcome of a command.
func (p *Pool) outcome(r Reply) (any, error) {
	if r.Lost != nil {
		p.link.lost()
		return nil, r.Lost
	}
	return r.Value, r.Err
}
