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
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlock-go/redlock"
)

// The defaults of a [Locker] and a [Task], whatever the options of the Redlock say: only options
// that are given to them replace these.
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

// Locker returns a locker for [gocron.WithDistributedLocker], or for a single job by
// [gocron.WithDistributedJobLocker]. A lock has the name of the job: give each a name of its own by
// [gocron.WithName], and locks a prefix by [redlock.WithKeyPrefix].
//
// A lock is held, and extended, as long as the job runs, and for [DefaultMinHold] at least. A
// replica that does not get it skips the run, as soon as it knows that another has it. So a job
// runs once in a period of at least a second, if the replicas' clocks differ by less than half a
// second. Where clocks differ by more, or jobs run more often, give it a [redlock.WithMinHold] that
// is longer than the clocks differ, and by as much shorter than the shortest period.
//
// With [redlock.WithShared] every replica runs the job, but not while somebody has the lock alone.
func Locker(rl *redlock.Redlock, opts ...redlock.Option) gocron.Locker {
	return locker{withDefaults(rl, opts)}
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
func Elector(e *redlock.Election) gocron.Elector {
	if e == nil {
		panic("redlockgocron: Elector needs an election, not nil")
	}
	return elector{e}
}

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
	if fn == nil {
		panic("redlockgocron: Task needs a function, not nil")
	}
	locks := withDefaults(rl, opts)
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
