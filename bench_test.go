package redlock_test

import (
	"fmt"
	"testing"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
)

// BenchmarkLockUnlock is what the library itself costs: the nodes answer at once.
func BenchmarkLockUnlock(b *testing.B) {
	for _, n := range []int{1, 3, 5, 7} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			lockAndUnlock(b, redlock.New(sim.NewNodes(n).Instants("a")...))
		})
		b.Run(fmt.Sprintf("nodes=%d/waiting", n), func(b *testing.B) {
			// Pools for which goroutines have to wait.
			lockAndUnlock(b, redlock.New(sim.NewNodes(n).Pools("a")...))
		})
	}
}

func lockAndUnlock(b *testing.B, rl *redlock.Redlock) {
	m := rl.NewMutex("x")
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Lock(); err != nil {
			b.Fatal(err)
		}
		if _, err := m.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}
