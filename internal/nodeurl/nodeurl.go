// Package nodeurl reads the addresses of Redis nodes as users write them, and opens clients.
package nodeurl

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

var (
	errAddr = errors.New("neither host:port nor a redis:// or rediss:// URL")
	errURL  = errors.New("not a valid Redis URL; in user and password, write special characters " +
		"as %XX: redis://user:p%40ssword@host:6379/0")
)

// Open returns pools for the nodes at these addresses, see [Parse], and a function that closes
// their clients.
func Open(addrs []string) ([]pool.Pool, func() error, error) {
	all, err := Parse(addrs)
	if err != nil {
		return nil, nil, err
	}
	var pools []pool.Pool
	var clients []*redis.Client
	for _, options := range all {
		c := redis.NewClient(options)
		clients = append(clients, c)
		pools = append(pools, goredis.NewPool(c))
	}
	return pools, func() error {
		var errs []error
		for _, c := range clients {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}, nil
}

// Parse returns the options of clients for these addresses. An address is host:port or a URL such
// as rediss://user:password@host:6379. The errors show no part of an address, which may contain a
// password.
func Parse(addrs []string) ([]*redis.Options, error) {
	var all []*redis.Options
	for i, addr := range addrs {
		options, err := parse(strings.TrimSpace(addr))
		if err != nil {
			return nil, fmt.Errorf("address %d of %d: %w", i+1, len(addrs), err)
		}
		all = append(all, options)
	}
	return all, nil
}

// parse returns the options of a client for one address.
func parse(addr string) (*redis.Options, error) {
	if !strings.Contains(addr, "://") {
		if _, _, err := net.SplitHostPort(addr); err != nil || strings.ContainsAny(addr, "@/,") {
			return nil, errAddr
		}
		return &redis.Options{Addr: addr, DialerRetries: 1}, nil
	}
	options, err := redis.ParseURL(addr)
	// After a # in a password, the rest would not count.
	if err != nil || strings.Contains(addr, "#") || strings.Contains(options.Addr, ",") {
		return nil, errURL
	}
	options.DialerRetries = 1
	return options, nil
}
