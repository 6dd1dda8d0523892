package redlockgocron_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	redlockgocron "github.com/redlock-go/redlock/integrations/gocron"
	"github.com/redlock-go/redlock/internal/test/ticks"
	"github.com/redlock-go/redlock/redlocktest"
)

// A job runs every period, on each replica so much later than on the one before.
const (
	period = time.Minute
	apart  = 400 * time.Millisecond
)

// replicas starts schedulers that run a job every period.
func replicas(
	t *testing.T, n int, task func(replica int) any, opts func(replica int) gocron.SchedulerOption,
) (shutdown func()) {
	var all []gocron.Scheduler
	for i := range n {
		var own []gocron.SchedulerOption
		if opts != nil {
			own = append(own, opts(i))
		}
		s, err := gocron.NewScheduler(own...)
		require.NoError(t, err)
		_, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(task(i)),
			gocron.WithName("job"))
		require.NoError(t, err)
		s.Start()
		all = append(all, s)
		time.Sleep(apart)
	}
	return func() {
		for _, s := range all {
			require.NoError(t, s.Shutdown())
		}
	}
}

// Fifty replicas whose clocks differ by 20 s run a short job once in a period with a minimum hold
// that is longer.
func TestLockerRunsAJobOnceInAPeriod(t *testing.T) {
	for name, tt := range map[string]struct {
		hold time.Duration
		once bool
	}{
		"a long minimum hold": {30 * time.Second, true},
		"none":                {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := redlocktest.New(t, 3)
				var runs atomic.Int64
				shutdown := replicas(t, 50, func(int) any {
					return func() { runs.Add(1) }
				}, func(int) gocron.SchedulerOption {
					return gocron.WithDistributedLocker(redlockgocron.Locker(c.Redlock(),
						redlock.WithMinHold(tt.hold)))
				})
				time.Sleep(10*period - apart/2)
				shutdown()
				if tt.once {
					assert.EqualValues(t, 10, runs.Load())
				} else {
					assert.Greater(t, runs.Load(), int64(10*10))
				}
			})
		})
	}
}

// everySecond starts a scheduler that runs a task as ticks.Once asks for.
func everySecond(
	t *testing.T, r ticks.Replica, task any, opts ...gocron.SchedulerOption,
) (stop func()) {
	s, err := gocron.NewScheduler(opts...)
	require.NoError(t, err)
	first := gocron.WithStartDateTime(time.Now().Add(ticks.Period + r.Late))
	_, err = s.NewJob(gocron.DurationJob(ticks.Period), gocron.NewTask(task),
		gocron.WithName("job"), gocron.WithStartAt(first))
	require.NoError(t, err)
	s.Start()
	return func() { assert.NoError(t, s.Shutdown()) }
}

// lesson L137
func TestLockerRunsAJobOnceAtEachTick(t *testing.T) {
	ticks.Once(t, func(t *testing.T, r ticks.Replica) (stop func()) {
		return everySecond(t, r, r.Work,
			gocron.WithDistributedLocker(redlockgocron.Locker(r.Locks)))
	})
}

// lesson L137
func TestTaskRunsAJobOnceAtEachTick(t *testing.T) {
	ticks.Once(t, func(t *testing.T, r ticks.Replica) (stop func()) {
		return everySecond(t, r, redlockgocron.Task(r.Locks, "job", func(context.Context) error {
			r.Work()
			return nil
		}))
	})
}

func TestNilFailsAtConstruction(t *testing.T) {
	assert.PanicsWithValue(t, "redlockgocron: Elector needs an election, not nil",
		func() { redlockgocron.Elector(nil) })
	rl := redlocktest.New(t, 3).Redlock()
	assert.PanicsWithValue(t, "redlockgocron: Task needs a function, not nil",
		func() { redlockgocron.Task(rl, "job", nil) })
}

// The elector follows the context of the term.
//
// lesson L138
func TestElectorFollowsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		election := redlocktest.New(t, 3).Redlock().NewElection("jobs")
		ctx, cancel := context.WithCancel(t.Context())
		held, err := election.Campaign(ctx)
		require.NoError(t, err)
		elector := redlockgocron.Elector(election)
		assert.NoError(t, elector.IsLeader(t.Context()))
		cancel()
		assert.ErrorIs(t, elector.IsLeader(t.Context()), redlockgocron.ErrNotLeading)
		assert.NoError(t, election.Resign(held))
	})
}

