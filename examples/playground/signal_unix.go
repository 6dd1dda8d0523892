//go:build unix

package main

import (
	"os"
	"syscall"
)

// suspend stops a process, which does not notice, or lets it go on.
func suspend(p *os.Process, on bool) error {
	if on {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}
