package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/redlocktest"
)

func TestWithFencingNoUpdateIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, sell(t.Context(), &out, redlocktest.New(t, 3).Pools(), true, true))
		assert.Contains(t, out.String(), "Ada    is refused by the store: stale fencing token")
		assert.Contains(t, out.String(), "8 are in stock")
	})
}

// lesson L72
func TestWithoutAClaimAnUpdateIsLost(t *testing.T) {
	for name, fencing := range map[string]bool{"no tokens": false,
		"tokens with the writes alone": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				err := sell(t.Context(), &out, redlocktest.New(t, 3).Pools(), fencing, !fencing)
				require.EqualError(t, err, "an update is lost: Grace's write has undone Ada's")
				assert.NotContains(t, out.String(), "refused")
				assert.Equal(t, fencing, strings.Contains(out.String(), "with fencing token"))
				assert.Contains(t, out.String(), "9 are in stock")
			})
		})
	}
}

// Whenever a lock is lost, the stock comes out right.
func TestNoUpdateIsLostAtAnyCommand(t *testing.T) {
	redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		var out bytes.Buffer
		err := sell(t.Context(), &out, c.Pools(), true, true)
		assert.NoError(t, err, out.String())
	}, redlocktest.Forgotten)
}

func TestStoreRefusesStaleTokens(t *testing.T) {
	s := NewStore(true)
	require.NoError(t, s.Write(5, "a", 1))
	require.NoError(t, s.Write(5, "a", 2), "the holder may write often")
	assert.ErrorIs(t, s.Write(4, "a", 3), ErrStale)
	require.NoError(t, s.Write(1, "b", 1), "other items are other locks")

	// Nobody may write over what has been claimed by the next holder.
	require.NoError(t, s.Claim(7, "a"))
	assert.ErrorIs(t, s.Write(6, "a", 3), ErrStale)
	assert.ErrorIs(t, s.Claim(6, "a"), ErrStale)
	assert.Equal(t, 2, s.Read("a"))
}
