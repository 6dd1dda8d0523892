package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// A hold keeps a lease extended. This is all it can be:
//
//	          Hold                  a third of what was left has passed
//	(Lock) ---------> held -------------------------------------> renewing
//	                  |  ^                                         |    |
//	                  |  |     a quorum confirmed: until moves     |    |
//	                  |  +-----------------------------------------+    |
//	                  |  |     too few answered: again, sooner     |    |
//	                  |  +-----------------------------------------+    |
//	                  |                                                 |
//	                  +------------------------+------------------------+
//	                  |                        |
//	  Unlock or Close |                        | until has passed, or a quorum is proven
//	                  v                        v impossible, or WithMaxHold is reached
//	               released                   lost
//
// Both ends cancel the held context, before anything else; neither is ever left. A renewal under way
// is cancelled and joined before the release, and what it has sent is ahead of the release on every
// lane, so nothing writes the key after Unlock has returned.
//
// Between renewals a hold is a timer and no goroutine. The renewal has a goroutine of its own, so that
// the timer can end the hold at until whatever the network does.
type hold struct {
	m      *Mutex
	l      *lease
	values context.Context         // for renewals
	cancel context.CancelCauseFunc // of the held context
	limit  time.Time               // of WithMaxHold, or zero

	// The mutex's mu guards these.
	over    bool
	timer   *time.Timer // ends in tick
	next    time.Time   // when to renew
	renewal *renewal    // under way, or nil
	failure error       // of the last renewal, if it failed
}

// renewal is an extension under way.
type renewal struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Hold is LockContext followed by keeping the lock: it extends the lock each time a third of its
// validity has passed, and sooner again when that failed. It blocks as LockContext does and
// returns the same errors, with a nil context.
//
// The held context carries the values of ctx and is done
//   - at the moment when the lock cannot be trusted any more, at the latest at [Mutex.Until] by the local
//     clock: [context.Cause] then matches [ErrLost] and says which nodes did what. An outage that is over before
//     Until does not end it. What can still be released has been.
//   - when ctx is done, with the cause of ctx. The lock itself is still kept, so that work can be
//     wound down under it.
//   - at Unlock or Close, with the cause [ErrReleased].
//
// Until Unlock, Close, the loss or [WithMaxHold], whichever comes first, the lock is kept, so every Hold
// must be followed by an Unlock. A paused process learns of a loss when it runs again; what that
// means is said in docs/safety.md.
func (m *Mutex) Hold(ctx context.Context) (context.Context, error) {
	l, err := m.lock(ctx, m.cfg.tries)
	if err != nil {
		return nil, err
	}
	held, cancel := context.WithCancelCause(ctx)
	h := &hold{m: m, l: l, values: context.WithoutCancel(ctx), cancel: cancel}
	if m.cfg.maxHold > 0 {
		h.limit = l.granted.Add(m.cfg.maxHold)
	}
	if m.cfg.maxHold > 0 || m.cfg.fencing {
		held = heldContext{held, h}
	}
	if !m.core.register(h) {
		m.unlock(ctx)
		cancel(ErrReleased)
		return nil, closedError(m.name)
	}
	m.mu.Lock()
	l.hold = h
	releasing := l.releasing // by an Unlock that could not see the hold yet
	if !releasing && !h.over {
		now := m.core.now()
		h.next = now.Add(clock.Remaining(now, l.until) / 3)
		h.timer = time.AfterFunc(h.wait(now), h.tick)
	}
	m.mu.Unlock()
	if releasing {
		h.end(ErrReleased)
	}
	return held, nil
}

// heldContext shows what is known of its hold: the deadline of WithMaxHold, at which the hold
// cancels it, and the fencing token.
type heldContext struct {
	context.Context
	h *hold
}

func (c heldContext) Deadline() (time.Time, bool) {
	d, ok := c.Context.Deadline()
	if c.h.limit.IsZero() || ok && d.Before(c.h.limit) {
		return d, ok
	}
	return c.h.limit, true
}

// tokenKey is the key of the fencing token among a held context's values.
type tokenKey struct{}

func (c heldContext) Value(key any) any {
	if key == (tokenKey{}) && c.h.m.cfg.fencing {
		return c.h.l.token
	}
	return c.Context.Value(key)
}

// FencingToken returns the fencing token of the lock whose held context ctx is, or was derived from: it is how the function
// that [Redlock.Do] calls gets it. It is 0 if there is none. It is the same after the lock was lost, which is
// when the resource needs it most. See [Mutex.FencingToken].
func FencingToken(ctx context.Context) uint64 {
	token, _ := ctx.Value(tokenKey{}).(uint64)
	return token
}

