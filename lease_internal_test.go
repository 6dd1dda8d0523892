package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/pool"
)

// unused is a node that nobody asks.
type unused struct{}

func (unused) SetNX(context.Context, string, string, time.Duration) (bool, error) {
	panic("SetNX")
}

func (unused) Eval(context.Context, *pool.Script, []string, ...any) (any, error) { panic("Eval") }

// Each event in each state leads to the state that the drawing in lease.go shows. If the owner has
// relied on the lease until then, its hold and its end follow, once.
func TestEachEventInEachState(t *testing.T) {
	why := errors.New("why")
	events := []struct {
		name   string
		happen func(l *lease) effects
		to     map[state]state // no other state changes
		reason EndReason
	}{
		{"a renewal is due", func(l *lease) effects {
			return l.change(stateRenewing, "", nil)
		}, map[state]state{stateHeld: stateRenewing}, ""},
		{"a renewal is over", func(l *lease) effects {
			return l.change(stateHeld, "", nil)
		}, map[state]state{stateRenewing: stateHeld}, ""},
		{"WithMaxHold", func(l *lease) effects {
			return l.letGo(EndMaxHold, why)
		}, map[state]state{stateHeld: stateLetGo, stateRenewing: stateLetGo}, EndMaxHold},
		{"Close", func(l *lease) effects {
			l.m.mu.Unlock()
			defer l.m.mu.Lock()
			return l.closing()
		}, map[state]state{stateHeld: stateLetGo, stateRenewing: stateLetGo}, EndClosed},
		{"a loss", func(l *lease) effects {
			return l.lose(EndLost, &Error{reason: "lost: gone"})
		}, map[state]state{stateHeld: stateLost, stateRenewing: stateLost, stateLetGo: stateLost},
			EndLost},
		{"Unlock", func(l *lease) effects {
			return l.change(stateReleasing, EndReleased, ErrReleased)
		}, map[state]state{
			stateHeld: stateReleasing, stateRenewing: stateReleasing, stateLetGo: stateReleasing,
			stateLost: stateReleasing, stateUnreleased: stateReleasing,
		}, EndReleased},
		{"too few nodes have answered an Unlock", func(l *lease) effects {
			l.endUnlock(true)
			return effects{}
		}, map[state]state{stateReleasing: stateUnreleased}, ""},
		{"an Unlock is over", func(l *lease) effects {
			l.endUnlock(false)
			return effects{}
		}, map[state]state{stateReleasing: stateReleased}, ""},
	}
	for _, e := range events {
		for from := stateHeld; from <= stateReleased; from++ {
			for _, kept := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, in state %d, kept %t", e.name, from, kept),
					func(t *testing.T) {
						var ends []Ended
						rl := New(unused{}).With(WithEvents(&Events{
							End: func(e Ended) { ends = append(ends, e) },
						}))
						m := rl.NewMutex("x")
						l := newLease(m, "value")
						l.Began, l.state = time.Now(), from
						ctx, cancel := context.WithCancelCause(t.Context())
						h := &hold{l: l, cancel: cancel, timer: time.NewTimer(time.Hour)}
						require.True(t, m.core.holds.add(h))
						if kept {
							l.hold = h
						}

						m.mu.Lock()
						after := e.happen(l)
						m.mu.Unlock()
						require.NoError(t, ctx.Err(), "not under mu")
						after.run()
						m.tell.all()

						to, changes := e.to[from]
						if !changes {
							to = from
						}
						assert.Equal(t, to, l.state)
						ended := from.relied() && !to.relied()
						assert.Equal(t, ended && kept, ctx.Err() != nil)
						assert.Equal(t, !ended || !kept, h.timer.Stop(), "the timer runs")
						assert.Equal(t, changes && to == stateLost, l.loss != nil)
						registered := slices.Contains(m.core.holds.list(), h)
						assert.Equal(t, !ended || !kept || e.reason == EndClosed, registered)
						if !ended {
							assert.Empty(t, ends)
							return
						}
						require.Len(t, ends, 1)
						assert.Equal(t, e.reason, ends[0].Reason)
						if kept {
							assert.Equal(t, context.Cause(ctx), ends[0].Err)
							assert.Equal(t, e.reason == EndLost, errors.Is(ends[0].Err, ErrLost))
						}
					})
			}
		}
	}
}

// Nothing is added after close, and what is there stays until it is removed.
func TestHoldsAreClosed(t *testing.T) {
	hs, one, two, none := newHolds(), &hold{}, &hold{}, &hold{}
	assert.True(t, hs.add(one))
	assert.True(t, hs.add(two))
	assert.ElementsMatch(t, []*hold{one, two}, hs.list())
	hs.remove(one)
	hs.remove(none) // is not there
	assert.Len(t, hs.list(), 1)

	assert.False(t, hs.isClosed())
	assert.True(t, hs.close())
	<-hs.ended()
	assert.True(t, hs.isClosed())
	assert.False(t, hs.close())
	assert.False(t, hs.add(none))
	assert.Len(t, hs.list(), 1)
	hs.remove(two)
	assert.Empty(t, hs.list())
}

// Whatever was added before close is listed after it: nothing slips in between.
func TestNoHoldIsAddedBehindClose(t *testing.T) {
	for range 100 {
		hs := newHolds()
		var some [8]*hold
		added := make([]bool, len(some))
		var all sync.WaitGroup
		for i := range some {
			some[i] = &hold{}
			all.Go(func() { added[i] = hs.add(some[i]) })
		}
		hs.close()
		seen := hs.list()
		all.Wait()
		for i, ok := range added {
			assert.Equal(t, ok, slices.Contains(seen, some[i]))
		}
	}
}
