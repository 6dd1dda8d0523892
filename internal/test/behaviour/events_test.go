package behaviour_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// lastTold is what was told last of each kind.
type lastTold struct {
	redlock.Acquired
	redlock.Extended
	redlock.Released
	redlock.Overrun
}

// diary notes what Events tell, a line each, and the ends of locks as they are.
type diary struct {
	mu       sync.Mutex
	lines    []string
	lastTold lastTold
	endsTold []redlock.Ended
	lostTold []redlock.Ended
	hook     func(line string) // called for each line, without mu
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	line := fmt.Sprintf(format, args...)
	d.lines = append(d.lines, line)
	hook := d.hook
	d.mu.Unlock()
	if hook != nil {
		hook(line)
	}
}

func (d *diary) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// listen lets hook hear of each line.
func (d *diary) listen(hook func(line string)) { d.set(func() { d.hook = hook }) }

// last returns what was told last of each kind.
func (d *diary) last() (last lastTold) {
	d.set(func() { last = d.lastTold })
	return last
}

// ends returns the ends that were told.
func (d *diary) ends() (all []redlock.Ended) {
	d.set(func() { all = slices.Clone(d.endsTold) })
	return all
}

// lost returns the losses that were told.
func (d *diary) lost() (all []redlock.Ended) {
	d.set(func() { all = slices.Clone(d.lostTold) })
	return all
}

// take returns the lines and forgets them.
func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) events() *redlock.Events {
	return &redlock.Events{
		Acquire: func(ctx context.Context, a redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			d.note("acquire %s", a.Name)
			return ctx, func(a redlock.Acquired) {
				d.set(func() { d.lastTold.Acquired = a })
				d.note("acquired %s", a.Outcome)
			}
		},
		Extend: func(ctx context.Context, e redlock.Extending) (context.Context,
			func(redlock.Extended)) {
			d.note("extend")
			return ctx, func(e redlock.Extended) {
				d.set(func() { d.lastTold.Extended = e })
				d.note("extended %s", e.Outcome)
			}
		},
		Release: func(ctx context.Context, r redlock.Releasing) (context.Context,
			func(redlock.Released)) {
			d.note("release")
			return ctx, func(r redlock.Released) {
				d.set(func() { d.lastTold.Released = r })
				d.note("released %s", r.Outcome)
			}
		},
		End: func(e redlock.Ended) {
			d.set(func() { d.endsTold = append(d.endsTold, e) })
			d.note("end %s", e.Reason)
		},
		Lost: func(e redlock.Ended) {
			d.set(func() { d.lostTold = append(d.lostTold, e) })
			d.note("lost %s", e.Reason)
		},
		Overrun: func(o redlock.Overrun) {
			d.set(func() { d.lastTold.Overrun = o })
			d.note("overrun in %s", o.Operation)
		},
		NoQuorum: func(f redlock.Failure) { d.note("no quorum in %s", f.Operation) },
	}
}

// told is a bubble whose locks are told of in a diary.
func told(t *testing.T, n int, f func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary),
	opts ...redlock.Option) {
	t.Helper()
	d := &diary{}
	bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) { f(t, nodes, rl, d) },
		append(opts, redlock.WithEvents(d.events()))...)
}

func TestEventsTellOfALockFromItsBeginningToItsEnd(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			told(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
				all(nodes, sim.Slow(10*time.Millisecond))
				m := rl.NewMutex("x", redlock.WithFencing(), redlock.WithKeyPrefix("app:"))
				begin := time.Now()
				for name, lock := range map[string]func() error{"Lock": m.Lock,
					"TryLock": m.TryLock} {
					require.NoError(t, lock())
					assert.Equal(t, []string{"acquire x", "acquired ok"}, d.take(), name)
					a := d.last().Acquired
					assert.Equal(t, "app:x", a.Key)
					assert.Equal(t, name == "TryLock", a.Tries == 1)
					assert.True(t, a.Fencing)
					assert.Equal(t, m.FencingToken(), a.Token)
					assert.Equal(t, m.Until(), a.Until)
					assert.Equal(t, 1, a.Attempts)
					assert.False(t, a.Queued || a.Raised)
					assert.Zero(t, a.Waited)
					assert.Equal(t, 10*time.Millisecond, a.Took)

					time.Sleep(time.Second)
					_, err := m.Extend()
					require.NoError(t, err)
					assert.Equal(t, []string{"extend", "extended ok"}, d.take())
					x := d.last().Extended
					assert.Equal(t, m.Until(), x.Until)
					assert.Equal(t, 10*time.Millisecond, x.Took)
					assert.Equal(t, time.Until(a.Until), x.Left, "what was left without it")
					assert.False(t, x.Renewal)

					mustUnlock(t, m)
					assert.Equal(t, []string{"release", "end released", "released ok"}, d.take())
					assert.Equal(t, a.Token, d.last().Released.Token)
					end := d.ends()[len(d.ends())-1]
					assert.Equal(t, a.Token, end.Token)
					assert.Equal(t, time.Second+20*time.Millisecond, end.Held)
					assert.ErrorIs(t, end.Err, redlock.ErrReleased)
				}
				assert.Equal(t, 2*(time.Second+30*time.Millisecond), time.Since(begin))
				_, err := m.Unlock()
				require.ErrorIs(t, err, redlock.ErrNotHeld)
				_, err = m.Extend()
				require.ErrorIs(t, err, redlock.ErrNotHeld)
				assert.Equal(t, []string{"release", "released not_held", "extend",
					"extended not_held"}, d.take())

				require.NoError(t, rl.Do(t.Context(), "x",
					func(context.Context) error { return nil }))
				assert.Equal(t, []string{"acquire x", "acquired ok", "release", "end released",
					"released ok"},
					d.take())
				assert.Empty(t, d.lost())
			})
		})
	}
}

