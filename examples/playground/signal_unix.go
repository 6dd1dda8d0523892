//go:build unix

package main

import (
	"os"
	"syscall"
)

// suspend stops a child, which does not notice, or lets it go on. It returns when the child has
// stopped: on a busy machine that comes later than the signal.
func suspend(p *os.Process, on bool) error {
	if !on {
		return p.Signal(syscall.SIGCONT)
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		if err != syscall.EINTR {
			return err
		}
	}
}
