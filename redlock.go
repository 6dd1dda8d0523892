// Package redlock is a distributed lock over N independent Redis masters: the Redlock algorithm. A
// client holds the lock as long as a majority of the masters agree.
//
//	rl := redlock.New(goredis.NewPool(a), goredis.NewPool(b), goredis.NewPool(c))
//	defer rl.Close()
//
//	err := rl.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		return send(ctx) // ctx is done if the lock is lost
//	})
//
// A lock is a lease. It is granted for an expiry, and may be trusted until [Mutex.Until], a little
// less. [Redlock.Do] and [Mutex.Hold] keep it extended, for work of any length. [Mutex.Lock] does
// not: it is for work that is over by then.
//
// No lease can stop a holder that goes on after a pause that was longer than the lease. Where that
// must not do harm, ask for fencing tokens with [WithFencing]. Claim the resource with the token
// before the first read. The resource refuses a token lower than one it has seen.
//
// The algorithm is described at
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/. The docs folder of
// the repository says what it promises, fault by fault.
package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/lease"
	"github.com/redlock-go/redlock/internal/queue"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// Redlock makes mutexes on one group of nodes. It is safe for concurrent use. The
// zero value is not usable, and its methods panic; call [New]. A nil context panics everywhere.
type Redlock struct {
	core *core
	cfg  *config
	err  error // a mistake in the pools or options, returned on first use
}

// core is what all Redlocks derived from one New share.
type core struct {
	lease.Process
	err      error // a mistake in the pools
	quorum   int
	tracker  *quorum.Tracker // commands in flight
	tokens   wire.Tokens
	renewals lease.Renewals
	holds    *holds // closed by Close
	reads    reads
}

// New returns a Redlock on the given nodes, with the default options. A quorum is N/2 + 1 of them,
// whether they can be reached or not, so their number is usually odd: 5, or 3. Every process that
// shares a lock must be given the same nodes.
//
// New does no I/O and cannot fail: no pools, a nil pool, one pool given twice, or two pools with
// one address are an [*OptionError] on first use. The pools stay the caller's, to close after the
// Redlock.
func New(pools ...pool.Pool) *Redlock {
	cfg, tracker, own := defaults(), quorum.NewTracker(), clock.Of(pools)
	c := &core{
		quorum: quorum.Majority(len(pools)), tracker: tracker,
		holds: newHolds(),
	}
	if what, rule := quorum.Unfit(pools); rule != "" {
		c.err = &OptionError{"New", what, rule}
	}
	c.Nodes, c.Open, c.Now = quorum.Nodes(pools, tracker), c.holds.open, own.Now
	c.tokens.Now = c.Now
	c.Queues = queue.New(queue.Config{
		Nodes: c.Nodes, Tracker: tracker, Channel: wire.TurnChannel + own.Name(),
		Open: c.Open, Now: c.Now, Jitter: own.Jitter,
	})
	return &Redlock{core: c, cfg: &cfg, err: errtext.Join(c.err, cfg.finish())}
}

// mustBeMade panics if New did not make r.
func (r *Redlock) mustBeMade() {
	if r == nil || r.core == nil {
		panic("redlock: this Redlock is nil or the zero value: make it with New")
	}
}

// mustBeMade panics if NewMutex did not make m, or if ctx is nil.
func (m *Mutex) mustBeMade(ctx context.Context) {
	if m == nil || m.core == nil {
		panic("redlock: this Mutex is nil or the zero value: make it with NewMutex")
	}
	needContext(ctx)
}

// needContext panics if ctx is nil, before anything is sent.
func needContext(ctx context.Context) {
	if ctx == nil {
		panic("redlock: nil context")
	}
}

// With returns a Redlock on the same nodes whose mutexes have the given options by default, added
// to those of r. Both share what belongs to the nodes: closing one closes the other.
func (r *Redlock) With(opts ...Option) *Redlock {
	noValue := option(func(c *config) {
		if c.value != nil {
			c.value = nil
			c.wrong.add("WithValue", "…", "is for NewMutex: only one mutex can take a lock over")
		}
	})
	cfg, err := r.configure(slices.Concat(opts, []Option{noValue}))
	return &Redlock{core: r.core, cfg: cfg, err: err}
}

// configure returns the config of r with opts added, and what is wrong with it.
func (r *Redlock) configure(opts []Option) (*config, error) {
	r.mustBeMade()
	if len(opts) == 0 {
		return r.cfg, r.err
	}
	cfg := *r.cfg
	for i, o := range opts {
		if o != nil {
			o.apply(&cfg)
		} else {
			cfg.wrong.add("Option", fmt.Sprintf("option %d is nil", i),
				"needs options that are not nil")
		}
	}
	return &cfg, errtext.Join(r.core.err, cfg.finish())
}

