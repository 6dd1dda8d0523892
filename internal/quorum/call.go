package quorum

import (
	"errors"
	"sync/atomic"

	"github.com/redlock-go/redlock/pool"
)

// call is a round's command on one pipeline. A client that panics is one node's failure, which the
// others outvote. It does not end the process, which could not recover from it.
type call struct {
	round    *Round
	pipeline *Pipeline
	write    *WriteState // of the acquisition it belongs to

	first *call // the Release that this one sends again, or nil

	// Set under the pipeline's mutex when the call begins to run, and not changed any more.
	began  int64 // see clock.Ticks
	unsent error // why it is not sent, or nil

	sent *pool.Command // set when it is handed to the client

	outcome Outcome // the round's mutex guards it

	// The pipeline's mutex guards these.
	inHand bool // the client has it
	kept   bool // the node's breaker has it
	probe  bool // it was sent although the breaker has tripped; not changed once it is sent

	returned atomic.Bool // Receive was called
}

// again makes a call that sends a Release once more, in a round of its own. Its outcome counts for
// the first, too, if that has none yet.
func (c *call) again() *call {
	r := c.round
	spec := Spec{Command: r.spec.Command, Need: 1, Budget: r.spec.Budget, Trusts: r.spec.Trusts}
	round := newRound(r.Context, Release, spec, r.expiry, 1)
	again := &round.calls[0]
	again.pipeline, again.write, again.first = c.pipeline, c.write, c
	round.begin()
	return again
}

// errGoexit is the outcome of a node whose client ended the goroutine that it was called on.
var errGoexit = errors.New("the client called runtime.Goexit")

// start hands the call to the client, which tells the outcome to Receive. With carry the caller's
// goroutine makes the call, where the client allows that.
func (c *call) start(carry bool) {
	err := errGoexit
	defer func() {
		if err != nil {
			c.Receive(nil, err)
		}
	}()
	defer guard(&err)
	r, n := c.round, c.pipeline.node
	c.sent = r.spec.Command.Command
	if r.spec.Command.For != nil {
		c.sent = r.spec.Command.For(n.Index)
	}
	switch {
	case c.sent == nil:
		err = ErrUnsent
		return
	case carry && n.carrier != nil:
		n.carrier.Carry(r, c.sent, c)
	default:
		n.starter.Start(r, c.sent, c)
	}
	err = nil
}

// Receive is told the outcome of a call that was started.
func (c *call) Receive(reply any, err error) {
	if !c.returned.Swap(true) {
		said, err := c.read(reply, err)
		c.pipeline.launch(c.pipeline.close(c, said, err))
	}
}

func (c *call) read(reply any, err error) (_ Reply, failed error) {
	defer guard(&failed)
	return c.round.spec.Command.Read(c.sent, reply, err)
}

// guard makes of a panic the outcome of a call. It is deferred.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = pool.Recovered(p)
	}
}
