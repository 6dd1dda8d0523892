package goredis

import (
	"weak"

	"github.com/redis/go-redis/v9"
)

// Watched returns a function that reports whether the client is remembered, and does not keep it.
func Watched(client *redis.Client) func() bool {
	key := weak.Make(client)
	return func() bool {
		_, is := watched.Load(key)
		return is
	}
}
