package pool_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pooltest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// The adapter that the package's example shows is one.
func TestNode(t *testing.T) {
	suite := func(t *testing.T, addr string) {
		pooltest.Run(t, func(t *testing.T) pool.Pool {
			n := NewNode(addr)
			t.Cleanup(func() { _ = n.conns.Close() })
			return n
		})
	}
	t.Run("embedded", func(t *testing.T) { suite(t, redistest.Embedded(t, 1)[0].Addr()) })
	t.Run("real", func(t *testing.T) { suite(t, redistest.Start(t, 1)[0].Addr()) })
}

// A client that appends to what it is given does not write into what other nodes are sent.
func TestTheLineOfACommandHasNoRoom(t *testing.T) {
	script := &pool.Script{ID: "0"}
	for _, c := range []*pool.Command{
		pool.SetNX("k", "v", time.Minute),
		pool.Eval(script, []string{"k"}, "v"),
		pool.Eval(script, []string{"k", "l"}, 1, 2, 3, 4),
	} {
		assert.Equal(t, len(c.Args()), cap(c.Args()), "%v", c.Args())
	}
}
