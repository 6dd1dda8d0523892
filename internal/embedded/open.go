package embedded

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/internal/nodeurl"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// go-redis would write a line for each failed attempt to connect. The errors of the locks, which the
// examples print, say the same once. This comes before there is any client, because go-redis does not
// guard what it changes.
func init() { logging.Disable() }

// Open returns pools for the real nodes at comma-separated addresses or, if addrs is empty, for n embedded
// nodes. An address is host:port or a URL such as rediss://user:password@host:6379. The function that Open
// returns closes the pools, and ends the embedded nodes.
func Open(addrs string, n int) ([]pool.Pool, func() error, error) {
	var nodes *Nodes
	if addrs == "" {
		var err error
		if nodes, err = Start(n); err != nil {
			return nil, nil, err
		}
		addrs = strings.Join(nodes.Addrs(), ",")
	}
	all, err := nodeurl.ParseList(addrs)
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
		if nodes != nil {
			nodes.Close()
		}
		return errors.Join(errs...)
	}, nil
}
