package redistest

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// fakeTB notes how a test would have ended. It is used from a goroutine of its own.
type fakeTB struct {
	testing.TB
	skipped, failed bool
	text            string
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Name() string { return "TestFake" }

func (f *fakeTB) Skip(args ...any) {
	f.skipped, f.text = true, fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failed, f.text = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// killSelf ends this process as a crash would: no clean-up runs.
func killSelf() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	panic(err)
}
