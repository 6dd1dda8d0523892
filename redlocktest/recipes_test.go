package redlocktest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// report writes a report of 30 pages, a page a second, under a lock.
func report(ctx context.Context, locks *redlock.Redlock, write func(page int)) error {
	return locks.Do(ctx, "report", func(ctx context.Context) error {
		for page := range 30 {
			select {
			case <-time.After(time.Second): // the work
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			write(page)
		}
		return nil
	})
}

func TestRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		var pages atomic.Int64
		var replicas sync.WaitGroup
		for range 3 {
			locks := c.Redlock() // each replica has its own
			replicas.Go(func() {
				err := report(t.Context(), locks, func(int) { pages.Add(1) })
				if err != nil && !errors.Is(err, redlock.ErrTaken) {
					t.Error(err)
				}
			})
		}
		replicas.Wait()
		if n := pages.Load(); n != 30 {
			t.Errorf("%d pages written, want 30", n)
		}
		c.WantFree(t, "report")
	})
}

func TestStopsWhenTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		time.AfterFunc(10*time.Second, func() { c.Steal("report") })
		pages := 0
		if err := report(t.Context(), c.Redlock(), func(int) { pages++ }); err == nil ||
			pages > 18 {
			t.Errorf("%d pages written, and reported %v", pages, err)
		}
	})
}

func TestGoesOnWithTwoNodesDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 5)
		time.AfterFunc(10*time.Second, c.Node(0).Down)
		time.AfterFunc(20*time.Second, c.Node(3).Freeze)
		if err := report(t.Context(), c.Redlock(), func(int) {}); err != nil {
			t.Error(err)
		}
		c.WantFree(t, "report")
	})
}

func TestDoesNotStartWithoutAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 5)
		for i := range 3 {
			c.Node(i).Down()
		}
		err := report(t.Context(), c.Redlock(), func(page int) { t.Errorf("wrote page %d", page) })
		if !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
	})
}

// A store refuses the tokens of stale holders.
type store struct{ token uint64 }

func (s *store) write(token uint64) error {
	if token < s.token {
		return errors.New("stale fencing token")
	}
	s.token = token
	return nil
}

func TestAFencedWriteIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		var s store
		paused := c.Redlock(redlock.WithFencing()).NewMutex("report")
		next := c.Redlock(redlock.WithFencing()).NewMutex("report")
		if err := paused.Lock(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the lock has expired
		if err := next.Lock(); err != nil {
			t.Fatal(err)
		}
		if err := s.write(next.FencingToken()); err != nil {
			t.Error(err)
		}
		if err := s.write(paused.FencingToken()); err == nil {
			t.Error("the store accepts a stale token")
		}
	})
}

func TestWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		c.Take("report", 3*time.Second)
		start := time.Now()
		err := report(t.Context(), c.Redlock(), func(page int) {
			if page == 0 && time.Since(start) < 3*time.Second {
				t.Error("wrote while somebody else had the lock")
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestNeverWritesWithoutTheLock(t *testing.T) {
	redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		_ = report(t.Context(), c.Redlock(), func(page int) {
			if owner, held := c.Holder("report"); !held || owner == redlocktest.Other {
				t.Errorf("wrote page %d without the lock", page)
			}
		})
	}, redlocktest.Expired)
}

func TestNeverHidesALoss(t *testing.T) {
	redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		err := report(t.Context(), c.Redlock(), func(int) {})
		if owner, _ := c.Holder("report"); owner == redlocktest.Other && err == nil {
			t.Error("reports success, and had lost the lock")
		}
	}, redlocktest.Stolen)
}
