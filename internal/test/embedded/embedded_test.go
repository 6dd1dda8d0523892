package embedded_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/embedded"
)

func TestNodesExpireAndForget(t *testing.T) {
	nodes, err := embedded.Start(2)
	require.NoError(t, err)
	defer nodes.Close()
	pools, closePools, err := embedded.Open(nodes.Addrs()[0]+","+nodes.Addrs()[1], 0)
	require.NoError(t, err)
	defer closePools()
	set := func(i int, expiry time.Duration) bool {
		ok, err := pools[i].SetNX(t.Context(), "k", "v", expiry)
		require.NoError(t, err)
		return ok
	}

	start := time.Now()
	set(0, 50*time.Millisecond)
	for !set(0, 50*time.Millisecond) {
		time.Sleep(time.Millisecond)
	}
	assert.Greater(t, time.Since(start), 40*time.Millisecond, "expired early")

	set(1, time.Hour)
	nodes.Stop(1)
	_, err = pools[1].SetNX(t.Context(), "k", "v", time.Hour)
	assert.Error(t, err)
	require.NoError(t, nodes.Restart(1))
	assert.Eventually(t, func() bool {
		ok, err := pools[1].SetNX(t.Context(), "k", "v", time.Hour)
		return ok && err == nil
	}, 10*time.Second, time.Millisecond)
}
