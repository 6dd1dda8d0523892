package redlocktest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/test/sim"
)

// Node is one node of a cluster. Its methods change what happens to commands that are sent from now
// on. It is safe for concurrent use.
type Node struct {
	c   *Cluster
	id  int
	sim *sim.Node

	// A command that is executed at once holds the gate for reading. So nothing below changes in
	// the middle of it.
	gate   sync.RWMutex
	ways   []*way
	down   bool
	frozen bool
	delay  time.Duration
	err    error
	silent atomic.Int64 // how many replies more are lost; may be negative
}

// Down stops the server. Commands under way end with a reset connection, later ones are refused.
func (n *Node) Down() {
	n.gate.Lock()
	defer n.gate.Unlock()
	n.down, n.frozen = true, false
	n.sim.Crash()
}

// Up starts a server that is down, with the keys that it had, like one that writes everything to
// disk. Keys expire meanwhile. On a server that is up it does nothing.
func (n *Node) Up() {
	n.gate.Lock()
	defer n.gate.Unlock()
	if n.down {
		n.down = false
		n.sim.Restart(true)
	}
}

// Restart stops the server, unless it is down, and starts it again: with the keys that it had, or
// without any. Its uptime, at which [redlock.WithRestartGuard] looks, begins anew.
func (n *Node) Restart(keepData bool) {
	n.gate.Lock()
	defer n.gate.Unlock()
	n.sim.Crash()
	n.down, n.frozen = false, false
	n.sim.Restart(keepData)
}

// Freeze stops the server as SIGSTOP would: commands arrive and wait.
func (n *Node) Freeze() {
	n.gate.Lock()
	defer n.gate.Unlock()
	n.frozen = !n.down
	if n.frozen {
		n.sim.Freeze()
	}
}

// Thaw continues a frozen server. It executes all commands that have arrived meanwhile, also those
// whose clients have given up.
func (n *Node) Thaw() {
	n.gate.Lock()
	n.frozen = false
	n.gate.Unlock()
	n.sim.Thaw()
}

// Delay makes each command take d from its client to the node and back, half of it each way. Zero
// ends the delay.
func (n *Node) Delay(d time.Duration) {
	n.change(func() { n.delay = d })
}

// Fail makes the node answer each command with err, and not execute it. Nil ends that.
func (n *Node) Fail(err error) {
	n.change(func() { n.err = err })
}

// LoseReplies loses the answers to the next count commands, which the node executes, also if it
// fails others. Zero ends that.
func (n *Node) LoseReplies(count int) {
	n.change(func() { n.silent.Store(int64(count)) })
}

// change changes what happens to commands.
func (n *Node) change(what func()) {
	n.gate.Lock()
	defer n.gate.Unlock()
	what()
	for _, w := range n.ways {
		w.plan()
	}
}

// connect adds a way to the node.
func (n *Node) connect(w *way) {
	n.gate.Lock()
	defer n.gate.Unlock()
	n.ways = append(n.ways, w)
	w.plan()
}

// works reports whether the server executes commands.
func (n *Node) works() bool {
	n.gate.RLock()
	defer n.gate.RUnlock()
	return !n.down && !n.frozen
}

// fates returns what becomes of commands, nil for nothing but their execution. The caller holds the
// gate; the plan itself is called without.
func (n *Node) fates() sim.Plan {
	delay, err := n.delay, n.err
	if delay <= 0 && err == nil && n.silent.Load() <= 0 {
		return nil
	}
	return func(op sim.Op) sim.Fate {
		f := sim.Fate{}
		if delay > 0 {
			f = sim.Slow(delay)
		}
		switch {
		case op.Command == "message": // on its way to a subscriber
		case n.silent.Add(-1) >= 0:
			f.ReplyLost = true
		case err != nil:
			f.Skip, f.Answer = true, &sim.Answer{Err: err}
		}
		return f
	}
}
