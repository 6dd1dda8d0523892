package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// grant is one hold of the lock, from Lock returning to the moment when its worker
// stopped trusting it.
type grant struct {
	Event          // of the Lock
	granted  int64 // the latest moment at which it can have been granted
	end      int64 // left, told of the loss, or validity over
	released int64 // unlock returned nil; math.MaxInt64 if it never did
}

// grants puts each hold together from its events.
func grants(events []Event) ([]*grant, error) {
	byID := map[string]*grant{}
	var all []*grant
	for _, e := range events {
		if e.Op == Lock && e.OK {
			if byID[e.Grant] != nil {
				return nil, fmt.Errorf("grant %s is in the history twice", e.Grant)
			}
			g := &grant{Event: e, granted: min(e.Return, e.Until), end: e.Until,
				released: math.MaxInt64}
			if e.Until == 0 {
				// Paused for so long that the hold was lost before it asked how long it may
				// trust it. All that is known is that it was granted, and is over.
				g.granted, g.end = e.Return, e.Call
			}
			byID[e.Grant], all = g, append(all, g)
		}
	}
	for _, e := range events {
		g := byID[e.Grant]
		if g == nil && (e.Op == Leave || e.Op == Unlock || e.Op == Lost || e.Op == Extend && e.OK) {
			return nil, fmt.Errorf("%s of grant %s, which the history has not", e.Op, e.Grant)
		}
		if e.Op == Extend && e.OK {
			g.end = max(g.end, e.Until)
		}
	}
	for _, e := range events {
		g := byID[e.Grant]
		switch e.Op {
		case Lost:
			g.end = min(g.end, e.Return)
		case Leave, Unlock:
			// From the call on, the worker does not rely on the lock, whatever the outcome.
			g.end = min(g.end, e.Call)
			if e.Op == Unlock && e.OK {
				g.released = e.Return
			}
		}
	}
	return all, nil
}

// Check returns nil if the history is that of a correct fenced lock and resource, and otherwise an
// error that names what contradicts it.
func Check(events []Event) error {
	all, err := grants(events)
	if err != nil {
		return err
	}
	return errors.Join(checkOverlap(all), checkTokens(all), checkFence(events),
		checkLinearizable(all, events))
}

// CheckFence is Check for a history with faults that the lock does not claim to survive:
// two may hold it, but the fence still lets no update get lost.
func CheckFence(events []Event) error { return checkFence(events) }

// CheckElection is Check for a history of candidates: terms increase, no two of them say at the
// same time that they lead, and the fence lets no update get lost.
func CheckElection(events []Event) error {
	var elected []*grant
	var leads []Event
	for _, e := range events {
		switch e.Op {
		case Elected:
			elected = append(elected, &grant{Event: e})
		case Leads:
			leads = append(leads, e)
		}
	}
	return errors.Join(checkTokens(elected), checkLeaders(leads), checkFence(events))
}

// checkLeaders wants each term to be that of one process, and nobody to say that it leads who was
// asked after somebody of a later term had said so. A candidate leads from its first answer in a
// term to its last one, so no two lead at a time then.
func checkLeaders(leads []Event) error {
	leader := map[uint64]string{} // of each term
	for _, e := range leads {
		if one := leader[e.Token]; one != "" && one != e.Grant {
			return fmt.Errorf("two leaders of term %d: %s and %s", e.Token, one, e.Grant)
		}
		leader[e.Token] = e.Grant
	}
	asked := slices.Clone(leads)
	slices.SortFunc(asked, func(a, b Event) int { return cmp.Compare(a.Call, b.Call) })
	answered := slices.Clone(leads)
	slices.SortFunc(answered, func(a, b Event) int { return cmp.Compare(a.Return, b.Return) })
	var last Event // of those answered, the one with the highest term
	for _, e := range asked {
		for ; len(answered) > 0 && answered[0].Return < e.Call; answered = answered[1:] {
			if answered[0].Token > last.Token {
				last = answered[0]
			}
		}
		if e.Token < last.Token {
			return fmt.Errorf("two leaders: %s in term %d, %v after %s in term %d", e.Grant,
				e.Token, time.Duration(e.Call-last.Return), last.Grant, last.Token)
		}
	}
	return nil
}

// CheckTold wants each held context that was lost to have ended by the time until which it could
// be trusted.
func CheckTold(events []Event) error {
	var errs []error
	for _, e := range events {
		if e.Op != Lost {
			continue
		}
		if e.Value > tooLate {
			errs = append(errs, fmt.Errorf("worker %d was told %v too late that it had lost "+
				"grant %s: %s",
				e.Worker, time.Duration(e.Return-e.Until), e.Grant, e.Err))
		}
		if !e.OK {
			errs = append(errs, fmt.Errorf("worker %d was told that grant %s ended, with the "+
				"wrong cause: %s", e.Worker, e.Grant, e.Err))
		}
	}
	return errors.Join(errs...)
}

