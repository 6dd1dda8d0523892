package goredis_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/pooltest"
)

// newClient returns a client with default options that is closed with the test.
func newClient(t testing.TB, addr string, protocol int) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		suite := func(t *testing.T, addr string) {
			pooltest.Run(t, func(t *testing.T) pool.Pool {
				return goredis.NewPool(newClient(t, addr, protocol))
			})
		}
		t.Run(fmt.Sprintf("embedded RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			suite(t, redistest.Embedded(t, 1)[0].Addr())
		})
		t.Run(fmt.Sprintf("real RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			suite(t, redistest.Start(t, 1)[0].Addr())
		})
	}
	t.Run("real with ContextTimeoutEnabled", func(t *testing.T) {
		t.Parallel()
		client := redis.NewClient(&redis.Options{Addr: redistest.Start(t, 1)[0].Addr(),
			ContextTimeoutEnabled: true})
		defer client.Close()
		p := goredis.NewPool(client)
		pooltest.Run(t, func(*testing.T) pool.Pool { return p })
	})
}

var (
	_ pool.Pool       = (*goredis.Pool)(nil)
	_ pool.Subscriber = (*goredis.Pool)(nil)
	_ pool.Doer       = (*goredis.Pool)(nil)
	_ pool.Addressed  = (*goredis.Pool)(nil)
	_ pool.Carrier    = (*goredis.Pool)(nil)
	_ pool.Explainer  = (*goredis.Pool)(nil)
)

// lesson L76: a node has a name that people know.
func TestAddr(t *testing.T) {
	for want, client := range map[string]redis.UniversalClient{
		"10.0.0.1:6379": redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379",
			Username: "app", Password: "secret"}),
		"/run/redis.sock": redis.NewClient(&redis.Options{Network: "unix",
			Addr: "/run/redis.sock"}),
		"10.0.0.1:6379,10.0.0.2:6379": redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"10.0.0.2:6379", "10.0.0.1:6379"}}),
		"10.0.0.3:6379,10.0.0.4:6379": redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": "10.0.0.4:6379", "b": "10.0.0.3:6379"}}),
	} {
		if addr := goredis.NewPool(client).Addr(); addr != want {
			t.Errorf("the address is %q instead of %q", addr, want)
		}
		_ = client.Close()
	}
}
