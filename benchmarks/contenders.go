package main

import (
	"context"
	"slices"
)

// locker is one client process's view of a lock library: its own connections to all nodes.
type locker interface {
	// Lock blocks until the lock is held, or ctx is done.
	Lock(ctx context.Context, name string) (unlock func() error, err error)
	Close()
}

// holder is a locker that can keep a lock extended until it is released.
type holder interface {
	Hold(ctx context.Context, name string) (release func() error, err error)
}

// contender is one way to lock.
type contender struct {
	name     string
	peer     bool // another library, which ratios are computed against
	oneNode  bool // has no notion of independent nodes
	fenced   bool // takes part only where fencing is measured
	noWaiter bool // cannot wait for a taken lock
	open     func(addrs []string) (locker, error)
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

func pick(ok func(*contender) bool) []*contender {
	return slices.DeleteFunc(slices.Clone(roster), func(c *contender) bool { return !ok(c) })
}
