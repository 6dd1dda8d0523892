package wire_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

var update = flag.Bool("update", false, "write testdata/plain.txt")

// A lock that nobody shares sends what it sent before there were readers, byte for byte: scripts by
// their IDs, keys and arguments. Every version and every client of a lock has to agree on that.
func TestAPlainLockSendsTheSameBytes(t *testing.T) {
	var sent strings.Builder
	for _, terms := range []wire.Terms{
		{Expiry: time.Second},
		{Expiry: time.Second, Queue: true, NodeTimeout: 50 * time.Millisecond},
		{Expiry: time.Second, Queue: true, NodeTimeout: 50 * time.Millisecond, Fencing: true,
			FencePerName: true, FenceTTL: time.Hour, Guard: time.Second},
		{Expiry: time.Second, NodeTimeout: 50 * time.Millisecond, Fencing: true},
	} {
		l := wire.NewLock("x", &terms, &wire.Tokens{Now: func() time.Time {
			return time.UnixMicro(7)
		}})
		for _, c := range []quorum.Command{
			l.Acquire("v"), l.AcquireUnguarded("v"), l.Claim("v", "m"), l.Swap("v", "w"),
			l.Heal("v", 1), l.Raise("v", 1), l.Extend("v"), l.Linger("v", time.Second),
			l.Valid("v"), l.Release("v", ""), l.Release("v", "m"), l.TakeBack("v", "m", 3),
			l.Leave(member), l.Stand(member, time.Minute), l.Bid("v", "m", []string{"1"}),
		} {
			command := c.Command
			if c.For != nil {
				command = c.For(0)
			}
			fmt.Fprintf(&sent, "%v\n", command.Args())
		}
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/plain.txt", []byte(sent.String()), 0o644))
	}
	want, err := os.ReadFile("testdata/plain.txt")
	require.NoError(t, err)
	assert.Equal(t, string(want), sent.String())
}
