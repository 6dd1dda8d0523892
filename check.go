package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/checkup"
	"github.com/redlock-go/redlock/internal/keys"
	"github.com/redlock-go/redlock/internal/line"
	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/internal/quorum"
)

// Check reports what in the deployment makes locks unsafe or unavailable. Package doctor lists what
// it may find. Check tries on every node whether locks with r's options can live there. It asks
// each node about itself, by INFO, TIME and CONFIG GET. It disturbs no lock and can be used in
// production: at the start, on a health page, or by a command such as examples/doctor. It is too
// much for every lock.
//
// On each node, Check goes through a lock's life, by the commands of a lock. It acquires a key of
// its own, extends it, sees that another value does not release it, and releases it. Unless
// [WithoutAnnouncements] is set, it also stands in the queue for that key, and waits to be told
// of its turn if the pool is a [pool.Subscriber].
//
// The key is redlock:check: and 26 random letters, after the prefix of [WithKeyPrefix].
// [WithFencing] raises the shared counter redlock:fence:330d, which stays. With [WithFencePerName],
// the key has a counter of its own instead. Nothing else is written, and the key and its own
// counter are gone when Check returns. On a node that does not answer, or denies the deletion, they
// expire. That takes eleven node timeouts, and at least a second.
//
// If an ACL denies something, Check tries the rights that locks with r's options need, one by one.
// It reports those that are missing. The page docs/rights.md lists them all.
//
// Check blocks until all nodes have answered, or until ctx is done. It takes 18 node timeouts
// at most, and one where a node answers nothing. What a node does not tell of itself is reported as
// unknown. So is everything that a pool that is no [pool.Doer] cannot ask. The error is an
// [*OptionError], or the context's; then the report is nil. The Err of a node is a [*GuardError] if
// only the restart guard keeps the node out.
func (r *Redlock) Check(ctx context.Context) (*doctor.Report, error) {
	r.mustBeMade()
	needContext(ctx)
	if r.err != nil {
		return nil, r.err
	}
	report := r.checkup().Examine(ctx)
	if ctx.Err() != nil {
		text, causes := why(ctx)
		return nil, oneline.Error("redlock: not checked: "+text, causes...)
	}
	return report, nil
}

// checkup says what is examined.
func (r *Redlock) checkup() *checkup.Plan {
	m, c := r.newTrialMutex(), r.cfg
	plan := &checkup.Plan{
		Nodes:       r.core.nodes,
		Addr:        r.core.addr,
		Quorum:      r.core.quorum,
		NodeTimeout: c.nodeTimeout,
		Key:         checkup.Name{Example: m.key, Start: c.prefix},
		NewLock:     func(n *quorum.Node) checkup.Lock { return r.newTrial(n) },
	}
	switch {
	case c.fencing && c.fencePerName:
		plan.Counter = checkup.Name{Example: m.wire.keys[1], Start: keys.RelatedStart(c.prefix)}
	case c.fencing:
		plan.Counter = checkup.Name{Example: m.wire.keys[1], Start: keys.SharedCounters}
	}
	if c.announce {
		plan.Channel = checkup.Name{Example: m.core.lines.Channel(), Start: keys.TurnChannel}
	}
	if c.guarded {
		plan.Guard = c.guard
	}
	return plan
}

// newTrialMutex returns a mutex under a name that nobody else uses. Its keys are short-lived: they
// are deleted, but the node may have stopped answering by then.
func (r *Redlock) newTrialMutex() *Mutex {
	m := r.NewMutex("redlock:check:" + rand.Text())
	cfg := *m.cfg
	cfg.expiry = max(checkup.TrialTime(cfg.nodeTimeout), time.Second).Truncate(time.Millisecond)
	cfg.fenceTTL = cfg.expiry
	m.cfg, m.wire.cfg = &cfg, &cfg
	if cfg.fencing && !cfg.fencePerName {
		m.wire.keys[1] = keys.SharedCounter("redlock:check:") // one for all trials: it stays
	}
	return m
}

// trial is a lock on one node, for package checkup.
type trial struct {
	m       *Mutex
	lane    []quorum.Lane // to the node
	value   string
	claim   *quorum.Claim // with the value
	counter int64         // that Acquire returned
	member  line.Member   // of the queue
	place   *quorum.Claim // of the member
}

