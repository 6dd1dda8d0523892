package embedded

import (
	"strings"

	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/internal/nodeurl"
	"github.com/redlock-go/redlock/pool"
)

// go-redis would write a line for each failed attempt to connect. The errors of the locks, which
// the Examples print, say the same once. This comes before there is any client, because go-redis
// does not guard what it changes.
func init() { logging.Disable() }

// Open returns pools for the real nodes at comma-separated addresses or, if addrs is empty, for n
// embedded nodes. An address is host:port or a URL such as rediss://user:password@host:6379. The
// function that Open returns closes the pools, and ends the embedded nodes.
func Open(addrs string, n int) ([]pool.Pool, func() error, error) {
	if addrs != "" {
		return nodeurl.Open(strings.Split(addrs, ","))
	}
	nodes, err := Start(n)
	if err != nil {
		return nil, nil, err
	}
	pools, closePools, err := nodeurl.Open(nodes.Addrs())
	if err != nil {
		nodes.Close()
		return nil, nil, err
	}
	return pools, func() error {
		defer nodes.Close()
		return closePools()
	}, nil
}
