package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/lease"
)

// maxNames is how many names DoAll takes: each is a lock of its own, one after the other.
const maxNames = 64

// DoAll runs fn while it holds several locks at once, those of all the names: a transfer between
// two accounts, for instance. The context of fn is done as soon as one of them cannot be trusted
// any more. Names may be given in any order, and more than once.
//
// The locks are ordinary ones, held one inside the other as by [Redlock.Do], in the order of their
// keys, and released in the reverse order. Callers of DoAll whose names overlap therefore wait in
// the same order, and cannot deadlock. A Do within a Do has no such order: two that nest the same
// names differently block each other until the tries of one are used up.
//
// DoAll waits for each lock as Do does, with the options for each: by default for about five
// seconds, or until ctx is done. Meanwhile it holds the locks that it has. If one cannot be
// acquired, DoAll unlocks the others, which [WithMinHold] leaves taken, and returns the error of
// that one, which has its name and matches [ErrFailed]; fn is not called. If a lock that it
// already holds is lost meanwhile, the error is that of the loss, and matches [ErrFailed], too. The
// text also says which of the others could not be unlocked. The other errors are those of Do.
// Between 1 and 64 names are allowed; anything else is an [*OptionError].
//
// [FencingToken] of the context of fn is 0, because each lock has a token of its own: see
// [FencingTokenOf].
func (r *Redlock) DoAll(ctx context.Context, names []string, fn func(ctx context.Context) error,
	opts ...Option) error {
	all, err := r.mutexes(ctx, names, opts)
	switch {
	case err != nil:
		return err
	case fn == nil:
		return r.misused(needsFunction("DoAll"))
	case len(all) == 0 || len(all) > maxNames:
		return r.misused(&OptionError{"DoAll", fmt.Sprintf("%d names", len(all)),
			fmt.Sprintf("needs from 1 to %d names", maxNames)})
	}
	called := false
	var failed error // the error of the lock that was not acquired
	run := func(ctx context.Context) error {
		called = true
		return fn(context.WithValue(ctx, tokenKey{}, uint64(0)))
	}
	for _, m := range slices.Backward(all) {
		inner := run
		run = func(held context.Context) error {
			err := m.do(held, inner)
			if called || failed != nil {
				return err
			}
			failed = err
			why := context.Cause(held) // if a lock that it had was lost
			if why != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
				if errors.Is(why, ErrReleased) {
					why = ErrClosed
				}
				failed = errtext.Join(ErrFailed, why)
			}
			return err
		}
	}
	err = run(ctx)
	if called || err == failed {
		return err
	}
	return errtext.Error(err.Error(), failed) // ErrNotReleased would say that fn was called
}

// misused is the error of a call that is wrong for whatever names.
func (r *Redlock) misused(wrong *OptionError) error {
	return r.core.errorOf("", notAcquired, lease.Because(wrong))
}

// mutexes returns a mutex for each of the names, in their order, or what is wrong with one of them.
func (r *Redlock) mutexes(ctx context.Context, names []string, opts []Option) ([]*Mutex, error) {
	r.mustBeMade()
	needContext(ctx)
	names = slices.Clone(names)
	slices.Sort(names)
	var all []*Mutex
	for _, name := range slices.Compact(names) {
		m := r.NewMutex(name, opts...)
		if m.lock.Misuse != nil {
			return nil, m.error(notAcquired, m.lock.Misuse)
		}
		all = append(all, m)
	}
	return all, nil
}

// FencingTokenOf is [FencingToken] of the lock with that name, of which ctx is the held context, or
// was derived from it: it is for the function that [Redlock.DoAll] calls. It is 0 if ctx comes from
// no hold of that name, or if that is held without [WithFencing]. If several locks with that name
// are held, under different prefixes, it is the innermost one's.
func FencingTokenOf(ctx context.Context, name string) uint64 {
	needContext(ctx)
	if h := holdOf(ctx, func(c *heldContext) bool { return c.h.m.name == name }); h != nil {
		return h.l.Token
	}
	return 0
}

// Slots returns k names, "name#0" and so on, for [Redlock.DoAny], [Redlock.HoldAny] and
// [Redlock.LockAny]. They make a distributed semaphore of k permits: at most k hold one of them at
// a time, because each is a lock of its own, unless it is shared by [WithShared]. If processes give
// different numbers, the greatest counts. Slots returns nothing if k is less than 1.
func Slots(name string, k int) []string {
	var names []string
	for i := range max(k, 0) {
		names = append(names, fmt.Sprintf("%s#%d", name, i))
	}
	return names
}

// DoAny runs fn while it holds the lock of one of the names, which fn is told. With [Slots] that is
// a semaphore: at most k of fn run at a time, in all processes together. In one process that is
// golang.org/x/sync/semaphore, or SetLimit of golang.org/x/sync/errgroup. The name is also a number
// for the worker that nobody else has at the same time.
//
//	slots := redlock.Slots("report", 8)
//	err := rl.DoAny(ctx, slots, func(ctx context.Context, slot string) error {
//		return report(ctx)
//	})
//
// DoAny waits as [Redlock.LockAny] does, and otherwise behaves as [Redlock.Do]: the lock is kept
// while fn runs, the context of fn is done if it is lost, and the errors are the same.
func (r *Redlock) DoAny(ctx context.Context, names []string,
	fn func(ctx context.Context, name string) error, opts ...Option) error {
	r.mustBeMade()
	if fn == nil {
		return r.misused(needsFunction("DoAny"))
	}
	held, m, err := r.HoldAny(ctx, names, opts...)
	if err != nil {
		return err
	}
	return m.during(ctx, func() error { return fn(held, m.name) })
}

