package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// shimSource is in a directory of its own, because C files beside Go files would
// be taken for cgo's.
//
//go:embed shim/clock.c
var shimSource []byte

// buildShim compiles the clock shim into dir and returns its path.
func buildShim(t testing.TB, dir string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		LeaveOut(t, Clocks, err.Error())
		t.Skip("no clock shim")
	}
	source, shim := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, shimSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-O2", "-shared", "-fPIC", "-o", shim,
		source).CombinedOutput(); err != nil {
		t.Fatalf("redistest: building the clock shim: %v\n%s", err, out)
	}
	return shim
}

// clock is the file that a server's shim reads: now + offset + (now-base)×rate/10⁶.
type clock struct {
	path         string
	file         *os.File
	valid        int64
	base, offset int64 // ns
	rate         int64 // ppm
}

func newClock(t testing.TB, dir string) *clock {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "clock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	c := &clock{path: f.Name(), file: f}
	if err := c.set(0, 0); err != nil {
		t.Fatal(err)
	}
	return c
}

// set makes the clock jump by d, and from there run rate ppm fast.
func (c *clock) set(d time.Duration, rate int64) error {
	now := time.Now().UnixNano()
	c.offset += int64(float64(now-c.base)*float64(c.rate)/1e6) + int64(d)
	c.base, c.rate = now, rate
	other := 1 - c.valid
	setting := make([]byte, 0, 24)
	for _, v := range []int64{c.base, c.offset, c.rate} {
		setting = binary.NativeEndian.AppendUint64(setting, uint64(v))
	}
	if _, err := c.file.WriteAt(setting, 8+24*other); err != nil {
		return err
	}
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(other)),
		0); err != nil {
		return err
	}
	c.valid = other
	// The file is as long as the shim's mapping from the first setting on.
	return c.file.Truncate(7 * 8)
}

// Jump moves the server's wall clock by d, forwards or back. It needs the option Clock.
// Restarting the server changes nothing about its clock.
func (s *Server) Jump(d time.Duration) {
	s.t.Helper()
	s.skew(d, s.clock.rate)
}

// Rate makes the server's wall clock run ppm parts in a million fast, from now on and
// without a jump: 0 is true, 100_000 gains 10 %, 9_000_000 runs ten times as fast, -1_000_000
// stands still. It needs the option Clock.
func (s *Server) Rate(ppm int) {
	s.t.Helper()
	s.skew(0, int64(ppm))
}

func (s *Server) skew(d time.Duration, rate int64) {
	s.t.Helper()
	if err := s.clock.set(d, rate); err != nil {
		s.t.Fatalf("redistest: setting the clock of %s: %v", s.addr, err)
	}
}
