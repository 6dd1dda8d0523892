package sim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
)

// The context of an operation ends at every event of a schedule in turn: at each command that is sent, and
// at each that is executed. lesson L12 lesson L20
func TestCancelAtEveryEvent(t *testing.T) {
	cancelled, granted := 0, 0
	schedules := 0
	for seed := *first; schedules < 12; seed++ {
		s := newSetup(seed, slow|lostReply|rates|mute)
		s.Few, s.Nodes, s.Clients = false, 3+2*int(seed%2), 2
		if s.expiry() != 2*time.Second || s.nodeTimeout() != 100*time.Millisecond {
			continue // nothing that is found in the end may have expired by itself
		}
		schedules++
		for k := 1; ; k++ {
			won, reached := cancelAt(t, s, k)
			if !reached {
				break
			}
			if cancelled++; won {
				granted++
			}
		}
	}
	t.Logf("%d cancellations, %d of them too late to matter", cancelled, granted)
	require.Greater(t, cancelled, 500)
}

// cancelAt runs a schedule in which a client waits for a lock that a rival holds, and cancels its
// context at the k-th event. It reports whether the lock was granted all the same, and whether there were k events.
func cancelAt(t *testing.T, s setup, k int) (won, reached bool) {
	h := newHistory(s)
	synctest.Test(t, func(t *testing.T) {
		h.start = time.Now()
		w := &world{history: h, nodes: sim.NewNodes(s.Nodes)}
		rival := &worker{client: w.newClient(0)}
		subject := &worker{client: w.newClient(1)}
		theirs := rival.rl.NewMutex("lock0", redlock.WithGenValueFunc(rival.gen))
		ours := subject.rl.NewMutex("lock0", redlock.WithGenValueFunc(subject.gen))
		locked := theirs.Lock() == nil
		time.AfterFunc(s.dice().between(0, 20*time.Millisecond, "rival"), func() {
			if locked {
				_, _ = theirs.Unlock()
			}
		})

		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		var at time.Duration
		events := 0
		event := func() {
			// The history's mutex is held.
			if events++; events == k {
				at, reached = h.now(), true
				stop(errImpatient)
			}
		}
		h.mu.Lock()
		h.event = event
		h.mu.Unlock()
		w.nodes.Log().Watch(h.watch)

		var err error
		if k%2 == 0 {
			err = ours.LockContext(ctx)
		} else {
			_, err = ours.Hold(ctx)
		}
		h.mu.Lock()
		h.event = nil
		took := h.now() - at
		h.mu.Unlock()
		switch {
		case err == nil:
			won = true
			_, _ = ours.Unlock()
		case !reached:
			t.Errorf("%s: without a cancellation: %v", s, err)
		default:
			if !errors.Is(err, context.Canceled) || !errors.Is(err, errImpatient) || !errors.Is(err, redlock.ErrFailed) {
				t.Errorf("%s: cancelled at event %d: %v", s, k, err)
			}
			if took > 0 {
				t.Errorf("%s: cancelled at event %d: returned %v later", s, k, took)
			}
		}

		// What is under way has landed, and has been taken back. (Not so if a command were executed twice or a
		// release answered with an error: what is left then expires.)
		time.Sleep(time.Second)
		for i, n := range w.nodes {
			if v := n.Value("lock0"); v != "" && plain(v) == plain(subject.last) {
				t.Errorf("%s: cancelled at event %d: node %d still holds %s", s, k, i, plain(v))
			}
		}
		subject.client.close()
		rival.client.close()
		time.Sleep(s.expiry())
		w.nodes.Close()
	})
	return won, reached
}
