package redistest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Skipped tests are counted, and more than a few of them fail.
// lesson L163
func TestOnlyAFewTestsAreSkippedOnABusyMachine(t *testing.T) {
	before := busy.Swap(0)
	defer busy.Store(before)
	file := filepath.Join(t.TempDir(), "busy")
	t.Setenv("REDLOCK_BUSY", file)
	for n := 1; n <= few+2; n++ {
		fake, done := &fakeTB{}, make(chan struct{})
		go func() {
			defer close(done)
			SkipBusy(fake, "%d ms late", 17)
		}()
		<-done
		if fake.skipped != (n <= few) || fake.failed == fake.skipped ||
			!strings.HasSuffix(fake.text, ": 17 ms late") {
			t.Errorf("%d: skipped %v, failed %v: %s", n, fake.skipped, fake.failed, fake.text)
		}
		lines, err := os.ReadFile(file)
		if err != nil || string(lines) != strings.Repeat("TestFake\n", n) {
			t.Errorf("%d: %q, %v", n, lines, err)
		}
	}
}
