package checkup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/pool"
)

// Lock is a lock on one node, to see whether locks can live there. Its methods send the commands
// of every other lock. They block until the node has answered, at most for a node timeout, or until
// ctx is done. The error says why the outcome is not as it should be.
type Lock interface {
	// Acquire sets the key. If only the restart guard refuses, guarded is for how long, and err is
	// the guard's error.
	Acquire(ctx context.Context) (guarded time.Duration, err error)
	// AcquireUnguarded is Acquire without the restart guard.
	AcquireUnguarded(ctx context.Context) error
	// Abandon deletes what a failed Acquire has left, or leaves later. It does not block.
	Abandon(ctx context.Context)
	// Stand stands in the queue for the key, if that is announced.
	Stand(ctx context.Context) error
	// Extend gives the key more time.
	Extend(ctx context.Context) error
	// ReleaseAsStranger tries to release the lock with another value, which must fail.
	ReleaseAsStranger(ctx context.Context) error
	// Release gives up what Acquire has set: it hands the key on to the one who stands, and
	// announces that; or it deletes the key.
	Release(ctx context.Context) error
	// Leave deletes what Stand has left, and what was handed on to it.
	Leave(ctx context.Context) error
	// Announcement returns the channel and the message of the announcement; channel is "" if there
	// is none.
	Announcement() (channel, message string)
}

// trialCommands is how many answers a trial waits for at most, one after the other. They are those
// of two Acquires, SUBSCRIBE, Stand, Extend, ReleaseAsStranger, two releases and two of Leave, and
// the announcement.
const trialCommands = 11

// trial is a lock's life on a node.
type trial struct {
	lock    Lock
	timeout time.Duration // of the node

	guarded time.Duration // how long the restart guard keeps the node out, if nothing else does
	unheard error         // why the announcement of the release did not arrive, or nil
}

// run acquires, extends and releases the lock. The error says what the node does not do.
func (t *trial) run(ctx context.Context, p pool.Pool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	wait, err := t.lock.Acquire(ctx)
	var refusal error
	if wait > 0 {
		// The guard is for locks that the node may have forgotten, and nobody had this one.
		refusal = err
		err = t.lock.AcquireUnguarded(ctx)
	}
	if err != nil {
		t.lock.Abandon(ctx)
		return step("acquire", err)
	}
	l := listen(ctx, p, t.lock, t.timeout)
	notQueued := t.lock.Stand(ctx)
	notExtended := step("extend", t.lock.Extend(ctx))
	notRefused := step("a stranger's release", t.lock.ReleaseAsStranger(ctx))
	notReleased := step("release", t.lock.Release(ctx))
	t.unheard = l.heard(ctx, notReleased == nil && notQueued == nil)
	notLeft := step("release", t.lock.Leave(ctx))
	if notQueued != nil {
		t.unheard, notLeft = fmt.Errorf("%w: %w", errUnqueued, notQueued), nil
	}
	notReleased = cmp.Or(notReleased, notLeft)
	if err := oneline.Join(notExtended, notRefused, notReleased); err != nil {
		return err
	}
	t.guarded = wait
	return refusal
}

// step says in which step an error came up. It returns nil if there was none.
func step(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// errUnqueued is why waiters do not queue on a node.
var errUnqueued = errors.New("nobody can stand in the queue there")

// errUnheard is why waiters are not woken by a node that lets them subscribe.
var errUnheard = errors.New("the announcement of a release did not arrive")

// listener waits for the announcement of a release.
type listener struct {
	sub     pool.Subscription // nil if there is nothing to hear, or err says why not
	err     error
	message string
	timeout time.Duration
}

// listen subscribes to the lock's announcements on a node, if the lock has any and the client can.
func listen(ctx context.Context, p pool.Pool, lock Lock, timeout time.Duration) *listener {
	channel, message := lock.Announcement()
	l := &listener{message: message, timeout: timeout}
	subscriber, ok := p.(pool.Subscriber)
	if !ok || channel == "" {
		return l
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l.sub, l.err = subscriber.Subscribe(limited, channel)
	if l.err != nil {
		l.sub = nil
	}
	if errors.Is(l.err, errors.ErrUnsupported) {
		l.err = nil
	}
	return l
}

// heard ends the subscription. It returns why the announcement did not arrive, if one was made.
func (l *listener) heard(ctx context.Context, made bool) error {
	if l.sub == nil {
		return l.err
	}
	defer func() { _ = l.sub.Close() }()
	timeout := time.After(l.timeout)
	for made {
		select {
		case message := <-l.sub.Messages():
			if message == l.message {
				return nil
			}
		case <-timeout:
			return errUnheard
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
