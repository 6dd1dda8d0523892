package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

func Example() {
	var nodes []pool.Pool
	for range 3 {
		server := miniredis.NewMiniRedis() // stands for a server of its own machine
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		defer server.Close()

		client := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1})
		defer client.Close()
		nodes = append(nodes, goredis.NewPool(client))
	}
	locks := redlock.New(nodes...)
	defer locks.Close()

	err := locks.Do(context.Background(), "invoice:42", func(context.Context) error {
		fmt.Println("settling invoice 42")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: settling invoice 42
}

// A node that cannot be reached says why, in the error of a lock too.
func ExamplePool_Explain() {
	// Nobody listens there.
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer client.Close()
	node := goredis.NewPool(client)
	locks := redlock.New(node)
	defer locks.Close()

	err := locks.NewMutex("invoice:42").TryLock()
	fmt.Println(errors.Is(err, redlock.ErrNoQuorum), errors.Is(err, syscall.ECONNREFUSED))
	fmt.Println(errors.Is(node.Explain(), syscall.ECONNREFUSED))
	// Output:
	// true true
	// true
}