// Each call that fails ends what it has begun: no span stays open.
func TestEventsTellWhyALockWasNotGranted(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		try := func(opts ...redlock.Option) error {
			d.take()
			return rl.NewMutex("x", opts...).TryLock()
		}
		holder := rl.NewMutex("x")
		require.NoError(t, holder.Lock())
		err := try()
		require.ErrorIs(t, err, redlock.ErrTaken)
		assert.Equal(t, []string{"acquire x", "acquired taken"}, d.take())
		assert.Equal(t, err, d.last().Acquired.Err)
		assert.Zero(t, d.last().Acquired.Until)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = rl.NewMutex("x", redlock.WithTries(redlock.Unlimited)).LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, []string{"acquire x", "acquired cancelled"}, d.take())
		assert.True(t, d.last().Acquired.Queued)
		assert.Positive(t, d.last().Acquired.Attempts)
		assert.Equal(t, time.Second, d.last().Acquired.Took)
		mustUnlock(t, holder)

		require.Error(t, try(redlock.WithExpiry(0)))
		assert.Equal(t, []string{"acquire x", "acquired invalid"}, d.take())
		require.Error(t, try(redlock.WithGenValueFunc(func() (string, error) {
			return "",
				errOops
		})))
		assert.Equal(t, []string{"acquire x", "acquired failed"}, d.take())
		assert.PanicsWithValue(t, "oops", func() {
			_ = try(redlock.WithGenValueFunc(func() (string, error) { panic("oops") }))
		})
		assert.Equal(t, []string{"acquire x", "acquired failed"}, d.take())

		for _, n := range nodes[:2] {
			n.Crash()
		}
		require.ErrorIs(t, try(), redlock.ErrNoQuorum)
		assert.Equal(t, []string{"acquire x", "acquired no_quorum", "no quorum in acquire"},
			d.take())
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, rl.NewMutex("x").LockContext(ctx), context.DeadlineExceeded)
		assert.Equal(t, []string{"acquire x", "acquired cancelled", "no quorum in acquire"},
			d.take())

		require.NoError(t, rl.Close())
		require.ErrorIs(t, try(), redlock.ErrClosed)
		assert.Equal(t, []string{"acquire x", "acquired closed"}, d.take())
	})
}

// A Lock that has waited tells for how long, and that it did.
func TestEventsTellOfTheWait(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		holder, waiter := rl.NewMutex("x"), rl.NewMutex("x")
		require.NoError(t, holder.Lock())
		time.AfterFunc(500*time.Millisecond, func() { mustUnlock(t, holder) })
		require.NoError(t, waiter.Lock())
		a := d.last().Acquired
		assert.True(t, a.Queued)
		assert.GreaterOrEqual(t, a.Attempts, 2)
		assert.GreaterOrEqual(t, a.Waited, 500*time.Millisecond)
		assert.GreaterOrEqual(t, a.Took, a.Waited)
		assert.Less(t, a.Took, 600*time.Millisecond)
		synctest.Wait()
	})
}

func TestEventsTellOfTheLossOfAHold(t *testing.T) {
	var held context.Context
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		m := rl.NewMutex("x")
		held = mustHold(t, m)
		assert.Equal(t, []string{"acquire x", "acquired ok"}, d.take())
		time.Sleep(4 * time.Second)
		lines := d.take()
		require.NotEmpty(t, lines)
		assert.Equal(t, []string{"extend", "extended ok"}, lines[:2])
		assert.True(t, d.last().Extended.Renewal)
		assert.Greater(t, d.last().Extended.Left, 5*time.Second, "two thirds of the expiry")

		all(nodes, sim.Fate{Lost: true})
		d.listen(func(line string) {
			if strings.HasPrefix(line, "lost") || strings.HasPrefix(line, "end") {
				assert.ErrorIs(t, context.Cause(held), redlock.ErrLost,
					"the context is done before: %s", line)
			}
		})
		<-held.Done()
		synctest.Wait()
		lines = d.take()
		assert.Equal(t, []string{"lost lost", "end lost"}, lines[len(lines)-2:])
		once := func(line string) (n int) {
			for _, l := range lines {
				if l == line {
					n++
				}
			}
			return n
		}
		assert.Greater(t, once("extended no_quorum"), 3, "each")
		assert.Equal(t, 1, once("no quorum in extend"), "the first in a row")
		require.Len(t, d.lost(), 1)
		assert.Equal(t, d.lost(), d.ends())
		assert.Equal(t, context.Cause(held), d.lost()[0].Err)
		assert.Zero(t, d.lost()[0].Overdue)

		all(nodes, sim.Fate{})
		time.Sleep(10 * time.Second)
		_, err := m.Unlock() // the nodes answer
		require.ErrorIs(t, err, redlock.ErrExpired)
		assert.Equal(t, []string{"release", "released expired", "overrun in release"}, d.take())
		assert.Equal(t, 10*time.Second, d.last().Overrun.By)
		assert.Equal(t, err, d.last().Overrun.Err)
		_, err = m.Unlock()
		require.Error(t, err)
		assert.NotContains(t, d.take(), "overrun in release", "once")
	})
}

