package pool_test

import (
	"os"
	"testing"

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
