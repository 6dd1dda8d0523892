package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// operations are those whose contexts end in TestCancelAtEveryEvent.
var operations = []string{"Lock", "TryLock", "Hold", "Do", "Extend", "Valid", "Unlock"}

// The context of an operation ends at every event of a schedule in turn: at each command that is
// sent, and at each that is executed. lesson L12
func TestCancelAtEveryEvent(t *testing.T) {
	states := make(map[string]int)
	begun, done := time.Now(), 0
	defer func() {
		t.Logf("%d schedules in %v", done, time.Since(begun).Round(time.Millisecond))
	}()
	for seed := *first; done < schedules(3); seed++ {
		s := newSetup(seed, slow|lostReply|rates|mute)
		s.Few, s.Nodes, s.Clients = false, 3+2*int(seed%2), 2
		if s.expiry() != 2*time.Second || s.nodeTimeout() != 100*time.Millisecond {
			continue // nothing that is found in the end may have expired by itself
		}
		done++
		for _, s.Op = range operations {
			s.Cancel = 0
			for reached := true; reached; {
				s.Cancel++
				h := run(t, s, false)
				if len(h.violations) > 0 {
					t.Fatal(h.verdict())
				}
				for state, n := range h.sometimes {
					states[state] += n
				}
				reached = h.sometimes["cancelled during "+s.Op] > 0
			}
		}
	}
	for _, op := range operations {
		t.Logf("%s: %d cancellations, %d of them too late to matter", op,
			states["cancelled during "+op], states["too late for "+op])
		assert.NotZero(t, states["cancelled during "+op], op)
	}
	assert.NotZero(t, states["cancelled while the function runs"])
	assert.Equal(t, states["cancelled during Unlock"], states["too late for Unlock"],
		"Unlock does not end with its context")
}

// playCancelled lets a client do the operation of the schedule, after it has waited for a lock
// that a rival holds if there is something to wait for, and ends the operation's context at the
// event whose number the schedule gives.
func (w *world) playCancelled() {
	const name = "lock0"
	rival, subject := &worker{client: w.newClient(0)}, &worker{client: w.newClient(1)}
	theirs := rival.rl.NewMutex(name, redlock.WithGenValueFunc(rival.gen))
	ours := subject.rl.NewMutex(name, redlock.WithGenValueFunc(subject.gen))
	begin := func(wk *worker, m *redlock.Mutex) *lease {
		return w.begin(wk.String(), name, m.Value(), m.FencingToken(), wk.clock.truly(m.Until()))
	}

	var l *lease // of the subject
	released := make(chan struct{})
	switch w.Op {
	case "Lock", "Hold", "Do":
		if theirs.Lock() == nil {
			l := begin(rival, theirs)
			time.AfterFunc(w.dice().between(0, 20*time.Millisecond, "rival"), func() {
				defer close(released)
				l.end(w.now())
				_, _ = theirs.Unlock()
			})
			break
		}
		fallthrough
	default:
		close(released)
	}
	if w.Op == "Extend" || w.Op == "Valid" || w.Op == "Unlock" {
		if err := ours.Lock(); err != nil {
			w.violate("I9 liveness", "%v", err)
			return
		}
		l = begin(subject, ours)
	}
	until := ours.Until()

	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	at, events := time.Duration(-1), 0 // of the cancellation; guarded by the history's mutex
	w.mu.Lock()
	w.event = func() {
		if events++; events == w.Cancel {
			at = w.now()
			stop(errImpatient)
		}
	}
	w.mu.Unlock()
	cancelled := func() (late time.Duration, reached bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now() - at, at >= 0
	}

	worked := false
	var fnErr, err error
	switch w.Op {
	case "Lock":
		err = ours.LockContext(ctx)
	case "TryLock":
		err = ours.TryLockContext(ctx)
	case "Hold":
		_, err = ours.Hold(ctx)
	case "Do":
		err = subject.rl.Do(ctx, name, func(held context.Context) error {
			worked = true
			l := w.begin(subject.String(), name, subject.last, redlock.FencingToken(held), forever)
			select {
			case <-held.Done():
				if late, reached := cancelled(); late > 0 || !reached {
					w.violate("I17 promptness", "cancelled: %v; the held context ended %v later",
						reached, late)
				}
				w.reached("cancelled while the function runs")
			case <-time.After(w.expiry() + w.expiry()/4): // some renewals
			}
			l.end(w.now())
			fnErr = context.Cause(held)
			return fnErr
		}, redlock.WithGenValueFunc(subject.gen))
	case "Extend":
		_, err = ours.ExtendContext(ctx)
	case "Valid":
		_, err = ours.ValidContext(ctx)
	case "Unlock":
		l.end(w.now())
		_, err = ours.UnlockContext(ctx)
	}
	late, reached := cancelled()
	w.mu.Lock()
	w.event = nil
	w.mu.Unlock()
	w.note("%s: %v", w.Op, kinds(err))

	locks := w.Op == "Lock" || w.Op == "TryLock" || w.Op == "Hold" || w.Op == "Do" && !worked
	ended := errors.Is(err, context.Canceled) || errors.Is(err, errImpatient)
	switch {
	case !reached:
		if ended || err != nil && locks && w.Op != "TryLock" {
			w.violate("I13 errors", "without a cancellation: %v", err)
		}
	case w.Op == "Unlock":
		if ended {
			w.violate("I13 errors", "%v", err)
		}
		w.reached("too late for Unlock")
	case worked:
		if ended != errors.Is(fnErr, errImpatient) {
			w.violate("I13 errors", "%v, though that of the function is %v", err, fnErr)
		}
		if late > w.nodeTimeout()+time.Millisecond {
			w.violate("I17 promptness", "returned %v after the cancellation", late)
		}
	case err == nil:
		w.reached("too late for " + w.Op)
	default:
		if !errors.Is(err, context.Canceled) || !errors.Is(err, errImpatient) ||
			errors.Is(err, redlock.ErrFailed) != locks {
			w.violate("I13 errors", "%v", err)
		}
		if late > 0 {
			w.violate("I17 promptness", "returned %v after the cancellation", late)
		}
		if !ours.Until().Equal(until) {
			w.violate("I13 errors", "until was %v, and is %v", until.Sub(w.start),
				ours.Until().Sub(w.start))
		}
	}
	if reached {
		w.reached("cancelled during " + w.Op)
	}

	switch {
	case w.Op == "Do" || w.Op == "Unlock":
	case err == nil && locks:
		l = begin(subject, ours)
		fallthrough
	case !locks:
		// It is held as before, or extended.
		if ours.Value() == "" {
			w.violate("I6 continuity", "%s: the mutex is not locked any more: %v", w.Op, err)
		}
		l.end(w.now())
		_, _ = ours.Unlock()
	}
	// A goroutine that was about to send at the very moment of the cancellation may do so; the
	// release follows it.
	time.Sleep(time.Nanosecond)
	subject.end(subject.values...)

	// What is under way has landed, and has been taken back. (Not so if a command were executed
	// twice or a release answered with an error: what is left then expires.)
	<-released
	time.Sleep(time.Second)
	for i, n := range w.nodes {
		if v := n.Value(name); strings.HasPrefix(v, subject.String()) {
			w.violate("I8 no leaks", "node %d still holds %s", i, plain(v))
		}
	}
	subject.close()
	rival.close()
	time.Sleep(w.expiry())
	w.nodes.Close()
}