// Where keys are gone, the loss is told as soon as it is proven, of a lock without a hold too.
func TestEventsTellOfAProvenLoss(t *testing.T) {
	for name, prove := range map[string]func(m *redlock.Mutex) (bool, error){
		"Extend": (*redlock.Mutex).Extend,
		"Valid":  (*redlock.Mutex).Valid,
	} {
		t.Run(name, func(t *testing.T) {
			told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				for _, n := range nodes {
					n.Flush()
				}
				_, err := prove(m)
				require.ErrorIs(t, err, redlock.ErrExpired)
				require.Len(t, d.ends(), 1)
				assert.Equal(t, redlock.EndLost, d.ends()[0].Reason)
				assert.Equal(t, d.ends(), d.lost())
				_, err = m.Unlock()
				require.ErrorIs(t, err, redlock.ErrExpired)
				assert.Len(t, d.ends(), 1, "one end")
			})
		})
	}
}

// A hold that is let go ends once, although its lock is unlocked later.
func TestEventsTellOfTheEndOfAHold(t *testing.T) {
	for _, tt := range []struct {
		reason redlock.EndReason
		opt    redlock.Option
	}{
		{redlock.EndMaxHold, redlock.WithMaxHold(8 * time.Second)},
		{redlock.EndMargin, redlock.WithMargin(time.Second)},
	} {
		t.Run(string(tt.reason), func(t *testing.T) {
			told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
				m := rl.NewMutex("x", tt.opt)
				held := mustHold(t, m)
				if tt.reason == redlock.EndMargin {
					all(nodes, sim.Fate{Lost: true})
				}
				<-held.Done()
				all(nodes, sim.Fate{})
				synctest.Wait()
				require.Len(t, d.ends(), 1)
				assert.Equal(t, tt.reason, d.ends()[0].Reason)
				assert.Equal(t, context.Cause(held), d.ends()[0].Err)
				assert.Equal(t, d.ends(), d.lost())
				mustUnlock(t, m)
				assert.Len(t, d.ends(), 1)
				assert.NotContains(t, d.take(), "overrun in release")
			})
		})
	}
}

// Close tells of the end of every hold, also of those that it has no time to release.
func TestEventsTellOfTheEndsThatCloseMakes(t *testing.T) {
	for _, n := range []int{1, 2, 30, 300} {
		told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
			var held []context.Context
			for i := range n {
				held = append(held, mustHold(t, rl.NewMutex(fmt.Sprint("x", i))))
			}
			d.take()
			d.listen(func(line string) {
				if line == "end closed" {
					for _, h := range held {
						assert.ErrorIs(t, context.Cause(h), redlock.ErrReleased,
							"all are done before")
					}
				}
			})
			all(nodes, sim.Slow(time.Second))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.Error(t, rl.CloseContext(ctx))
			require.Len(t, d.ends(), n)
			for _, e := range d.ends() {
				assert.Equal(t, redlock.EndClosed, e.Reason)
			}
			all(nodes, sim.Fate{})
			require.NoError(t, rl.CloseContext(t.Context()))
			synctest.Wait()
			released := 0
			for _, line := range d.take() {
				assert.NotContains(t, line, "overrun")
				if line == "released ok" {
					released++
				}
			}
			assert.Equal(t, n, released)
			assert.Len(t, d.ends(), n)
			assert.True(t, d.last().Released.Closing)
			assert.Empty(t, d.lost())
		})
	}
}

// A release by Close that comes too late is no overrun: the holder was told in time.
func TestEventsTellOfNoOverrunByClose(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		mustHold(t, rl.NewMutex("x"))
		all(nodes, sim.Fate{Lost: true})
		require.ErrorIs(t, rl.Close(), redlock.ErrNoQuorum)
		time.Sleep(redlock.DefaultExpiry)
		all(nodes, sim.Fate{})
		_ = rl.Close()
		lines := d.take()
		assert.Contains(t, lines, "end closed")
		assert.NotContains(t, lines, "overrun in release")
	})
}

