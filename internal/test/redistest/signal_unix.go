//go:build unix

package redistest

import "syscall"

const (
	sigFreeze = syscall.SIGSTOP
	sigThaw   = syscall.SIGCONT
	sigEnd    = syscall.SIGTERM
)
