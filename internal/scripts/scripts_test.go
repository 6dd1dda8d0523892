package scripts_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/internal/test/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// lesson L38
func TestScriptIDs(t *testing.T) {
	compare := func(t *testing.T, node redistest.Node) {
		for _, s := range scripts.All {
			assert.Equal(t, node.Must("SCRIPT", "LOAD", s.Source), s.ID, s.Name)
		}
	}
	t.Run("server", func(t *testing.T) { compare(t, redistest.Start(t, 1)[0]) })
	t.Run("embedded", func(t *testing.T) { compare(t, redistest.Embedded(t, 1)[0]) })
}

// What is sent has no comments: they would cost every node that is told a script its time.
func TestCommentsAreNotSent(t *testing.T) {
	for _, s := range scripts.All {
		assert.NotContains(t, s.Source, "--", s.Name)
		assert.NotEmpty(t, s.Source, s.Name)
	}
}
