// Package embedded runs Redis nodes inside the process, so that the example programs need
// nothing but Go.
package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Nodes are miniredis nodes on free loopback ports, whose keys expire by themselves. They are
// safe for concurrent use.
type Nodes struct {
	minis []*miniredis.Miniredis
	end   chan struct{}
	clock sync.WaitGroup
}

// Start starts n empty nodes. Close ends them.
func Start(n int) (*Nodes, error) {
	ns := &Nodes{end: make(chan struct{})}
	for range n {
		m, err := miniredis.Run()
		if err != nil {
			ns.Close()
			return nil, err
		}
		ns.minis = append(ns.minis, m)
	}
	ns.clock.Go(ns.tick)
	return ns, nil
}

// tick lets time pass on the nodes. It goes by small steps: a key that was set just now would lose
// all of a long one, and no lock may expire early.
func (ns *Nodes) tick() {
	const step = time.Millisecond
	t := time.NewTicker(step)
	defer t.Stop()
	for {
		select {
		case <-ns.end:
			return
		case <-t.C:
			for _, m := range ns.minis {
				m.FastForward(step)
			}
		}
	}
}

// Addrs returns the nodes' addresses, in order.
func (ns *Nodes) Addrs() []string {
	var addrs []string
	for _, m := range ns.minis {
		addrs = append(addrs, m.Addr())
	}
	return addrs
}

// Stop takes node i down. It forgets its keys.
func (ns *Nodes) Stop(i int) {
	ns.minis[i].Close()
	ns.minis[i].FlushAll()
}

// Restart brings node i up again, empty, on the same address.
func (ns *Nodes) Restart(i int) error { return ns.minis[i].Restart() }

// Close takes all nodes down and waits until they are.
func (ns *Nodes) Close() {
	close(ns.end)
	ns.clock.Wait()
	for _, m := range ns.minis {
		m.Close()
	}
}
