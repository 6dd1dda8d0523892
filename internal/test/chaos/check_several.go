package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// CheckSeveral is Check for a history in which readers share a lock, and other locks are slots: no
// reader holds the lock beside a writer, each slot has one holder at a time, and no more than there
// are permits are held. A token is greater than that of those before whom the lock excludes.
func CheckSeveral(events []Event) error {
	all, err := grants(events)
	if err != nil {
		return err
	}
	var shared, held []*grant
	byName := map[string][]*grant{}
	for _, g := range all {
		if g.Name == lockName {
			shared = append(shared, g)
		} else {
			held = append(held, g)
			byName[g.Name] = append(byName[g.Name], g)
		}
	}
	errs := []error{checkBeside(shared), checkRegister(shared, events), checkSemaphore(held)}
	for _, one := range byName {
		errs = append(errs, checkOverlap(one), checkTokens(one))
	}
	return errors.Join(errs...)
}

// checkBeside wants no two to trust the lock at a time unless they share it, and the tokens of
// those who exclude each other in their order.
func checkBeside(all []*grant) error {
	for _, a := range all {
		for _, b := range all {
			switch {
			case a == b || a.Shared && b.Shared:
			case a.Return <= b.Return && b.Return < min(a.end, b.end):
				return fmt.Errorf("two holders: %s until %d, and %s from %d on (%v too early)",
					a.Grant, a.end, b.Grant, b.Return, time.Duration(a.end-b.Return))
			case a.Return < b.Call && a.Token >= b.Token:
				return fmt.Errorf("token %d of grant %s is not above %d of grant %s, which was "+
					"there before", b.Token, b.Grant, a.Token, a.Grant)
			}
		}
	}
	return nil
}

// members is a set of grants, as a value that can be compared.
type members string

func (m members) list() []string { return strings.Fields(string(m)) }

func (m members) with(grant string) members {
	all := append(m.list(), grant)
	slices.Sort(all)
	return members(strings.Join(all, " "))
}

// without returns the set without a grant, and whether it was there.
func (m members) without(grant string) (members, bool) {
	all := m.list()
	rest := slices.DeleteFunc(slices.Clone(all), func(g string) bool { return g == grant })
	return members(strings.Join(rest, " ")), len(rest) < len(all)
}

// registerState is that of a number under a lock that readers share. Token is the last one of a
// writer, and top the greatest of all.
type registerState struct {
	writer            string
	readers           members
	token, top, fence uint64
	value             int64
}

// register is the model of the number: nobody reads beside a writer, and who reads finds what was
// written last. A reader's token is compared, and claims nothing.
var register = porcupine.Model{
	Init: func() any { return registerState{} },
	Step: func(state, input, _ any) (ok bool, next any) {
		s := state.(registerState)
		switch in := input.(type) {
		case acquired:
			g := in.grant
			if g.Shared {
				ok = s.writer == "" && g.Token > s.token
				s.readers = s.readers.with(g.Grant)
			} else {
				ok = s.writer == "" && s.readers == "" && g.Token > s.top
				s.writer, s.token = g.Grant, g.Token
			}
			s.top = max(s.top, g.Token)
		case ended:
			if in.grant.Shared {
				s.readers, ok = s.readers.without(in.grant.Grant)
			} else {
				ok = s.writer == in.grant.Grant
				s.writer = ""
			}
		case accessed:
			e := in.event
			ok = e.Token <= s.top && e.OK == (e.Token >= s.fence)
			if e.OK && !e.Shared {
				s.fence = e.Token
			}
			if e.OK && e.Op == Write {
				s.value++
			}
			ok = ok && (!e.OK || e.Value == s.value)
		}
		return ok, s
	},
}

// semaphore is the model of the slots together.
var semaphore = porcupine.Model{
	Init: func() any { return members("") },
	Step: func(state, input, _ any) (ok bool, next any) {
		s := state.(members)
		switch in := input.(type) {
		case acquired:
			return len(s.list()) < permits, s.with(in.grant.Grant)
		case ended:
			s, ok = s.without(in.grant.Grant)
		}
		return ok, s
	},
}

// checkRegister asks a linearizability checker about the readers and writers of the number.
func checkRegister(all []*grant, events []Event) error {
	return linearizable("register under readers and writers", register, all, events)
}

// checkSemaphore asks a linearizability checker about the holders of slots.
func checkSemaphore(all []*grant) error { return linearizable("semaphore", semaphore, all, nil) }
