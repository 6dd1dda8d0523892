package lease

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/test/sim"
)

// Each event in each state leads to the state that the drawing in lease.go shows. If the owner has
// relied on the lease until then, its end follows, once; so does that of the one who keeps it.
func TestEachEventInEachState(t *testing.T) {
	why := failed(Expired, "lost: gone")
	events := []struct {
		name   string
		happen func(l *Lease) Effects
		to     map[State]State // no other state changes
		reason EndReason
	}{
		{"a renewal is due", func(l *Lease) Effects {
			return l.Change(StateRenewing, "", nil)
		}, map[State]State{StateHeld: StateRenewing}, ""},
		{"a renewal is over", func(l *Lease) Effects {
			return l.Change(StateHeld, "", nil)
		}, map[State]State{StateRenewing: StateHeld}, ""},
		{"WithMaxHold", func(l *Lease) Effects {
			return l.LetGo(EndMaxHold, why)
		}, map[State]State{StateHeld: StateLetGo, StateRenewing: StateLetGo}, EndMaxHold},
		{"Close", func(l *Lease) Effects {
			l.lock.Mu.Unlock()
			defer l.lock.Mu.Lock()
			return l.Closing()
		}, map[State]State{StateHeld: StateLetGo, StateRenewing: StateLetGo}, EndClosed},
		{"a loss", func(l *Lease) Effects {
			return l.Lose(EndLost, why)
		}, map[State]State{StateHeld: StateLost, StateRenewing: StateLost, StateLetGo: StateLost},
			EndLost},
		{"Unlock", func(l *Lease) Effects {
			return l.releasing(EndReleased)
		}, map[State]State{
			StateHeld: StateReleasing, StateRenewing: StateReleasing, StateLetGo: StateReleasing,
			StateLost: StateReleasing, StateUnreleased: StateReleasing,
		}, EndReleased},
		{"too few nodes have answered an Unlock", func(l *Lease) Effects {
			l.endUnlock(true)
			return Effects{}
		}, map[State]State{StateReleasing: StateUnreleased}, ""},
		{"an Unlock is over", func(l *Lease) Effects {
			l.endUnlock(false)
			return Effects{}
		}, map[State]State{StateReleasing: StateReleased}, ""},
	}
	for _, e := range events {
		for from := StateHeld; from <= StateReleased; from++ {
			for _, kept := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, in state %d, kept %t", e.name, from, kept),
					func(t *testing.T) {
						var told []*Failure
						cause := errors.New("cause")
						ended := func(_ *Lease, r EndReason, why *Failure) error {
							assert.Equal(t, e.reason, r)
							told = append(told, why)
							return cause
						}
						k := &Lock{Ender: enderFunc(ended)}
						l := &Lease{lock: k}
						ends := 0
						if kept {
							k.Mu.Lock()
							assert.True(t, l.Keep(func(r EndReason, err error) {
								ends++
								assert.Equal(t, e.reason, r)
								assert.Equal(t, cause, err)
							}))
							k.Mu.Unlock()
						}
						l.State = from

						k.Mu.Lock()
						after := e.happen(l)
						k.Mu.Unlock()
						assert.Zero(t, ends, "not under Mu")
						after.Run()

						to, changes := e.to[from]
						if !changes {
							to = from
						}
						assert.Equal(t, to, l.State)
						assert.Equal(t, changes && to == StateLost, l.Loss != nil)
						if !from.relied() || to.relied() {
							assert.Empty(t, told)
							assert.Zero(t, ends)
							return
						}
						assert.Len(t, told, 1)
						assert.Equal(t, kept, ends == 1)
						if e.reason == EndLost {
							assert.Equal(t, kept, told[0].Kind&Lost != 0)
							assert.Equal(t, "gone", told[0].Reason)
						}
						assert.Equal(t, "lost: gone", why.Reason, "it is not changed")
					})
			}
		}
	}
}

// The life of a lease, without anybody who is told of it.
func TestALeasesLife(t *testing.T) {
	with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, k *Lock, _ func(string) *Lease) {
		l, f := k.Get(t.Context(), 1, nil)
		assert.Nil(t, f)
		assert.Same(t, l, k.Current())
		time.Sleep(100 * time.Millisecond)
		until := l.Until
		_, f = l.Extend(t.Context(), k.NodeTimeout, nil)
		assert.Nil(t, f)
		assert.Equal(t, 100*time.Millisecond, l.Until.Sub(until))
		assert.Nil(t, l.Valid(t.Context()))

		_, f = k.Get(t.Context(), 1, nil)
		assert.Equal(t, Taken, f.Kind)
		time.Sleep(100 * time.Millisecond) // all nodes have answered
		nodes[0].Set("x", "other", 0)
		nodes[1].Delete("x")
		f = l.Valid(t.Context())
		assert.Equal(t, Expired, f.Kind)
		assert.Equal(t, "lost: gone on 2 of 3 nodes", f.Reason)
		assert.Len(t, f.Outcomes, 3)
		assert.Equal(t, StateLost, l.State)
		_, f = l.Extend(t.Context(), k.NodeTimeout, nil)
		assert.Equal(t, "lost before: gone on 2 of 3 nodes", f.Reason)

		f = l.Unlock(t.Context(), false, nil)
		assert.Equal(t, Expired, f.Kind)
		assert.Equal(t, NotHeld, l.Unlock(t.Context(), false, nil).Kind)
		assert.NotSame(t, l, k.Current())
	})
}

// A lease that is handed off is adopted once, and its old value counts no more.
func TestHandOff(t *testing.T) {
	with(t, 3, Options{}, func(t *testing.T, nodes sim.Nodes, k *Lock, _ func(string) *Lease) {
		l, f := k.Get(t.Context(), 1, nil)
		assert.Nil(t, f)
		assert.Nil(t, l.HandOff())
		assert.Equal(t, NotHeld, l.HandOff().Kind)
		h, ok := ParseHandoff(Handoff{[]byte("x"), []byte(l.Value)}.String())
		assert.True(t, ok)
		assert.Equal(t, Handoff{[]byte("x"), []byte(l.Value)}, h)
		next, f := k.Adopt(t.Context(), string(h.Value), nil)
		assert.Nil(t, f)
		assert.Same(t, next, k.Current())
		time.Sleep(time.Second / 4)
		assert.Equal(t, []string{next.Value, next.Value, next.Value}, nodes.Values("x"))
		assert.Nil(t, next.Unlock(t.Context(), false, nil))
		_, f = k.Adopt(t.Context(), string(h.Value), nil)
		assert.Equal(t, Expired, f.Kind)
		assert.Regexp(t, // a quorum has answered by then, or all
			"^gone on [23] of 3 nodes: it has expired, or was adopted before$", f.Reason)
	})
}

// The end of a lease counts also where nobody has noted it, because the process stood still.
func TestALeaseThatIsOverIsLost(t *testing.T) {
	now := time.Now()
	s := Standing{Until: now}
	assert.Nil(t, s.past(now.Add(-time.Millisecond)))
	assert.Equal(t, "expired 2s ago", s.past(now.Add(2*time.Second)).Reason)
	assert.Equal(t, Expired, s.past(now).Kind)
	s.State = StateReleased
	assert.Nil(t, s.past(now))
}

// enderFunc is an Ender that calls the function.
type enderFunc func(*Lease, EndReason, *Failure) error

func (f enderFunc) Ended(l *Lease, reason EndReason, why *Failure) error {
	return f(l, reason, why)
}
