package main

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// dieWithParent has the command killed if this process is killed. Then the lock ends with its
// expiry, and the command is gone long before.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// lendTerminal gives the terminal to the command's process group if this process has it: only the
// group in the foreground can read from it. The returned function takes it back.
func lendTerminal(attr *syscall.SysProcAttr) (takeBack func()) {
	fd, own := os.Stdin.Fd(), int32(syscall.Getpgrp())
	if group, ok := terminalGroup(fd); !ok || group != own {
		return func() {}
	}
	attr.Foreground, attr.Ctty = true, int(fd)
	return func() {
		// The kernel stops a background process that does this, unless it ignores the signal.
		signal.Ignore(syscall.SIGTTOU)
		_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPGRP,
			uintptr(unsafe.Pointer(&own)))
		signal.Reset(syscall.SIGTTOU)
	}
}

// terminalGroup returns the foreground group of a terminal.
func terminalGroup(fd uintptr) (group int32, ok bool) {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPGRP,
		uintptr(unsafe.Pointer(&group)))
	return group, errno == 0
}
