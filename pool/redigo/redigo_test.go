package redigo_test

import (
	"context"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pooltest"
	"github.com/redlock-go/redlock/pool/redigo"
)

// newPool returns a pool with default options that is closed with the test.
func newPool(t testing.TB, addr string) *redis.Pool {
	t.Helper()
	p := &redis.Pool{MaxIdle: 4, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr)
	}}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestConformance(t *testing.T) {
	t.Parallel()
	suite := func(t *testing.T, addr string) {
		pooltest.Run(t, func(t *testing.T) pool.Pool { return redigo.NewPool(newPool(t, addr)) })
	}
	t.Run("embedded", func(t *testing.T) { suite(t, redistest.Embedded(t, 1)[0].Addr()) })
	t.Run("real", func(t *testing.T) { suite(t, redistest.Start(t, 1)[0].Addr()) })
}

var (
	_ pool.Pool       = (*redigo.Pool)(nil)
	_ pool.Subscriber = (*redigo.Pool)(nil)
	_ pool.Doer       = (*redigo.Pool)(nil)
	_ pool.Addressed  = (*redigo.Pool)(nil)
	_ pool.Starter    = (*redigo.Pool)(nil)
)

// lesson L76: a node has a name that people know.
func TestAddr(t *testing.T) {
	p := newPool(t, "127.0.0.1:1")
	if addr := redigo.NewPoolAt("10.0.0.1:6379", p).Addr(); addr != "10.0.0.1:6379" {
		t.Errorf("the address is %q", addr)
	}
	if addr := redigo.NewPool(p).Addr(); addr != "" {
		t.Errorf("redigo does not tell an address, but it is %q", addr)
	}
}
