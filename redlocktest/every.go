package redlocktest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Fault is a way in which [AtEveryCommand] loses a lock.
type Fault string

const (
	// Stolen is [Cluster.Steal]: the nodes lose the lock, and somebody else has it for a minute.
	// The holder learns of it late, and only a resource that checks fencing tokens can refuse
	// what it does until then. Test what the code reports: Unlock and Do fail.
	Stolen Fault = "stolen"

	// Forgotten is [Cluster.Forget]: the nodes lose the lock, and whoever waits may have it. As
	// with Stolen, the holder learns of it late.
	Forgotten Fault = "forgotten"

	// Expired is what a lock is made for: the nodes are silent to all clients from then on. When
	// the holder's keys have expired, somebody else has the lock for a minute, and the clients
	// hear the nodes again. The holder knows in time: test that it does nothing while
	// [Cluster.Holder] does not name it.
	Expired Fault = "expired"
)

// AtEveryCommand runs the test f many times, each time with a new cluster of n nodes and in a new
// bubble of testing/synctest. The first run has no fault. Each further run is a subtest in which
// a lock is lost at another moment: directly after the execution of one of its holder's commands,
// and before the reply arrives. In the first run, the holder of a lock sends commands while a
// quorum has the lock. There is a run for each of these, and for each fault.
//
// The assertions of f say what must hold whenever the lock is lost. A subtest's name tells the
// fault, the number of the command, the command and its node: expired/007_extend_on_node_1. It is
// the same command in each run if the holders' commands do not depend on chance. The names of the
// locks may.
//
// It needs at least one fault, and fails if f never holds a lock. A subtest whose run ends before
// the command of that number has lost no lock: it is skipped, and says so. If these are more than a
// tenth, AtEveryCommand fails. It must not be called in a bubble. The function f must not call
// t.Run or t.Parallel, which bubbles do not allow.
func AtEveryCommand(
	t *testing.T, n int, f func(t *testing.T, c *Cluster), faults ...Fault,
) {
	t.Helper()
	if len(faults) == 0 {
		t.Fatal("redlocktest: AtEveryCommand without a fault: give it Stolen, Forgotten or Expired")
	}
	for _, fault := range faults {
		if !slices.Contains([]Fault{Stolen, Forgotten, Expired}, fault) {
			t.Fatalf("redlocktest: AtEveryCommand: there is no fault %q", fault)
		}
	}
	var moments []moment
	skipped := false
	synctest.Test(t, func(t *testing.T) {
		c := New(t, n)
		t.Cleanup(func() { skipped = t.Skipped() })
		c.count(func(m moment) { moments = append(moments, m) })
		f(t, c)
	})
	switch {
	case skipped:
		t.Skip("redlocktest: the test has skipped its first run")
	case len(moments) == 0:
		t.Fatal("redlocktest: AtEveryCommand: the test never holds a lock: there is nothing to " +
			"lose")
	}
	runs, idle := 0, 0
	for _, fault := range faults {
		for _, m := range moments {
			t.Run(string(fault)+"/"+m.label(), func(t *testing.T) {
				runs++
				seen, skipped := runWith(t, n, f, fault, m)
				if skipped || seen >= m.number {
					return
				}
				idle++
				t.Skipf("redlocktest: no lock was lost in this run, which tests nothing: its "+
					"holders sent %d commands, and the lock was to be lost after command %d of "+
					"the first run", seen, m.number)
			})
		}
	}
	if idle > runs/10 {
		t.Errorf("redlocktest: AtEveryCommand: in %d of %d runs no lock was lost: let each run do "+
			"the same until a lock is lost", idle, runs)
	}
}

// runWith runs the test once, with the fault at that moment. It returns how many commands the
// holders sent in all, and whether the run has skipped itself.
func runWith(
	t *testing.T, n int, f func(t *testing.T, c *Cluster), fault Fault, at moment,
) (seen int, skipped bool) {
	synctest.Test(t, func(t *testing.T) {
		c, start := New(t, n), time.Now()
		t.Cleanup(func() { skipped = t.Skipped() })
		c.count(func(m moment) {
			if seen = m.number; seen != at.number {
				return
			}
			t.Logf("redlocktest: after command %d, %s on node %d, at %v, %s", m.number, m.name,
				m.node, time.Since(start).Round(time.Millisecond), fault.happens(m.lock))
			c.lose(m.lock, fault)
		})
		f(t, c)
	})
	return seen, skipped
}

// happens says what the fault does to a lock.
func (f Fault) happens(lock string) string {
	if f == Expired {
		return fmt.Sprintf("the nodes fall silent until %q has expired", lock)
	}
	return fmt.Sprintf("%q is %s", lock, string(f))
}

// moment is when a lock may be lost: after a command of its holder.
type moment struct {
	number int // how many there were, with this one
	call
}

// label is the moment as a part of a subtest's name.
func (m moment) label() string {
	return fmt.Sprintf("%03d %s on node %d", m.number, m.name, m.node)
}

// count calls see at each moment, for one at a time, before the reply to the command arrives.
// Commands of those that wait are not counted: their number depends on chance, and what they find
// does not depend on when the holder loses the lock.
func (c *Cluster) count(see func(m moment)) {
	var mu sync.Mutex
	number := 0
	c.after = func(cmd call) {
		mu.Lock()
		defer mu.Unlock()
		if c.holds(cmd.lock, cmd.value) && !c.over() {
			number++
			see(moment{number, cmd})
		}
	}
}

// lose makes the holder lose a lock.
func (c *Cluster) lose(name string, fault Fault) {
	switch fault {
	case Stolen:
		c.hand(name, stay)
	case Forgotten:
		c.forget(name)
	case Expired:
		c.setAway(true)
		c.succeed(name)
	}
}

// succeed gives the lock to somebody else as soon as a quorum of the nodes that work is free. Then
// it lets the clients hear the nodes again. Until then it looks again whenever a node becomes free:
// a command that is on its way may still extend the lock there.
func (c *Cluster) succeed(name string) {
	if c.over() {
		return
	}
	free, next := 0, time.Duration(0)
	for i, n := range c.sim {
		switch ttl := n.TTL(name); {
		case !c.nodes[i].works():
		case ttl == 0:
			free++
		case ttl > 0 && (next == 0 || ttl < next):
			next = ttl
		}
	}
	if free < c.quorum() && next > 0 {
		time.AfterFunc(next, func() { c.succeed(name) })
		return
	}
	c.hand(name, stay)
	c.setAway(false)
}

// setAway cuts all clients off from all nodes, or ends that.
func (c *Cluster) setAway(away bool) {
	c.mu.Lock()
	ways := slices.Clone(c.ways)
	c.mu.Unlock()
	for _, w := range ways {
		w.change(func() { w.away = away })
	}
}
