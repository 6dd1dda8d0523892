package redlock

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/lease"
)

// Mutex is one owner's handle of a lock. It is made by [Redlock.NewMutex], is safe for concurrent
// use, and must not be copied. Every method that asks the nodes panics on the zero value, and on
// a nil context.
//
// It holds at most one lease at a time. A Lock on a mutex that is locked competes with its own
// lease as with anybody's: it waits until its tries are used up, or that lease ends. With
// [WithShared] it is granted a new one beside that, and then the old one ends.
type Mutex struct {
	core *core
	cfg  *config
	name string
	key  string
	lock lease.Lock // its leases, and what is said to the nodes
	held *hold      // the latest; the lock's Mu guards it
	tell notifier
	asks bool // whose a taken lock is, also after a single try: see WithOwner
}

// Name returns the name given to NewMutex, without the key prefix.
func (m *Mutex) Name() string { return m.name }

// Value returns the lease's value: the one secret that may release it. It is "" while the mutex
// is not locked. Another process can take the lock over by it, see [WithValue].
func (m *Mutex) Value() string { return m.lock.Current().Value }

// Until returns the moment up to which the lock may be trusted: the start of the attempt that won,
// or of the last successful extension, plus expiry, minus drift. After a wait in the queue, up to
// an eighth of that time may be over when the lock is granted. Until is the zero time while the
// mutex is not locked, and after Unlock or proof of loss. It is also zero for a lock taken over by
// [WithValue] until the first Extend. It does not ask the nodes.
func (m *Mutex) Until() time.Time {
	now := m.lock.Current().Look()
	if !now.State.Trusted() {
		return time.Time{}
	}
	return now.Until
}

// FencingToken returns the lease's fencing token, a number greater than that of every earlier
// holder of the name, below 2^53. Claim the resource that the lock protects with the token before
// the first read, and write with it. The resource refuses a token lower than one it has seen. To
// show it with the writes alone is not enough: a paused holder's write may come between the next
// one's read and write. In SQL, where no row means that the token is stale:
//
//	UPDATE item SET fence = $token WHERE id = $id AND fence <= $token
//	SELECT stock FROM item WHERE id = $id
//	UPDATE item SET stock = $stock WHERE id = $id AND fence <= $token
//
// The token stays the same across Extend. It stays until Unlock also when the lock has expired or
// is proven to be lost: a write that comes too late must carry it to be refused. So unlike Until
// it does not tell whether the lock is held. It is 0 without [WithFencing], and while the mutex
// is not locked.
func (m *Mutex) FencingToken() uint64 {
	l := m.lock.Current()
	if l.Look().State > lease.StateLost {
		return 0
	}
	return l.Token
}

// FencingToken returns the fencing token of the lock whose held context ctx is, or was derived
// from: it is how the function that [Redlock.Do] calls gets it. Claim the resource with it before
// the first read, see [Mutex.FencingToken]. Of locks within each other the innermost counts. The
// token is 0 if there is no lock, or if the innermost is held without [WithFencing]. It is the same
// after the lock was lost, which is when the resource needs it most.
func FencingToken(ctx context.Context) uint64 {
	needContext(ctx)
	token, _ := ctx.Value(tokenKey{}).(uint64)
	return token
}

