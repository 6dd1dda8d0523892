package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// owner is who has the lock of a trial. Its methods block until the node has answered, at most for
// a node timeout, or until ctx is done. The error says why the outcome is not as it should be.
type owner struct {
	wire.Lock                   // whose commands are those of every other lock
	pipeline  []quorum.Pipeline // to the node
	denied    func(quorum.Reply) error
	value     string
	key       *quorum.WriteSet // with the value
	number    int64            // that acquire returned: what the counter holds
	member    wire.Member      // of the queue
	place     *quorum.WriteSet // of the member
}

// newOwner returns the owner of a lock on one node.
func (p *plan) newOwner(n *quorum.Node) *owner {
	o := &owner{
		Lock: p.newLock(), pipeline: quorum.Pipelines([]*quorum.Node{n}), denied: p.Denied,
		value:  rand.Text(),
		member: wire.Member{ID: wire.TurnChannel + rand.Text() + "1", Ticket: ticket, Agreed: true},
	}
	o.key, o.place = o.newWriteSet(), o.newWriteSet()
	return o
}

func (o *owner) newWriteSet() *quorum.WriteSet {
	c := &quorum.WriteSet{}
	c.Open(o.pipeline, o.NodeTimeout, 0)
	return c
}

// acquire sets the key. If only the restart guard refuses, guarded is for how long, and err is the
// guard's error.
func (o *owner) acquire(ctx context.Context) (guarded time.Duration, err error) {
	o.number, err = o.step(ctx, o.key.Write, o.Acquire(o.value), anything)
	var guard *wire.GuardError
	if errors.As(err, &guard) {
		return guard.Wait, err
	}
	return 0, err
}

// acquireUnguarded is acquire without the restart guard.
func (o *owner) acquireUnguarded(ctx context.Context) (err error) {
	// A new write set does not know of the refusal, after which the release would be sent twice.
	o.key = o.newWriteSet()
	o.number, err = o.step(ctx, o.key.Write, o.AcquireUnguarded(o.value), anything)
	return err
}

// abandon deletes what a failed acquire has left, or leaves later. It does not block.
func (o *owner) abandon(ctx context.Context) {
	o.key.Release(ctx, quorum.Spec{Command: o.Release(o.value, "")})
}

// ticket is that of the member.
const ticket = 1

// stand stands in the queue for the key, if it has one.
func (o *owner) stand(ctx context.Context) error {
	if !o.Queues() {
		return nil
	}
	_, err := o.step(ctx, o.place.Write, o.Stand(o.member, o.Expiry), anything)
	return err
}

// extend gives the key more time.
func (o *owner) extend(ctx context.Context) error {
	_, err := o.step(ctx, o.key.Ask, o.Extend(o.value), quorum.Reply.Yes)
	return err
}

// releaseAsStranger tries to release the lock with another value, which must fail.
func (o *owner) releaseAsStranger(ctx context.Context) error {
	_, err := o.step(ctx, o.key.Ask, o.Release("not "+o.value, ""), expires)
	return err
}

// release takes back what acquire has set: it hands the key on to the member, and announces that;
// or it deletes the key.
func (o *owner) release(ctx context.Context) error {
	_, err := o.step(ctx, o.key.Release, o.Release(o.value, ""), quorum.Reply.Yes)
	if o.Fencing && o.FencePerName { // its counter would stay
		counter := o.newWriteSet()
		counter.TakeOver(false)
		c := o.Forget(o.Counter(), strconv.FormatInt(o.number, 10))
		_, _ = counter.Release(ctx, quorum.Spec{Command: c}).Wait(ctx)
	}
	return err
}

// leave deletes what stand has left, and what was handed on to the member.
func (o *owner) leave(ctx context.Context) error {
	if !o.Queues() {
		return nil
	}
	_, err := o.step(ctx, o.place.Release, o.Leave(o.member), anything)
	last := o.Forget(wire.TicketKey(o.Key()), strconv.Itoa(ticket))
	_, _ = o.place.Release(ctx, quorum.Spec{Command: last}).Wait(ctx)
	return err
}

// announcement returns the channel and the message of the announcement; channel is "" if there is
// none.
func (o *owner) announcement() (channel, message string) {
	if !o.Queues() {
		return "", ""
	}
	return o.member.ID[:wire.ChannelLength], o.member.ID[wire.ChannelLength:]
}

// step sends a command and waits for the reply. It returns an error unless the reply is ok.
func (o *owner) step(
	ctx context.Context, start func(context.Context, quorum.Spec) *quorum.Round, c quorum.Command,
	ok func(quorum.Reply) bool,
) (number int64, err error) {
	round := start(ctx, quorum.Spec{Command: c})
	if _, err := round.Wait(ctx); err != nil {
		return 0, err
	}
	said := round.Outcomes()[0]
	if said.Err == nil && !ok(said.Reply) {
		said.Err = o.denied(said.Reply)
	}
	return said.Number, said.Err
}

// anything is any answer. A client that sends SET NX again after a lost reply is refused by its own
// key.
func anything(quorum.Reply) bool { return true }

// expires is true of the reply to a release with another value.
func expires(r quorum.Reply) bool { return r.Means == quorum.Foreign && r.Left >= 0 }
