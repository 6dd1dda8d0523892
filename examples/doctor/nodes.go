package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// The nodes' errors are in those of the locks. go-redis does not guard what this changes, and so it
// comes before there is a client.
func init() { logging.Disable() }

// openNodes returns pools for the Redis nodes at comma-separated addresses, and a function that
// closes them. An address is host:port or a URL such as rediss://user:password@host:6379. Without
// addresses, openNodes starts n nodes in this process.
func openNodes(addrs string, n int) (pools []pool.Pool, closeNodes func(), err error) {
	var closers []func()
	closeAll := func() {
		for _, c := range closers {
			c()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	list := strings.Split(addrs, ",")
	if addrs == "" {
		list = nil
		for range n {
			m, err := miniredis.Run()
			if err != nil {
				return nil, nil, err
			}
			m.ClockTTL(true) // otherwise keys expire only when told to
			closers = append(closers, m.Close)
			list = append(list, m.Addr())
		}
	}
	for i, addr := range list {
		options, err := parse(strings.TrimSpace(addr))
		if err != nil {
			return nil, nil, fmt.Errorf("address %d of %d: %w", i+1, len(list), err)
		}
		options.DialerRetries = 1 // redlock tries again
		client := redis.NewClient(options)
		closers = append(closers, func() { _ = client.Close() })
		pools = append(pools, goredis.NewPool(client))
	}
	return pools, closeAll, nil
}

// parse reads an address. Its errors show no part of that, which may contain a password.
func parse(addr string) (*redis.Options, error) {
	if !strings.Contains(addr, "://") {
		if _, _, err := net.SplitHostPort(addr); err != nil || strings.ContainsAny(addr, "@/") {
			return nil, errors.New("neither host:port nor a redis:// or rediss:// URL")
		}
		return &redis.Options{Addr: addr}, nil
	}
	options, err := redis.ParseURL(addr)
	// After a # in a password, the rest would not count.
	if err != nil || strings.Contains(addr, "#") {
		return nil, errors.New("not a valid Redis URL; write special characters of a password as " +
			"%XX")
	}
	return options, nil
}