// NewMutex returns a mutex with a name, not locked. It is the handle of one owner: two parts of a
// program that exclude each other each make their own, with the same name.
// NewMutex does no I/O. The Redis key is the name, after the prefix of [WithKeyPrefix]; two
// users of one name exclude each other whatever their other options. The name is not empty, and the
// key is none that redlock itself keeps for a lock: it does not look like the key of a fence
// counter, or of a queue. With any other name, the methods of the mutex return an [*OptionError].
func (r *Redlock) NewMutex(name string, opts ...Option) *Mutex {
	cfg, err := r.configure(opts)
	m := &Mutex{core: r.core, cfg: cfg, name: name, key: cfg.prefix + name, asks: cfg.Owner != ""}
	if nameErr := cfg.checkName("NewMutex", name, m.key); nameErr != nil {
		err = errtext.Join(nameErr, err)
	}
	k := &m.lock
	k.Lock = wire.NewLock(m.key, &cfg.Terms, &r.core.tokens)
	k.Pipelines = quorum.Pipelines(r.core.Nodes)
	k.Process, k.Options = &r.core.Process, &cfg.Options
	k.Alone, k.Denied, k.Ender = len(k.Pipelines) == 1, heldBy, (*ender)(m)
	if err != nil {
		m.mistaken(err)
	}
	m.tell.attach(m)
	if cfg.value != nil {
		k.TakeOver(*cfg.value)
	}
	return m
}

// mistaken notes what is wrong with the options.
func (m *Mutex) mistaken(err error) { m.lock.Misuse = lease.Because(err) }

// ender is a Mutex that is told when its leases end.
type ender Mutex

// Ended notes that nobody relies on the lease any more, and returns the cause for a held context.
func (e *ender) Ended(l *lease.Lease, reason lease.EndReason, why *lease.Failure) (cause error) {
	m := (*Mutex)(e)
	switch {
	case why == nil:
		cause = ErrReleased
	case reason == lease.EndReplaced:
		cause = m.error("ended", why)
	default:
		cause = m.error(lost, why)
	}
	m.tell.end(l, EndReason(reason), cause)
	return cause
}

// checkName says what is wrong with a lock's name and the key that it makes.
func (c *config) checkName(of, name, key string) error {
	switch {
	case name == "":
		return &OptionError{of, `""`, "needs a name that is not empty"}
	case c.Shared && wire.SeatsKey(key) == "":
		return &OptionError{"WithShared", errtext.Name(name), "needs a name without a closing " +
			"brace, or with a hash tag: the nodes keep the readers in the same hash slot"}
	case wire.IsOwnKey(key):
		return &OptionError{of, errtext.Name(name),
			"needs a name whose key is not that of a fence counter or a queue"}
	}
	return nil
}

func init() {
	wire.DeploymentOf = func(rl any) (wire.Deployment, error) {
		r := rl.(*Redlock)
		r.mustBeMade()
		return wire.Deployment{
			Nodes: r.core.Nodes, Terms: r.cfg.Terms, Tokens: &r.core.tokens,
			Prefix: r.cfg.prefix, Channel: r.core.Queues.Channel,
			Denied: heldBy, Exported: exported,
		}, r.err
	}
}

// Do holds the lock while it runs fn: [Mutex.Hold], fn, [Mutex.Unlock]. It waits for the lock as
// [Mutex.LockContext] does: by default for about five seconds, or 20 if a majority of nodes is
// silent. Unlock adds up to a node timeout. Do calls fn once it holds the lock, with the held
// context. That is cancelled with the cause [ErrLost] when the lock cannot be trusted any more; fn
// must return then. The lock is released even if fn panics.
//
// If Hold fails, Do returns its error, which matches [ErrFailed], and does not call fn. Otherwise
// fn ran, and Do returns the error of fn, or of Unlock, or one that wraps both. If fn may itself
// return an error that matches ErrFailed, that of another lock, only fn knows that it was called.
// An error of Unlock matches [ErrNotReleased]: the work is done, and doing it again would do it
// twice. It matches [ErrExpired] if the nodes had lost the lock by the end of fn, and [ErrLost] too
// if that had ended the held context. If Close released the lock while fn ran, the error matches
// [ErrReleased] instead.
func (r *Redlock) Do(ctx context.Context, name string, fn func(ctx context.Context) error,
	opts ...Option) error {
	m := r.NewMutex(name, opts...)
	if fn == nil {
		return m.error(notAcquired, lease.Because(needsFunction("Do")))
	}
	return m.do(ctx, fn)
}

// needsFunction is the mistake of giving a call no function.
func needsFunction(of string) *OptionError { return &OptionError{of, nil, "needs a function"} }

// doAlone is Do by the mutex alone.
func (m *Mutex) doAlone(ctx context.Context, fn func(ctx context.Context) error) error {
	held, err := m.Hold(ctx)
	if err != nil {
		return err
	}
	return m.during(ctx, func() error { return fn(held) })
}

// during runs what is done under a hold of the mutex, and unlocks it.
func (m *Mutex) during(ctx context.Context, fn func() error) (err error) {
	l := m.lock.Current()
	defer func() { err = errtext.Join(err, m.closed(l), m.finish(ctx, l)) }()
	return fn()
}

