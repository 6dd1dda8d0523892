package wire_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// node answers the script of Inspect with its reply, or fails.
type node struct {
	reply any
	err   error
}

func (n node) Eval(context.Context, *pool.Script, []string, ...any) (any, error) {
	return n.reply, n.err
}

func (node) SetNX(context.Context, string, string, time.Duration) (bool, error) { panic("SetNX") }

func take(of ...node) wire.Census {
	pools := make([]pool.Pool, len(of))
	for i := range of {
		pools[i] = of[i]
	}
	nodes := quorum.Nodes(pools, quorum.NewTracker())
	return wire.TakeCensus(context.Background(), nodes, time.Minute, "x", "x:fence")
}

func has(value string, ms int64) node { return node{reply: []any{value, ms, "7"}} }

func TestTakeCensus(t *testing.T) {
	oops := errors.New("oops")
	c := take(has("a", 100), node{reply: []any{}}, has("b", 900), node{err: oops}, has("b", 50),
		has(wire.Reservation+"1", 5), node{reply: "odd"})
	assert.Equal(t, "b", c.Value)
	assert.Equal(t, 2, c.Votes)
	assert.Equal(t, 1, c.Free)
	assert.Equal(t, 1, c.Reserved)
	assert.Equal(t, 2, c.Silent, "one has failed, and one answers what the script cannot return")
	assert.ErrorIs(t, c.Nodes[3].Err, oops)
	assert.Equal(t, "7", c.Nodes[4].Value.Counter)
	assert.Equal(t, 900*time.Millisecond, c.TTL(1))
	assert.Equal(t, 50*time.Millisecond, c.TTL(2))

	c = take(node{reply: []any{}}, node{reply: []any{}})
	assert.Zero(t, c.Votes)
	assert.Empty(t, c.Value)
}

// A key that never expires outlives every other.
func TestTTLOfAKeyThatNeverExpires(t *testing.T) {
	c := take(has("a", 10), has("a", -1), has("a", 20))
	assert.Equal(t, quorum.Forever, c.TTL(1))
	assert.Equal(t, 20*time.Millisecond, c.TTL(2))
	assert.Equal(t, 10*time.Millisecond, c.TTL(3))
}
