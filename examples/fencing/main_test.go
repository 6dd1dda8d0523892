package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redistest"
)

func TestWithFencingNoUpdateIsLost(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, "", true, true))
	t.Log(out.String())
	assert.Contains(t, out.String(), "Ada    is refused by the store: stale fencing token")
	assert.Contains(t, out.String(), "8 are in stock")
}

// lesson L72
func TestWithoutAClaimAnUpdateIsLost(t *testing.T) {
	t.Parallel()
	for name, fencing := range map[string]bool{"no tokens": false, "tokens with the writes alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run(t.Context(), &out, "", fencing, !fencing)
			t.Log(out.String())
			require.EqualError(t, err, "an update is lost: Grace's write has undone Ada's")
			assert.NotContains(t, out.String(), "refused")
			assert.Equal(t, fencing, strings.Contains(out.String(), "with fencing token"))
			assert.Contains(t, out.String(), "9 are in stock")
		})
	}
}

func TestOnRealNodes(t *testing.T) {
	t.Parallel()
	addrs := ""
	for i, s := range redistest.Start(t, 3) {
		if i > 0 {
			addrs += ","
		}
		addrs += s.Addr()
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, addrs, true, true))
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