// Work that stops when it is told to is no overrun, and neither is an Unlock that is tried again.
func TestEventsTellOfNoOverrunByWorkThatStopsInTime(t *testing.T) {
	const timeout = redlock.DefaultExpiry / 20 // of a node
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		for late, overrun := range map[time.Duration]bool{
			0: false, timeout: false, timeout + 1: true,
		} {
			m := rl.NewMutex("x")
			held := mustHold(t, m)
			all(nodes, sim.Fate{Lost: true})
			<-held.Done()
			time.Sleep(late)
			_, err := m.Unlock()
			require.Error(t, err)
			assert.Equal(t, overrun, slices.Contains(d.take(), "overrun in release"), late)
			all(nodes, sim.Fate{})
			time.Sleep(redlock.DefaultExpiry)
		}
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		all(nodes, sim.Fate{Lost: true})
		_, err := m.Unlock()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		time.Sleep(redlock.DefaultExpiry)
		_, err = m.Extend()
		require.ErrorIs(t, err, redlock.ErrNotHeld)
		_, err = m.Unlock()
		require.Error(t, err)
		lines := d.take()
		assert.NotContains(t, lines, "overrun in release")
		assert.NotContains(t, lines, "overrun in extend")
	})
}

// In each hold, the first of the renewals that fail in a row is told.
func TestEventsTellOfNoQuorumInEachHold(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		m := rl.NewMutex("x")
		for range 2 {
			held := mustHold(t, m)
			d.take()
			all(nodes, sim.Fate{Lost: true})
			<-held.Done()
			synctest.Wait()
			assert.Contains(t, d.take(), "no quorum in extend")
			all(nodes, sim.Fate{})
			time.Sleep(redlock.DefaultExpiry)
			_, _ = m.Unlock()
		}
	})
}

// An Unlock or Extend after the end is told once for each lock.
func TestEventsTellOfAnOverrun(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		m := rl.NewMutex("x")
		for range 2 {
			require.NoError(t, m.Lock())
			d.take()
			time.Sleep(time.Until(m.Until()) + 10*time.Millisecond) // the nodes still have it
			_, err := m.Extend()
			require.ErrorIs(t, err, redlock.ErrExpired)
			assert.Equal(t, []string{"extend", "extended expired", "overrun in extend"}, d.take())
			assert.Equal(t, 10*time.Millisecond, d.last().Overrun.By)
			assert.Equal(t, -10*time.Millisecond, d.last().Extended.Left)
			mustUnlock(t, m)
			assert.Equal(t, []string{"release", "end released", "released ok"}, d.take())
		}
		require.NoError(t, m.Lock())
		d.take()
		time.Sleep(time.Until(m.Until()) + time.Nanosecond)
		mustUnlock(t, m)
		assert.Equal(t, []string{"release", "end released", "released ok", "overrun in release"},
			d.take())
		require.NoError(t, d.last().Overrun.Err, "a quorum still had it")
		assert.Equal(t, time.Nanosecond, d.ends()[len(d.ends())-1].Overdue)

		require.NoError(t, m.Lock())
		d.take()
		time.Sleep(time.Until(m.Until()) - time.Nanosecond)
		mustUnlock(t, m)
		assert.Equal(t, []string{"release", "end released", "released ok"}, d.take(), "in time")
	})
}

// A lock that is left to expire ends when its mutex is locked again. One that was handed over by
// its value was not acquired here, and has no end.
func TestEventsTellOfNoEndWithoutABeginning(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		time.Sleep(redlock.DefaultExpiry)
		d.take()
		require.NoError(t, m.Lock())
		assert.Equal(t, []string{"acquire x", "end replaced", "acquired ok"}, d.take())
		assert.Empty(t, d.lost())

		heir := rl.NewMutex("x", redlock.WithValue(m.Value()))
		_, err := heir.Extend()
		require.NoError(t, err)
		assert.Zero(t, d.last().Extended.Left)
		mustUnlock(t, heir)
		assert.Equal(t, []string{"extend", "extended ok", "release", "released ok"}, d.take())
		_, err = m.Unlock()
		require.ErrorIs(t, err, redlock.ErrExpired)
		assert.Equal(t, []string{"release", "end released", "released expired"}, d.take())
	})
}

func TestEventsCountNodesThatAreHealed(t *testing.T) {
	told(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		m := rl.NewMutex("x", redlock.WithFencing())
		require.NoError(t, m.Lock())
		synctest.Wait()
		nodes[1].Flush()
		nodes[3].Flush()
		// The others decide it, and are asked later.
		for _, i := range []int{0, 2, 4} {
			nodes[i].Always(sim.Slow(10 * time.Millisecond))
		}
		_, err := m.Extend()
		require.NoError(t, err)
		assert.Equal(t, 2, d.last().Extended.Healed)
		all(nodes, sim.Fate{})
		synctest.Wait()
		mustUnlock(t, m)
		synctest.Wait()
		require.NoError(t, m.Lock())
		assert.False(t, d.last().Acquired.Raised)
		mustUnlock(t, m)
	})
}

