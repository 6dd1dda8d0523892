// Package leak makes a test binary fail that leaves goroutines behind.
//
// It counts goroutines, where go.uber.org/goleak compares stacks. That is enough here, leaves
// fuzzing alone, and adds no module to a library that is built into other programs.
package leak

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// patience is how long goroutines may take to end after the last test.
const patience = 10 * time.Second

// Main runs the tests and returns the exit code for os.Exit. If the tests pass but goroutines
// remain that were not there before them, it waits for their end, and fails with their stacks if
// that does not come. Fuzzing leaves a goroutine behind that waits for signals, and is not
// checked.
func Main(m *testing.M) int {
	flag.Parse()
	before := runtime.NumGoroutine()
	code := m.Run()
	if code != 0 || Fuzzing() {
		return code
	}
	if stacks := Remaining(before, patience); stacks != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind by the tests:\n\n%s\n", stacks)
		return 1
	}
	return 0
}

// Fuzzing reports whether the test binary fuzzes. The flags have been parsed.
func Fuzzing() bool { return flag.Lookup("test.fuzz").Value.String() != "" }

// Remaining waits until there are no more than most goroutines, and returns "", or until patience
// is over, and returns the stacks of all.
func Remaining(most int, patience time.Duration) string {
	for end := time.Now().Add(patience); runtime.NumGoroutine() > most; {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			return string(buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ""
}
