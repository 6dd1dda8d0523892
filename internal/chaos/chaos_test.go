package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/redistest"
)

var (
	duration = flag.Duration("duration", 30*time.Second, "how long TestChaos goes on, in rounds of at most 30 s")
	seed     = flag.Uint64("seed", 1, "of the first round; the next ones have the numbers after it")
)

// roundLength is as much as the linearizability checker can take.
const roundLength = 30 * time.Second

func TestMain(m *testing.M) {
	WorkerMain()
	lockerMain()
	flag.Parse()
	os.Exit(m.Run())
}

func TestChaos(t *testing.T) {
	redistest.Require(t)
	for left, seed := *duration, *seed; left > 0 && !t.Failed(); left, seed = left-roundLength, seed+1 {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := Round{Seed: seed, Duration: min(left, roundLength), Expiry: 600 * time.Millisecond, Workers: 4, Faults: Survivable}
			rep := r.Run(t)
			t.Log(rep)
			if err := Check(rep.Events); err != nil {
				t.Error(err)
			}
		})
	}
}

// Without faults nothing is lost even where no fence is, and nothing remains.
func TestCalm(t *testing.T) {
	redistest.Require(t)
	rep := Round{Seed: *seed, Duration: 2 * time.Second, Expiry: time.Second, Workers: 4}.Run(t)
	t.Log(rep)
	if err := Check(rep.Events); err != nil {
		t.Error(err)
	}
	if rep.Tally.Lost != 0 || rep.Tally.Refused != 0 {
		t.Errorf("two were at work at the same time: %+v", rep.Tally)
	}
	for _, e := range rep.Events {
		if e.Op == Unlock && !e.OK {
			t.Errorf("unlock: %s", e.Err)
		}
	}
}

// H4: a worker that is paused past its validity goes on when it wakes up. Then only the fence protects:
// the number without one loses updates, and this test wants to see that.
func TestPausesLoseUpdatesWithoutAFence(t *testing.T) {
	redistest.Require(t)
	rep := Round{Seed: *seed, Duration: 8 * time.Second, Expiry: 300 * time.Millisecond, Workers: 4, Faults: []Fault{PauseHold}}.Run(t)
	t.Log(rep)
	if err := Check(rep.Events); err != nil {
		t.Error(err)
	}
	if rep.Tally.Lost == 0 {
		t.Error("no update without a fence was lost: the pauses did not hit")
	}
	if rep.Tally.Refused == 0 {
		t.Error("no stale token was refused: the pauses did not hit")
	}
}

// Servers that lose their data at once or whose clocks jump are more than Redlock claims to survive. Two may
// hold the lock then. The fence must hold all the same, and everything must be well afterwards.
func TestFenceHoldsWhenTheLockBreaks(t *testing.T) {
	redistest.Require(t)
	rep := Round{Seed: *seed, Duration: 8 * time.Second, Expiry: 500 * time.Millisecond, Workers: 4, Faults: Wild}.Run(t)
	t.Log(rep)
	if err := CheckFence(rep.Events); err != nil {
		t.Error(err)
	}
	if err := Check(rep.Events); err != nil {
		t.Logf("the lock, as is to be expected: %v", err)
	}
}
