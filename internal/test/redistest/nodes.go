package redistest

import (
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Node is what a behaviour test needs of a Redis node, real or embedded.
type Node interface {
	// Addr returns "host:port".
	Addr() string
	// Do sends one command, see Server.Do.
	Do(args ...string) (any, error)
	// Must is Do for a command that has to succeed.
	Must(args ...string) any
	// Kill takes the node down at once, with all it knew.
	Kill()
	// Restart brings it up again, empty, on the same address.
	Restart(...Option)
}

// Nodes returns n empty nodes for a test of behaviour: real servers where there is a
// redis-server, embedded miniredis nodes otherwise (or with
// REDLOCK_EMBEDDED=1), so that such tests run everywhere.
func Nodes(t testing.TB, n int) []Node {
	t.Helper()
	nodes := make([]Node, n)
	if _, err := Program(); (err == nil || os.Getenv("REDLOCK_REQUIRE_REDIS") == "1") &&
		os.Getenv("REDLOCK_EMBEDDED") != "1" {
		for i, s := range Start(t, n) {
			nodes[i] = s
		}
		return nodes
	}
	for i, m := range Embedded(t, n) {
		nodes[i] = m
	}
	return nodes
}

// Mini is an embedded node. Its keys expire by themselves, which those of a bare miniredis
// do not: at most 1 ms early, and late when the machine is busy.
type Mini struct {
	*miniredis.Miniredis
	control
	t testing.TB
}

// Embedded returns n embedded nodes, which end with the test.
func Embedded(t testing.TB, n int) []*Mini {
	t.Helper()
	minis := make([]*Mini, n)
	for i := range minis {
		m := miniredis.NewMiniRedis()
		if err := m.StartAddr(FreeAddr(t, "127.0.0.1")); err != nil {
			t.Fatal(err)
		}
		minis[i] = &Mini{Miniredis: m, control: control{addr: m.Addr()}, t: t}
		t.Cleanup(minis[i].Kill)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				// Never more than a tick at once: a key set just now would lose
				// all of a longer step, and a lock must not expire early.
				for _, m := range minis {
					m.FastForward(time.Millisecond)
				}
			}
		}
	}()
	return minis
}

// Addr returns "host:port".
func (m *Mini) Addr() string { return m.addr }

// Do sends one command, see Server.Do.
func (m *Mini) Do(args ...string) (any, error) { return m.do(args...) }

// Must is Do for a command that has to succeed.
func (m *Mini) Must(args ...string) any {
	m.t.Helper()
	v, err := m.do(args...)
	if err != nil {
		m.t.Fatalf("redistest: %v on embedded %s: %v", args, m.addr, err)
	}
	return v
}

// Kill takes the node down, with all it knew.
func (m *Mini) Kill() {
	m.close()
	m.Close()
	m.FlushAll()
}

// Restart brings the node up again, empty. It takes no options.
func (m *Mini) Restart(opts ...Option) {
	m.t.Helper()
	if len(opts) > 0 {
		m.t.Fatal("redistest: an embedded node has no options")
	}
	m.Kill()
	// A process that was being launched at the Kill has the old listener until it runs its own
	// program.
	if err := Poll(m.Miniredis.Restart); err != nil {
		m.t.Fatalf("redistest: embedded %s: %v", m.addr, err)
	}
}
