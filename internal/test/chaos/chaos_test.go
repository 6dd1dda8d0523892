package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

var (
	duration = flag.Duration("duration", 30*time.Second,
		"how long TestChaos goes on, in rounds of at most 30 s")
	seed = flag.Uint64("seed", 1, "of the first round; the next ones have the numbers after it")
)

// roundLength is as much as the linearizability checker can take.
const roundLength = 30 * time.Second

func TestMain(m *testing.M) {
	WorkerMain()
	lockerMain()
	candidateMain()
	// Unless the command line says otherwise: the tests wait most of their time.
	_ = flag.Set("test.parallel", "6")
	flag.Parse()
	goredislib.SetLogger(quiet{}) // it would tell of every server that is down
	os.Exit(m.Run())
}

// run runs a round and returns what Check says of its history as well.
func run(t *testing.T, r Round, sum *Summary) (*Report, error) {
	t.Helper()
	rep := r.Run(t)
	wrong := Check(rep.Events)
	sum.Add(r, rep, wrong)
	return rep, wrong
}

func TestChaos(t *testing.T) {
	redistest.Require(t)
	var sum Summary
	for left, seed := *duration, *seed; left > 0 && !t.Failed(); left, seed = left-roundLength,
		seed+1 {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := Round{Seed: seed, Duration: min(left, roundLength), Expiry: 600 * time.Millisecond,
				Workers: 4, Faults: Survivable}
			rep, err := run(t, r, &sum)
			if err != nil {
				t.Error(err)
			}
			if err := CheckTold(rep.Events); err != nil {
				t.Error(err)
			}
			if r.Duration < roundLength {
				return
			}
			for _, f := range rep.Tried {
				if rep.Injected[f] == 0 {
					t.Errorf("no %s in the whole round", f)
				}
			}
			// Some 800 on two idle cores.
			if rep.Grants < 100 {
				t.Errorf("%d grants in the whole round", rep.Grants)
			}
		})
	}
	t.Log(&sum)
}

