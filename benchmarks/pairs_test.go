package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// broken is a locker that grants so many locks, and no more.
type broken struct{ left atomic.Int64 }

func (b *broken) Lock(context.Context, string) (func() error, error) {
	time.Sleep(time.Millisecond)
	if b.left.Add(-1) < 0 {
		return nil, errors.New("broken")
	}
	return func() error { return nil }, nil
}

func (*broken) Close() {}

// One that fails is not in the next leg either: its values would be of other rounds than the rest.
func TestOneThatFailsIsOutOfTheRace(t *testing.T) {
	opens := func(name string, locks int64) *contender {
		return &contender{name: name, open: func([]string, time.Duration) locker {
			b := &broken{}
			b.left.Store(locks)
			return b
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		s := &suite{config: config{PairRounds: 5, PairSlice: 20 * time.Millisecond},
			report: &report{}, now: &sectionRun{}, began: time.Now(), out: map[key]bool{}}
		sound, fails := opens("sound", 1e6), opens("fails", 50)
		rounds := func(who string) int {
			s := s.report.find(key{Section: pairPart, Who: who, Workers: 2, Metric: perPair})
			if s == nil {
				return 0
			}
			return len(s.Values)
		}
		s.race(pairPart, []*contender{fails, sound}, 0, 2)
		before := rounds("fails")
		if before == 0 || before == 5 {
			t.Fatalf("%d rounds until it failed", before)
		}
		s.race(pairPart, []*contender{fails, sound}, 0, 2)
		if got := rounds("fails"); got != before {
			t.Errorf("one that failed in round %d has %d rounds", before+1, got)
		}
		if got := rounds("sound"); got != 10 {
			t.Errorf("the other one has %d rounds", got)
		}
	})
}
