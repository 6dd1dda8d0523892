package fence_test

import (
	"context"
	"os"
	"regexp"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/embedded"
)

// The script of docs/fence.md refuses a stale holder that writes before the newer one does, and
// keeps what the newer one has read and written.
func TestTheRedisScriptOfTheDocsRefusesStaleHolders(t *testing.T) {
	page, err := os.ReadFile("../docs/fence.md")
	require.NoError(t, err)
	lua := regexp.MustCompile("(?s)```lua\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, lua, 1)
	nodes, err := embedded.Start(1)
	require.NoError(t, err)
	defer nodes.Close()
	client := redis.NewClient(&redis.Options{Addr: nodes.Addrs()[0]})
	defer client.Close()
	ctx, keys := context.Background(), []string{"{lamp}:stock", "{lamp}:token"}
	run := func(args ...any) int {
		accepted, err := client.Eval(ctx, string(lua[0][1]), keys, args...).Int()
		require.NoError(t, err)
		return accepted
	}
	const older, newer = 1_700_000_000_000_000, 1_700_000_000_000_001

	require.Equal(t, 1, run(older), "claims")
	require.Equal(t, 1, run(older, 10))
	require.Equal(t, 1, run(older), "claims again")
	require.Equal(t, 1, run(newer), "claims, and then reads 10")
	assert.Equal(t, 0, run(older, 9), "was paused")
	assert.Equal(t, 0, run(older))
	require.Equal(t, 1, run(newer, 8))
	assert.Equal(t, "8", client.Get(ctx, keys[0]).Val())
}
