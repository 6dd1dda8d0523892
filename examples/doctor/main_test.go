package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redistest"
)

func TestEmbeddedNodesAreNotCritical(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	status, err := run(t.Context(), &out, "", "", options(0, "", false, false)...)
	require.NoError(t, err)
	assert.Equal(t, 0, status)
	assert.Contains(t, out.String(), "3 nodes, quorum 2: 0 critical")
}

func TestOneServerTwiceIsCritical(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 2)
	addrs := servers[0].Addr() + "," + servers[1].Addr() + "," + servers[0].Addr()
	var out bytes.Buffer
	status, err := run(t.Context(), &out, addrs, "invoice:42", options(time.Minute, "app:", true, false)...)
	require.NoError(t, err)
	t.Log(out.String())
	assert.Equal(t, 1, status)
	assert.Contains(t, out.String(), fmt.Sprintf("CRITICAL (same-server), nodes 0 (%s), 2 (%[1]s)\n", servers[0].Addr()))
	assert.Contains(t, out.String(), `lock "invoice:42": free`)
}

func TestNoAnswerIsCritical(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	status, err := run(t.Context(), &out, "127.0.0.1:1", "", options(0, "", false, false)...)
	require.NoError(t, err)
	assert.Equal(t, 1, status)
}

// Where INFO is denied, the guard lets nobody lock; and without the counter's pattern, no token
// is made.
func TestWhatTheOptionsNeedIsCritical(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	for _, tt := range []struct {
		keys    string
		options []redlock.Option
		status  int
	}{
		{"~app:*", options(0, "app:", false, false), 0},
		{"~app:*", options(0, "app:", true, false), 1},
		{"~app:* ~redlock:fence:*", options(0, "app:", true, false), 0},
		{"~app:* ~redlock:fence:*", options(0, "app:", true, true), 1},
		{"~app:* ~{app:*", options(0, "app:", true, true), 0},
		{"~app:*", options(time.Minute, "app:", false, false), 1},
		{"~app:*", options(0, "", false, false), 1},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, 1)[0]
			server.Must(append([]string{"ACL", "SETUSER", "default", "-info", "resetkeys"},
				strings.Fields(tt.keys)...)...)
			var out bytes.Buffer
			status, err := run(t.Context(), &out, server.Addr(), "", tt.options...)
			require.NoError(t, err)
			assert.Equal(t, tt.status, status, out.String())
		})
	}
}

// lesson L83: nodes with user and password come from an argument or the environment, and no
// password is printed.
func TestNodesAreURLs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, 1)[0]
	server.Must("ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all")
	server.Must("ACL", "SETUSER", "default", "off")
	url := "redis://app:s3cret@" + server.Addr()
	for name, tt := range map[string]struct {
		args, env string
		status    int
		says      string
	}{
		"argument":                  {"-addrs=" + url, "", 0, "1 node, quorum 1"},
		"environment":               {"", url, 0, "1 node, quorum 1"},
		"argument over environment": {"-addrs=" + url, "redis://nowhere:1", 0, "1 node, quorum 1"},
		"no password":               {"-addrs=" + server.Addr(), "", 1, "NOAUTH"},
		"a wrong one":               {"", "redis://app:s3cret5@" + server.Addr(), 1, "WRONGPASS"},
		"no URL":                    {"", "redis://app:s3cret/5@" + server.Addr(), 2, "address 1 of 1: not a valid Redis URL"},
		"help":                      {"-h", url, 0, "REDLOCK_NODES"},
		"unknown flag":              {"-password=s3cret", url, 2, "flag provided but not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			status, err := command(t.Context(), &out, &out, strings.Fields(tt.args), func(string) string { return tt.env })
			said := out.String() + fmt.Sprint(err)
			assert.Equal(t, tt.status, status)
			assert.Contains(t, said, tt.says)
			assert.NotContains(t, said, "s3cret")
		})
	}
}
