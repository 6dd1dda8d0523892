package redlocktest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/wire"
)

const (
	// Other is the value of the locks that Take, Steal and AtEveryCommand lock.
	Other = "somebody else"
	// Readers is what a lock that is shared has for a value, see [redlock.WithShared].
	Readers = wire.Marker
)

// stay is for how long somebody has a lock that was stolen.
const stay = time.Minute

// Take locks a free lock as somebody else would, on all nodes that are not down or frozen. It ends
// after the expiry, which is at least a millisecond, or with [Cluster.Forget].
func (c *Cluster) Take(name string, expiry time.Duration) {
	c.t.Helper()
	if expiry < time.Millisecond {
		c.errorf("Take(%q): the expiry is %v, and must be at least 1ms", name, expiry)
		return
	}
	for i, value := range c.sim.Values(name) {
		if value != "" {
			c.errorf("Take(%q): node %d holds it for %q already: use Steal", name, i, value)
			return
		}
	}
	if working, enough := c.working(); !enough {
		c.errorf("Take(%q): %d of %d nodes work, %d needed",
			name, working, len(c.nodes), c.quorum())
		return
	}
	c.hand(name, expiry)
}

// Steal takes a lock away from its holder, and somebody else has it for a minute: as if the nodes
// had lost the holder's keys. The holder cannot know at once. Its Unlock, and its next extension,
// find that the lock is gone; a held context ends then, at the latest when the holder's keys would
// have expired.
//
// Nodes that are down or frozen keep what they have. The others must be a quorum, and somebody must
// hold the lock.
func (c *Cluster) Steal(name string) {
	c.t.Helper()
	switch owner, held := c.Holder(name); {
	case !held:
		c.errorf("Steal(%q): nobody holds it; %s", name, c.held())
		return
	case owner == Other:
		c.errorf("Steal(%q): %s holds it already", name, Other)
		return
	}
	if working, enough := c.working(); !enough {
		c.errorf("Steal(%q): %d of %d nodes work, %d needed",
			name, working, len(c.nodes), c.quorum())
		return
	}
	c.hand(name, stay)
}

// hand gives the lock to somebody else on the nodes that work.
func (c *Cluster) hand(name string, expiry time.Duration) {
	for _, n := range c.nodes {
		if n.works() {
			n.sim.Set(name, Other, expiry)
		}
	}
}

// Forget deletes a lock on all nodes, whoever holds it, as DEL would: nobody is told, and fence
// counters stay as they are. A node must hold the lock.
func (c *Cluster) Forget(name string) {
	c.t.Helper()
	if !slices.ContainsFunc(c.sim.Values(name), func(v string) bool { return v != "" }) {
		c.errorf("Forget(%q): no node holds it; %s", name, c.held())
		return
	}
	c.forget(name)
}

func (c *Cluster) forget(name string) {
	for _, n := range c.sim {
		n.Delete(name)
	}
}

// Holder returns who has a lock: the value that a quorum of nodes holds, whether they can be
// reached or not. It is what [redlock.Mutex.Value] returns to the holder, or [Other], or
// [Readers]. If no value has a quorum, it reports false.
func (c *Cluster) Holder(name string) (value string, held bool) {
	votes := map[string]int{}
	for _, value := range c.sim.Values(name) {
		if votes[value]++; value != "" && votes[value] >= c.quorum() {
			return value, true
		}
	}
	return "", false
}

// holds reports whether a quorum of nodes has the value, of one who has the lock alone or shares
// it.
func (c *Cluster) holds(name, value string) bool {
	votes := 0
	for _, n := range c.sim {
		if n.Has(name, func(has string) bool { return has == value }) {
			votes++
		}
	}
	return votes >= c.quorum()
}

// WantFree fails the test t if a node holds the lock, for whomever. It waits for the commands that
// are under way, for ten seconds at most, and does not ask nodes that are down or frozen.
func (c *Cluster) WantFree(t testing.TB, name string) {
	t.Helper()
	for end := time.Now().Add(patience); c.calls.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	var holding []string
	for i, n := range c.nodes {
		if value := n.sim.Value(name); value != "" && n.works() {
			holding = append(holding, fmt.Sprintf("node %d for %q", i, value))
		}
	}
	if holding != nil {
		t.Errorf("redlocktest: the lock %q is not free: held by %s", name,
			strings.Join(holding, ", "))
	}
}

// working returns how many nodes work, and whether they are a quorum.
func (c *Cluster) working() (working int, enough bool) {
	for _, n := range c.nodes {
		if n.works() {
			working++
		}
	}
	return working, working >= c.quorum()
}

// ask notes that somebody has asked for a lock.
func (c *Cluster) ask(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known[name] {
		c.known[name] = true
		c.names = append(c.names, name)
	}
}

// locked returns the locks that somebody other than Other has, in the order in which they were
// first asked for.
func (c *Cluster) locked() []string {
	c.mu.Lock()
	names := slices.Clone(c.names)
	c.mu.Unlock()
	return slices.DeleteFunc(names, func(name string) bool {
		owner, held := c.Holder(name)
		return !held || owner == Other
	})
}

// held says which locks are held.
func (c *Cluster) held() string {
	names := c.locked()
	if len(names) == 0 {
		return "no lock is held"
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%q", name)
	}
	return "held are " + strings.Join(names, ", ")
}

// executed notes a command before its reply arrives.
func (c *Cluster) executed(cmd call) {
	c.ask(cmd.lock)
	if c.after != nil {
		c.after(cmd)
	}
}
