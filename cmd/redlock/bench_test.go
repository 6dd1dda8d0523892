//go:build unix

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// BenchmarkRun compares "redlock run … true", built as users do, with "flock FILE true", in turns.
// The figures are medians: of both, of their difference in a turn, and of a round trip to a node.
func BenchmarkRun(b *testing.B) {
	redistest.Require(b)
	var list []string
	for _, s := range redistest.Start(b, 3) {
		list = append(list, s.Addr())
	}
	dir := b.TempDir()
	tool := filepath.Join(dir, "redlock")
	out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput()
	require.NoError(b, err, "%s", out)
	client := redis.NewClient(&redis.Options{Addr: list[0]})
	defer client.Close()
	require.NoError(b, client.Ping(b.Context()).Err())
	b.Setenv("REDLOCK_NODES", strings.Join(list, ","))
	timed := func(f func() error) float64 {
		start := time.Now()
		require.NoError(b, f())
		return float64(time.Since(start)) / 1e6
	}
	var ours, theirs, more, trips []float64
	for b.Loop() {
		their := timed(exec.Command("flock", filepath.Join(dir, "file"), "true").Run)
		our := timed(exec.Command(tool, "run", "-name", "job", "--", "true").Run)
		ours, theirs, more = append(ours, our), append(theirs, their), append(more, our-their)
		trips = append(trips, timed(func() error { return client.Ping(b.Context()).Err() }))
	}
	for unit, all := range map[string][]float64{
		"ms/redlock": ours, "ms/flock": theirs, "ms-more": more, "ms/trip": trips,
	} {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], unit)
	}
	b.ReportMetric(0, "ns/op")
}
