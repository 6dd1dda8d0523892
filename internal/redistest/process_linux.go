package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
