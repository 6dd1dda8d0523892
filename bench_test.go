package redlock_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// BenchmarkJoinedDo is what a reader costs that joins another one of its process.
func BenchmarkJoinedDo(b *testing.B) {
	rl := redlock.New(sim.NewNodes(3).Instants("a")...).With(redlock.WithShared())
	nothing := func(context.Context) error { return nil }
	b.ReportAllocs()
	for i := 0; i < b.N; {
		err := rl.Do(b.Context(), "x", func(context.Context) error {
			for began := time.Now(); i < b.N && time.Since(began) < 15*time.Millisecond; i++ {
				if err := rl.Do(b.Context(), "x", nothing); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEvents is what it costs to tell of a Lock and an Unlock.
func BenchmarkEvents(b *testing.B) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, bb := range []struct {
		name string
		opts []redlock.Option
	}{
		{"none", nil},
		{"log=warn", []redlock.Option{redlock.WithEvents(redlock.LogEvents(quiet))}},
		{"all", []redlock.Option{redlock.WithEvents(everything())}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			lockAndUnlock(b, redlock.New(sim.NewNodes(5).Instants("a")...).With(bb.opts...))
		})
	}
}

// everything is Events whose functions are all there and do nothing.
func everything() *redlock.Events {
	return &redlock.Events{
		Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			return ctx, func(redlock.Acquired) {}
		},
		Extend: func(ctx context.Context, _ redlock.Extending) (context.Context,
			func(redlock.Extended)) {
			return ctx, func(redlock.Extended) {}
		},
		Release: func(ctx context.Context, _ redlock.Releasing) (context.Context,
			func(redlock.Released)) {
			return ctx, func(redlock.Released) {}
		},
		End: func(redlock.Ended) {}, Lost: func(redlock.Ended) {},
		Overrun:  func(redlock.Overrun) {},
		NoQuorum: func(redlock.Failure) {}, NodeState: func(redlock.NodeState) {},
		Node: func(redlock.NodeCall) {},
	}
}

// Locks without Events, and with a logger that is off, allocate the same.
func TestEventsThatAreNotWantedAllocateNothing(t *testing.T) {
	const pairs = 200
	allocs := func(opts ...redlock.Option) float64 {
		rl := redlock.New(sim.NewNodes(5).Instants("a")...).With(opts...)
		defer func() { require.NoError(t, rl.Close()) }()
		m := rl.NewMutex("x")
		return testing.AllocsPerRun(5, func() {
			for range pairs {
				if m.Lock() != nil {
					t.Error("not locked")
				}
				if _, err := m.Unlock(); err != nil {
					t.Error(err)
				}
			}
		}) / pairs
	}
	quiet := slog.New(slog.NewTextHandler(&bytes.Buffer{},
		&slog.HandlerOptions{Level: slog.LevelWarn}))
	none := allocs()
	assert.InDelta(t, none, allocs(redlock.WithEvents(redlock.LogEvents(quiet))), 0.4)
	assert.Less(t, none+2, allocs(redlock.WithEvents(everything())), "the test can see allocations")
}
