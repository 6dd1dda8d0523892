package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redlock-go/redlock/pool"
)

// Call is one command under way. The function that sends it has it until it returns, and no longer.
type Call struct {
	ctx     context.Context
	command *pool.Command
	to      pool.Receiver

	joined   []*Call // those for which it stands, or nil: see join
	line     []any   // what is sent of those
	apart    bool    // it does not go together with others
	bySource bool    // an EVAL takes the place of the EVALSHA
	carried  bool    // by the goroutine of its caller
	again    bool    // it goes in a later batch
	answered bool
	reply    any
	err      error
}

// Context ends when nobody waits for the outcome any more. If the call has not been sent by then,
// it is not sent.
func (c *Call) Context() context.Context { return c.ctx }

// Args returns what to send: the name of the command, which is a string, and its arguments, strings
// and integers. They belong to the calls of other nodes as well and must not be changed.
func (c *Call) Args() []any {
	if c.joined != nil {
		return c.line
	}
	args := c.command.Args()
	if c.bySource {
		args = slices.Clone(args)
		args[0], args[1] = "EVAL", c.command.Script().Source
	}
	return args
}

// Answer sets the outcome: a reply, of the types that [pool.Pool] promises, or an error. The
// answer to a SET NX is the reply itself, "OK" or nil. The error of a call that was certainly not
// sent is marked by [pool.NotSent]. Of several answers the last one counts.
func (c *Call) Answer(reply any, err error) {
	if err != nil { // a hook of the client's may have made one that cannot be read
		reads := func() error { isReply(err); pool.IsNoScript(err); return nil }
		if unread := pool.Try(reads); unread != nil {
			err = unread
		}
	}
	c.answered, c.reply, c.err = true, reply, err
}

// Carried reports whether the goroutine of a caller sends the call: see [StartCarried].
func (c *Call) Carried() bool { return c.carried }

// HandOver is called instead of Answer, for a call that is carried and has not been sent. A
// goroutine of the Batcher sends it then.
func (c *Call) HandOver() { c.again = true }

// Answered reports whether Answer was called.
func (c *Call) Answered() bool { return c.answered }

// outcome returns what to tell the receiver.
func (c *Call) outcome() (reply any, err error) {
	switch {
	case c.err != nil:
		return nil, c.failure()
	case c.command.Script() != nil:
		return c.reply, nil
	case c.reply == nil:
		return false, nil
	case c.reply == "OK":
		return true, nil
	}
	return nil, fmt.Errorf("pool: SET NX was answered by %T %v, not OK or null", c.reply, c.reply)
}

// failure returns the error with which the call ends. That of a batch's context may be another one
// than that of the call's own: a batch is cancelled when the last of the deadlines has passed.
func (c *Call) failure() error {
	own := c.ctx.Err()
	if own != nil && !errors.Is(c.err, own) &&
		(errors.Is(c.err, context.Canceled) || errors.Is(c.err, context.DeadlineExceeded)) {
		return fmt.Errorf("%w: %w", own, c.err)
	}
	return c.err
}

// next returns the call that takes the place of this one in a later batch, or nil if it is over. If
// the node does not know the script of an EVALSHA, that is an EVAL, unless nobody waits any more.
func (c *Call) next() *Call {
	unknown := c.command.Script() != nil && !c.bySource && pool.IsNoScript(c.err) &&
		c.ctx.Err() == nil
	if !unknown && !c.again {
		return nil
	}
	return &Call{ctx: c.ctx, command: c.command, to: c.to, apart: c.apart,
		bySource: c.bySource || unknown}
}
