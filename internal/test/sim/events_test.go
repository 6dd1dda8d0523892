package sim_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
)

// ledger is what Events alone tell of one worker's locks. In the end it must agree with what the
// worker was told by the calls, and so with what the nodes did.
type ledger struct {
	*history
	owner string

	mu    sync.Mutex // guards what follows
	open  int        // operations that have begun and not ended
	locks []*told
}

// told is one lock that was granted.
type told struct {
	name     string
	token    uint64
	released bool // that has begun
	ended    bool
}

// events returns Events that keep the worker's ledger.
func (l *ledger) events() *redlock.Events {
	return &redlock.Events{
		Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			return ctx, begun(l, func(a redlock.Acquired) {
				if (a.Err == nil) != (a.Outcome == redlock.OutcomeOK) {
					l.violate(invariantEvents, "%s: outcome %s of %v", l.owner, a.Outcome, a.Err)
				}
				if a.Err == nil {
					l.locks = append(l.locks, &told{name: a.Name, token: a.Token})
				}
			})
		},
		Extend: func(ctx context.Context, _ redlock.Extending) (context.Context,
			func(redlock.Extended)) {
			return ctx, begun(l, func(e redlock.Extended) {
				if last := l.last(); e.Err == nil && last != nil && last.ended {
					l.violate(invariantEvents, "%s: extended after its end", l.owner)
				}
			})
		},
		Release: func(ctx context.Context, _ redlock.Releasing) (context.Context,
			func(redlock.Released)) {
			l.mu.Lock()
			if last := l.last(); last != nil {
				last.released = true
			}
			l.mu.Unlock()
			return ctx, begun(l, func(redlock.Released) {})
		},
		End: l.end,
	}
}

// invariantEvents is the name of what this file checks.
const invariantEvents = "I18 events"

// begun counts an operation, and returns what is told of its end.
func begun[T any](l *ledger, end func(T)) func(T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	return func(v T) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		end(v)
	}
}

// last returns the lock that was granted last, or nil. The caller holds mu.
func (l *ledger) last() *told {
	if len(l.locks) == 0 {
		return nil
	}
	return l.locks[len(l.locks)-1]
}

func (l *ledger) end(e redlock.Ended) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A worker leaves the mutex of a lock that it does not unlock.
	t := l.last()
	if t == nil || t.name != e.Name || t.token != e.Token || t.ended {
		l.violate(invariantEvents, "%s: a second end of %s: %s", l.owner, e.Name, e.Reason)
		return
	}
	t.ended = true
	l.reached("told of the end: " + string(e.Reason))
}

// check compares the ledger with the worker's leases, of which a quorum of nodes has made each:
// every lock that was granted is told once, with its token, and every one that its holder has
// released or lost has ended.
func (l *ledger) check() {
	time.Sleep(time.Millisecond) // what is being told is told by then
	var leases []*lease
	var handed []bool
	l.history.mu.Lock()
	for _, lease := range l.history.leases {
		if lease.owner == l.owner {
			leases = append(leases, lease)
			handed = append(handed, l.handed[plain(lease.value)])
		}
	}
	l.history.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != 0 {
		l.violate(invariantEvents, "%s: %d operations have begun and not ended", l.owner, l.open)
	}
	if len(l.locks) != len(leases) {
		l.violate(invariantEvents, "%s: %d locks were granted, and %d told", l.owner, len(leases),
			len(l.locks))
		return
	}
	for i, t := range l.locks {
		switch s := leases[i]; {
		case !strings.HasSuffix(s.name, t.name) || t.token != s.token:
			l.violate(invariantEvents, "%s was granted %s with %d, and told of %s with %d",
				l.owner, s.name, s.token, t.name, t.token)
		case (t.released || handed[i]) && !t.ended:
			l.violate(invariantEvents, "%s: no end of %s with %d was told", l.owner, s.name,
				s.token)
		}
	}
}
