package pooltest_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/pooltest"
)

// testPool is the test of an adapter, there called TestPool.
func testPool(t *testing.T) {
	server := miniredis.RunT(t) // or a real server, with which most differences show
	pooltest.Run(t, func(t *testing.T) pool.Pool {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		return goredis.NewPool(client) // the adapter
	})
}

func ExampleRun() {
	// go test runs it.
	_ = testPool
}
