package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// asService gives a process a session of its own, as a service has, and makes it end with its
// parent. Linux shares the processors among sessions (autogroup), and a test with
// dozens of threads would leave little to its servers.
func asService() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
}

// stopped reports whether the process is stopped by a signal.
func stopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	_, state, ok := bytes.Cut(stat, []byte(") "))
	return ok && state[0] == 'T', nil
}
