// Command fencing shows what a lock alone cannot do, and what a fencing token does about it.
//
//	go run ./examples/fencing
//	go run ./examples/fencing -claim=false
//	go run ./examples/fencing -fencing=false
//	go run ./examples/fencing -addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379
//
// Ada and Grace sell lamps from one stock, under a lock. Each claims the stock with her fencing
// token, reads it, and writes it back less one. Ada is paused between the last look at her lock
// and her write, until her lock has run out and Grace has read the stock: so may a garbage
// collection, a page fault or the move of a virtual machine pause any program at any point. Then
// Ada goes on and writes what she had computed, before Grace does.
//
// The store refuses that write, and Ada sells her lamp anew. With -claim=false the token goes
// with the writes alone: the store has not seen Grace's token yet, accepts Ada's write, and Grace
// undoes it. With -fencing=false there are no tokens, and the same happens. A lamp that was sold
// is in stock again then, and the exit status is 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
)

const (
	item   = "lamp"
	supply = 10
	expiry = time.Second
)

func main() {
	addrs := flag.String("addrs", "",
		"comma-separated `host:port` of real nodes; if empty, three embedded ones")
	fencing := flag.Bool("fencing", true, "use fencing tokens")
	claim := flag.Bool("claim", true, "show the token before the first read, and not with the "+
		"writes alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *addrs, *fencing, *claim); err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, addrs string, fencing, claim bool) error {
	pools, closeNodes, err := openNodes(addrs, 3)
	if err != nil {
		return err
	}
	defer closeNodes()
	return sell(ctx, w, pools, fencing, claim)
}

// sell sells two lamps, and looks at the stock.
func sell(ctx context.Context, w io.Writer, pools []pool.Pool, fencing, claim bool) error {
	store := NewStore(fencing)
	if err := store.Write(0, item, supply); err != nil {
		return err
	}
	// Unlimited tries: Ada and Grace wait for the lock as long as ctx does.
	locks := redlock.New(pools...).With(redlock.WithExpiry(expiry),
		redlock.WithNodeTimeout(expiry/4), redlock.WithTries(redlock.Unlimited))
	defer locks.Close()
	if fencing {
		locks = locks.With(redlock.WithFencing())
	}

	s := &scene{w: w, start: time.Now(), locks: locks, store: store, claim: fencing && claim}
	fmt.Fprintf(w, "%d lamps are in stock.\n\n", supply)
	if err := s.play(ctx); err != nil {
		return err
	}
	left := store.Read(item)
	fmt.Fprintf(w, "\nTwo of %d lamps were sold, and %d are in stock.\n", supply, left)
	if left != supply-2 {
		return errors.New("an update is lost: Grace's write has undone Ada's")
	}
	return nil
}

// scene tells what happens.
type scene struct {
	w     io.Writer
	start time.Time
	locks *redlock.Redlock
	store *Store
	claim bool
}

func (s *scene) say(who, format string, args ...any) {
	fmt.Fprintf(s.w, "%5.2fs  %-6s %s\n", time.Since(s.start).Seconds(), who,
		fmt.Sprintf(format, args...))
}

// play lets Ada read the stock, and be paused until Grace has read it, too. Ada writes first.
func (s *scene) play(ctx context.Context) error {
	ada, err := s.begin(ctx, "Ada")
	if err != nil {
		return err
	}
	s.say("Ada", "is paused")
	grace, err := s.begin(ctx, "Grace")
	if err != nil {
		return errors.Join(err, ada.unlock())
	}
	s.say("Ada", "goes on")
	adaErr := ada.write()
	err = errors.Join(grace.write(), grace.unlock(), ada.unlock())
	if !errors.Is(adaErr, ErrStale) {
		return errors.Join(adaErr, err)
	}
	if err != nil {
		return err
	}
	s.say("Ada", "begins again")
	if ada, err = s.begin(ctx, "Ada"); err != nil {
		return err
	}
	return errors.Join(ada.write(), ada.unlock())
}

// sale is one lamp that somebody sells under the lock.
type sale struct {
	*scene
	who   string
	m     *redlock.Mutex
	token uint64
	stock int
}

// begin locks, claims the stock, and reads it. It does so again if the lock has run out by then.
func (s *scene) begin(ctx context.Context, who string) (*sale, error) {
	for {
		a, err := s.tryToBegin(ctx, who)
		if !errors.Is(err, redlock.ErrExpired) {
			return a, err
		}
		s.say(who, "begins again: %v", err)
	}
}

func (s *scene) tryToBegin(ctx context.Context, who string) (*sale, error) {
	m := s.locks.NewMutex(item)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	a := &sale{scene: s, who: who, m: m, token: m.FencingToken()}
	if a.token == 0 {
		s.say(who, "has the lock")
	} else {
		s.say(who, "has the lock, with fencing token %d", a.token)
	}
	if err := a.read(); err != nil {
		return nil, errors.Join(err, a.unlock())
	}
	return a, nil
}

func (a *sale) read() error {
	if a.claim {
		if err := a.store.Claim(a.token, item); err != nil {
			return err
		}
		a.say(a.who, "claims the stock with the token")
	}
	a.stock = a.store.Read(item)
	a.say(a.who, "reads a stock of %d", a.stock)
	left := time.Until(a.m.Until())
	if left <= 0 {
		return fmt.Errorf("%s was too slow: %w", a.who, redlock.ErrExpired)
	}
	a.say(a.who, "looks at the lock: valid for another %v", left.Round(time.Millisecond))
	return nil
}

func (a *sale) write() error {
	if err := a.store.Write(a.token, item, a.stock-1); err != nil {
		a.say(a.who, "is refused by the store: %v", err)
		return err
	}
	a.say(a.who, "writes a stock of %d", a.stock-1)
	return nil
}

func (a *sale) unlock() error {
	_, err := a.m.Unlock()
	switch {
	case err == nil:
		a.say(a.who, "releases the lock")
	case errors.Is(err, redlock.ErrExpired), errors.Is(err, redlock.ErrNoQuorum):
		// Too late to do anything about it: that is what the token is for. Or too few nodes have
		// answered in time, and the lock expires by itself.
		a.say(a.who, "cannot release the lock: %v", err)
	default:
		return err
	}
	return nil
}
