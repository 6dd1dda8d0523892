// Package robfigcron runs the jobs of robfig/cron on one of many replicas, by the locks of package
// redlock.
package robfigcron

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	"github.com/redlock-go/redlock"
)

// DefaultTries is how often a replica asks for the lock of a run. Replicas whose clocks agree ask
// at the same moment. Each may get some of the nodes then, and nobody a quorum.
const DefaultTries int = 5

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
// lock of that name: on one replica at a time, by [redlock.Redlock.Do]. Jobs with the same name
// exclude each other, so most jobs need a wrapper of their own.
//
// The lock is extended as long as the job runs. A [ContextJob] learns when it is lost; any other
// job goes on. A replica that does not get the lock skips the run. It asks [DefaultTries] times
// unless the options say otherwise. A job that takes less time than the replicas' clocks differ
// needs [redlock.WithMinHold], or late replicas run it again.
//
// The logger is told as by the wrappers of package cron: a run that is skipped because another
// replica has the lock is information. Everything else is an error: too few nodes answered, or the
// lock was lost.
func Wrapper(
	logger cron.Logger, rl *redlock.Redlock, name string, opts ...redlock.Option,
) cron.JobWrapper {
	locks := rl.With(redlock.WithTries(DefaultTries)).With(opts...)
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			err := locks.Do(context.Background(), name, func(ctx context.Context) error {
				if j, ok := job.(ContextJob); ok {
					j.RunContext(ctx)
				} else {
					job.Run()
				}
				return nil
			})
			switch {
			case errors.Is(err, redlock.ErrTaken):
				logger.Info("skip", "lock", name)
			case err != nil:
				logger.Error(err, "redlock", "lock", name)
			}
		})
	}
}
