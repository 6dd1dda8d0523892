package valkeygo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	client "github.com/valkey-io/valkey-go"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/valkeygo"
)

func Example() {
	var nodes []pool.Pool
	for range 3 {
		server := miniredis.NewMiniRedis() // stands for a server of its own machine
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		defer server.Close()

		c, err := client.NewClient(client.ClientOption{
			InitAddress:       []string{server.Addr()},
			ForceSingleClient: true, // the server may be down
			DisableCache:      true, // which locks do not use
		})
		if c == nil {
			log.Fatal(err)
		}
		defer c.Close()
		nodes = append(nodes, valkeygo.NewPool(c))
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
	c, err := client.NewClient(client.ClientOption{
		InitAddress:       []string{"127.0.0.1:1"}, // nobody listens there
		ForceSingleClient: true,
		DisableCache:      true,
	})
	if c == nil {
		log.Fatal(err)
	}
	defer c.Close()
	node := valkeygo.NewPool(c)
	locks := redlock.New(node)
	defer locks.Close()

	err = locks.NewMutex("invoice:42").TryLock()
	fmt.Println(errors.Is(err, redlock.ErrNoQuorum), errors.Is(err, syscall.ECONNREFUSED))
	fmt.Println(errors.Is(node.Explain(), syscall.ECONNREFUSED))
	// Output:
	// true true
	// true
}