// Functions may use the mutex that they are told of: none of its own mutexes is locked, and none
// waits for itself. What they do is told in order, too.
func TestEventsAreToldWithoutAMutex(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		m, busy := rl.NewMutex("x"), false
		d.listen(func(line string) {
			_, _, _ = m.Until(), m.Value(), m.FencingToken()
			_ = rl.NewMutex("y").TryLock
			switch line {
			case "acquired ok":
				busy = true
				_, err := m.Unlock()
				assert.NoError(t, err)
				busy = false
			case "end released", "released ok":
				assert.False(t, busy, "one after the other")
			}
		})
		require.NoError(t, m.Lock())
		assert.Equal(t, []string{"acquire x", "acquired ok", "release", "end released",
			"released ok"}, d.take())
		_, err := m.Unlock()
		require.ErrorIs(t, err, redlock.ErrNotHeld)
		d.take()

		held, err := m.Hold(t.Context()) // unlocked before it is kept
		require.NoError(t, err)
		<-held.Done()
		assert.ErrorIs(t, context.Cause(held), redlock.ErrReleased)
		assert.Len(t, d.ends(), 2)
	})
}

// A function that is told of the end of a lock may unlock it once more.
func TestEventsOfAnUnlockMayUnlock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		var m *redlock.Mutex
		var again error
		m = rl.NewMutex("x", redlock.WithEvents(&redlock.Events{
			End: func(redlock.Ended) { _, again = m.Unlock() },
		}))
		require.NoError(t, m.Lock())
		mustUnlock(t, m)
		assert.ErrorIs(t, again, redlock.ErrNotHeld)
	})
}

// A function may unlock what it is told of on the goroutine of a renewal, too. Unlock waits for a
// renewal, but not for functions.
func TestEventsOfARenewalMayUnlock(t *testing.T) {
	lose := func(nodes sim.Nodes) {
		for _, n := range nodes {
			n.Flush()
		}
	}
	silence := func(nodes sim.Nodes) { all(nodes, sim.Fate{Lost: true}) }
	for line, fault := range map[string]func(sim.Nodes){
		"extend": nil, "extended ok": nil,
		"lost lost": lose, "end lost": lose, "extended expired": lose,
		"extended no_quorum": silence, "no quorum in extend": silence,
	} {
		t.Run(line, func(t *testing.T) {
			told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
				m := rl.NewMutex("x")
				held := mustHold(t, m)
				if fault != nil {
					fault(nodes)
				}
				unlocked := false
				d.listen(func(l string) {
					if l == line && !unlocked {
						unlocked = true
						_, _ = m.Unlock()
					}
				})
				<-held.Done()
				synctest.Wait()
				all(nodes, sim.Fate{})
				_, err := m.Unlock()
				synctest.Wait() // the renewal's goroutine tells the end
				assert.True(t, unlocked)
				assert.Len(t, d.ends(), 1)
				if fault == nil {
					assert.ErrorIs(t, err, redlock.ErrNotHeld)
				}
			})
		})
	}
}

// A lock that is let go while a function is told of its renewal is not extended any more.
func TestEventsOfARenewalMayTakeUntilTheLockIsLetGo(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		m := rl.NewMutex("x", redlock.WithExpiry(3*time.Second),
			redlock.WithMaxHold(4*time.Second))
		begun := time.Now()
		held := mustHold(t, m)
		var until time.Time
		d.listen(func(line string) {
			if line == "extend" && time.Since(begun) > 5*time.Second/2 {
				d.set(func() { until = m.Until() })
				time.Sleep(3 * time.Second / 2)
			}
		})
		<-held.Done()
		time.Sleep(time.Second / 2)
		synctest.Wait()
		d.set(func() { assert.Equal(t, until, m.Until()) })
		assert.Equal(t, redlock.OutcomeCancelled, d.last().Extended.Outcome)
		mustUnlock(t, m)
		require.Len(t, d.ends(), 1)
		assert.Equal(t, redlock.EndMaxHold, d.ends()[0].Reason)
	})
}

// The order is that of what happened, however many goroutines use a mutex.
func TestEventsOfAMutexAreInOrder(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		all(nodes, sim.Slow(time.Millisecond))
		m := rl.NewMutex("x", redlock.WithExpiry(time.Second), redlock.WithTries(redlock.Unlimited))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var g sync.WaitGroup
		for i := range 8 {
			g.Go(func() {
				for ctx.Err() == nil {
					switch i % 4 {
					case 0:
						_, _ = m.Hold(ctx)
					case 1:
						_ = m.LockContext(ctx)
					case 2:
						time.Sleep(time.Duration(i) * 100 * time.Millisecond)
						_, _ = m.Unlock()
					case 3:
						time.Sleep(50 * time.Millisecond)
						_, _ = m.Extend()
					}
				}
			})
		}
		g.Wait()
		_, _ = m.Unlock()
		synctest.Wait()
		held, grants := 0, 0
		for _, line := range d.take() {
			switch {
			case line == "acquired ok":
				grants++
				held++
			case strings.HasPrefix(line, "end "):
				held--
			case line == "extended ok":
				assert.Equal(t, 1, held, "extended, but not held")
			}
			require.GreaterOrEqual(t, held, 0)
			require.LessOrEqual(t, held, 1)
		}
		assert.Greater(t, grants, 20)
		assert.Zero(t, held)
	})
}