// checkOverlap sweeps over the holds in the order in which they began: none may begin
// while an earlier one may still be trusted.
func checkOverlap(all []*grant) error {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *grant) int { return cmp.Compare(a.Return, b.Return) })
	var last *grant // the one that ends last
	for _, g := range all {
		if last != nil && g.end > g.Return && last.end > g.Return {
			return fmt.Errorf("two holders: %s until %d, and %s from %d on (%v too early)",
				last.Grant, last.end, g.Grant, g.Return, time.Duration(last.end-g.Return))
		}
		if last == nil || g.end > last.end {
			last = g
		}
	}
	return nil
}

// checkTokens wants a token for each grant that is above those of all grants that were
// returned before it was asked for.
func checkTokens(all []*grant) error {
	called := slices.Clone(all)
	slices.SortFunc(called, func(a, b *grant) int { return cmp.Compare(a.Call, b.Call) })
	returned := slices.Clone(all)
	slices.SortFunc(returned, func(a, b *grant) int { return cmp.Compare(a.Return, b.Return) })
	var highest *grant
	for _, g := range called {
		for len(returned) > 0 && returned[0].Return < g.Call {
			if highest == nil || returned[0].Token > highest.Token {
				highest = returned[0]
			}
			returned = returned[1:]
		}
		if highest != nil && g.Token <= highest.Token {
			return fmt.Errorf("token %d of grant %s is not above %d of grant %s, which was there "+
				"before",
				g.Token, g.Grant, highest.Token, highest.Grant)
		}
	}
	return nil
}

// checkFence follows the fenced number through the accesses, in the order in which the
// resource executed them: a token is accepted if and only if none above it was seen, and the
// number is the count of accepted writes.
func checkFence(events []Event) error {
	var fence uint64
	var value int64
	for _, e := range events {
		if (e.Op != Read && e.Op != Write) || e.Token == 0 {
			continue
		}
		if accept := e.Token >= fence; accept != e.OK {
			return fmt.Errorf("%s with token %d was accepted: %v, after token %d was seen", e.Op,
				e.Token, e.OK, fence)
		}
		if !e.OK {
			continue
		}
		fence = e.Token
		if e.Op == Write {
			value++
		}
		if e.Value != value {
			return fmt.Errorf("%s by grant %s of value %d, after %d accepted writes: an update "+
				"was lost", e.Op, e.Grant, e.Value, value)
		}
	}
	return nil
}

// The model of a fenced lock: what may happen, one thing at a time.
type (
	lockState struct {
		holder string
		token  uint64 // the last granted
		fence  uint64 // the highest the resource has seen
	}
	acquired struct{ grant *grant }
	ended    struct{ grant *grant }
	accessed struct{ event Event }
)

var fencedLock = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s := state.(lockState)
		switch in := input.(type) {
		case acquired:
			ok := s.holder == "" && in.grant.Token > s.token
			s.holder, s.token = in.grant.Grant, in.grant.Token
			return ok, s
		case ended:
			ok := s.holder == in.grant.Grant
			s.holder = ""
			return ok, s
		case accessed:
			// No one shows a token before it was granted, and a stale one is refused.
			ok := in.event.Token <= s.token && in.event.OK == (in.event.Token >= s.fence)
			s.fence = max(s.fence, in.event.Token)
			return ok, s
		}
		return false, s
	},
}

// checkLinearizable asks a linearizability checker whether the operations can be put in an
// order that the model allows and real time as well. A lock was acquired at some time
// between call and return, but before its validity was over, even if its worker was told
// later; a hold ended at any time after its worker stopped trusting it, but before Unlock returned.
//
// The checker's time grows faster than the history: 20 ms for a thousand holds, 9 s for
// twenty thousand. Long runs are made of many rounds.
func checkLinearizable(all []*grant, events []Event) error {
	return linearizable("fenced lock", fencedLock, all, events)
}

// linearizable asks whether the history can be that of the model, which is called what.
func linearizable(what string, model porcupine.Model, all []*grant, events []Event) error {
	ops := make([]porcupine.Operation, 0, 2*len(all)+len(events))
	for i, g := range all {
		ops = append(ops,
			porcupine.Operation{ClientId: 2 * i, Input: acquired{g}, Call: g.Call,
				Return: g.granted},
			porcupine.Operation{ClientId: 2*i + 1, Input: ended{g}, Call: g.end,
				Return: g.released})
	}
	for i, e := range events {
		if (e.Op == Read || e.Op == Write) && e.Token != 0 {
			ops = append(ops, porcupine.Operation{ClientId: 2*len(all) + i, Input: accessed{e},
				Call: e.Call, Return: e.Return})
		}
	}
	switch porcupine.CheckOperationsTimeout(model, ops, time.Minute) {
	case porcupine.Illegal:
		return errors.New("the history is not linearizable as a " + what)
	case porcupine.Unknown:
		return errors.New("the history is too long to be checked in a minute")
	}
	return nil
}
