// Command fencing shows what a lock alone cannot do, and what a fencing token does about it.
//
//	go run .
//	go run . -fencing=false
//	go run . -addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379
//
// Ada and Grace sell lamps from one stock, under a lock: each reads the stock, and writes it back less one. Ada is
// paused between the last look at her lock and her write, until her lock has run out and Grace has sold a
// lamp: so may a garbage collection, a page fault or the move of a virtual machine pause any program at any
// point. Then Ada goes on and writes what she had computed.
//
// With fencing the store, a bbolt file, refuses that write, and Ada sells her lamp anew. Without it the
// write succeeds, and the lamp that Grace has sold is in stock again: the exit status is then 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/embedded"
)

const (
	item   = "lamp"
	supply = 10
	expiry = time.Second
)

func main() {
	addrs := flag.String("addrs", "", "comma-separated `host:port` of real nodes; if empty, three embedded ones")
	fencing := flag.Bool("fencing", true, "use fencing tokens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *addrs, *fencing); err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, addrs string, fencing bool) error {
	dir, err := os.MkdirTemp("", "fencing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store, err := OpenStore(filepath.Join(dir, "stock.db"), fencing)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Write(0, item, supply); err != nil {
		return err
	}

	pools, closePools, err := embedded.Open(addrs, 3)
	if err != nil {
		return err
	}
	defer closePools()
	// Unlimited tries: Ada and Grace wait for the lock as long as ctx does.
	locks := redlock.New(pools...).With(redlock.WithExpiry(expiry), redlock.WithTries(redlock.Unlimited))
	defer locks.Close()
	if fencing {
		locks = locks.With(redlock.WithFencing())
	}

	s := &scene{w: w, start: time.Now()}
	fmt.Fprintf(w, "%d lamps are in stock.\n\n", supply)
	err = s.play(ctx, locks, store)
	if err != nil {
		return err
	}
	left, err := store.Read(1<<53, item)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTwo of %d lamps were sold, and %d are in stock.\n", supply, left)
	if left != supply-2 {
		return errors.New("an update is lost: Ada's write has undone Grace's")
	}
	return nil
}

// scene tells what happens.
type scene struct {
	w     io.Writer
	start time.Time
}

func (s *scene) say(who, format string, args ...any) {
	fmt.Fprintf(s.w, "%5.2fs  %-6s %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// play lets Ada sell a lamp, and be paused until Grace has sold one.
func (s *scene) play(ctx context.Context, locks *redlock.Redlock, store *Store) error {
	err := s.sell(ctx, "Ada", locks, store, func() error {
		s.say("Ada", "is paused")
		err := s.sell(ctx, "Grace", locks, store, func() error { return nil })
		s.say("Ada", "goes on")
		return err
	})
	if errors.Is(err, ErrStale) {
		s.say("Ada", "begins again")
		return s.sell(ctx, "Ada", locks, store, func() error { return nil })
	}
	return err
}

// sell sells a lamp under the lock; pause happens at the worst moment.
func (s *scene) sell(ctx context.Context, who string, locks *redlock.Redlock, store *Store, pause func() error) (err error) {
	m := locks.NewMutex(item)
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	s.say(who, "has the lock%s", tokenText(m))
	defer func() {
		_, unlockErr := m.Unlock()
		switch {
		case unlockErr == nil:
			s.say(who, "gives the lock back")
		case errors.Is(unlockErr, redlock.ErrExpired):
			// Too late to do anything about it: that is what the token is for.
			s.say(who, "cannot give back the lock: %v", unlockErr)
		default:
			err = errors.Join(err, unlockErr)
		}
	}()

	token := m.FencingToken()
	stock, err := store.Read(token, item)
	if err != nil {
		return err
	}
	s.say(who, "reads a stock of %d", stock)
	left := time.Until(m.Until())
	if left <= 0 {
		return fmt.Errorf("%s was too slow: %w", who, redlock.ErrExpired)
	}
	s.say(who, "looks at the lock: valid for another %v", left.Round(time.Millisecond))
	if err := pause(); err != nil {
		return err
	}
	if err := store.Write(token, item, stock-1); err != nil {
		s.say(who, "is refused by the store: %v", err)
		return err
	}
	s.say(who, "writes a stock of %d", stock-1)
	return nil
}

func tokenText(m *redlock.Mutex) string {
	if m.FencingToken() == 0 {
		return ""
	}
	return fmt.Sprintf(", with fencing token %d", m.FencingToken())
}
