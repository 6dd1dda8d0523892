//go:build !unix

package redistest

import "syscall"

// There is nothing like these signals here; sending them is an error, which the test shows.
const (
	sigFreeze = syscall.Signal(-1)
	sigThaw   = syscall.Signal(-2)
	sigEnd    = syscall.Signal(-3)
)
