package embedded

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// Open returns pools for the real nodes at comma-separated addresses or, if addrs is empty, for n embedded
// nodes. What it returns as well closes the pools, and ends the embedded nodes.
func Open(addrs string, n int) ([]pool.Pool, func() error, error) {
	logging.Disable() // what a client has to say is in the errors of the lock
	var nodes *Nodes
	list := strings.Split(addrs, ",")
	if addrs == "" {
		var err error
		if nodes, err = Start(n); err != nil {
			return nil, nil, err
		}
		list = nodes.Addrs()
	}
	var pools []pool.Pool
	var clients []*redis.Client
	for _, addr := range list {
		c := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
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
