package chaos

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPlan(t *testing.T) {
	const round, expiry = 30 * time.Second, 500 * time.Millisecond
	plan := func(seed uint64) []Step { return Plan(seed, round, expiry, 5, 4, Survivable) }
	first := fmt.Sprint(plan(1))
	if again := fmt.Sprint(plan(1)); again != first {
		t.Error("the same seed gave two plans")
	}
	if fmt.Sprint(plan(2)) == first {
		t.Error("two seeds gave the same plan")
	}
	if got := Plan(1, round, expiry, 5, 4, nil); got != nil {
		t.Errorf("a plan of no faults: %v", got)
	}
	for seed := range uint64(20) {
		steps := plan(seed)
		seen := map[Fault]int{}
		together := 0
		for i, s := range steps {
			seen[s.Fault]++
			if i > 0 && s.At < steps[i-1].At || s.At+s.For > round {
				t.Fatalf("seed %d: step %v is out of order or out of time", seed, s)
			}
			if (s.Node < 0) != slices.Contains(workerFaults, s.Fault) ||
				(s.Worker < 0) != slices.Contains(nodeFaults, s.Fault) {
				t.Errorf("seed %d: %v is about the wrong thing", seed, s)
			}
			if s.Fault == Lose && s.For <= expiry {
				t.Errorf("seed %d: %v comes back before the locks on it have expired", seed, s)
			}
			for _, o := range steps[:i] {
				if o.At+o.For <= s.At {
					continue
				}
				together++
				alone := !slices.Contains(cutFaults, s.Fault) &&
					!slices.Contains(cutFaults, o.Fault)
				if same := o.Node == s.Node && o.Worker == s.Worker; same &&
					(alone || o.Fault == s.Fault) {
					t.Errorf("seed %d: %v and %v meet", seed, o, s)
				}
			}
		}
		if together < len(steps) {
			t.Errorf("seed %d: of %d faults hardly any meet", seed, len(steps))
		}
		for _, f := range Survivable {
			if seen[f] < 2 {
				t.Errorf("seed %d has %s %d times", seed, f, seen[f])
			}
		}
	}
}

// A fault that takes long to inject, or to undo, shortens none that follow.
func TestAFaultLastsAsLongAsPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []Step{
			{At: 100 * time.Millisecond, For: 200 * time.Millisecond, Fault: Crash},
			{At: 300 * time.Millisecond, For: 500 * time.Millisecond, Fault: Lose},
			{At: 400 * time.Millisecond, For: 300 * time.Millisecond, Fault: Freeze},
		}
		began, undone := time.Now(), 0
		carryOut(steps, time.Second, func(s Step) func() {
			from := time.Now()
			return func() {
				undone++
				if lasted := time.Since(from); lasted < s.For {
					t.Errorf("%s lasted %v, not %v", s.Fault, lasted, s.For)
				}
				if s.Fault == Crash {
					time.Sleep(400 * time.Millisecond) // a restart on a busy machine
				}
			}
		})
		if took := time.Since(began); undone != len(steps) || took != 1400*time.Millisecond {
			t.Errorf("%d faults undone in %v", undone, took)
		}
	})
}
