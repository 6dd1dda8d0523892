// Command quickstart lets several workers take turns on one lock, while a node is stopped for
// good and another one is restarted.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -v -metrics
//	go run ./examples/quickstart -addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379
//
// Each worker adds 1 to a shared counter, by reading it, letting the others run, and writing it
// back: without the lock most of the additions would be lost. The exit status is 0 only if the
// counter is exact.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock"
)

const (
	name   = "quickstart:counter"
	expiry = time.Second
	work   = 70 * time.Millisecond // between reading the counter and writing it
	rest   = 70 * time.Millisecond // between two turns of a worker
)

var workers = []string{"Ada", "Barbara", "Dorothy", "Grace", "Radia"}

func main() {
	addrs := flag.String("addrs", "",
		"comma-separated `host:port` of real nodes; if empty, five embedded ones")
	turns := flag.Int("turns", 5, "how often each worker takes the lock")
	see := watch{log: os.Stderr}
	see.flags()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *addrs, *turns, &see); err != nil {
		fmt.Fprintln(os.Stderr, "\nquickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, addrs string, turns int, see *watch) error {
	if turns < 1 {
		return fmt.Errorf("-turns %d: must be at least 1", turns)
	}
	nodes, err := open(addrs)
	if err != nil {
		return err
	}
	defer nodes.close()

	// This is all there is to it: a Redlock on the nodes, and a mutex for each owner.
	rl := redlock.New(nodes.pools()...).With(redlock.WithExpiry(expiry),
		redlock.WithNodeTimeout(expiry/5)).With(see.options()...)
	defer see.tell(w)
	defer rl.Close()

	var counter atomic.Int64 // atomic reads and writes, but adding is not
	total := turns * len(workers)
	show := newAccount(w, rl, len(nodes.list), total)
	play := newPlay(nodes, show, total)

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var group sync.WaitGroup
	for _, worker := range workers {
		group.Go(func() {
			m := rl.NewMutex(name)
			for range turns {
				if err := play.await(ctx); err != nil {
					return
				}
				for {
					done, err := turn(ctx, m, worker, &counter, show)
					if err != nil {
						fail(err)
						return
					}
					if done {
						break
					}
				}
				if err := play.goOn(ctx, show.turns()); err != nil {
					fail(err)
					return
				}
				time.Sleep(rest)
			}
		})
	}
	group.Wait()

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return show.summary(counter.Load(), int64(total))
}

// turn takes the lock, adds 1 to the counter, and gives the lock back. It reports false if the
// lock ran out before the counter could be written.
func turn(ctx context.Context, m *redlock.Mutex, worker string, counter *atomic.Int64,
	show *account) (done bool, err error) {
	asked := time.Now()
	for {
		err := m.LockContext(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, redlock.ErrTaken) {
			return false, err // too few nodes answer, for instance
		}
		show.note("%s tries on: %v", worker, err)
	}
	waited := time.Since(asked)
	defer func() {
		// Not having released a lock is no disaster, it expires. But who was told so knows that
		// somebody else may have had it at the same time.
		if _, unlockErr := m.Unlock(); unlockErr != nil {
			show.note("%s: %v", worker, unlockErr)
			if errors.Is(unlockErr, redlock.ErrExpired) && done {
				err = unlockErr
			}
		}
	}()

	before := counter.Load()
	show.turn(ctx, worker, m, waited)
	time.Sleep(work)
	if time.Now().After(m.Until()) {
		show.note("%s was too slow, the lock ran out: the counter is left as it is", worker)
		return false, nil
	}
	counter.Store(before + 1)
	return true, nil
}