// Without faults nothing is lost even where no fence is, and nothing remains: each key is deleted
// by its owner.
func TestCalm(t *testing.T) {
	redistest.Require(t)
	var sum Summary
	r := Round{Seed: *seed, Duration: 2 * time.Second, Expiry: 2 * time.Second,
		NodeTimeout: time.Second, Workers: 4}
	rep, err := run(t, r, &sum)
	t.Log(&sum)
	if err != nil {
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
	if rep.Expired != 0 {
		t.Errorf("%d keys had to expire", rep.Expired)
	}
	if rep.Changes < 2*rep.Grants || rep.Blind != 0 {
		t.Errorf("%d changes of the key were seen, and %d could not be judged, for %d grants",
			rep.Changes, rep.Blind, rep.Grants)
	}
}

// Locks that are handed from process to process have one holder at a time, too, and rising tokens,
// while everything fails.
func TestHandOvers(t *testing.T) {
	redistest.Require(t)
	var sum Summary
	for left, seed := *duration/5, *seed; left > 0 && !t.Failed(); left, seed = left-roundLength,
		seed+1 {
		r := Round{Seed: seed, Duration: min(left, roundLength), Expiry: 600 * time.Millisecond,
			Workers: 4, Faults: Survivable, HandOver: true}
		rep, err := run(t, r, &sum)
		if err != nil {
			t.Error(err)
		}
		if err := CheckTold(rep.Events); err != nil {
			t.Error(err)
		}
		// One of six, unless the machine is busy.
		if rep.Grants > 50 && rep.Adopted == 0 {
			t.Errorf("none of %d locks was handed over", rep.Grants)
		}
	}
	t.Log(&sum)
}

// Readers share a lock and writers have it alone, sets of locks and slots have one holder each,
// while everything fails.
func TestReadersSetsAndSlots(t *testing.T) {
	redistest.Require(t)
	var sum Summary
	for left, seed := *duration/4, *seed; left > 0 && !t.Failed(); left, seed = left-roundLength,
		seed+1 {
		r := Round{Seed: seed, Duration: min(left, roundLength), Expiry: 600 * time.Millisecond,
			Workers: 4, Faults: Survivable, Several: true}
		rep := r.Run(t)
		err := CheckSeveral(rep.Events)
		sum.Add(r, rep, err)
		if err != nil {
			t.Error(err)
		}
		shared, slotted := 0, 0
		for _, e := range rep.Events {
			switch {
			case !e.granted():
			case e.Shared:
				shared++
			case e.Name != lockName:
				slotted++
			}
		}
		t.Logf("seed %d: %d reads, %d writes, %d slots", seed, shared,
			rep.Grants-shared-slotted, slotted)
		if shared == 0 || slotted == 0 {
			t.Error("somebody was never granted a lock")
		}
	}
	t.Log(&sum)
}

// A worker that is paused past its validity goes on when it wakes up. Then only the fence protects:
// the number without one loses updates, and this test wants to see that.
func TestPausesLoseUpdatesWithoutAFence(t *testing.T) {
	redistest.Require(t)
	var sum Summary
	r := Round{Seed: *seed, Duration: 6 * time.Second, Expiry: 300 * time.Millisecond, Workers: 4,
		Faults: []Fault{PauseHold}}
	rep, err := run(t, r, &sum)
	t.Log(&sum)
	if err != nil {
		t.Error(err)
	}
	if rep.Tally.Lost == 0 {
		t.Error("no update without a fence was lost: the pauses did not hit")
	}
	if rep.Tally.Refused == 0 {
		t.Error("no stale token was refused: the pauses did not hit")
	}
}

// Holders that are cut off from a majority of the servers lose the lock by the clock. Each is
// told in time, before anybody else is granted the lock.
func TestCutOffHoldersAreToldInTime(t *testing.T) {
	redistest.Require(t)
	var sum Summary
	r := Round{Seed: *seed, Duration: 5 * time.Second, Expiry: 500 * time.Millisecond, Workers: 4,
		Faults:    []Fault{CutOff},
		LongHolds: 1, LongWork: 2 * time.Second}
	rep, err := run(t, r, &sum)
	t.Log(&sum)
	if err != nil {
		t.Error(err)
	}
	if err := CheckTold(rep.Events); err != nil {
		t.Error(err)
	}
	if rep.Lost == 0 && len(rep.Tried) > 0 {
		t.Error("no hold was lost: the cuts did not hit")
	}
}

// Servers that lose their data at once or whose clocks jump are more than Redlock claims to
// survive. Two may hold the lock then. The fence must still hold, held contexts must end
// in time, and everything must be well afterwards.
func TestFenceHoldsWhenTheLockBreaks(t *testing.T) {
	redistest.Require(t)
	var sum Summary
	r := Round{Seed: *seed, Duration: 6 * time.Second, Expiry: 500 * time.Millisecond, Workers: 4,
		Faults: Wild, LongHolds: 4}
	rep, wrong := run(t, r, &sum)
	t.Log(&sum)
	if err := CheckFence(rep.Events); err != nil {
		t.Error(err)
	}
	if err := CheckTold(rep.Events); err != nil {
		t.Error(err)
	}
	if wrong != nil {
		t.Logf("the lock, as is to be expected: %v", wrong)
	}
}

// The leader of an election is killed, paused, cut off, and so are those who wait, while the
// servers fail. At no time do two say that they lead, and terms increase.
func TestElections(t *testing.T) {
	redistest.Require(t)
	seed := *seed
	for left := *duration / 4; left > 0 && !t.Failed(); left -= roundLength {
		r := Round{Seed: seed, Duration: min(left, roundLength), Expiry: 600 * time.Millisecond,
			Workers: 4, Faults: Survivable, LongHolds: 4, Election: true}
		rep := r.Run(t)
		if err := CheckElection(rep.Events); err != nil {
			t.Error(err)
		}
		looks := 0
		for _, e := range rep.Events {
			if e.Op == Leads {
				looks++
			}
		}
		t.Logf("seed %d: %d terms, %d answers that a candidate leads, faults %v", seed, rep.Grants,
			looks, rep.Injected)
		if rep.Grants < 10 || looks < 100 {
			t.Errorf("%d terms, and %d answers, in the whole round", rep.Grants, looks)
		}
		seed++
	}
}

// Candidates that trust their timers think for a moment after a pause that they still lead. The
// check of the histories must see that.
func TestALeaderThatDoesNotLookAtTheClockIsSeen(t *testing.T) {
	redistest.Require(t)
	for i := range uint64(20) {
		r := Round{Seed: *seed + i, Duration: 3 * time.Second, Expiry: 300 * time.Millisecond,
			Workers: 3, Faults: []Fault{PauseHold}, LongHolds: 1, LongWork: 2 * time.Second,
			Election: true, Blind: true}
		rep := r.Run(t)
		if wrong := CheckElection(rep.Events); wrong != nil {
			t.Log(wrong)
			return
		}
	}
	t.Error("not seen")
}