// Lock calls [Mutex.LockContext] with context.Background().
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext blocks until the lock is granted, the tries are used up, or ctx is done. When ctx is
// done it returns within milliseconds, whatever the nodes do.
//
// If the lock is taken, the waiters of the process queue. The first of them waits in a queue that
// the nodes keep for all processes. It is granted the lock when its turn comes. Each
// retry delay that passes uses up a try. By default Lock gives up after about five seconds if the
// lock stays taken. One attempt takes three node timeouts at most: to ask the nodes, to raise the
// fencing token, and to find out why it failed.
//
// If a majority of the nodes is silent, a try takes a node timeout longer: by default Lock gives up
// after 16 to 21 seconds, or after 5 to 8 if another node says that the lock is taken. It backs off
// from silent nodes for four times their silence, for two seconds at most. Tries are still used up
// meanwhile.
//
// If there is no quorum because nodes refuse for a reason that lasts, such as a wrong password, a
// missing right or READONLY, Lock gives up after the second try, unless the tries are [Unlimited].
//
// On success the lock is held until [Mutex.Until]. On failure it is not held, and what had been
// granted is being released. The error matches [ErrFailed]. By what the last attempt came to, it
// also matches [ErrTaken], [ErrNoQuorum] or [ErrExpired]. If ctx ended the call, it matches the
// context's error and its cause. It matches [ErrClosed] after Close, or it is an [*OptionError].
func (m *Mutex) LockContext(ctx context.Context) error {
	m.mustBeMade(ctx)
	_, err := m.acquire(ctx, m.cfg.tries, "")
	return err
}

// TryLock is [Mutex.TryLockContext] without a context.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext is LockContext with a single attempt, whatever the number of tries. It asks all
// nodes at once, and so takes two node timeouts at most, three with [WithFencing] or [WithOwner]. A
// client that sends the command twice may be refused by its own key. The attempt is then made anew,
// up to three times.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	m.mustBeMade(ctx)
	_, err := m.acquire(ctx, 1, "")
	return err
}

// acquire locks m, or adopts the lock that was handed off with the value, if that is not "". It
// tells Events of it. Its error says whether the lock is this process's, if it has waited for that,
// and whose it is. If the mutex has no owner itself, that is not asked after a single try or the
// end of ctx, which many callers may come to at once.
func (m *Mutex) acquire(ctx context.Context, tries int, value string) (_ *lease.Lease, err error) {
	ctx, told := m.tell.acquiring(ctx, tries)
	var w lease.Witness
	if told != nil {
		w = witness{told}
	}
	err = errPanicked
	defer func() { m.tell.acquired(told, err) }()
	if value != "" {
		l, f := m.lock.Adopt(ctx, value, w)
		return l, m.error(notAdopted, f)
	}
	if err := m.self(ctx); err != nil {
		return nil, err
	}
	l, f := m.lock.Get(ctx, tries, w)
	if f == nil {
		return l, nil
	}
	if last := f.Attempt(); (f.Kind|last.Kind)&lease.Taken != 0 {
		neighbour := func(h *hold) bool {
			together := m.cfg.Shared && h.m.cfg.Shared // somebody else waits
			return h.m != m && !together && h.keeps(m)
		}
		if tries != 1 && slices.ContainsFunc(m.core.holds.list(), neighbour) {
			last.More += ", held by another mutex of this process"
		}
		if m.asks || tries != 1 && ctx.Err() == nil {
			last.Owner = m.lock.Owner(ctx, last)
		}
	}
	return nil, m.error(notAcquired, f)
}

// Unlock is [Mutex.UnlockContext] without a context.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext releases the lock on all nodes. It blocks until the outcome is decided, at most
// for the node timeout. Slower nodes are released in the background. Calls at the same time run one
// after the other, each with its node timeout, until one has succeeded. Only the values of ctx are
// used: Unlock works even if ctx is done, and does not end with it. If ctx comes from a hold of
// this mutex, the lock of that hold is released, and none that the mutex was granted later.
//
// The bool is true if and only if the error is nil. Then a quorum of nodes still had the
// lock and has deleted it: it was never lost, and it is free now. With [WithMinHold] the lock may
// stay taken for a while instead. The error matches
//   - [ErrExpired] if the lock is gone on so many nodes that it may have been somebody else's in
//     the meantime. Before [Mutex.Until], either nodes have lost their data, or the lock has been
//     deleted by a release whose answer was lost: that of an earlier Unlock, or of a client that
//     then sent it again, see [github.com/redlock-go/redlock/pool.Pool]. The nodes cannot tell
//     which,
//   - [ErrNoQuorum] if too few nodes answered. Do not use the lock any more; Unlock may be called
//     again to finish,
//   - [ErrNotHeld] if the mutex is not locked; nothing was sent.
//
// If the lock was held by [Mutex.Hold], its context is cancelled first, with the cause
// [ErrReleased].
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	m.mustBeMade(ctx)
	l := m.lock.Current()
	if h := holdOf(ctx, func(c *heldContext) bool { return c.h.m == m }); h != nil {
		l = h.l
	}
	err := m.unlock(ctx, l, byOwner)
	return err == nil, err
}

