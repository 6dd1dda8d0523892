package redigo_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/redigo"
)

func Example() {
	var nodes []pool.Pool
	for range 3 {
		server := miniredis.NewMiniRedis() // stands for a server of its own machine
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		defer server.Close()

		connections := &redis.Pool{
			MaxIdle:     8,
			IdleTimeout: time.Minute,
			DialContext: func(ctx context.Context) (redis.Conn, error) {
				return redis.DialContext(ctx, "tcp", server.Addr())
			},
			// A connection that has been idle may be one to a server that has restarted since.
			TestOnBorrowContext: func(ctx context.Context, c redis.Conn,
				idleSince time.Time) error {
				if time.Since(idleSince) < time.Second {
					return nil
				}
				_, err := redis.DoContext(c, ctx, "PING")
				return err
			},
		}
		defer connections.Close()
		nodes = append(nodes, redigo.NewPoolAt(server.Addr(), connections))
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
