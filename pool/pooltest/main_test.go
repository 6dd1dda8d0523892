package pooltest_test

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// TestMain lets the garbage collector run less often, also in the processes that try a defect:
// embedded nodes leave much and keep little. That saves a fifth of the processor time.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(redistest.Main(m))
}
