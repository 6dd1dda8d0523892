package quorum

import (
	"cmp"
	"container/list"
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

	// first is the Release that this one sends again, or nil. If beside, this one does not wait for
	// its turn on the pipeline.
	first  *call
	beside bool

	// Set under the pipeline's mutex when the call begins to run, and not changed any more.
	began  int64 // see clock.Ticks
	unsent error // why it is not sent, or nil

	outcome Outcome // the round's mutex guards it

	// The pipeline's mutex guards these.
	inHand bool // the client has it
	kept   bool // the node's breaker has it
	probe  bool // it was sent although the breaker has tripped; not changed once it is sent

	returned atomic.Bool   // Receive was called
	place    *list.Element // in the breaker, or nil; the breaker's mutex guards it
}

// again makes a call that sends a Release once more, in a round of its own. Its outcome counts for
// the first, too, if that has none yet.
func (c *call) again() *call {
	r := c.round
	spec := Spec{Command: r.spec.Command, Need: 1, Budget: r.spec.Budget, Trusts: r.spec.Trusts}
	round := newRound(r.ctx.Context, Release, spec, r.expiry, 1)
	again := &round.calls[0]
	again.pipeline, again.write, again.first = c.pipeline, c.write, cmp.Or(c.first, c)
	round.arm()
	return again
}

// errGoexit is the outcome of a node whose client ended the goroutine that it was called on.
var errGoexit = errors.New("the client called runtime.Goexit")

// starts reports whether the node's client makes the call without a goroutine that waits for it.
func (c *call) starts() bool {
	return c.round.spec.Command.Decide == nil && c.pipeline.node.Starter != nil
}

// start hands the call to the client, which tells the outcome to Receive. With carry the caller's
// goroutine makes the call, where the client allows that.
func (c *call) start(carry bool) {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = pool.Recovered(p)
		}
		if err != nil {
			c.Receive(nil, err)
		}
	}()
	n := c.pipeline.node
	command := c.round.spec.Command.to(n)
	if carry && n.Carrier != nil {
		n.Carrier.Carry(&c.round.ctx, command, c)
	} else {
		n.Starter.Start(&c.round.ctx, command, c)
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
	command := &c.round.spec.Command
	return command.Read(command.to(c.pipeline.node), reply, err)
}

// run makes a call and waits for its outcome.
func (c *call) run() {
	reply, err := Reply{}, errGoexit
	defer func() { c.pipeline.launch(c.pipeline.close(c, reply, err)) }()
	reply, err = c.ask()
}

func (c *call) ask() (_ Reply, failed error) {
	defer guard(&failed)
	command, n := c.round.spec.Command, c.pipeline.node
	if command.Decide != nil {
		var send bool
		if command, send = command.Decide(n.Index); !send {
			return Reply{}, ErrUnsent
		}
	}
	reply, err := command.to(n).Run(&c.round.ctx, n.Pool)
	return command.Read(command.to(n), reply, err)
}

// guard makes of a panic the outcome of a call. It is deferred.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = pool.Recovered(p)
	}
}
