package chaos

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/redistest"
)

var (
	duration = flag.Duration("duration", 20*time.Second, "how long TestChaos goes on, in rounds of at most 30 s")
	seed     = flag.Uint64("seed", 1, "of the first round; the next ones have the numbers after it")
)

// roundLength is as much as the linearizability checker can take.
const roundLength = 30 * time.Second

func TestMain(m *testing.M) {
	WorkerMain()
	flag.Parse()
	os.Exit(m.Run())
}

func TestChaos(t *testing.T) {
	redistest.Require(t)
	for left, seed := *duration, *seed; left > 0; left, seed = left-roundLength, seed+1 {
		r := Round{Seed: seed, Duration: min(left, roundLength), Expiry: 600 * time.Millisecond, Workers: 4, Faults: Survivable}
		rep := r.Run(t)
		t.Logf("seed %d: %v", seed, rep)
		if err := Check(rep.Events); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if t.Failed() {
			return
		}
	}
}