// closed is the error of a Do whose lock Close has released, or nil.
func (m *Mutex) closed(l *lease.Lease) error {
	if l.Look().State <= lease.StateLost {
		return nil
	}
	return m.error("not held to the end",
		&lease.Failure{Kind: lease.Released, Reason: "released by Close"})
}

// finish unlocks the lease at the end of a Do.
func (m *Mutex) finish(ctx context.Context, l *lease.Lease) error {
	err := m.unlock(ctx, l, byOwner)
	if errors.Is(err, ErrNotHeld) {
		return nil // Close has done it
	}
	return err
}

// Close ends every hold of r and of all Redlocks derived from the same New, by unlocking. Held
// contexts are done from the moment it is called, with the cause [ErrReleased], and locking fails
// with [ErrClosed]. It returns the errors of [Redlock.CloseContext], which says more.
//
// Unlocking takes no longer than three node timeouts, and one more for every 256 holds. Close then
// waits until all commands have returned from the clients and no release is pending for a node that
// answers, for one more node timeout at most. The longest node timeout counts, of r or of a hold.
//
// A node may execute a command that sets the key after its release. So such a release is repeated,
// a node timeout after its answer or later. Close may return before, and drops it: that key then
// blocks its node until it expires. [Redlock.CloseContext] waits for it while its context allows.
func (r *Redlock) Close() error {
	r.mustBeMade()
	longest, all := r.cfg.NodeTimeout, r.core.holds.list()
	for _, h := range all {
		longest = max(longest, h.m.cfg.NodeTimeout)
	}
	// Each release takes a node timeout at most, and so may the commands in flight before it.
	bound := clock.Times(longest, int64(3+len(all)/maxReleases))
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	err := r.core.closeHolds(ctx)
	last, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	quorum.Finish(last, r.core.Nodes)
	return err
}

// CloseContext is Close with a bound of the caller's own: it blocks until all that is done, or
// until ctx is done. It returns the first errors of releasing holds, and the number of locks that
// are not released. The context's error follows if ctx ended before. Closing again goes on with
// what is left. A lock that is gone before its Until is an error too: [ErrExpired], as for
// Unlock.
//
// It returns nil if nothing is held any more. A client may then still keep commands to a node
// that does not answer: nobody waits for them, and they change no lock. Of the releases that such
// a node has not answered, one is tried once more, and the others if it answers that. What is left
// is forgotten, and its keys expire.
//
// From the moment Close is called every held context is done, with the cause [ErrReleased].
// Locking fails with [ErrClosed]; only an attempt that is under way may still succeed, for Lock
// but not for Hold. An Unlock of a lock that Close has released returns [ErrNotHeld]. A lock that
// is not held by Hold stays as it is, and Unlock releases it. Close the pools after the Redlock.
func (r *Redlock) CloseContext(ctx context.Context) error {
	r.mustBeMade()
	needContext(ctx)
	err := r.core.closeHolds(ctx)
	quorum.Finish(ctx, r.core.Nodes)
	return err
}

// maxReleases is how many releases Close has under way at a time. A client that has a connection
// for each command would need as many for each node.
const maxReleases = 256

// maxErrors is how many of the errors of its releases Close returns; thousands say no more.
const maxErrors = 8

// closeHolds lets nothing begin any more and unlocks what is held. All held contexts are
// cancelled at once; of the releases, a bounded number is under way at a time, until ctx is done.
func (c *core) closeHolds(ctx context.Context) error {
	c.holds.close()
	all := c.holds.list()
	afters := make([]lease.Effects, len(all))
	for i, h := range all {
		afters[i] = h.l.Closing()
		afters[i].Cancel()
	}
	for i, h := range all { // when all held contexts are done
		afters[i].Run()
		h.m.tell.all()
	}
	var errs []error
	left := len(all)
	// A release ends within the node timeout, which may be later than ctx.
	c.tracker.Each(ctx, len(all), maxReleases, func(i int) error {
		return c.closeHold(ctx, all[i])
	}, func(err error) {
		if !errors.Is(err, ErrNoQuorum) {
			left--
		}
		if err != nil && len(errs) < maxErrors {
			errs = append(errs, err)
		}
	})
	if left > 0 {
		errs = append(errs, fmt.Errorf("redlock: close: %d of %d locks not released", left,
			len(all)), ctx.Err())
	}
	return errtext.Join(errs...)
}

// closeHold unlocks what a hold has held. If too few nodes answer, the hold stays registered for
// another Close.
func (c *core) closeHold(ctx context.Context, h *hold) error {
	err := h.m.unlock(ctx, h.l, byClose)
	// The loss has ended its held context before Close was called, and is about to unregister it.
	wasLost, now := errors.Is(err, ErrLost), h.l.Look()
	if !wasLost && errors.Is(err, ErrNoQuorum) {
		return err
	}
	c.holds.remove(h)
	// Its owner may have unlocked it meanwhile, or it ran out before its turn came.
	if wasLost || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrExpired) &&
		now.Loss == nil && clock.Remaining(c.Now(), now.Until) <= 0 {
		return nil
	}
	return err
}