// What a function does to its own goroutine keeps nobody from being told.
func TestEventsThatEndTheirGoroutine(t *testing.T) {
	told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
		m := rl.NewMutex("x")
		d.listen(func(line string) {
			if line == "acquired ok" {
				runtime.Goexit()
			}
		})
		var g sync.WaitGroup
		g.Go(func() { _ = m.Lock() })
		g.Wait()
		mustUnlock(t, m)
		assert.Equal(t, []string{"acquire x", "acquired ok", "release", "end released",
			"released ok"}, d.take())
	})
}

// A function that panics leaks no lock, ends no process, and fails no call. It is reported once.
func TestEventsThatPanic(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)

	panicking := &redlock.Events{}
	fields := reflect.ValueOf(panicking).Elem()
	for i := range fields.NumField() {
		f := fields.Field(i)
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("oops") }))
	}
	ends := &redlock.Events{
		Acquire: func(context.Context, redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			return nil, func(redlock.Acquired) { panic("oops") }
		},
		Extend: func(context.Context, redlock.Extending) (context.Context, func(redlock.Extended)) {
			return nil, func(redlock.Extended) { panic("oops") }
		},
		Release: func(context.Context, redlock.Releasing) (context.Context,
			func(redlock.Released)) {
			return nil, func(redlock.Released) { panic("oops") }
		},
	}
	for name, bad := range map[string]*redlock.Events{"functions": panicking, "ends": ends} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
				m := rl.NewMutex("x")
				held := mustHold(t, m)
				time.Sleep(10 * time.Second) // renewals
				_, err := m.Extend()
				require.NoError(t, err)
				nodes[0].Crash()
				nodes[1].Crash()
				<-held.Done()
				synctest.Wait()
				nodes[0].Restart(true)
				nodes[1].Restart(true)
				_, _ = m.Unlock()
				require.NoError(t, m.Lock())
				mustUnlock(t, m)
				synctest.Wait()
				assert.Zero(t, keys(nodes))
				assert.Equal(t, 1, strings.Count(log.String(), "has panicked"), log.String())
				assert.Contains(t, log.String(), "events_test.go", "the stack")
				want := []redlock.EndReason{redlock.EndLost, redlock.EndReleased}
				require.Len(t, d.ends(), 2, "the others are told")
				for i, e := range d.ends() {
					assert.Equal(t, want[i], e.Reason)
				}
			}, redlock.WithEvents(bad))
		})
	}
}

// spying is a pool that notes the values and ends of the contexts that it is given.
type spying struct {
	pool.Pool
	seen func(ctx context.Context)
}

func (p spying) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	p.seen(ctx)
	return p.Pool.SetNX(ctx, key, value, expiry)
}

func (p spying) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any, error) {
	p.seen(ctx)
	return p.Pool.Eval(ctx, s, keys, args...)
}

type spanKey struct{}

// begins are events whose contexts name what is under way, made by f from the caller's.
func begins(f func(ctx context.Context) context.Context) *redlock.Events {
	span := func(ctx context.Context, name string) context.Context {
		return context.WithValue(f(ctx), spanKey{}, name)
	}
	return &redlock.Events{
		Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			return span(ctx, "acquire"), nil
		},
		Extend: func(ctx context.Context, _ redlock.Extending) (context.Context,
			func(redlock.Extended)) {
			return span(ctx, "extend"), nil
		},
		Release: func(ctx context.Context, _ redlock.Releasing) (context.Context,
			func(redlock.Released)) {
			return span(ctx, "release"), nil
		},
	}
}

// What a client traces is a part of what the events began, whatever contexts they return: only the
// values of those count.
func TestEventsLendTheirContextsToTheCommands(t *testing.T) {
	type outerKey struct{}
	for name, from := range map[string]func(ctx context.Context) context.Context{
		"derived":    func(ctx context.Context) context.Context { return ctx },
		"background": func(context.Context) context.Context { return context.Background() },
		"ended": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(errOops)
			return ctx
		},
		"detached": context.WithoutCancel,
		"another": func(ctx context.Context) context.Context {
			next, cancel := context.WithCancel(context.Background())
			context.AfterFunc(ctx, func() {
				time.Sleep(time.Minute)
				cancel()
			})
			return next
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(3)
				defer nodes.Close()
				var mu sync.Mutex
				var spans []string
				pools := nodes.Pools("a")
				for i, p := range pools {
					pools[i] = spying{p, func(ctx context.Context) {
						mu.Lock()
						defer mu.Unlock()
						assert.NoError(t, ctx.Err())
						span, _ := ctx.Value(spanKey{}).(string)
						spans = append(spans, span)
						if name != "background" && name != "another" && span != "" {
							assert.Equal(t, "outer", ctx.Value(outerKey{}))
						}
					}}
				}
				take := func() []string {
					synctest.Wait()
					mu.Lock()
					defer mu.Unlock()
					s := slices.Compact(spans)
					spans = nil
					return s
				}
				rl := redlock.New(pools...).With(redlock.WithEvents(begins(from)))
				defer func() { require.NoError(t, rl.Close()) }()
				ctx := context.WithValue(t.Context(), outerKey{}, "outer")
				ctx, cancel := context.WithCancelCause(ctx)
				m := rl.NewMutex("x")
				held, err := m.Hold(ctx)
				require.NoError(t, err)
				assert.Equal(t, []string{"acquire"}, take())
				assert.Nil(t, held.Value(spanKey{}),
					"what is done under the lock is no part of the Lock")
				time.Sleep(3 * time.Second)
				assert.Equal(t, []string{"extend"}, take(), "a renewal")
				_, err = m.ExtendContext(ctx)
				require.NoError(t, err)
				assert.Equal(t, []string{"extend"}, take())

				// The caller's end is the one that counts.
				waiter := rl.NewMutex("x")
				time.AfterFunc(time.Second, func() { cancel(errors.New("enough")) })
				begin := time.Now()
				err = waiter.LockContext(ctx)
				require.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, time.Second, time.Since(begin))
				if name == "derived" {
					assert.ErrorContains(t, err, "enough")
				}
				take()
				_, err = m.UnlockContext(ctx)
				require.NoError(t, err)
				assert.Equal(t, []string{"release"}, take())
				time.Sleep(time.Minute)
			})
		})
	}
}

