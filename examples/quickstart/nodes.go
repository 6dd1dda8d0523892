package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// nodes are the Redis nodes and the program's ways to them.
type nodes struct {
	list     []node
	embedded []*miniredis.Miniredis // none if the nodes are real
}

type node struct {
	client *redis.Client
	link   *link
}

// The nodes' errors are in those of the lock. go-redis does not guard what this changes, so it
// comes before there is a client.
func init() { logging.Disable() }

func open(addrs string) (*nodes, error) {
	ns := &nodes{}
	list := strings.Split(addrs, ",")
	if addrs == "" {
		list = nil
		for range 5 {
			m, err := miniredis.Run()
			if err != nil {
				ns.close()
				return nil, err
			}
			m.ClockTTL(true) // otherwise keys expire only when told to
			ns.embedded = append(ns.embedded, m)
			list = append(list, m.Addr())
		}
	}
	for _, addr := range list {
		l := &link{open: map[net.Conn]bool{}}
		ns.list = append(ns.list, node{link: l, client: redis.NewClient(&redis.Options{
			Addr:   addr,
			Dialer: l.dial,
			// The others vote meanwhile: there is no point in knocking for long.
			DialerRetries: 1,
		})})
	}
	return ns, nil
}

func (ns *nodes) pools() []pool.Pool {
	var pools []pool.Pool
	for _, n := range ns.list {
		pools = append(pools, goredis.NewPool(n.client))
	}
	return pools
}

func (ns *nodes) close() {
	for _, n := range ns.list {
		_ = n.client.Close()
	}
	for _, m := range ns.embedded {
		m.Close()
	}
}

// stop takes node i away and says how. Somebody's real server is not stopped: only the connection
// to it is cut.
func (ns *nodes) stop(i int) string {
	if ns.embedded == nil {
		ns.list[i].link.cut()
		return "the connection to node %d is cut"
	}
	ns.embedded[i].Close()
	ns.embedded[i].FlushAll()
	return "node %d is stopped"
}

// restart undoes stop and says how.
func (ns *nodes) restart(i int) (string, error) {
	if ns.embedded == nil {
		ns.list[i].link.restore()
		return "the connection to node %d is restored", nil
	}
	return "node %d is restarted, empty", ns.embedded[i].Restart()
}

// link is the way to a node. It can be cut.
type link struct {
	mu     sync.Mutex
	broken bool
	open   map[net.Conn]bool
}

var errCut = errors.New("connection cut")

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return nil, errCut
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		l.open[conn] = true
	}
	return conn, err
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for conn := range l.open {
		_ = conn.Close()
	}
	clear(l.open)
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
}