// HoldAny is [Redlock.LockAny] followed by keeping the lock, as [Mutex.Hold] does. With [Slots] it
// is the Acquire of a semaphore. It returns the held context, and the mutex, whose Unlock, the
// Release, must follow. The errors are those of LockAny, and of Hold; the other results are nil
// then.
func (r *Redlock) HoldAny(ctx context.Context, names []string, opts ...Option) (context.Context,
	*Mutex, error) {
	m, err := r.LockAny(ctx, names, opts...)
	if err != nil {
		return nil, nil, err
	}
	held, err := m.keep(ctx, m.lock.Current())
	if err != nil {
		return nil, nil, err
	}
	return held, m, nil
}

// LockAny locks one of the names, and returns its mutex, as [Mutex.LockContext] would leave it: its
// owner extends and unlocks it. [Redlock.HoldAny] keeps it extended.
//
// It tries the names in a random order, up to 20 of them. If none is free, it waits for one, chosen
// at random, for a retry delay, tries two, and goes on like that. Each such round costs a try. It
// gives up when its tries are used up, by default after about five seconds, or 20 if a majority of
// nodes is silent, or when ctx is done. With [WithoutWaiting] it only tries them. Among those who
// wait for different names there is no order. A Lock that waits for one of the names goes before
// LockAny, which comes and goes: where somebody always waits for a name with Lock, LockAny may
// never get it.
//
// The error is that of the last name that was tried: it matches [ErrFailed], and what the error of
// LockContext would. It is an [*OptionError] if there is no name, or a bad one. [Events] are told
// of each name that is tried. [WithMaxWaiters] counts for each name: where too many wait for one
// already, the round takes as long without a place there. Names that the caller holds itself are
// left out; if it holds all, LockAny fails at once with [ErrSelf].
func (r *Redlock) LockAny(ctx context.Context, names []string, opts ...Option) (*Mutex, error) {
	all, err := r.mutexes(ctx, names, opts)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, r.misused(&OptionError{"LockAny", "no names", "needs a name"})
	}
	var others []*Mutex // those that the caller does not hold itself
	for _, m := range all {
		m.asks = false // many are refused: only the error that is returned says whose the lock is
		if m.self(ctx) == nil {
			others = append(others, m)
		}
	}
	if len(others) > 0 { // it would wait for those that it holds until it gives up
		all = others
	}
	m, err := lockOneOf(ctx, all)
	if err == nil {
		m.asks = m.cfg.Owner != ""
		return m, nil
	}
	last := *err.(*Error) // as acquire's are
	if len(all) > 1 {
		last.failed = fmt.Sprintf("%s, the last of %d names", notAcquired, len(all))
	}
	if m.cfg.Owner != "" && errors.Is(err, ErrTaken) {
		last.Owner = m.lock.Owner(ctx, last.from.Attempt())
		if last.last != nil {
			last.last.Owner = last.Owner
		}
	}
	return nil, &last
}

const (
	// maxProbes is how many names are tried before the first wait. More would take as many round
	// trips, and each would be a command to every node.
	maxProbes = 20
	// fewProbes is how many are tried between two waits.
	fewProbes = 2
	// leastWait is how long the wait for a name takes at least, where the retry delay is shorter.
	leastWait = 5 * time.Millisecond
)

// lockOneOf locks one of the mutexes, which have the same options. If it fails, it returns the last
// that it has tried.
func lockOneOf(ctx context.Context, all []*Mutex) (*Mutex, error) {
	cfg := all[0].cfg
	var last *lease.Failure // what the last attempt that ctx did not end has come to
	for try, probes := 1, maxProbes; ; try, probes = try+1, fewProbes {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		m, err := probe(ctx, all[:min(probes, len(all))])
		switch {
		case err == nil || try == cfg.tries || cfg.NoWait:
			return m, err
		case mayPass(err):
			last = err.(*Error).from.Attempt()
		case ctx.Err() == nil:
			return m, err
		}
		if ctx.Err() == nil {
			m = all[len(all)-1]
			err = m.linger(ctx, max(cfg.Delay(try), leastWait))
			if err == nil || errors.Is(err, ErrClosed) {
				return m, err
			}
		}
		if ctx.Err() != nil { // which err may take for the end of linger's patience, or not know
			last = cmp.Or(err.(*Error).from.Last, last)
			return m, m.error(notAcquired, lease.Interrupted(ctx, last))
		}
	}
}

// linger waits for the mutex, for the delay at most. If it fails, it takes the whole delay.
func (m *Mutex) linger(ctx context.Context, delay time.Duration) error {
	began := time.Now()
	patience, cancel := context.WithTimeout(ctx, delay)
	defer cancel()
	_, err := m.acquire(patience, Unlimited, "")
	if err != nil && !errors.Is(err, ErrClosed) { // too many wait for that name already
		m.core.Pause(ctx, delay-time.Since(began))
	}
	return err
}

// mayPass reports whether the reason for which a name was not locked may pass while one waits.
func mayPass(err error) bool {
	return !errors.Is(err, ErrSelf) &&
		(errors.Is(err, ErrTaken) || errors.Is(err, ErrNoQuorum) || errors.Is(err, ErrExpired))
}

// probe tries mutexes once, one after the other, until one is locked, and returns the last of them.
// It stops early if the nodes are the reason that one is not locked.
func probe(ctx context.Context, mutexes []*Mutex) (m *Mutex, err error) {
	for _, m = range mutexes {
		_, err = m.acquire(ctx, 1, "")
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrTaken) {
			break
		}
	}
	return m, err
}
