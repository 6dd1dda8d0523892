//go:build !linux

package redistest

import "syscall"

func asService() *syscall.SysProcAttr { return nil }

// stopped cannot be seen here; a signal takes effect soon enough.
func stopped(int) (bool, error) { return true, nil }