// wait is how long the timer has to run from now. The caller holds mu.
func (h *hold) wait(now time.Time) time.Duration {
	d := clock.Remaining(now, h.l.until)
	if !h.limit.IsZero() {
		d = min(d, clock.Remaining(now, h.limit))
	}
	if h.renewal == nil {
		d = min(d, h.next.Sub(now))
	}
	return max(d, 0)
}

// tick does what is due.
func (h *hold) tick() {
	h.m.mu.Lock()
	if h.over {
		h.m.mu.Unlock()
		return
	}
	now := h.m.core.now()
	var end func()
	switch {
	case h.l.lost != nil:
		end = h.lose("the nodes do not have it any more", h.l.lost)
	case clock.Remaining(now, h.l.until) <= 0:
		end = h.lose("not extended in time", h.failure)
	case !h.limit.IsZero() && clock.Remaining(now, h.limit) <= 0:
		end = h.lose(fmt.Sprintf("held for the maximum of %v", h.m.cfg.maxHold), nil)
	case h.renewal == nil && !now.Before(h.next):
		h.startRenewal()
		fallthrough
	default:
		h.timer.Reset(h.wait(now))
	}
	h.m.mu.Unlock()
	if end != nil {
		end()
	}
}

// startRenewal extends the lease on a goroutine that ends within the node timeout. The caller holds mu.
func (h *hold) startRenewal() {
	ctx, cancel := context.WithCancel(h.values)
	r := &renewal{cancel: cancel, done: make(chan struct{})}
	h.renewal = r
	go func() {
		defer cancel()
		err := h.m.extend(ctx, h.l)
		h.m.mu.Lock()
		h.renewal = nil
		h.failure = err
		if !h.over {
			now := h.m.core.now()
			left := clock.Remaining(now, h.l.until)
			if err == nil {
				h.next = now.Add(left / 3)
			} else {
				// Often enough for several more, and ever more often towards the end.
				h.next = now.Add(max(left/8, time.Millisecond))
			}
			if h.l.lost != nil {
				h.next = now
			}
			h.timer.Reset(h.wait(now))
		}
		h.m.mu.Unlock()
		close(r.done)
	}()
}

// lose ends the hold. The caller holds mu, and calls what it returns without.
func (h *hold) lose(reason string, why error) func() {
	e := &Error{Name: h.m.name, failed: "lost", kinds: []error{ErrLost}, reason: reason}
	var last *Error
	if errors.As(why, &last) {
		e.causes = []error{why}
		e.reason += ": " + last.reason
		e.nodes = last.nodes
	}
	h.over = true
	h.l.lost = e
	h.l.until = time.Time{}
	h.timer.Stop()
	return func() {
		h.cancel(e)
		h.m.core.unregister(h)
		h.m.release(h.values, h.l, releaseAll)
	}
}

// end stops the hold for a release, and returns when no renewal is under way any more.
func (h *hold) end(cause error) {
	h.m.mu.Lock()
	over, r := h.over, h.renewal
	h.over = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.m.mu.Unlock()
	if !over {
		h.cancel(cause)
		h.m.core.unregister(h)
	}
	if r != nil {
		r.cancel()
		<-r.done
	}
}

// register notes a hold that Close is to end; false if Close has been called.
func (c *core) register(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return false
	}
	c.holds[h] = struct{}{}
	return true
}

func (c *core) unregister(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds, h)
}

// isClosed reports whether Close has been called.
func (c *core) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// closeHolds lets nothing begin any more and unlocks what is held. All held contexts are cancelled at once;
// of the releases, a bounded number is under way at a time, until ctx is done.
func (c *core) closeHolds(ctx context.Context) error {
	c.mu.Lock()
	if !c.isClosed() {
		close(c.closed)
	}
	holds := make([]*hold, 0, len(c.holds))
	for h := range c.holds {
		holds = append(holds, h)
	}
	c.mu.Unlock()

	for _, h := range holds {
		h.end(ErrReleased)
	}
	type outcome struct {
		hold int
		err  error
	}
	errs := make([]error, len(holds))
	for i, h := range holds {
		errs[i] = fmt.Errorf("redlock: close: %q not released", h.m.name)
	}
	outcomes := make(chan outcome, len(holds)) // nobody waits to send
	begun := 0
	for over := 0; over < len(holds); over++ {
		for ; begun < len(holds) && begun-over < maxReleases; begun++ {
			i, h := begun, holds[begun]
			c.tracker.Enter()
			go func() { // ends within the node timeout, which may be later than ctx
				defer c.tracker.Leave()
				outcomes <- outcome{i, h.m.unlock(ctx)}
			}()
		}
		select {
		case o := <-outcomes:
			errs[o.hold] = o.err
			if errors.Is(o.err, ErrNotHeld) {
				errs[o.hold] = nil // unlocked by its owner meanwhile
			}
		case <-ctx.Done():
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	return errors.Join(errs...)
}

// maxReleases is how many releases Close has under way at a time.
const maxReleases = 64
