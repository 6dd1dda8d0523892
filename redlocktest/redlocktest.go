// Package redlocktest tests code that uses redlock: on Redis nodes in memory, with faults at will,
// and in virtual time.
//
//	func TestStopsWhenTheLockIsLost(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := redlocktest.New(t, 5)
//			time.AfterFunc(time.Minute, func() { c.Steal("report") })
//			if err := work(t.Context(), c.Redlock()); !errors.Is(err, redlock.ErrLost) {
//				t.Errorf("worked without the lock: %v", err)
//			}
//		})
//	}
//
// A [Cluster] is a group of nodes, and [Cluster.Redlock] makes a client of them. The cluster can
// lock and lose locks as another process would. A [Node] can stop, hang, be slow and fail.
// [AtEveryCommand] runs a test again and again, and loses the lock at another moment each time.
//
// In a bubble of testing/synctest the nodes live in virtual time: keys that expire in an hour take
// microseconds. Outside of one they live in real time. The nodes know the commands of redlock and
// no others. Nothing listens on a network.
//
// A lock's name is its Redis key everywhere in this package: with [redlock.WithKeyPrefix], the
// prefix and the name.
package redlocktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// Cluster is a group of nodes in memory. [New] makes it, and it ends with the test. It is safe for
// concurrent use. What goes wrong in its methods fails the test, in one line that begins with
// "redlocktest:".
type Cluster struct {
	t     testing.TB
	sim   sim.Nodes
	nodes []*Node
	calls atomic.Int64   // to nodes, under way
	after func(cmd call) // if not nil: called after each command, before its reply arrives

	mu      sync.Mutex // guards what follows
	closed  bool
	ways    []*way // of all clients, to all nodes
	clients []client
	names   []string // of all locks that were asked for, in order
	known   map[string]bool
}

// client is a Redlock and its ways to the nodes.
type client struct {
	locks *redlock.Redlock
	ways  []*way
}

// New returns a cluster of n empty nodes that have been up for years. At the end of the test the
// nodes fail every call, and every Redlock of [Cluster.Redlock] is closed. Calls and subscriptions
// that are left then fail the test.
func New(t testing.TB, n int) *Cluster {
	t.Helper()
	if n < 1 {
		t.Fatalf("redlocktest: New with %d nodes: must be at least 1", n)
	}
	c := &Cluster{t: t, sim: sim.NewNodes(n), known: map[string]bool{}}
	for i := range n {
		c.nodes = append(c.nodes, &Node{c: c, id: i, sim: c.sim[i]})
	}
	t.Cleanup(c.close)
	return c
}

// patience is how long the cluster waits for calls to end after the test.
const patience = 10 * time.Second

// close ends the nodes and the clients, and counts what is left.
func (c *Cluster) close() {
	c.t.Helper()
	c.mu.Lock()
	c.closed = true
	clients := c.clients
	c.mu.Unlock()
	c.sim.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, cl := range clients {
		_ = cl.locks.CloseContext(ctx) // no node answers any more: nothing can be released
	}
	for c.left() != "" && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if left := c.left(); left != "" {
		c.t.Errorf("redlocktest: after the test, the nodes still have %s: close every Redlock",
			left)
	}
}

// left says what clients still have at the nodes, "" for nothing.
func (c *Cluster) left() string {
	subscriptions := 0
	for _, n := range c.sim {
		subscriptions += n.Subscriptions()
	}
	if calls := c.calls.Load(); calls > 0 || subscriptions > 0 {
		return fmt.Sprintf("%d calls and %d subscriptions", calls, subscriptions)
	}
	return ""
}

// Redlock returns a new client of the nodes with the given options: what a process of its own would
// have. It is closed at the end of the test, if the code under test has not closed it before.
func (c *Cluster) Redlock(opts ...redlock.Option) *redlock.Redlock {
	ways := c.connect()
	locks := redlock.New(pools(ways)...).With(opts...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, client{locks, ways})
	return locks
}

// Pools returns new connections to the nodes, for code that calls [redlock.New] itself. Such a
// Redlock must be closed before the test ends, and [Cluster.Cut] does not know it.
func (c *Cluster) Pools() []pool.Pool { return pools(c.connect()) }

// connect returns a new client's ways to all nodes.
func (c *Cluster) connect() []*way {
	c.mu.Lock()
	defer c.mu.Unlock()
	ways := make([]*way, len(c.nodes))
	for i, n := range c.nodes {
		ways[i] = &way{c: c, node: n, link: c.sim[i].Link("")}
		n.connect(ways[i])
	}
	c.ways = append(c.ways, ways...)
	return ways
}

func pools(ways []*way) []pool.Pool {
	list := make([]pool.Pool, len(ways))
	for i, w := range ways {
		list[i] = w
	}
	return list
}

// Node returns the node with that index, from 0.
func (c *Cluster) Node(i int) *Node {
	c.t.Helper()
	if i < 0 || i >= len(c.nodes) {
		c.t.Fatalf("redlocktest: Node(%d): the cluster has nodes 0 to %d", i, len(c.nodes)-1)
	}
	return c.nodes[i]
}

// Cut cuts a client that Redlock returned off from the nodes with these indices, and connects it
// with all others: Cut(locks) ends every cut. Commands and announcements that are sent meanwhile
// are lost. A Redlock that With derived from the client is cut with it.
func (c *Cluster) Cut(locks *redlock.Redlock, nodes ...int) {
	c.t.Helper()
	c.mu.Lock()
	at := slices.IndexFunc(c.clients, func(cl client) bool { return cl.locks == locks })
	var ways []*way
	if at >= 0 {
		ways = c.clients[at].ways
	}
	c.mu.Unlock()
	if at < 0 {
		c.errorf("Cut: not a Redlock that this cluster's method Redlock has returned")
		return
	}
	for _, i := range nodes {
		c.Node(i) // fails if there is none
	}
	for i, w := range ways {
		w.change(func() { w.cut = slices.Contains(nodes, i) })
	}
}

// quorum is how many nodes decide.
func (c *Cluster) quorum() int { return len(c.nodes)/2 + 1 }

// over reports whether the test has ended.
func (c *Cluster) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// errorf fails the test, unless that is over: a timer of the test may come too late.
func (c *Cluster) errorf(format string, args ...any) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.t.Errorf("redlocktest: "+format, args...)
	}
}