// The lock is kept as long as the job runs, and released when it has ended.
func TestLockerKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		l := redlockgocron.Locker(c.Redlock(), redlock.WithKeyPrefix("jobs:"))
		ctx, cancel := context.WithCancel(t.Context())
		held, err := l.Lock(ctx, "report")
		require.NoError(t, err)
		cancel() // the scheduler is shutting down, and the job still runs
		time.Sleep(time.Hour)
		other := redlockgocron.Locker(c.Redlock(), redlock.WithKeyPrefix("jobs:"))
		_, err = other.Lock(t.Context(), "report")
		assert.ErrorIs(t, err, redlock.ErrTaken)
		require.NoError(t, held.Unlock(ctx))
		c.WantFree(t, "jobs:report")
	})
}

func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		var runs [3]atomic.Int64
		var elections []*redlock.Election
		ended := make(chan error)
		for range runs {
			e := c.Redlock().NewElection("jobs")
			elections = append(elections, e)
			go func() {
				ended <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
			}()
			time.Sleep(time.Second) // the first one leads
		}
		shutdown := replicas(t, len(runs), func(i int) any {
			return func() { runs[i].Add(1) }
		}, func(i int) gocron.SchedulerOption {
			return gocron.WithDistributedElector(redlockgocron.Elector(elections[i]))
		})
		time.Sleep(10*period - 10*time.Second)
		assert.EqualValues(t, 9, runs[0].Load())
		assert.Zero(t, runs[1].Load()+runs[2].Load())
		other := redlockgocron.Elector(elections[1])
		assert.ErrorIs(t, other.IsLeader(ctx), redlockgocron.ErrNotLeading)
		require.NoError(t, elections[0].Resign(ctx))
		time.Sleep(10 * period)
		assert.EqualValues(t, 9, runs[0].Load())
		assert.EqualValues(t, 10, runs[1].Load()+runs[2].Load())
		shutdown()
		cancel()
		for range runs {
			<-ended
		}
	})
}

// A job that is a Task learns that its lock is lost, and that gocron ends it.
func TestTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		causes := make(chan error, 10)
		shutdown := replicas(t, 1, func(int) any {
			return redlockgocron.Task(c.Redlock(), "job", func(ctx context.Context) error {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil
			})
		}, nil)
		time.Sleep(period)
		c.Steal("job")
		time.Sleep(period)
		require.Len(t, causes, 1)
		assert.ErrorIs(t, <-causes, redlock.ErrLost)
		time.Sleep(period) // the thief's lock has expired
		require.Empty(t, causes, "it runs again")
		shutdown()
		require.Len(t, causes, 1)
		assert.ErrorIs(t, <-causes, context.Canceled)
	})
}

// Every replica runs a job that shares its lock, beside the others, but not beside one that has it
// alone.
func TestASharedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		running := 0
		read := func(then func() error) error {
			return redlockgocron.Task(c.Redlock(), "job", func(context.Context) error {
				running++
				return then()
			}, redlock.WithShared())(t.Context())
		}
		require.NoError(t, read(func() error {
			return read(func() error {
				l, err := redlockgocron.Locker(c.Redlock(), redlock.WithShared()).
					Lock(t.Context(), "job")
				require.NoError(t, err)
				_, err = redlockgocron.Locker(c.Redlock()).Lock(t.Context(), "job")
				assert.ErrorIs(t, err, redlock.ErrTaken)
				return l.Unlock(t.Context())
			})
		}))
		assert.Equal(t, 2, running)
		time.Sleep(time.Second) // the lock is kept for half of that
		alone, err := redlockgocron.Locker(c.Redlock()).Lock(t.Context(), "job")
		require.NoError(t, err)
		require.NoError(t, read(nil), "skipped")
		assert.Equal(t, 2, running)
		require.NoError(t, alone.Unlock(t.Context()))
	})
}

func TestTaskSaysWhatTheFunctionSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		oops := errors.New("oops")
		fail := redlockgocron.Task(c.Redlock(), "job", func(context.Context) error { return oops })
		assert.Equal(t, oops, fail(t.Context()))
		time.Sleep(time.Second) // the lock is kept for half of that
		taken := redlockgocron.Task(c.Redlock(), "job", func(context.Context) error {
			return redlock.ErrTaken
		})
		assert.Equal(t, redlock.ErrTaken, taken(t.Context()), "another lock is")
		time.Sleep(time.Second)
		c.Take("job", time.Hour)
		assert.NoError(t, fail(t.Context()), "another replica runs the job")
		for i := range 3 {
			c.Node(i).Down()
		}
		assert.ErrorIs(t, fail(t.Context()), redlock.ErrNoQuorum)
	})
}
