package redlock

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/pool"
)

var scripts = []*pool.Script{releaseScript, extendScript, validScript, acquireScript, raiseScript, inspectScript}

// lesson L38: the IDs are what Redis computes; pooltest compares with SCRIPT LOAD on a server.
func TestScriptIDs(t *testing.T) {
	for _, s := range scripts {
		sum := sha1.Sum([]byte(s.Source))
		assert.Equal(t, hex.EncodeToString(sum[:]), s.ID, s.Name)
	}
}
