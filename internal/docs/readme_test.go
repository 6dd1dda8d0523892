// Package docs tests that what the pages say is so.
package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/embedded"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

const root = "../.."

// lesson L84: the README's client gets the README's error: one node of three is taken, and
// another one is down.
func TestReadmeShowsARealError(t *testing.T) {
	page, err := os.ReadFile(root + "/README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "\n    redlock: ")
	require.True(t, ok, "no error in the README")
	line, _, _ := strings.Cut(rest, "\n")
	require.Contains(t, string(page), "redis.Options{Addr: addr, DialerRetries: 1}",
		"the client of the README's program")

	nodes, err := embedded.Start(3)
	require.NoError(t, err)
	defer nodes.Close()
	var pools []pool.Pool
	var names []string
	for i, addr := range nodes.Addrs() {
		client := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
		defer client.Close()
		pools = append(pools, goredis.NewPool(client))
		names = append(names, addr, fmt.Sprintf("10.0.0.%d:6379", i+1))
	}
	require.NoError(t, redlock.New(pools[0]).NewMutex("invoice:42",
		redlock.WithExpiry(time.Minute)).Lock())
	nodes.Stop(2)
	m := redlock.New(pools...).NewMutex("invoice:42")
	var text string
	for range 10 { // the client's error and the node timeout may come in either order
		text = strings.NewReplacer(names...).Replace(m.TryLock().Error())
		if text == "redlock: "+line {
			break
		}
	}
	assert.Equal(t, "redlock: "+line, text)
}
