package robfigcron_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integrations/robfigcron"
	"github.com/redlock-go/redlock/internal/test/ticks"
	"github.com/redlock-go/redlock/redlocktest"
)

// logbook is a [cron.Logger].
type logbook struct {
	mu     sync.Mutex // guards what follows
	infos  []string
	errors []error
}

func (l *logbook) Info(msg string, keysAndValues ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos = append(l.infos, fmt.Sprint(append([]any{msg, " "}, keysAndValues...)...))
}

func (l *logbook) Error(err error, _ string, _ ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, err)
}

// Fifty replicas whose clocks differ by 20 s run a short job once in a period with a minimum hold
// that is longer.
func TestAJobRunsOnceInAPeriod(t *testing.T) {
	const apart = 400 * time.Millisecond
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
				var all []*cron.Cron
				for range 50 {
					wrapper := robfigcron.Wrapper(cron.DiscardLogger, c.Redlock(), "job",
						redlock.WithMinHold(tt.hold))
					s := cron.New(cron.WithChain(wrapper))
					_, err := s.AddFunc("@every 1m", func() { runs.Add(1) })
					require.NoError(t, err)
					s.Start()
					all = append(all, s)
					time.Sleep(apart)
				}
				time.Sleep(10*time.Minute - apart/2)
				for _, s := range all {
					<-s.Stop().Done()
				}
				if tt.once {
					assert.EqualValues(t, 10, runs.Load())
				} else {
					assert.Greater(t, runs.Load(), int64(10*10))
				}
			})
		})
	}
}

// lesson L137
func TestAJobRunsOnceAtEachTick(t *testing.T) {
	ticks.Once(t, func(t *testing.T, r ticks.Replica) (stop func()) {
		late := func(job cron.Job) cron.Job {
			return cron.FuncJob(func() {
				time.Sleep(r.Late)
				job.Run()
			})
		}
		s := cron.New(cron.WithSeconds(), cron.WithChain(late,
			robfigcron.Wrapper(cron.DiscardLogger, r.Locks, "job")))
		_, err := s.AddFunc("* * * * * *", r.Work)
		require.NoError(t, err)
		s.Start()
		return func() { <-s.Stop().Done() }
	})
}

// Every replica runs a job that shares its lock, beside the others, but not beside one that has it
// alone.
func TestASharedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		running := 0
		job := func(run func(), opts ...redlock.Option) func() {
			return robfigcron.Wrapper(cron.DiscardLogger, c.Redlock(), "job", opts...)(
				cron.FuncJob(func() {
					running++
					run()
				})).Run
		}
		alone := job(func() {})
		job(job(alone, redlock.WithShared()), redlock.WithShared())()
		assert.Equal(t, 2, running, "two that share, and not the one that does not")
		time.Sleep(time.Second) // the lock is kept for half of that
		job(job(func() {}, redlock.WithShared()))()
		assert.Equal(t, 3, running, "the one that does not share, alone")
	})
}

// A job with a context learns that the lock is lost; the logger is told.
func TestAContextJobLearnsOfTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := redlocktest.New(t, 3), &logbook{}
		var cause error
		job := robfigcron.Wrapper(log, c.Redlock(), "job")(robfigcron.ContextFunc(
			func(ctx context.Context) {
				time.Sleep(time.Minute)
				assert.NoError(t, ctx.Err(), "the lock is extended")
				c.Steal("job")
				<-ctx.Done()
				cause = context.Cause(ctx)
			}))
		job.Run()
		assert.ErrorIs(t, cause, redlock.ErrLost)
		require.Len(t, log.errors, 1)
		assert.ErrorIs(t, log.errors[0], redlock.ErrLost)
		assert.Empty(t, log.infos)
	})
}

// A panic goes on to who has called the job, and does not hide that the lock was lost.
//
// lesson L143
func TestAPanicDoesNotHideTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := redlocktest.New(t, 3), &logbook{}
		for name, end := range map[string]func(ctx context.Context){
			"noticed":   func(ctx context.Context) { c.Steal("job"); <-ctx.Done() },
			"unnoticed": func(context.Context) { c.Steal("job") },
		} {
			log.errors = nil
			job := robfigcron.Wrapper(log, c.Redlock(), "job", redlock.WithMinHold(0))(
				robfigcron.ContextFunc(func(ctx context.Context) {
					time.Sleep(time.Second)
					end(ctx)
					panic("oops")
				}))
			assert.PanicsWithValue(t, "oops", job.Run, name)
			require.Len(t, log.errors, 1, name)
			assert.ErrorIs(t, log.errors[0], redlock.ErrExpired, name)
			time.Sleep(time.Minute) // the thief's lock has expired
		}
	})
}

// Close releases the lock while the job runs: the logger is told that, and not that the lock was
// not held.
func TestTheLoggerIsToldOfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := redlocktest.New(t, 3), &logbook{}
		rl := c.Redlock()
		robfigcron.Wrapper(log, rl, "job")(robfigcron.ContextFunc(func(ctx context.Context) {
			assert.NoError(t, rl.Close())
			<-ctx.Done()
		})).Run()
		require.Len(t, log.errors, 1)
		assert.Equal(t, redlock.ErrReleased, log.errors[0])
	})
}

func TestWrapperNeedsALogger(t *testing.T) {
	c := redlocktest.New(t, 3)
	assert.PanicsWithValue(t,
		"robfigcron: Wrapper needs a logger, not nil: cron.DiscardLogger logs nothing",
		func() { robfigcron.Wrapper(nil, c.Redlock(), "job") })
}

func TestTheLoggerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := redlocktest.New(t, 3), &logbook{}
		runs := 0
		job := robfigcron.Wrapper(log, c.Redlock(), "job")(cron.FuncJob(func() { runs++ }))
		job.Run()
		assert.Equal(t, 1, runs)
		time.Sleep(time.Second)
		assert.Empty(t, log.infos)
		c.Take("job", time.Hour)
		job.Run()
		assert.Equal(t, []string{"skip lockjob"}, log.infos)
		for i := range 3 {
			c.Node(i).Down()
		}
		job.Run()
		require.Len(t, log.errors, 1)
		assert.ErrorIs(t, log.errors[0], redlock.ErrNoQuorum)
		assert.Equal(t, 1, runs)
	})
}

// A job that is not wrapped runs, too.
func TestAContextFuncIsAJob(t *testing.T) {
	var ctx context.Context
	cron.NewChain().Then(robfigcron.ContextFunc(func(c context.Context) { ctx = c })).Run()
	assert.Equal(t, context.Background(), ctx)
}
