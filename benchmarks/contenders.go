package main

import (
	"context"
	"slices"
	"time"
)

// pair locks and unlocks.
func pair(ctx context.Context, l locker, name string) error {
	unlock, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock()
}

// locker is one client process's view of a lock library: its own connections to all nodes.
type locker interface {
	// Lock blocks until the lock is held, or ctx is done. With [context.Background] it does what a
	// library's Lock without a context does.
	Lock(ctx context.Context, name string) (unlock func() error, err error)
	Close()
}

// holder is a client that can keep locks extended.
type holder interface {
	// Hold locks and keeps the lock extended until it is unlocked.
	Hold(ctx context.Context, name string) (unlock func() error, err error)
	Close()
}

// opener opens a client whose locks have the expiry, if the library lets one choose.
type opener func(addrs []string, expiry time.Duration) locker

// contender is one way to lock.
type contender struct {
	name    string
	client  string // that it uses; ratios are those of contenders on the same client
	peer    bool   // another library
	bare    bool   // no lock library: the least that the client needs; cannot wait
	oneNode bool   // has no notion of independent nodes
	fenced  bool   // takes part only where fencing is measured
	most    int    // processes that it takes part with
	holds   bool   // its lockers are holders
	// nil if it takes part in elections only, on servers of its own.
	open opener
	// With electionExpiry; nil if it takes no part in elections.
	stand func(addrs []string) (candidate, error)
}

// rivals reports whether redlock's figures are compared with those of o: another library, on the
// same client if it is one for Redis.
func (c *contender) rivals(o *contender) bool {
	return !c.peer && !c.bare && o.peer && (o.client == c.client || o.stand != nil)
}

// fits reports whether the contender can lock on n nodes.
func (c *contender) fits(n int) bool { return n == 1 || !c.oneNode }

// roster is every contender, in the order of the tables. A new one is one entry.
var roster = slices.Concat(ours, peers)

func contenderNamed(name string) *contender { return roster[rank(name)] }

func rank(name string) int {
	i := slices.IndexFunc(roster, func(c *contender) bool { return c.name == name })
	if i < 0 {
		return len(roster)
	}
	return i
}
