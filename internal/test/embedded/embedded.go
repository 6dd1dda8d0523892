// Package embedded runs Redis nodes inside the process of a test.
package embedded

import "github.com/alicebob/miniredis/v2"

// Nodes are miniredis nodes on free loopback ports. They are safe for concurrent use.
type Nodes struct{ minis []*miniredis.Miniredis }

// Start starts n empty nodes. Close ends them.
func Start(n int) (*Nodes, error) {
	ns := &Nodes{}
	for range n {
		m, err := miniredis.Run()
		if err != nil {
			ns.Close()
			return nil, err
		}
		m.ClockTTL(true) // otherwise keys expire only when told to
		ns.minis = append(ns.minis, m)
	}
	return ns, nil
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

// Close takes all nodes down.
func (ns *Nodes) Close() {
	for _, m := range ns.minis {
		m.Close()
	}
}
