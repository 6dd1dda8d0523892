package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// StartSentinel starts a Sentinel that knows one master, by the name "main". It ends with the test.
func StartSentinel(t testing.TB, master *Server) (addr string) {
	t.Helper()
	program, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	addr = FreeAddr(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(addr)
	host, masterPort, _ := net.SplitHostPort(master.Addr())
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor main %s %s 1\n",
		port, dir, host, masterPort)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := StartProcess(exec.Command(program, file, "--sentinel"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	err = Poll(func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("redistest: the Sentinel on %s does not answer: %v", addr, err)
	}
	return addr
}
