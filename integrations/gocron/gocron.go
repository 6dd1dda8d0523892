// Package redlockgocron runs the jobs of gocron on one of many replicas, by the locks of package
// redlock.
//
// There are three ways. A [Locker] lets the replicas compete for each run of each job. An
// [Elector] lets one of them run all jobs, as long as it leads. A [Task] takes the lock within
// the job. Only a Task tells a running job that its lock is lost: gocron cannot.
package redlockgocron

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlock-go/redlock"
)

// DefaultTries is how often a replica asks for the lock of a run. Replicas whose clocks agree ask
// at the same moment. Each may get some of the nodes then, and nobody a quorum.
const DefaultTries int = 5

// Locker returns a locker for [gocron.WithDistributedLocker], or for a single job by
// [gocron.WithDistributedJobLocker]. A lock has the name of the job: give each a name of its own by
// [gocron.WithName], and locks a prefix by [redlock.WithKeyPrefix].
//
// A lock is held, and extended, as long as the job runs. A replica that does not get it skips the
// run. It asks [DefaultTries] times unless the options say otherwise. A job that takes less time
// than the replicas' clocks differ needs [redlock.WithMinHold], or late replicas run it again.
func Locker(rl *redlock.Redlock, opts ...redlock.Option) gocron.Locker {
	return locker{withTries(rl).With(opts...)}
}

func withTries(rl *redlock.Redlock) *redlock.Redlock {
	return rl.With(redlock.WithTries(DefaultTries))
}

type locker struct{ locks *redlock.Redlock }

// Lock implements [gocron.Locker]. The error is that of [redlock.Mutex.Hold].
func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	m := l.locks.NewMutex(key)
	if _, err := m.Hold(ctx); err != nil {
		return nil, err
	}
	return lock{m}, nil
}

type lock struct{ m *redlock.Mutex }

// Unlock implements [gocron.Lock]. It works also if ctx is done.
func (l lock) Unlock(ctx context.Context) error {
	_, err := l.m.UnlockContext(ctx)
	return err
}

// ErrNotLeading is why a scheduler with an [Elector] skips a run.
var ErrNotLeading = errors.New("redlockgocron: this replica does not lead")

// Elector returns an elector for [gocron.WithDistributedElector]: the scheduler runs its jobs while
// the election's candidate leads. Somebody else must let it stand, for instance:
//
//	go election.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
//
// The elector is asked before a run, and asks nobody itself. A job that is running when the lead is
// lost goes on, beside those of the next leader. One that must stop needs a [Task].
func Elector(e *redlock.Election) gocron.Elector { return elector{e} }

type elector struct{ e *redlock.Election }

// IsLeader implements [gocron.Elector].
func (e elector) IsLeader(context.Context) error {
	if e.e.Leading() {
		return nil
	}
	return ErrNotLeading
}

// Task returns a function for [gocron.NewTask] that runs fn under the lock of that name, by
// [redlock.Redlock.Do]. The context of fn ends when the lock is lost, and when gocron ends the job.
// If another replica has the lock, fn is not called, and the function returns nil. The rest is as
// with a [Locker].
func Task(
	rl *redlock.Redlock, name string, fn func(ctx context.Context) error, opts ...redlock.Option,
) func(ctx context.Context) error {
	locks := withTries(rl).With(opts...)
	return func(ctx context.Context) error {
		called := false
		err := locks.Do(ctx, name, func(ctx context.Context) error {
			called = true
			return fn(ctx)
		})
		if !called && errors.Is(err, redlock.ErrTaken) {
			return nil
		}
		return err
	}
}
