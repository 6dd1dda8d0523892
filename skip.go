package redlock

import (
	"errors"

	"github.com/redlock-go/redlock/internal/census"
	"github.com/redlock-go/redlock/internal/queue"
)

// WithoutWaiting makes Lock, Hold and Do fail with [ErrTaken] as soon as they know that somebody
// has the lock, instead of waiting for its release. After a retry delay they try again only while
// nobody is known to have it: several callers have asked at the same moment, and each got some of
// the nodes, or too few nodes answered. It is for work that the holder does for all, such as a job
// that runs once in a period. With [WithMinHold] they give up when that time has passed since they
// began, so that none of them outlasts it. Before it fails, it asks the nodes that refused once
// more. No effect on elections. Default: off, they wait.
func WithoutWaiting() Option {
	return option(func(c *config) { c.noWait = true })
}

// skip asks until a try wins, somebody is known to have the lock, or the tries or the minimum hold
// are used up. It does not wait for who has the lock.
func (a *asker) skip(tries int) (*lease, error) {
	began := a.m.core.now()
	for try := 1; ; try++ {
		answer := a.Attempt(queue.Attempt{Final: try == tries})
		if answer.Won || answer.Err != nil {
			return a.won, answer.Err
		}
		refusal := a.m.defeated(a.met.Latest())
		delay := max(a.m.cfg.delay(try), 0)
		end := a.m.core.now().Add(delay).Sub(began)
		if a.hasHolder(refusal) || a.m.cfg.minHold > 0 && end >= a.m.cfg.minHold {
			return nil, refusal
		}
		if !a.m.core.pause(a.ctx, delay) {
			return nil, a.Stopped(nil)
		}
	}
}

// hasHolder asks the nodes that refused an attempt whether a quorum of them has one value. Without
// that, several callers may have refused each other.
func (a *asker) hasHolder(refusal error) bool {
	var e *Error
	if !errors.As(refusal, &e) {
		return false
	}
	refused := e.refused(a.m.core.nodes)
	if len(refused) < a.m.core.quorum {
		return false
	}
	c := census.Take(a.ctx, refused, a.m.cfg.NodeTimeout, a.m.key)
	return c.Votes >= a.m.core.quorum
}
