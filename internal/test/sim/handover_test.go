package sim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
)

// parcel is a lock on its way from one worker to another. The history's mutex guards it.
type parcel struct {
	handoff string
	from    *lease
	at      time.Duration // of the handoff
	until   time.Duration // of the lease at that time
	asked   int           // how many have wanted it
	heirs   int           // how many have got it
}

// invariantHandOver is the name of what this file checks.
const invariantHandOver = "I21 succession"

// handOff hands the lock off, in a schedule of hand-overs. It reports whether it did.
func (w *worker) handOff(m *redlock.Mutex, l *lease, held context.Context) bool {
	if !w.Relay || !w.chance(0.6, "hand off") {
		return false
	}
	called, until := w.now(), w.clock.truly(m.Until())
	over := held != nil && held.Err() != nil || called >= min(until, l.until())
	l.end(called)
	handoff, err := m.Handoff()
	w.note("%s Handoff %s: %v", w, l.name, kinds(err))
	if took := w.now() - called; took > time.Millisecond {
		w.violate("I12 bounded", "%s Handoff took %v", w, took)
	}
	if err != nil {
		if !errors.Is(err, redlock.ErrExpired) || !over && !w.provenLost(l.value) {
			w.violate("I13 errors", "%s: Handoff: %v", w, err)
		}
		return false
	}
	w.end(l.value)
	if held != nil && held.Err() == nil || !m.Until().IsZero() || m.Value() != "" {
		w.violate(invariantHandOver, "%s still has %s after Handoff", w, l.name)
	}
	w.reached("handed off")
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	w.handed[plain(l.value)] = true
	w.parcels = append(w.parcels, &parcel{handoff: handoff, from: l, at: called, until: until})
	return true
}

// parcel returns a lock of that name that was handed off, for the worker to adopt: one that nobody
// has adopted, or now and then an older one.
func (w *worker) parcel(name string) *parcel {
	if !w.Relay || !w.chance(0.8, "adopt") {
		return nil
	}
	thief := w.chance(0.2, "thief")
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for i := len(w.parcels) - 1; i >= 0; i-- {
		if p := w.parcels[i]; p.from.name == name && (p.asked == 0 || thief) {
			p.asked++
			return p
		}
	}
	return nil
}

// adopted notes that the worker has adopted a lock, and its lease.
func (w *worker) adopted(p *parcel, l *lease) {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	if p.heirs++; p.heirs > 1 {
		w.violated(invariantHandOver, "%s is the second heir of %s", w, plain(p.from.value))
	}
	l.after = p
	w.sometimes["adopted"]++
	if l.from >= p.until {
		w.sometimes["adopted after its end"]++
	}
}

// notAdopted checks what a failed Adopt says and leaves.
func (w *worker) notAdopted(ctx context.Context, p *parcel, m *redlock.Mutex, err error,
	called time.Duration) {
	bad := func(why string) { w.violate("I13 errors", "%s Adopt: %s: %v", w, why, err) }
	count := func(f func(nodeRecord) bool) int { return w.count(w.last, f) }
	gone := count(func(n nodeRecord) bool { return n.gone != 0 })
	switch {
	case !errors.Is(err, redlock.ErrFailed):
		bad("is not ErrFailed")
	case errors.Is(err, context.Canceled):
		if ctx.Err() == nil {
			bad("the context has not ended")
		}
		w.reached("adopt cancelled")
	case errors.Is(err, redlock.ErrExpired):
		granted := count(func(n nodeRecord) bool { return n.granted != 0 })
		late := w.began.Add(w.expiry() - w.drift()).Sub(w.clock.Now())
		if gone < w.blocking() && (granted < w.quorum() || late > 0 && !w.guarded()) {
			bad("the nodes had it")
		}
		w.reached("adopted too late, or twice")
	case errors.Is(err, redlock.ErrNoQuorum):
		if w.calm() && w.Faults&^(rates|skew|mute) == 0 {
			bad("every node answered")
		}
		w.reached("adopt without a quorum")
	default:
		bad("says no reason")
	}
	w.history.mu.Lock()
	alone := p.asked == 1
	w.history.mu.Unlock()
	if w.solid(p.from, called) && alone && ctx.Err() == nil && w.now() < p.until {
		w.violate("I12 bounded", "%s Adopt: %v", w, err)
	}
	if took := w.now() - called; took > 2*w.nodeTimeout()+time.Millisecond {
		w.violate("I12 bounded", "%s Adopt took %v", w, took)
	}
	if !m.Until().IsZero() || m.Value() != "" || m.FencingToken() != 0 {
		bad("the mutex looks locked")
	}
}

// checkHandOvers looks for somebody who had a lock between its handoff and its adoption, if that
// was before the end of the lease. The leases are those of one name.
func (h *history) checkHandOvers(leases []*lease) {
	for _, l := range leases {
		if l.after == nil || l.from >= l.after.until {
			continue
		}
		for _, o := range leases {
			if o.from > l.after.at && o.from < l.from {
				h.violated(invariantHandOver, "%q: %s had it from %v, between its handoff at %v "+
					"and its adoption at %v", l.name, o.owner, o.from, l.after.at, l.from)
			}
		}
	}
}

// A lock that is handed over stays one lock: it has one holder at a time and one heir, nobody has
// it in between, its old holder sends nothing more, and its tokens rise.
func TestSchedulesOfHandOvers(t *testing.T) {
	r := campaign(t, 25, func(seed uint64) setup {
		s := newSetup(seed, inModel)
		s.Relay, s.Cycles = true, s.Cycles+3
		return s
	}, nil)
	r.saw(t, "handed off", "adopted", "adopted too late, or twice", "adopt without a quorum",
		"renewed", "zombie SET", "heal", "raise round", "restart guard refused")
	r.sawStrike(t, strikes)
	if r.schedules >= r.least {
		assert.Greater(t, r.states["adopted"], r.states["handed off"]/4)
	}
}

// A schedule of hand-overs is printed as such, and read again.
func TestScheduleOfHandOversAsText(t *testing.T) {
	s := newSetup(7, inModel)
	require.NotContains(t, s.String(), "relay")
	s.Relay = true
	again, err := parseSetup(s.String())
	require.NoError(t, err)
	require.Equal(t, s, again)
}
