package sim_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// readers are processes on nodes in memory that are up to 300 µs away.
type readers struct {
	nodes sim.Nodes
	dead  [100]atomic.Bool // processes whose machines are gone
	all   []*redlock.Redlock
}

// process returns the next process. Its keys live for a second.
func (r *readers) process(opts ...redlock.Option) *redlock.Redlock {
	id, start := len(r.all), time.Now()
	pools := r.nodes.Pools(fmt.Sprintf("p%d", id))
	for i, pl := range pools {
		plan := farAway(dice(1), id, i, 300*time.Microsecond, start)
		pl.(*sim.Link).Plan(func(op sim.Op) sim.Fate {
			f := plan(op)
			f.Lost = r.dead[id].Load()
			return f
		})
	}
	rl := redlock.New(pools...).With(append([]redlock.Option{redlock.WithExpiry(time.Second),
		redlock.WithTries(redlock.Unlimited)}, opts...)...)
	r.all = append(r.all, rl)
	return rl
}

// dies ends a process: commands are lost. If its machine is gone, the nodes do not know.
func (r *readers) dies(id int, machine bool) {
	r.dead[id].Store(true)
	for _, n := range r.nodes {
		if !machine {
			n.Hush(fmt.Sprintf("p%d", id))
		}
	}
}

func (r *readers) close() {
	r.nodes.Close()
	for _, rl := range r.all {
		_ = rl.Close()
	}
}

// Writers that die while they wait keep readers out for a moment only. If their machine is gone,
// the nodes find that out within a grace, up to 100 of them together.
func TestADeadWriterFreesReaders(t *testing.T) {
	for _, tt := range []struct {
		gone  bool // its machine is
		many  int
		bound time.Duration
	}{{false, 1, 50 * time.Millisecond}, {false, 30, time.Second},
		{true, 1, 8 * time.Second}, {true, 30, 8 * time.Second}} {
		gone := tt.gone
		synctest.Test(t, func(t *testing.T) {
			r := &readers{nodes: sim.NewNodes(3)}
			defer r.close()
			holder, waiter := r.process(redlock.WithShared()), r.process(redlock.WithShared())
			for range tt.many {
				r.process()
			}
			writers := r.all[2:]
			_, err := holder.NewMutex("k").Hold(context.Background())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			var dead, living sync.WaitGroup
			for _, writer := range writers {
				dead.Go(func() { assert.Error(t, writer.NewMutex("k").LockContext(ctx)) })
			}
			time.Sleep(100 * time.Millisecond)
			m := waiter.NewMutex("k")
			require.ErrorIs(t, m.TryLock(), redlock.ErrTaken)
			patient, stop := context.WithTimeout(context.Background(), time.Minute)
			defer stop()
			living.Go(func() { assert.NoError(t, m.LockContext(patient)) })
			time.Sleep(100 * time.Millisecond)
			require.Zero(t, m.Value(), "it passed a writer")
			died := time.Now()
			for i := range writers {
				r.dies(2+i, gone)
			}
			living.Wait()
			assert.LessOrEqual(t, time.Since(died), tt.bound, "%v", tt)
			assert.NoError(t, holder.NewMutex("k").TryLock())
			cancel()
			dead.Wait()
		})
	}
}

// A reader that has crashed keeps writers out until its own lease ends, however many others have
// read since.
func TestACrashedReaderKeepsWritersOutForItsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &readers{nodes: sim.NewNodes(3)}
		defer r.close()
		crashes, long := r.process(redlock.WithShared()),
			r.process(redlock.WithShared(), redlock.WithExpiry(time.Hour))
		begun := time.Now()
		require.NoError(t, crashes.NewMutex("k").Lock())
		m := long.NewMutex("k")
		require.NoError(t, m.Lock())
		r.dies(0, false)
		_, err := m.Unlock()
		require.NoError(t, err)
		require.NoError(t, r.process().NewMutex("k").Lock())
		assert.InDelta(t, time.Second, time.Since(begun), float64(20*time.Millisecond))
	})
}

// When everybody has died, and what they had has expired, the lock is free for anybody at once.
func TestALockIsFreeAfterEverybodyDied(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := &readers{nodes: sim.NewNodes(3)}
			defer r.close()
			ctx, cancel := context.WithCancel(context.Background())
			var all sync.WaitGroup
			for id := range 8 {
				var opts []redlock.Option
				if id%2 == 0 {
					opts = append(opts, redlock.WithShared())
				}
				rl := r.process(opts...)
				all.Go(func() { _ = rl.NewMutex("k").LockContext(ctx) })
				time.Sleep(10 * time.Millisecond)
			}
			for id := range 8 {
				r.dies(id, id < 4)
			}
			time.Sleep(1100 * time.Millisecond)
			opts := map[bool][]redlock.Option{true: {redlock.WithShared()}}[shared]
			assert.NoError(t, r.process(opts...).NewMutex("k").TryLock())
			cancel()
			all.Wait()
		})
	}
}

// Nobody starves: neither one who writes beside many readers of two processes, nor one who reads
// beside many writers. All come back at once.
func TestNeitherReadersNorWritersStarve(t *testing.T) {
	const hold = 4 * time.Millisecond
	for _, tt := range []struct {
		name              string
		processes, within int // of the many, and goroutines in each
		share             bool
		bound             time.Duration
	}{
		{"64 readers in two processes", 2, 32, true, 40 * time.Millisecond},
		{"8 writers", 8, 1, false, 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &readers{nodes: sim.NewNodes(3)}
			defer r.close()
			var many, turns int64
			var over atomic.Bool
			var all sync.WaitGroup
			again := func(m *redlock.Mutex, n *int64) {
				assert.NoError(t, m.Lock())
				time.Sleep(hold)
				_, err := m.Unlock()
				assert.NoError(t, err)
				atomic.AddInt64(n, 1)
			}
			open := func(shared bool) *redlock.Redlock {
				if shared {
					return r.process(redlock.WithShared())
				}
				return r.process()
			}
			for range tt.processes {
				rl := open(tt.share)
				for range tt.within {
					all.Go(func() {
						for m := rl.NewMutex("k"); !over.Load(); {
							again(m, &many)
						}
					})
				}
			}
			time.Sleep(100 * time.Millisecond)
			m, longest := open(!tt.share).NewMutex("k"), time.Duration(0)
			for range 50 {
				asked := time.Now()
				again(m, &turns)
				longest = max(longest, time.Since(asked)-hold)
			}
			over.Store(true)
			all.Wait()
			t.Logf("beside %s: longest wait %v, %d turns of the many", tt.name, longest, many)
			assert.LessOrEqual(t, longest, tt.bound, tt.name)
			assert.Greater(t, many, int64(50), "the many had no turn")
		})
	}
}
