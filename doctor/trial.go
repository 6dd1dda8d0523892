package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/pool"
)

// trialCommands is how many answers a trial waits for at most, one after the other. They are those
// of two Acquires, SUBSCRIBE, Stand, Extend, a stranger's release, two releases and two of leave,
// and the announcement.
const trialCommands = 11

// trial is a lock's life on a node.
type trial struct {
	lock    *owner
	guarded time.Duration // how long the restart guard keeps the node out, if nothing else does
	unheard error         // why the announcement of the release did not arrive, or nil
}

// run acquires, extends and releases the lock. The error says what the node does not do.
func (t *trial) run(ctx context.Context, p pool.Pool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	wait, err := t.lock.acquire(ctx)
	var refusal error
	if wait > 0 {
		// The guard is for locks that the node may have forgotten, and nobody had this one.
		refusal = err
		err = t.lock.acquireUnguarded(ctx)
	}
	if err != nil {
		t.lock.abandon(ctx)
		return step("acquire", err)
	}
	l := listen(ctx, p, t.lock)
	notQueued := t.lock.stand(ctx)
	notExtended := step("extend", t.lock.extend(ctx))
	notRefused := step("a stranger's release", t.lock.releaseAsStranger(ctx))
	notReleased := step("release", t.lock.release(ctx))
	t.unheard = l.heard(ctx, notReleased == nil && notQueued == nil)
	notLeft := step("release", t.lock.leave(ctx))
	if notQueued != nil {
		t.unheard, notLeft = fmt.Errorf("%w: %w", errUnqueued, notQueued), nil
	}
	notReleased = cmp.Or(notReleased, notLeft)
	if err := errtext.Join(notExtended, notRefused, notReleased); err != nil {
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
func listen(ctx context.Context, p pool.Pool, lock *owner) *listener {
	channel, message := lock.announcement()
	l := &listener{message: message, timeout: lock.NodeTimeout}
	subscriber, ok := p.(pool.Subscriber)
	if !ok || channel == "" {
		return l
	}
	limited, cancel := context.WithTimeout(ctx, l.timeout)
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
