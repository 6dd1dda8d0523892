package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redistest"
)

func TestEmbedded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, "", 4))
	t.Log(out.String())
	assert.Contains(t, out.String(), "node 1 is stopped")
	assert.Contains(t, out.String(), "node 3 is restarted, empty")
	assert.Contains(t, out.String(), "3/5")
	assert.Contains(t, out.String(), "The counter is 20 after 20 additions: exact.")
}

func TestRealNodes(t *testing.T) {
	t.Parallel()
	addrs := ""
	for i, s := range redistest.Start(t, 3) {
		if i > 0 {
			addrs += ","
		}
		addrs += s.Addr()
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, addrs, 2))
	t.Log(out.String())
	assert.Contains(t, out.String(), "the line to node 1 is mended")
	assert.Contains(t, out.String(), "The counter is 10 after 10 additions: exact.")
}

func TestNoQuorum(t *testing.T) {
	t.Parallel()
	node := redistest.Embedded(t, 1)[0]
	var out bytes.Buffer
	err := run(t.Context(), &out, node.Addr()+",127.0.0.1:1,127.0.0.1:2", 1)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	assert.ErrorContains(t, err, "connection refused")
}

// A lock that excludes nobody must not go unnoticed.
func TestInexactCounter(t *testing.T) {
	show := newAccount(&bytes.Buffer{}, nil, 5, 20)
	assert.EqualError(t, show.summary(19, 20), "the counter is 19 after 20 additions")
}
