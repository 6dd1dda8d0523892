// Command after books payments under a redlock lock. The migration guide made it from before.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

var errBusy = errors.New("another replica is booking")

func main() {
	addrs := flag.String("redis", "10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379",
		"independent Redis `addresses`")
	merchant := flag.String("merchant", "acme", "whose payments to book")
	flag.Parse()
	if err := run(strings.Split(*addrs, ","), *merchant); err != nil {
		log.Fatal(err)
	}
}

func run(addrs []string, merchant string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	var pools []pool.Pool
	for _, addr := range addrs {
		client := goredislib.NewClient(&goredislib.Options{Addr: addr})
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redlock.New(pools...)
	defer func() { _ = locks.Close() }()

	err := book(ctx, locks, merchant)
	if errors.Is(err, errBusy) {
		log.Print(err)
		return nil
	}
	return err
}

func book(ctx context.Context, locks *redlock.Redlock, merchant string) (err error) {
	mutex := locks.NewMutex("book:"+merchant,
		redlock.WithExpiry(10*time.Second),
		redlock.WithTries(8),
	)
	err = mutex.LockContext(ctx)
	if errors.Is(err, redlock.ErrTaken) {
		return errBusy
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	defer func() {
		if _, unlockErr := mutex.UnlockContext(ctx); unlockErr != nil {
			err = errors.Join(err, fmt.Errorf("unlock: %w", unlockErr))
		}
	}()

	for _, batch := range []string{"cards", "transfers", "refunds"} {
		if _, err := mutex.ExtendContext(ctx); err != nil {
			return fmt.Errorf("the lock is lost before %s: %w", batch, err)
		}
		fmt.Printf("booked %s of %s\n", batch, merchant)
	}
	return nil
}
