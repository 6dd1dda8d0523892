package main

import (
	"context"
	"slices"
	"time"
)

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
	Hold(ctx context.Context, name string) (heldLock, error)
	Close()
}

// heldLock is as little as a program needs to keep for each lock that it holds.
type heldLock interface{ Unlock() (bool, error) }

// opener opens a client whose locks have the expiry, if the library lets one choose.
type opener func(addrs []string, expiry time.Duration) (locker, error)

// contender is one way to lock.
type contender struct {
	name    string
	client  string // that it uses; ratios are those of contenders on the same client
	peer    bool   // another library
	bare    bool   // no lock library: the least that the client needs; cannot wait
	oneNode bool   // has no notion of independent nodes
	fenced  bool   // takes part only where fencing is measured
	crews   bool   // takes part in processes
	holds   bool   // its lockers are holders
	most    int    // processes that it takes part with; 0 is any number
	// nil if it takes part in elections only, on servers of its own.
	open opener
	// With electionExpiry; nil if it takes no part in elections.
	stand func(addrs []string) (candidate, error)
}

// ours reports whether the contender is redlock.
func (c *contender) ours() bool { return !c.peer && !c.bare }

// rivals reports whether redlock's figures are compared with those of o: another library, on the
// same client if it is one for Redis.
func (c *contender) rivals(o *contender) bool {
	return c.ours() && o.peer && (o.client == c.client || o.stand != nil)
}

// joins reports whether the contender takes part where so many processes share a lock.
func (c *contender) joins(processes int) bool {
	return c.crews && (c.most == 0 || processes <= c.most)
}

// fits reports whether the contender can lock on n nodes.
func (c *contender) fits(n int) bool { return n == 1 || !c.oneNode }

// roster is every contender, in the order of the tables. A new one is one entry.
var roster []*contender

func init() {
	roster = slices.Concat(ours, peers)
}

func contenderNamed(name string) *contender {
	if i := rank(name); i < len(roster) {
		return roster[i]
	}
	return nil
}

func rank(name string) int {
	i := slices.IndexFunc(roster, func(c *contender) bool { return c.name == name })
	if i < 0 {
		return len(roster)
	}
	return i
}
