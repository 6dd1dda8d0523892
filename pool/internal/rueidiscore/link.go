package rueidiscore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/pool"
)

const (
	// attemptTime bounds an attempt to reach the node.
	attemptTime = time.Second
	// maxAsks bounds the questions of an attempt. One may have gone on a connection that was lost
	// before, or that the end of another command's context has broken.
	maxAsks = 3
	// stale is how old a failure can be and still be told.
	stale = time.Minute
)

// link is what is known of the way to the node.
//
// The clients connect within the context of the first command that needs a connection. The others
// wait for that, also when their own contexts end, and fail with it. What a client has taken for
// a node that is silent, it sends later. So after a failure, the link itself asks the node for a
// reply, once for all who wait and in a time of its own. They send their commands after the reply.
//
// It is safe for concurrent use.
type link struct {
	ask  func(context.Context) error // returns nil when the node has replied; or is nil
	open atomic.Bool                 // it has, and the client has not failed since

	mu      sync.Mutex // guards what follows
	current *attempt   // or nil
	failed  error      // the last attempt, or nil if it did not
	since   time.Time  // when that ended
}

// attempt is one question for a reply.
type attempt struct {
	done chan struct{} // closed at its end
	err  error         // why there was no reply
}

// reach returns nil once the node can be sent commands.
func (l *link) reach(ctx context.Context) error {
	if l.ask == nil || l.open.Load() {
		return nil
	}
	a := l.join()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join returns the attempt under way, or a new one.
func (l *link) join() *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		l.current = &attempt{done: make(chan struct{})}
		go l.try(l.current)
	}
	return l.current
}

// try makes an attempt. The client bounds what it does by the context, but for a DialFn, which has
// none.
func (l *link) try(a *attempt) {
	end := time.Now().Add(attemptTime)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	a.err = pool.Try(func() (err error) {
		for range maxAsks {
			err = l.ask(ctx)
			if dial := (*net.OpError)(nil); err == nil || !time.Now().Before(end) ||
				errors.As(err, &dial) && dial.Op == "dial" {
				break
			}
		}
		return err
	})
	if a.err == context.DeadlineExceeded {
		a.err = errSilent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.failed, l.since = nil, a.err, time.Now()
	l.open.Store(a.err == nil)
	close(a.done)
}

var errSilent = fmt.Errorf("no reply within %v", attemptTime)

// lost notes that the client has failed to bring a reply.
func (l *link) lost() { l.open.Store(false) }

// why returns the error of the last attempt, if that failed and is not long ago.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil || time.Since(l.since) > stale {
		return nil
	}
	return &unreached{l.failed}
}

// unreached is why the last attempt to reach the node failed.
type unreached struct{ err error }

func (e *unreached) Error() string { return "last attempt to reach the node: " + e.err.Error() }
func (e *unreached) Unwrap() error { return e.err }
