package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/checkup"
	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
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
		plan.Counter = checkup.Name{Example: m.keys[1], Start: relatedStart(c.prefix)}
	case c.fencing:
		plan.Counter = checkup.Name{Example: m.keys[1], Start: sharedCounters}
	}
	if c.announce {
		plan.Channel = checkup.Name{Example: m.core.source.Channel, Start: turnChannel}
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
	m.cfg = &cfg
	if cfg.fencing && !cfg.fencePerName {
		m.keys[1] = sharedCounter("redlock:check:") // one for all trials: it stays
	}
	return m
}

// trial is a lock on one node, for package checkup.
type trial struct {
	m       *Mutex
	lane    []quorum.Lane // to the node
	lease   *lease
	counter int64         // that Acquire returned
	member  string        // of the queue
	place   []quorum.Mark // of the member
}

func (r *Redlock) newTrial(n *quorum.Node) *trial {
	m := r.newTrialMutex()
	return &trial{
		m: m, lane: m.lanes[n.Index : n.Index+1], lease: newLease(rand.Text(), 1),
		member: turnChannel + rand.Text() + "1", place: make([]quorum.Mark, 1),
	}
}

func (t *trial) Acquire(ctx context.Context) (guarded time.Duration, err error) {
	t.counter, err = t.step(ctx, quorum.Write, t.m.acquire(t.lease.value), notNegative)
	var guard *GuardError
	if errors.As(err, &guard) {
		return guard.Wait, guard
	}
	return 0, err
}

func (t *trial) AcquireUnguarded(ctx context.Context) (err error) {
	// New marks do not know of the refusal, after which the release would be sent twice.
	t.lease = newLease(t.lease.value, 1)
	c := t.m.acquireScripted(acquireScript, t.lease.value, 0, t.m.core.proposal())
	t.counter, err = t.step(ctx, quorum.Write, c, notNegative)
	return err
}

func (t *trial) Abandon(ctx context.Context) {
	t.send(ctx, quorum.Undo, t.m.deletion(t.lease), t.lease.marks)
}

// trialTicket is that of the trial's member.
const trialTicket = 1

func (t *trial) Stand(ctx context.Context) error {
	if !t.m.cfg.announce {
		return nil
	}
	c := t.m.askStand(&ranks{}, t.m.cfg.window, t.member, trialTicket, 1,
		t.m.cfg.expiry.Milliseconds(), rollGrace)
	return t.wait(ctx, t.send(ctx, quorum.Write, c, t.place))
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
	_, err := t.step(ctx, quorum.Ask, t.m.askExtend(t.lease), positive)
	return err
}

func (t *trial) ReleaseAsStranger(ctx context.Context) error {
	_, err := t.step(ctx, quorum.Ask, t.m.deletion(&lease{value: "not " + t.lease.value}), foreign)
	return err
}

func (t *trial) Release(ctx context.Context) error {
	_, err := t.step(ctx, quorum.Undo, t.m.deletion(t.lease), positive)
	if t.m.cfg.fencing && t.m.cfg.fencePerName {
		// The counter would stay. It holds what Acquire returned.
		c := ask(pool.Eval(releaseScript, t.m.keys[1:], strconv.FormatInt(t.counter, 10)))
		_, _ = t.send(ctx, quorum.Undo, c, quorum.Sent(1)).Wait(ctx)
	}
	return err
}

func (t *trial) Leave(ctx context.Context) error {
	if !t.m.cfg.announce {
		return nil
	}
	err := t.wait(ctx, t.send(ctx, quorum.Undo, t.m.leave(t.member, ""), t.place))
	last := ask(pool.Eval(releaseScript, []string{ticketKey(t.m.key)}, strconv.Itoa(trialTicket)))
	_, _ = t.send(ctx, quorum.Undo, last, t.place).Wait(ctx)
	return err
}

func (t *trial) Announcement() (channel, message string) {
	if !t.m.cfg.announce {
		return "", ""
	}
	return t.member[:channelLength], t.member[channelLength:]
}

// send sends a command to the node.
func (t *trial) send(
	ctx context.Context, kind quorum.Kind, c quorum.Command, marks []quorum.Mark,
) *quorum.Round {
	return quorum.Start(ctx, t.lane, quorum.Spec{
		Command: c, Kind: kind, Need: 1, Budget: t.m.cfg.nodeTimeout, Marks: marks,
	})
}

// step sends a command and waits for the reply. It returns an error unless the reply is ok.
func (t *trial) step(
	ctx context.Context, kind quorum.Kind, c quorum.Command, ok func(reply int64) bool,
) (int64, error) {
	round := t.send(ctx, kind, c, t.lease.marks)
	if _, err := round.Wait(ctx); err != nil {
		round.Abandon()
		return 0, err
	}
	o := round.Outcomes()[0]
	if o.Err == nil && !ok(o.Reply) {
		o.Err = heldBy(o.Reply)
	}
	return o.Reply, o.Err
}

// positive is the reply of a node that did as it was asked.
func positive(reply int64) bool { return reply > 0 }

// notNegative also allows for a client that sends SET NX again after a lost reply. Its own key
// refuses it.
func notNegative(reply int64) bool { return reply >= 0 }

// foreign is the reply to a release with another value: -2 less the milliseconds until the key
// expires.
func foreign(reply int64) bool { return reply <= -2 }
