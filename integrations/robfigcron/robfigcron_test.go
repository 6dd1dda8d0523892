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

// Fifty replicas whose clocks differ run a short job once in a period with WithMinHold, and more
// often without.
func TestAJobRunsOnceInAPeriod(t *testing.T) {
	const apart = 400 * time.Millisecond
	for name, tt := range map[string]struct {
		opts []redlock.Option
		want int64
	}{
		"WithMinHold": {[]redlock.Option{redlock.WithMinHold(30 * time.Second)}, 10},
		"without it":  {nil, 10 * 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := redlocktest.New(t, 3)
				var runs atomic.Int64
				var all []*cron.Cron
				for range 50 {
					wrapper := robfigcron.Wrapper(cron.DiscardLogger, c.Redlock(), "job",
						tt.opts...)
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
				assert.Equal(t, tt.want, runs.Load())
			})
		})
	}
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

func TestTheLoggerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := redlocktest.New(t, 3), &logbook{}
		runs := 0
		job := robfigcron.Wrapper(log, c.Redlock(), "job")(cron.FuncJob(func() { runs++ }))
		job.Run()
		assert.Equal(t, 1, runs)
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
