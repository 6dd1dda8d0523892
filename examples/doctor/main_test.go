package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/redlocktest"
)

func TestEmbeddedNodesAreNotCritical(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	status, err := run(t.Context(), &out, "", "", options(0, "", false, false)...)
	require.NoError(t, err)
	assert.Equal(t, 0, status)
	assert.Contains(t, out.String(), "3 nodes, quorum 2: 0 critical")
}

func TestNoAnswerIsCritical(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		c.Node(0).Down()
		c.Node(1).Freeze()
		var out bytes.Buffer
		status, err := examine(t.Context(), &out, c.Redlock(), "")
		require.NoError(t, err)
		assert.Equal(t, 1, status)
		assert.Contains(t, out.String(), "connection refused")
	})
}

func TestTheHolderIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		m := c.Redlock().NewMutex("invoice:42")
		require.NoError(t, m.Lock())
		var out bytes.Buffer
		_, err := examine(t.Context(), &out, c.Redlock(), "invoice:42")
		require.NoError(t, err)
		assert.Contains(t, out.String(), `lock "invoice:42": held`)
	})
}
