package goredis_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

var release = &pool.Script{
	Name: "release",
	Source: `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) ` +
		`end return 0`,
	ID: "6fbe84d1140fd2047394924af9d845b83c070bec",
}

// BenchmarkPair measures what a lock and its release cost on one node: SET NX and a
// compare-and-delete. "client" sends the same commands without the adapter,
// "autopipeline" by go-redis's own means of sharing round trips.
func BenchmarkPair(b *testing.B) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	server := redistest.Start(b, 1)[0]
	server.Must("SCRIPT", "LOAD", release.Source)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	auto, err := client.AutoPipeline()
	if err != nil {
		b.Fatal(err)
	}
	plain := func(c redis.UniversalClient) func(key, value string) error {
		return func(key, value string) error {
			if err := c.Do(ctx, "SET", key, value, "NX", "PX", int64(10_000)).Err(); err != nil {
				return err
			}
			return c.EvalSha(ctx, release.ID, []string{key}, value).Err()
		}
	}
	node := goredis.NewPool(client)
	shared := func(key, value string) error {
		if ok, err := node.SetNX(ctx, key, value, 10*time.Second); err != nil || !ok {
			return fmt.Errorf("%v %w", ok, err)
		}
		_, err := node.Eval(ctx, release, []string{key}, value)
		return err
	}
	for _, n := range []int{1, 2, 8, 64} {
		for _, c := range []struct {
			name string
			pair func(key, value string) error
		}{{"goredis", shared}, {"client", plain(client)}, {"autopipeline", plain(auto)}} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						key := "bench:" + strconv.Itoa(i)
						for left.Add(-1) >= 0 {
							if err := c.pair(key, "value"); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