// WithEvents may be given several times: the first is told first, and ends last.
func TestEventsOfSeveral(t *testing.T) {
	var lines []string
	listener := func(name string) *redlock.Events {
		return &redlock.Events{
			Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
				func(redlock.Acquired)) {
				before, _ := ctx.Value(spanKey{}).(string)
				lines = append(lines, before+name+" begins")
				return context.WithValue(ctx, spanKey{}, before+name), func(redlock.Acquired) {
					lines = append(lines, name+" ends")
				}
			},
			End: func(redlock.Ended) { lines = append(lines, name+" is told") },
		}
	}
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		some := &redlock.Events{Lost: func(redlock.Ended) {}}
		copied := listener("b")
		opt := redlock.WithEvents(copied)
		*copied = redlock.Events{}
		m := rl.With(redlock.WithEvents(some), opt).NewMutex("x", redlock.WithEvents(listener("c")))
		require.NoError(t, m.Lock())
		assert.Equal(t, []string{"a begins", "ab begins", "abc begins", "c ends", "b ends",
			"a ends"}, lines)
		lines = nil
		mustUnlock(t, m)
		assert.Equal(t, []string{"a is told", "b is told", "c is told"}, lines)

		lines = nil
		require.NoError(t, rl.NewMutex("x").Lock())
		assert.Equal(t, []string{"a begins", "a ends"}, lines, "options of others do not count")

		err := rl.NewMutex("y", redlock.WithEvents(nil)).Lock()
		var wrong *redlock.OptionError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, "WithEvents", wrong.Option)
	}, redlock.WithEvents(listener("a")))
}

// calls notes what Node tells.
type calls struct {
	mu  sync.Mutex
	all []redlock.NodeCall
}

func (c *calls) add(n redlock.NodeCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, n)
}

// seen returns what was told until now.
func (c *calls) seen() []redlock.NodeCall {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// take returns which operations were told, how often each, and forgets them.
func (c *calls) take() map[string]int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	count := map[string]int{}
	for _, n := range c.all {
		count[n.Command]++
	}
	c.all = nil
	return count
}

func TestEventsTellOfEachCommand(t *testing.T) {
	const n = 5
	var c calls
	bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		all(nodes, sim.Slow(10*time.Millisecond))
		m := rl.NewMutex("x", redlock.WithFencing(), redlock.WithKeyPrefix("app:"))
		held := mustHold(t, m)
		time.Sleep(time.Second)
		require.Len(t, c.seen(), n)
		seen := map[int]bool{}
		for _, call := range c.seen() {
			seen[call.Node] = true
			assert.Equal(t, "app:x", call.Key)
			assert.Equal(t, 10*time.Millisecond, call.Took)
			assert.NoError(t, call.Err)
		}
		assert.Len(t, seen, n)
		assert.Equal(t, map[string]int{"acquire": n}, c.take())
		nodes[2].Flush()
		_, err := m.Extend()
		require.NoError(t, err)
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, map[string]int{"extend": n, "heal": 1}, c.take())
		_, err = m.Valid()
		require.NoError(t, err)
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, map[string]int{"valid": n}, c.take())
		mustUnlock(t, m)
		<-held.Done()
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, map[string]int{"release": n}, c.take())

		nodes[0].Always(sim.Fate{Answer: &sim.Answer{Err: errOops}})
		require.NoError(t, m.Lock())
		time.Sleep(50 * time.Millisecond)
		failed := 0
		for _, call := range c.seen() {
			if call.Err != nil {
				failed++
				assert.ErrorIs(t, call.Err, errOops)
				assert.Zero(t, call.Node)
			}
		}
		assert.Equal(t, 1, failed)
		mustUnlock(t, m)
	}, redlock.WithEvents(&redlock.Events{Node: c.add}))
}

