package sim_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

var (
	seeds    = flag.Int("seeds", 400, "schedules of each campaign")
	first    = flag.Uint64("first", 1, "first seed of each campaign")
	schedule = flag.String("schedule", "", "a schedule to replay, as printed by a failure")
)

// TestSchedules runs schedules of all faults in the model: no invariant may break.
func TestSchedules(t *testing.T) {
	total := make(map[string]int)
	for i := range uint64(*seeds) {
		s := newSetup(*first+i, (lastFault-1)&^outOfModel)
		h := run(t, s, false)
		h.require(t)
		for k, v := range h.sometimes {
			total[k] += v
		}
	}
	t.Log(total)
}

func (h *history) require(t *testing.T) {
	t.Helper()
	if len(h.violations) == 0 {
		return
	}
	var b strings.Builder
	for _, v := range h.violations[:min(5, len(h.violations))] {
		fmt.Fprintln(&b, v)
	}
	t.Fatalf("%d violations\n%sreplay: go test ./internal/sim -run TestReplay -v -schedule '%s'", len(h.violations), b.String(), h.setup)
}

// TestReplay runs one schedule and prints everything that happens.
func TestReplay(t *testing.T) {
	if *schedule == "" {
		t.Skip("needs -schedule")
	}
	s, err := parseSetup(*schedule)
	if err != nil {
		t.Fatal(err)
	}
	h := run(t, s, true)
	t.Log(strings.Join(h.lines, "\n"))
	h.require(t)
}