// unlock releases a lease of the mutex, and tells Events. Within its minimum hold the lock stays
// taken, unless Close releases it.
func (m *Mutex) unlock(ctx context.Context, l *lease.Lease, who by) error {
	ctx, told := m.tell.releasing(ctx, l, who)
	var err error
	f := l.Unlock(ctx, who == byOwner, func(f *lease.Failure) {
		err = m.error(notReleased, f)
		told.end(outcome(told, err))
	})
	if err == nil { // or nothing was sent
		err = m.error(notReleased, f)
	}
	over(&m.tell, told, OperationRelease, l, who, err, outcome(told, err))
	return err
}

// Extend is [Mutex.ExtendContext] without a context.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext makes the lock last for another expiry from now. It blocks until the outcome is
// decided, at most for the node timeout, or until ctx is done.
//
// The bool is true if and only if the error is nil. Then a quorum of nodes still had the lock, so
// nobody else had it since it was granted. Until has moved, unless another extension has moved it
// further. Nodes that had lost the key are given it again. The error matches
//   - [ErrExpired] if the lock ran out before, and then nothing was sent, or during the call, or
//     if the nodes proved that it is gone; then what is left of it is being released,
//   - [ErrNoQuorum] if too few nodes answered, and the context's error if it ended the
//     call; the lock is then held until Until as before, and Extend may be called again,
//   - [ErrNotHeld] if the mutex is not locked; nothing was sent, unless it was unlocked
//     during the call.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	m.mustBeMade(ctx)
	l := m.lock.Current()
	ctx, told := m.tell.extending(ctx, l, byOwner)
	_, f := l.Extend(ctx, m.cfg.NodeTimeout, confirmed(told, l))
	err := m.error(notExtended, f)
	m.tell.extended(told, l, byOwner, err)
	return err == nil, err
}

// Valid is [Mutex.ValidContext] without a context.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext asks the nodes whether they still have the lock. Whether the lock may be trusted
// depends only on local time, see [Mutex.Until]; ValidContext finds out in addition whether nodes
// have lost it. It blocks until the outcome is decided, at most for the node timeout, or until
// ctx is done.
//
// The bool is true if and only if the error is nil. The errors are those of [Mutex.ExtendContext].
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	m.mustBeMade(ctx)
	err := m.error("not valid", m.lock.Current().Valid(ctx))
	m.tell.all()
	return err == nil, err
}

// Handoff gives the lock away without releasing it: another process goes on with it, by
// [Mutex.Adopt] of what Handoff returns, and nobody else can have it in between. Stop the work
// under the lock first. Handoff sends nothing to the nodes.
//
// The mutex is not locked any more when Handoff returns, as after Unlock: a held context is done
// with the cause [ErrReleased], and nothing extends the lock. Unlock and Extend fail with
// [ErrNotHeld]. The lock stays taken until it is adopted and released, or until its keys expire,
// within the expiry. To take it back, adopt it with the same mutex.
//
// The text is a secret: one who has it can take the lock, once. The error matches [ErrNotHeld] if
// the mutex is not locked, and [ErrExpired] if the lock was lost or has run out.
func (m *Mutex) Handoff() (string, error) {
	m.mustBeMade(context.Background())
	if m.cfg.Shared {
		return "", m.error(notHandedOff, lease.Because(notShared("Handoff")))
	}
	l := m.lock.Current()
	if f := l.HandOff(); f != nil {
		return "", m.error(notHandedOff, f)
	}
	m.tell.all()
	return lease.Handoff{Key: []byte(m.key), Value: []byte(l.Value)}.String(), nil
}

