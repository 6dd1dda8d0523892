package redistest

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

// busy is how many tests of this process the machine was too busy for, and few is how many may be.
var busy atomic.Int64

const few = 3

// SkipBusy skips a test for which the machine is too busy, and says why. If more than a few tests
// of a package have done so, it fails the test instead: too little was tested. With REDLOCK_BUSY it
// adds a line to the file of that name, so that a caller of go test can count over all packages.
func SkipBusy(t testing.TB, format string, args ...any) {
	t.Helper()
	if name := os.Getenv("REDLOCK_BUSY"); name != "" {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(t.Name() + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	n := busy.Add(1)
	why := fmt.Sprintf("the machine is too busy for %d tests of this package by now: ", n) +
		fmt.Sprintf(format, args...)
	if n > few {
		t.Fatalf("%s", why)
	}
	t.Skip(why)
}
