package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
)

// permits is how many slots there are, and slots are their names.
const permits = 2

var slots = redlock.Slots(lockName, permits)

// several takes turns until ctx is done. In each turn the worker reads or writes the fenced number
// under a lock that readers share, or it works under one of the slots, or under all of them.
func (w *worker) several(ctx context.Context) error {
	n := &notes{worker: w, grants: map[string]string{}}
	rl := w.rl.With(redlock.WithEvents(n.events()))
	var failed error
	access := func(shared bool, work time.Duration) func(context.Context) error {
		return func(held context.Context) error {
			err := w.access(held, n.grant(lockName), shared, work)
			if !errors.Is(err, errStale) {
				failed = err
			}
			return nil
		}
	}
	for ctx.Err() == nil && failed == nil {
		work := time.Duration(1+w.rnd.Int64N(8)) * time.Millisecond
		if w.rnd.IntN(w.LongHolds) == 0 {
			work = w.Expiry/2 + time.Duration(w.rnd.Int64N(int64(w.LongWork-w.Expiry/2)))
		}
		// What the calls return is not the question: the events tell how each lock went.
		switch w.rnd.IntN(6) {
		case 0:
			_ = rl.Do(ctx, lockName, access(false, work))
		case 1, 2, 3:
			_ = rl.Do(ctx, lockName, access(true, work), redlock.WithShared())
		case 4:
			_ = rl.DoAny(ctx, slots, func(held context.Context, _ string) error {
				rests(held, work)
				return nil
			})
		case 5:
			_ = rl.DoAll(ctx, slots, func(held context.Context) error {
				rests(held, work)
				return nil
			})
		}
	}
	return failed
}

// rests works for some time, at most as long as the lock is held.
func rests(held context.Context, work time.Duration) {
	t := time.NewTimer(work)
	defer t.Stop()
	select {
	case <-t.C:
	case <-held.Done():
	}
}

// access reads the fenced number, works, and looks at the number again or, unless it shares the
// lock, writes it back one higher.
func (w *worker) access(held context.Context, grant string, shared bool, work time.Duration) error {
	req := request{Op: Read, Shared: shared, Worker: w.Worker, Grant: grant,
		Token: redlock.FencingToken(held)}
	read, err := w.resource.do(req)
	if err != nil {
		return err
	}
	rests(held, work)
	if held.Err() != nil {
		return nil
	}
	if !shared {
		req.Op, req.Value = Write, read+1
	}
	_, err = w.resource.do(req)
	return err
}

// notes writes what Events tell of a worker's locks to the history.
type notes struct {
	*worker
	mu     sync.Mutex
	grants map[string]string // the last one of each name
	count  int
}

// grant returns the last grant of a name.
func (n *notes) grant(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.grants[name]
}

// begin notes a grant of a name.
func (n *notes) begin(name string) (grant string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	n.grants[name] = fmt.Sprintf("%d.%d.%d", n.Worker, n.Life, n.count)
	return n.grants[name]
}

func (n *notes) events() *redlock.Events {
	return &redlock.Events{Acquire: n.acquire, Extend: n.extend, Release: n.release, Lost: n.lost}
}

func (n *notes) acquire(ctx context.Context, _ redlock.Acquiring) (context.Context,
	func(redlock.Acquired)) {
	call := Now()
	return ctx, func(a redlock.Acquired) {
		if a.Err != nil {
			return
		}
		n.history.Add(Event{Op: Lock, Worker: n.Worker, Name: a.Name, Grant: n.begin(a.Name),
			Shared: a.Shared, Call: call, Return: Now(), OK: true, Until: monotonic(a.Until),
			Token: a.Token})
	}
}

func (n *notes) extend(ctx context.Context, _ redlock.Extending) (context.Context,
	func(redlock.Extended)) {
	call := Now()
	return ctx, func(x redlock.Extended) {
		if x.Err == nil {
			n.history.Add(Event{Op: Extend, Worker: n.Worker, Grant: n.grant(x.Name), Call: call,
				Return: Now(), OK: true, Until: monotonic(x.Until)})
		}
	}
}

func (n *notes) release(ctx context.Context, r redlock.Releasing) (context.Context,
	func(redlock.Released)) {
	call, grant := Now(), n.grant(r.Name)
	n.history.Add(Event{Op: Leave, Worker: n.Worker, Grant: grant, Call: call, Return: call,
		OK: true})
	return ctx, func(r redlock.Released) {
		e := Event{Op: Unlock, Worker: n.Worker, Grant: grant, Call: call, Return: Now(),
			OK: r.Err == nil}
		if r.Err != nil {
			e.Err = r.Err.Error()
		}
		n.history.Add(e)
	}
}

// lost notes a loss: the held context has ended before.
func (n *notes) lost(e redlock.Ended) {
	now := Now()
	n.history.Add(Event{Op: Lost, Worker: n.Worker, Grant: n.grant(e.Name), Call: now, Return: now,
		Until: now, OK: errors.Is(e.Err, redlock.ErrLost)})
}
