package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/pool"
)

// trialCommands is how many answers a trial waits for at most, one after the other.
const trialCommands = 8

// newTrial returns a mutex under a name that nobody else uses, to see on one node whether locks with r's options can
// live there. Its keys are short-lived: they are deleted, but the node may have stopped answering by then.
func (r *Redlock) newTrial() *Mutex {
	m := r.NewMutex("redlock:check:" + rand.Text())
	cfg := *m.cfg
	cfg.expiry = max(trialCommands*cfg.nodeTimeout, time.Second).Truncate(time.Millisecond)
	cfg.fenceTTL = cfg.expiry
	m.cfg = &cfg
	if cfg.fencing && !cfg.fencePerName {
		m.keys[1] = sharedCounter("redlock:check:") // one for all trials: it stays
	}
	return m
}

// try goes through a lock's life on one node: acquire, extend, a stranger's release, release. The error says what the node
// does not do; it is a [*GuardError] if nothing but the restart guard keeps the node out. The other one, unheard, says why
// the announcement of the release did not arrive, or is nil.
func (m *Mutex) try(ctx context.Context, n *quorum.Node) (unheard, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	lane := m.lanes[n.Index : n.Index+1]
	l := newLease(rand.Text(), 1)
	send := func(kind quorum.Kind, c quorum.Command, marks []quorum.Mark) *quorum.Round {
		return quorum.Start(ctx, lane, quorum.Spec{Command: c, Kind: kind, Need: 1, Budget: m.cfg.nodeTimeout, Marks: marks})
	}
	// reply waits for the node's answer, which is as it should be if ok.
	reply := func(step string, r *quorum.Round, ok func(reply int64) bool) (int64, error) {
		if _, err := r.Wait(ctx); err != nil {
			r.Abandon()
			return 0, err
		}
		o := r.Outcomes()[0]
		if o.Err == nil && !ok(o.Reply) {
			o.Err = heldBy(o.Reply)
		}
		if o.Err != nil {
			return 0, fmt.Errorf("%s: %w", step, o.Err)
		}
		return o.Reply, nil
	}
	yes := func(reply int64) bool { return reply > 0 }
	asked := func(reply int64) bool { return reply >= 0 }    // a client that sends SET NX again after a lost reply finds its own key
	foreign := func(reply int64) bool { return reply <= -2 } // -2 less the milliseconds until the key expires

	counter, err := reply("acquire", send(quorum.Write, m.acquire(l.value), l.marks), asked)
	var guard *GuardError
	if errors.As(err, &guard) {
		// The guard is for locks that may have been forgotten, and nobody had this one.
		l = newLease(l.value, 1)
		counter, err = reply("acquire", send(quorum.Write, m.acquireScripted(l.value, 0, m.core.proposal()), l.marks), asked)
	}
	if err != nil {
		send(quorum.Undo, m.deletion(l.value), l.marks) // as after any attempt that failed
		return nil, err
	}
	heard := m.listen(ctx, n)
	_, notExtended := reply("extend", send(quorum.Ask, m.askExtend(l), l.marks), yes)
	_, notRefused := reply("a stranger's release", send(quorum.Ask, m.deletion("not "+l.value), l.marks), foreign)
	_, notReleased := reply("release", send(quorum.Undo, m.deletion(l.value), l.marks), yes)
	if m.cfg.fencing && m.cfg.fencePerName {
		// The counter stays behind otherwise. It holds what acquire has returned.
		c := ask(pool.Eval(releaseScript, m.keys[1:], strconv.FormatInt(counter, 10), ""))
		_, _ = send(quorum.Undo, c, quorum.Sent(1)).Wait(ctx)
	}
	unheard = heard(l.value, notReleased == nil)
	if err := oneline.Join(notExtended, notRefused, notReleased); err != nil || guard == nil {
		return unheard, err
	}
	return unheard, guard
}

// errUnheard is why waiters are not woken by a node that lets them subscribe.
var errUnheard = errors.New("the announcement of a release did not arrive")

// listen subscribes to the mutex's announcements on one node. The function that it returns ends that, and says why
// the announcement of the value was not heard, if one was made.
func (m *Mutex) listen(ctx context.Context, n *quorum.Node) func(value string, made bool) error {
	subscriber, ok := n.Pool.(pool.Subscriber)
	if !ok || !m.cfg.announce {
		return func(string, bool) error { return nil }
	}
	limited, cancel := context.WithTimeout(ctx, m.cfg.nodeTimeout)
	defer cancel()
	sub, err := subscriber.Subscribe(limited, announceChannel(m.key))
	if err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
		return func(string, bool) error { return err }
	}
	return func(value string, made bool) error {
		defer func() { _ = sub.Close() }()
		timeout := time.After(m.cfg.nodeTimeout)
		for made {
			select {
			case message := <-sub.Messages():
				if message == value {
					return nil
				}
			case <-timeout:
				return errUnheard
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}