func (r *Redlock) newTrial(n *quorum.Node) *trial {
	m := r.newTrialMutex()
	t := &trial{
		m: m, lane: m.lanes[n.Index : n.Index+1], value: rand.Text(),
		member: line.Member{
			ID: keys.TurnChannel + rand.Text() + "1", Ticket: trialTicket, Agreed: true,
		},
	}
	t.claim, t.place = t.newClaim(), t.newClaim()
	return t
}

func (t *trial) newClaim() *quorum.Claim {
	c := &quorum.Claim{}
	c.Open(t.lane, t.m.cfg.nodeTimeout, 0)
	return c
}

func (t *trial) Acquire(ctx context.Context) (guarded time.Duration, err error) {
	t.counter, err = t.step(ctx, t.claim.Write, t.m.wire.acquire(t.value), granted)
	var guard *GuardError
	if errors.As(err, &guard) {
		return guard.Wait, guard
	}
	return 0, err
}

func (t *trial) AcquireUnguarded(ctx context.Context) (err error) {
	// A new claim does not know of the refusal, after which the release would be sent twice.
	t.claim = t.newClaim()
	t.counter, err = t.step(ctx, t.claim.Write, t.m.wire.acquireUnguarded(t.value), granted)
	return err
}

func (t *trial) Abandon(ctx context.Context) {
	t.claim.Undo(ctx, quorum.Spec{Command: t.m.wire.release(t.value, "")})
}

// trialTicket is that of the trial's member.
const trialTicket = 1

func (t *trial) Stand(ctx context.Context) error {
	if !t.m.cfg.announce {
		return nil
	}
	c := t.m.wire.stand(t.member, t.m.cfg.expiry)
	return t.wait(ctx, t.place.Write(ctx, quorum.Spec{Command: c}))
}

// wait returns what a round on the node has failed with.
func (t *trial) wait(ctx context.Context, round *quorum.Round) error {
	if _, err := round.Wait(ctx); err != nil {
		round.Abandon()
		return err
	}
	return round.Outcomes()[0].Err
}

func (t *trial) Extend(ctx context.Context) error {
	_, err := t.step(ctx, t.claim.Ask, t.m.wire.extend(t.value), quorum.Reply.Yes)
	return err
}

func (t *trial) ReleaseAsStranger(ctx context.Context) error {
	_, err := t.step(ctx, t.claim.Ask, t.m.wire.release("not "+t.value, ""), expires)
	return err
}

func (t *trial) Release(ctx context.Context) error {
	_, err := t.step(ctx, t.claim.Undo, t.m.wire.release(t.value, ""), quorum.Reply.Yes)
	if t.m.cfg.fencing && t.m.cfg.fencePerName {
		// The counter would stay. It holds what Acquire returned.
		counter := t.newClaim()
		counter.TakeOver()
		c := t.m.wire.forget(t.m.wire.keys[1], strconv.FormatInt(t.counter, 10))
		_, _ = counter.Undo(ctx, quorum.Spec{Command: c}).Wait(ctx)
	}
	return err
}

func (t *trial) Leave(ctx context.Context) error {
	if !t.m.cfg.announce {
		return nil
	}
	err := t.wait(ctx, t.place.Undo(ctx, quorum.Spec{Command: t.m.wire.leave(t.member)}))
	last := t.m.wire.forget(keys.Ticket(t.m.key), strconv.Itoa(trialTicket))
	_, _ = t.place.Undo(ctx, quorum.Spec{Command: last}).Wait(ctx)
	return err
}

func (t *trial) Announcement() (channel, message string) {
	if !t.m.cfg.announce {
		return "", ""
	}
	return t.member.ID[:keys.ChannelLength], t.member.ID[keys.ChannelLength:]
}

// step sends a command and waits for the reply. It returns an error unless the reply is ok.
func (t *trial) step(
	ctx context.Context, start func(context.Context, quorum.Spec) *quorum.Round, c quorum.Command,
	ok func(quorum.Reply) bool,
) (number int64, err error) {
	round := start(ctx, quorum.Spec{Command: c})
	if _, err := round.Wait(ctx); err != nil {
		round.Abandon()
		return 0, err
	}
	o := round.Outcomes()[0]
	if o.Err == nil && !ok(o.Reply) {
		o.Err = heldBy(o.Reply)
	}
	return o.Number, o.Err
}

// granted allows for a client that sends SET NX again after a lost reply. Its own key refuses it.
func granted(quorum.Reply) bool { return true }

// expires is true of the reply to a release with another value.
func expires(r quorum.Reply) bool { return r.Means == quorum.Foreign && r.Left >= 0 }