// A node that does not answer is told of when it is marked down, and when it is back: once
// each, not for each error, however many mutexes ask it.
func TestEventsTellOfTheStateOfNodes(t *testing.T) {
	for _, mutexes := range []int{1, 20} {
		var mu sync.Mutex
		var states []redlock.NodeState
		take := func() []redlock.NodeState {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			s := states
			states = nil
			return s
		}
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			use := func() {
				var g sync.WaitGroup
				for i := range mutexes {
					g.Go(func() {
						m := rl.NewMutex(fmt.Sprint("x", i))
						for range 10 {
							if assert.NoError(t, m.Lock()) {
								mustUnlock(t, m)
							}
						}
					})
				}
				g.Wait()
				time.Sleep(time.Second)
			}
			use()
			assert.Empty(t, take())
			nodes[1].Crash()
			use()
			s := take()
			require.Len(t, s, 1)
			assert.Equal(t, 1, s[0].Node)
			assert.False(t, s[0].Up)
			assert.ErrorIs(t, s[0].Err, sim.ErrRefused)
			use()
			assert.Empty(t, take())
			nodes[1].Restart(true)
			use()
			assert.Empty(t, take(), "not for a second yet")
			use()
			s = take()
			require.Len(t, s, 1)
			assert.True(t, s[0].Up)
			assert.NoError(t, s[0].Err)
		}, redlock.WithEvents(&redlock.Events{NodeState: func(s redlock.NodeState) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, s)
		}}))
	}
}

// A bid is told as one: it was called "heal" while each node's was decided as it was sent.
func TestABidIsToldAsOne(t *testing.T) {
	var bids, heals atomic.Int64
	contend(t, 1, contention{processes: 4, waiters: 1, hold: 5 * time.Millisecond,
		last: time.Second, opts: []redlock.Option{redlock.WithEvents(&redlock.Events{
			Node: func(c redlock.NodeCall) {
				switch c.Command {
				case "bid":
					bids.Add(1)
				case "heal":
					heals.Add(1)
				}
			},
		})}})
	assert.Positive(t, bids.Load())
	assert.Zero(t, heals.Load())
}

// lesson L120: a node that is in trouble for a minute is told of when that begins and when it ends,
// though it answers some commands all the time, and others late.
func TestEventsTellOfTroubleTwice(t *testing.T) {
	writes := []string{"set", "acquire", "extend", "stand", "claim", "bid", "heal"}
	refusing := func(text string, commands ...string) func(*sim.Node) func(sim.Op) sim.Fate {
		return func(*sim.Node) func(sim.Op) sim.Fate {
			return func(op sim.Op) sim.Fate {
				if slices.Contains(commands, op.Command) {
					return sim.Fail(errors.New(text))
				}
				return sim.Fate{}
			}
		}
	}
	for name, trouble := range map[string]func(*sim.Node) func(sim.Op) sim.Fate{
		"READONLY": refusing("READONLY You can't write against a read only replica.", writes...),
		"full": refusing("OOM command not allowed when used memory > 'maxmemory'.",
			"set", "acquire", "stand", "claim", "bid", "heal"),
		"frozen": func(n *sim.Node) func(sim.Op) sim.Fate {
			n.Freeze()
			return func(sim.Op) sim.Fate { return sim.Fate{} }
		},
		"flapping": func(*sim.Node) func(sim.Op) sim.Fate {
			return func(sim.Op) sim.Fate {
				if time.Now().UnixMilli()/400%2 == 0 {
					return sim.Fail(sim.ErrRefused)
				}
				return sim.Fate{}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var states []redlock.NodeState
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, _ *redlock.Redlock) {
				var fate atomic.Pointer[func(sim.Op) sim.Fate]
				fine := func(sim.Op) sim.Fate { return sim.Fate{} }
				fate.Store(&fine)
				pools := nodes.Pools("b")
				plan(pools, func(op sim.Op) sim.Fate {
					f := sim.Fate{}
					if op.Node == 1 {
						f = (*fate.Load())(op)
					}
					f.Request, f.Reply = 5*time.Millisecond, 5*time.Millisecond
					return f
				})
				rl := redlock.New(pools...).With(redlock.WithEvents(&redlock.Events{
					NodeState: func(s redlock.NodeState) {
						mu.Lock()
						defer mu.Unlock()
						states = append(states, s)
					},
				}))
				mustHold(t, rl.NewMutex("held"))
				ctx, stop := context.WithCancel(t.Context())
				var load sync.WaitGroup
				for i := range 4 {
					load.Go(func() {
						m := rl.NewMutex(fmt.Sprint("x", i/2))
						for ctx.Err() == nil {
							if m.LockContext(ctx) == nil {
								time.Sleep(50 * time.Millisecond)
								mustUnlock(t, m)
							}
						}
					})
				}
				time.Sleep(5 * time.Second)
				bad := trouble(nodes[1])
				fate.Store(&bad)
				time.Sleep(time.Minute)
				fate.Store(&fine)
				nodes[1].Thaw()
				time.Sleep(20 * time.Second)
				stop()
				load.Wait()
				mu.Lock()
				defer mu.Unlock()
				require.Len(t, states, 2)
				assert.False(t, states[0].Up)
				assert.True(t, states[1].Up)
				assert.NoError(t, rl.CloseContext(t.Context()))
			})
		})
	}
}
