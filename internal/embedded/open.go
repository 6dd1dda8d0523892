package embedded

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// Open returns pools for the real nodes at comma-separated addresses or, if addrs is empty, for n embedded
// nodes. An address is host:port or a URL such as rediss://user:password@host:6379. The function that Open
// returns closes the pools, and ends the embedded nodes.
func Open(addrs string, n int) ([]pool.Pool, func() error, error) {
	// go-redis would write a line for each failed attempt to connect. The errors of the locks, which the
	// examples print, say the same once.
	logging.Disable()
	var nodes *Nodes
	list := strings.Split(addrs, ",")
	if addrs == "" {
		var err error
		if nodes, err = Start(n); err != nil {
			return nil, nil, err
		}
		list = nodes.Addrs()
	}
	var all []*redis.Options
	for i, addr := range list {
		options, err := parse(strings.TrimSpace(addr))
		if err != nil {
			return nil, nil, fmt.Errorf("address %d of %d: %w", i+1, len(list), err)
		}
		all = append(all, options)
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
		if nodes != nil {
			nodes.Close()
		}
		return errors.Join(errs...)
	}, nil
}

var (
	errAddr = errors.New("neither host:port nor a redis:// or rediss:// URL")
	errURL  = errors.New("not a valid Redis URL; in user and password, write special characters as %XX: " +
		"redis://user:p%40ssword@host:6379/0")
)

// parse returns the options of a client of addr. Its errors show no part of addr, which may contain a password.
func parse(addr string) (*redis.Options, error) {
	if !strings.Contains(addr, "://") {
		if _, _, err := net.SplitHostPort(addr); err != nil || strings.ContainsAny(addr, "@/") {
			return nil, errAddr
		}
		return &redis.Options{Addr: addr, DialerRetries: 1}, nil
	}
	options, err := redis.ParseURL(addr)
	if err != nil || strings.Contains(addr, "#") { // after a # in a password, the rest would not count
		return nil, errURL
	}
	options.DialerRetries = 1
	return options, nil
}