// The same at every moment at which the library looks at the clock, one of which is after the
// vote that decides and before the return: then the lock is held, or nothing of it is left.
// lesson L20
func TestCancelAtEveryLookAtTheClock(t *testing.T) {
	for _, op := range operations[:6] { // all but Unlock, which does not look
		for _, fencing := range []bool{false, true} {
			looks, late := 0, 0
			for more := true; more; {
				looks++
				what := fmt.Sprintf("%s, fencing %v, cancelled at look %d", op, fencing, looks)
				bubble(t, what, func(t *testing.T) {
					var won bool
					won, more = cancelAtLook(t, what, op, fencing, looks)
					if won && more {
						late++
					}
				})
			}
			t.Logf("%s, fencing %v: %d cancellations, %d of them too late to matter", op, fencing,
				looks-1, late)
			assert.NotZero(t, late, "%s: never after the vote", op)
		}
	}
}

// lookingPool tells when the library looks at the clock.
type lookingPool struct {
	pool.Pool
	look func()
}

func (p lookingPool) Clock() clock.Own {
	return clock.Own{Now: func() time.Time { p.look(); return time.Now() }}
}

// cancelAtLook ends the context of an operation when the library looks at the clock for the k-th
// time. It reports whether the operation succeeded, and whether there were k looks.
func cancelAtLook(t *testing.T, what, op string, fencing bool, k int) (won, reached bool) {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	var looks, counting atomic.Int64
	look := func() {
		if counting.Load() == 1 && looks.Add(1) == int64(k) {
			stop(errImpatient)
		}
	}
	nodes := sim.NewNodes(3)
	pools := nodes.Pools("a")
	for i, p := range pools {
		p.(*sim.Link).Plan(func(sim.Op) sim.Fate {
			return sim.Slow(time.Duration(i+1) * time.Millisecond)
		})
		pools[i] = lookingPool{p, look}
	}
	rl := redlock.New(pools...).With(redlock.WithExpiry(time.Minute))
	if fencing {
		rl = rl.With(redlock.WithFencing())
	}
	m := rl.NewMutex("k")
	asks := op == "Extend" || op == "Valid"
	if asks {
		require.NoError(t, m.Lock(), what)
	}

	counting.Store(1)
	var err error
	switch op {
	case "Lock":
		err = m.LockContext(ctx)
	case "TryLock":
		err = m.TryLockContext(ctx)
	case "Hold":
		_, err = m.Hold(ctx)
	case "Do":
		err = rl.Do(ctx, "k", func(context.Context) error { counting.Store(0); return nil })
	case "Extend":
		_, err = m.ExtendContext(ctx)
	case "Valid":
		_, err = m.ValidContext(ctx)
	}
	counting.Store(0)
	won, reached = err == nil, looks.Load() >= int64(k)
	if !won {
		require.True(t, reached, "%s: %v", what, err)
		require.ErrorIs(t, err, context.Canceled, what)
		require.ErrorIs(t, err, errImpatient, what)
		require.Equal(t, !asks, errors.Is(err, redlock.ErrFailed), "%s: %v", what, err)
	}
	if asks || won && op != "Do" {
		_, err := m.Valid()
		require.NoError(t, err, what)
		_, err = m.Unlock()
		require.NoError(t, err, what)
	} else {
		require.Empty(t, m.Value(), what)
	}
	time.Sleep(time.Second) // what is under way lands, and nothing has expired
	require.Equal(t, make([]string, len(nodes)), nodes.Values("k"), what)
	require.NoError(t, rl.Close())
	return won, reached
}
