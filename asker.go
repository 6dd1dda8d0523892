package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/line"
	"github.com/redlock-go/redlock/internal/quorum"
)

// asker asks the nodes for one Lock. Package line decides when it does.
type asker struct {
	m    *Mutex
	ctx  context.Context
	told *acquisition // for Events, or nil
	won  *lease       // nil until the lock is granted
	open *defeat      // whose lease may still be on nodes, or nil
	last *defeat      // what its own latest attempt, or place in the queue, came to
	// What the attempt before that came to. While the nodes have no time to say anything, it stays
	// the one before the first such attempt.
	prior *defeat
}

// crowded is the error of a Lock for which too many callers wait already. It tells what its own
// attempt came to, if it has made one.
func (a *asker) crowded(answer line.Answer) *Error {
	reason := fmt.Sprintf("%d callers of this process wait already", answer.Crowd)
	if answer.Crowd == 1 {
		reason = "1 caller of this process waits already"
	}
	e := newError(a.m.name, notAcquired, reason, ErrFailed, ErrTaken)
	if d, ok := answer.Refusal.(*defeat); ok {
		e.after(d.explain())
	}
	return e
}

// Attempt implements [line.Asker].
func (a *asker) Attempt(how line.Attempt) line.Answer {
	a.Settle(false)
	// An attempt that was refused by its own key is made anew. A pool that always refuses is no
	// reason to do that for ever.
	for left := 3; ; left-- {
		if err := a.Stopped(how.Latest); err != nil {
			return line.Answer{Err: err}
		}
		d := a.attempt(how, nil)
		switch {
		case d == nil:
			return line.Answer{Won: true}
		case d.lease != nil:
			a.open = d
		}
		ended := a.ctx.Err() != nil
		if d.own && left > 0 && !ended {
			continue
		}
		a.note(d)
		if ended {
			return line.Answer{Err: a.Stopped(how.Latest)}
		}
		return d.answer()
	}
}

// Claim implements [line.Asker].
func (a *asker) Claim(member line.Member) bool {
	d := a.attempt(line.Attempt{}, &member)
	if d != nil {
		a.note(d)
	}
	return d == nil
}

// Unsettled implements [line.Asker].
func (a *asker) Unsettled() bool { return a.open != nil }

// Settle implements [line.Asker].
func (a *asker) Settle(stands bool) (value string) {
	value = a.open.settle(a.ctx, stands)
	a.open = nil
	return value
}

// Stand implements [line.Asker].
func (a *asker) Stand(member line.Member) quorum.Command {
	return a.m.wire.Stand(member, line.QueueTTL)
}

// Leave implements [line.Asker].
func (a *asker) Leave(member line.Member) quorum.Command { return a.m.wire.Leave(member) }

// Waits implements [line.Asker].
func (a *asker) Waits(r *quorum.Round, began time.Time, cut bool) line.Refusal {
	d := &defeat{m: a.m, began: began, met: r.Outcomes(), asked: r, cut: cut, stood: true}
	if !a.note(d) {
		return nil
	}
	return d
}

// note notes what an attempt came to. It reports whether that says anything: one that the context
// has cut short does so only if the nodes are in trouble.
func (a *asker) note(d *defeat) (says bool) {
	if d.cut && !d.troubled() {
		return false
	}
	if a.prior == nil || a.last.settled() {
		a.prior = a.last
	}
	a.last = d
	return true
}

// Stopped implements [line.Asker]. The error tells what the latest attempt came to: of others in
// the line, if there is none of its own.
func (a *asker) Stopped(latest line.Refusal) error {
	if a.ctx.Err() == nil {
		if a.m.core.isClosed() {
			return closedError(a.m.name, notAcquired)
		}
		return nil
	}
	d := a.last
	switch {
	case d == nil:
		d, _ = latest.(*defeat)
	case a.prior != nil && !d.settled():
		d = a.prior
	}
	var last error
	if d != nil {
		last = d.explain()
	}
	return ended(a.ctx, a.m.name, notAcquired, last, ErrFailed)
}
