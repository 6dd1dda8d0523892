package redlock

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/redistest"
	"github.com/redlock-go/redlock/pool"
)

var scripts = []*pool.Script{releaseScript, standScript, claimScript, healScript, extendScript,
	validScript, acquireScript, raiseScript, inspectScript}

// lesson L38
func TestScriptIDs(t *testing.T) {
	compare := func(t *testing.T, node redistest.Node) {
		for _, s := range scripts {
			assert.Equal(t, node.Must("SCRIPT", "LOAD", s.Source), s.ID, s.Name)
		}
	}
	t.Run("server", func(t *testing.T) { compare(t, redistest.Start(t, 1)[0]) })
	t.Run("embedded", func(t *testing.T) { compare(t, redistest.Embedded(t, 1)[0]) })
}
