package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary is what came of several rounds.
type Summary struct {
	Rounds       int
	Time         time.Duration // that faults were injected for
	Linearizable int           // rounds whose history Check found right

	waits    []time.Duration
	injected map[Fault]int
	tally    Tally
	reports  Report // the sums of its numbers, the longest of its times
}

// Add adds a round and what Check says of it.
func (s *Summary) Add(r Round, rep *Report, wrong error) {
	if s.injected == nil {
		s.injected = map[Fault]int{}
	}
	s.Rounds++
	s.Time += r.Duration
	if wrong == nil {
		s.Linearizable++
	}
	for _, e := range rep.Events {
		if e.granted() {
			s.waits = append(s.waits, time.Duration(e.Return-e.Call))
		}
	}
	slices.Sort(s.waits)
	for f, n := range rep.Injected {
		s.injected[f] += n
	}
	s.tally.Fenced += rep.Tally.Fenced
	s.tally.FencedLost += rep.Tally.FencedLost
	s.tally.Refused += rep.Tally.Refused
	s.tally.Late += rep.Tally.Late
	s.tally.LateLost += rep.Tally.LateLost
	s.tally.Plain += rep.Tally.Plain
	s.tally.Lost += rep.Tally.Lost
	sum := &s.reports
	sum.Adopted += rep.Adopted
	sum.Lost += rep.Lost
	sum.Left += rep.Left
	sum.Changes += rep.Changes
	sum.Foreign += rep.Foreign
	sum.Blind += rep.Blind
	sum.Expired += rep.Expired
	sum.Recovery, sum.AllServed = max(sum.Recovery, rep.Recovery), max(sum.AllServed, rep.AllServed)
	sum.RecoveryBound, sum.AllServedBound = rep.RecoveryBound, rep.AllServedBound
}

func (s *Summary) String() string {
	if s.Rounds == 0 {
		return "no round came to its end"
	}
	wait := func(q int) (d time.Duration) {
		if len(s.waits) > 0 {
			d = s.waits[(len(s.waits)-1)*q/100]
		}
		return d.Round(100 * time.Microsecond)
	}
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	faults, all := []string{}, 0
	for f, n := range s.injected {
		faults, all = append(faults, fmt.Sprintf("%s %d", f, n)), all+n
	}
	slices.Sort(faults)
	t, r := s.tally, s.reports
	return fmt.Sprintf(`%d rounds, %v under attack
  grants                %d, wait p50 %v, p99 %v, longest %v; %d were handed over
  faults                %d: %s
  fenced updates        %d accepted, %d lost; %d accesses with a stale token refused
  token with the write  %d accepted without a claim, %d lost
  updates without fence %d, %d lost
  held contexts         %d ended because the lock was lost
  linearizable          %d of %d histories, by porcupine and the sweep over holders and tokens
  changes of the key    %d, by somebody whose value it did not hold %d, not known %d
  keys left behind      %d at the end; %d had to expire before
  liveness              first grant at most %v after the last fault (bound %v),
                        everybody's at most %v (bound %v)`,
		s.Rounds, s.Time, len(s.waits), wait(50), wait(99), wait(100), s.reports.Adopted, all,
		strings.Join(faults, ", "),
		t.Fenced, t.FencedLost, t.Refused, t.Late, t.LateLost, t.Plain, t.Lost, r.Lost,
		s.Linearizable, s.Rounds, r.Changes, r.Foreign, r.Blind, r.Left, r.Expired,
		ms(r.Recovery), r.RecoveryBound, ms(r.AllServed), r.AllServedBound)
}
