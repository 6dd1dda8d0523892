// Package robfigcron runs the jobs of robfig/cron on one of many replicas, by the locks of package
// redlock.
package robfigcron

import (
	"context"
	"errors"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/redlock-go/redlock"
)

// The defaults of a [Wrapper], whatever the options of the Redlock say: only options that are given
// to it replace these.
const (
	// DefaultTries is how often a replica asks for the lock of a run. It asks again only while
	// nobody is known to have the lock, after up to 10, 20, 40 and so on up to 250 ms: replicas
	// whose clocks agree ask at the same moment, and each may get some of the nodes then.
	DefaultTries int = 8
	// DefaultMinHold is for how long a run keeps the lock at least, from its start. Replicas whose
	// clocks are up to so much behind skip the run. It is half of the shortest period of a
	// crontab, a second, and leaves as much for the clocks that are ahead.
	DefaultMinHold time.Duration = 500 * time.Millisecond
)

// ContextJob is a job that is told when it must stop.
type ContextJob interface {
	cron.Job
	// RunContext is called instead of Run. The context ends when the lock is lost.
	RunContext(ctx context.Context)
}

// ContextFunc is a function that is a [ContextJob].
type ContextFunc func(ctx context.Context)

// Run implements [cron.Job], for a job that is not wrapped.
func (f ContextFunc) Run() { f(context.Background()) }

// RunContext implements [ContextJob].
func (f ContextFunc) RunContext(ctx context.Context) { f(ctx) }

// Wrapper returns a wrapper, for [cron.WithChain] or [cron.NewChain], that runs a job under the
// lock of that name, on one replica at a time. Jobs with the same name exclude each other, so most
// jobs need a wrapper of their own. It panics if the logger is nil: [cron.DiscardLogger] is one
// that logs nothing.
//
// The lock is held, and extended, as long as the job runs, and for [DefaultMinHold] at least. A
// [ContextJob] learns when it is lost; any other job goes on. A replica that does not get the lock
// skips the run, as soon as it knows that another has it. So a job runs once in a period of at
// least a second, if the replicas' clocks differ by less than half a second. Where clocks differ by
// more, or jobs run more often, give it a [redlock.WithMinHold] that is longer than the clocks
// differ, and by as much shorter than the period.
//
// With [redlock.WithShared] every replica runs the job, but not while somebody has the lock alone.
//
// The logger is told as by the wrappers of package cron: a run that is skipped because another
// replica has the lock is information. Everything else is an error: too few nodes answered, or the
// lock was lost, also if the job then panics.
func Wrapper(
	logger cron.Logger, rl *redlock.Redlock, name string, opts ...redlock.Option,
) cron.JobWrapper {
	if logger == nil {
		panic("robfigcron: Wrapper needs a logger, not nil: cron.DiscardLogger logs nothing")
	}
	locks := withDefaults(rl, opts)
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			m := locks.NewMutex(name)
			held, err := m.Hold(context.Background())
			switch {
			case errors.Is(err, redlock.ErrTaken):
				logger.Info("skip", "lock", name)
				return
			case err != nil:
				logger.Error(err, "redlock", "lock", name)
				return
			}
			defer func() { // also if the job panics
				over := context.Cause(held)
				_, err := m.UnlockContext(held)
				if errors.Is(err, redlock.ErrNotHeld) { // Close has released it
					err = over
				}
				if err != nil {
					logger.Error(err, "redlock", "lock", name)
				}
			}()
			if j, ok := job.(ContextJob); ok {
				j.RunContext(held)
			} else {
				job.Run()
			}
		})
	}
}

// withDefaults returns rl with the defaults, and the options of a user.
func withDefaults(rl *redlock.Redlock, opts []redlock.Option) *redlock.Redlock {
	return rl.With(
		redlock.WithoutWaiting(),
		redlock.WithTries(DefaultTries),
		redlock.WithRetryDelayFunc(redlock.ExponentialDelay(10*time.Millisecond,
			redlock.DefaultMaxRetryDelay)),
		redlock.WithMinHold(DefaultMinHold),
	).With(opts...)
}
