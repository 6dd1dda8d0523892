package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redlock-go/redlock/pool"
)

// Call is one command under way. The function Send of a [Batcher] has it until it returns, and no
// longer.
type Call[T any] struct {
	// Client is room for what the client needs to know of the call. It begins as the zero value.
	Client T

	ctx     context.Context
	command *pool.Command
	to      pool.Receiver

	joined   []*Call[T] // those for which it stands, or nil: see join
	line     []any      // what is sent of those
	apart    bool       // it does not go together with others
	bySource bool       // an EVAL takes the place of the EVALSHA
	kept     bool       // by a caller of Do
	carried  bool       // by the goroutine of its caller
	handed   bool       // to Send; the Batcher's mu guards it
	again    bool       // it goes in a later batch
	answered bool
	reply    any
	err      error
}

// Context ends when nobody waits for the outcome any more. If the call has not been sent by then,
// it is not sent.
func (c *Call[T]) Context() context.Context { return c.ctx }

// Args returns what to send: the name of the command, which is a string, and its arguments, strings
// and integers. They belong to the calls of other nodes as well and must not be changed.
func (c *Call[T]) Args() []any {
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
func (c *Call[T]) Answer(reply any, err error) { c.answered, c.reply, c.err = true, reply, err }

// Carried reports whether the goroutine of a caller sends the call: see [Batcher.Carry].
func (c *Call[T]) Carried() bool { return c.carried }

// HandOver is called by Send instead of Answer, for a call that is carried and has not been sent. A
// goroutine of the Batcher sends it then.
func (c *Call[T]) HandOver() { c.again = true }

// Answered reports whether Answer was called.
func (c *Call[T]) Answered() bool { return c.answered }

// outcome returns what to tell the receiver.
func (c *Call[T]) outcome(explain func(error) error) (reply any, err error) {
	if c.command.Script() == nil {
		reply, err = granted(c.reply, c.err)
	} else if reply, err = c.reply, c.err; err != nil {
		reply = nil
	}
	if err != nil {
		err = explain(c.ended(err))
	}
	return reply, err
}

// ended returns the error with which the call ends. That of a batch's context may be another one
// than that of the call's own: a batch is cancelled when the last of the deadlines has passed.
func (c *Call[T]) ended(err error) error {
	own := c.ctx.Err()
	if own == nil || errors.Is(err, own) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", own, err)
	}
	return err
}

// granted is what a reply to SET NX means.
func granted(reply any, err error) (any, error) {
	switch {
	case err != nil:
		return false, err
	case reply == nil:
		return false, nil
	case reply == "OK":
		return true, nil
	}
	return false, fmt.Errorf("pool: SET NX was answered by %T %v, not by OK or null", reply, reply)
}

// next returns the call that takes the place of this one in a later batch, or nil if it is over. If
// the node does not know the script of an EVALSHA, that is an EVAL, unless nobody waits any more.
func (c *Call[T]) next() *Call[T] {
	unknown := c.command.Script() != nil && !c.bySource && pool.IsNoScript(c.err) &&
		c.ctx.Err() == nil
	if !unknown && !c.again {
		return nil
	}
	return &Call[T]{ctx: c.ctx, command: c.command, to: c.to, apart: c.apart,
		bySource: c.bySource || unknown}
}
