package main

import (
	"context"
	"crypto/rand"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const bare = "bare go-redis"

// bareLocker is what one would write by hand: SET NX PX and a compare-and-delete script to every
// node at once, and a wait for every reply. It has no deadlines, no retries, and no clean-up.
type bareLocker struct{ nodes []*goredis.Client }

var deleteScript = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then ` +
	`return redis.call('DEL', KEYS[1]) end return 0`)

func openBare(addrs []string, _ time.Duration) locker {
	l := &bareLocker{}
	for _, a := range addrs {
		l.nodes = append(l.nodes, goredisClient(a))
	}
	return l
}

func (l *bareLocker) Lock(ctx context.Context, name string) (func() error, error) {
	value := rand.Text()
	err := l.all(func(n *goredis.Client) error {
		return n.SetArgs(ctx, name, value, goredis.SetArgs{Mode: "NX", TTL: expiry}).Err()
	})
	return func() error {
		return l.all(func(n *goredis.Client) error {
			return deleteScript.Run(context.Background(), n, []string{name}, value).Err()
		})
	}, err
}

func (l *bareLocker) all(do func(*goredis.Client) error) (failed error) {
	if len(l.nodes) == 1 {
		return do(l.nodes[0])
	}
	replies := make(chan error, len(l.nodes))
	for _, n := range l.nodes {
		go func() { replies <- do(n) }()
	}
	for range l.nodes {
		if err := <-replies; err != nil {
			failed = err
		}
	}
	return failed
}

func (l *bareLocker) Close() {
	for _, n := range l.nodes {
		_ = n.Close()
	}
}
