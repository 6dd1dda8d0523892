package redistest

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/internal/test/leak"
)

// together is how many parallel tests of a package run at the same time, unless -parallel says
// otherwise. Tests with servers wait more than they compute, so more tests run than there are
// processors.
const together = "20"

// Main runs the tests of a package that uses servers and returns the exit code for os.Exit. It is
// [leak.Main], but runs more tests at the same time and turns off go-redis's log, which would
// report each dial to a server that a test has stopped. It lets the garbage collector run less
// often, unless GOGC says how often: embedded and simulated nodes leave much and keep little. That
// saves a fifth of the processor time. Stacks of goroutines start larger than usual.
func Main(m *testing.M) int {
	adaptStacks()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	flag.Parse()
	logging.Disable()
	given := leak.Fuzzing() // where the flag is the number of workers
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", together)
	}
	return leak.Main(m)
}
