// Command before books payments under a Redsync lock. The migration guide turns it into after.
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

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
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

	var pools []redis.Pool
	for _, addr := range addrs {
		client := goredislib.NewClient(&goredislib.Options{Addr: addr})
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redsync.New(pools...)

	err := book(ctx, locks, merchant)
	if errors.Is(err, errBusy) {
		log.Print(err)
		return nil
	}
	return err
}

func book(ctx context.Context, locks *redsync.Redsync, merchant string) (err error) {
	mutex := locks.NewMutex("book:"+merchant,
		redsync.WithExpiry(10*time.Second),
		redsync.WithTries(8),
		redsync.WithFailFast(true),
		redsync.WithSetNXOnExtend(),
	)
	err = mutex.LockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return errBusy
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	defer func() {
		unlock, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if ok, unlockErr := mutex.UnlockContext(unlock); !ok {
			err = errors.Join(err, fmt.Errorf("unlock: %w", unlockErr))
		}
	}()

	for _, batch := range []string{"cards", "transfers", "refunds"} {
		if ok, err := mutex.ExtendContext(ctx); !ok {
			return fmt.Errorf("the lock is lost before %s: %w", batch, err)
		}
		fmt.Printf("booked %s of %s\n", batch, merchant)
	}
	return nil
}
