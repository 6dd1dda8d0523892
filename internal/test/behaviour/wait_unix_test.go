//go:build unix

package behaviour_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// BenchmarkWait tells which part of a core the waiters of a process cost, with simulated nodes. An
// operation is a second: -benchtime 20x.
func BenchmarkWait(b *testing.B) {
	for _, waiters := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(waiters, " waiters"), func(b *testing.B) {
			nodes := sim.NewNodes(5)
			defer nodes.Close()
			occupy(nodes, 0)
			rl := redlock.New(nodes.Pools("a")...).With(redlock.WithTries(math.MaxInt))
			ctx, cancel := context.WithCancel(b.Context())
			var all sync.WaitGroup
			for range waiters {
				all.Go(func() { _ = rl.NewMutex("x").LockContext(ctx) })
			}
			time.Sleep(time.Second) // they have queued
			start, used := time.Now(), processorTime(b)
			for b.Loop() {
				time.Sleep(time.Second)
			}
			b.ReportMetric(100*float64(processorTime(b)-used)/float64(time.Since(start)), "%core")
			cancel()
			all.Wait()
		})
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