// Adopt goes on with a lock that was handed off, see [Mutex.Handoff]: it makes it the mutex's own
// and holds it, as [Mutex.Hold] does, and returns a held context. The mutex has the name and the
// prefix of the lock.
//
// Adopt writes a value of its own to the nodes that have the value of the handoff. It needs a
// quorum of them. So the old value can neither extend nor release the lock any more, and the
// handoff can be adopted once. If that is before the Until that the lock had at the handoff,
// nobody else has had the lock since. With [WithFencing] the lock has a new token, greater than
// any before: a resource that has seen it refuses the old one.
//
// Adopt makes one attempt, which takes two node timeouts at most. If it fails, nobody has the lock,
// and what is left of it is being released. The error matches [ErrFailed], and one of
//   - [ErrExpired], if the lock is gone on so many nodes that there is no quorum: it has expired,
//     or was adopted before,
//   - [ErrNoQuorum], if too few nodes answered,
//   - the context's error, if it ended the call,
//   - [ErrClosed], after Close,
//
// or it is an [*OptionError], if the handoff is not one, or that of another lock, and nothing was
// sent.
func (m *Mutex) Adopt(ctx context.Context, handoff string) (context.Context, error) {
	m.mustBeMade(ctx)
	if m.lock.Misuse != nil {
		return nil, m.error(notAdopted, m.lock.Misuse)
	}
	h, ok := lease.ParseHandoff(handoff)
	var wrong *OptionError // which does not show the value: it is a secret
	switch {
	case m.cfg.Shared:
		wrong = notShared("Adopt")
	case !ok:
		wrong = &OptionError{"Adopt", "…", "needs what Handoff has returned"}
	case string(h.Key) != m.key:
		wrong = &OptionError{"Adopt", "handoff of " + errtext.Name(string(h.Key)),
			"needs that of the lock with the key " + errtext.Name(m.key)}
	}
	if wrong != nil {
		return nil, m.error(notAdopted, lease.Because(wrong))
	}
	l, err := m.acquire(ctx, 1, string(h.Value))
	if err != nil {
		return nil, err
	}
	return m.keep(ctx, l)
}

// DelayFunc returns how long to wait before the next attempt; tries, from 1, is how many have been
// made. It is called by many goroutines at once and must not keep state. A negative result counts
// as zero.
type DelayFunc func(tries int) time.Duration

// maxDelay leaves room for the one more that a bound included in a random choice takes.
const maxDelay = math.MaxInt64 - 1

// ConstantDelay always waits for d. Clients that compete with the same constant delay may
// split the vote again and again; prefer [UniformDelay].
func ConstantDelay(d time.Duration) DelayFunc {
	return func(int) time.Duration { return d }
}

// UniformDelay waits for a random time from shortest up to and including longest, both not
// negative. A negative time counts as 0; if longest is less than shortest, it always waits for
// shortest.
func UniformDelay(shortest, longest time.Duration) DelayFunc {
	shortest = min(max(shortest, 0), maxDelay)
	longest = min(max(longest, shortest), maxDelay)
	return func(int) time.Duration { return shortest + rand.N(longest-shortest+1) }
}

// ExponentialDelay waits for a random time ("full jitter") from 0 up to and including a bound. That
// is base after the first try, doubles with each further try, and never exceeds limit. With a base
// of 10 ms and a limit of 1 s it is 10, 20, 40, 80, 160, 320, 640, 1000, 1000, … ms. A base below
// one nanosecond counts as one; a limit below base as base.
func ExponentialDelay(base, limit time.Duration) DelayFunc {
	base = max(base, 1)
	limit = min(max(limit, base), maxDelay)
	return func(tries int) time.Duration {
		longest := base
		for try := 1; try < tries && longest < limit; try++ {
			longest = clock.Times(longest, 2)
		}
		return rand.N(min(longest, limit) + 1)
	}
}
