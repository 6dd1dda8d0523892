package main

import (
	"os"
	"syscall"
	"unsafe"
)

// control asks a terminal for something, or sets it. The error is 0 if it did.
func control(fd uintptr, request uintptr, value unsafe.Pointer) syscall.Errno {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(value))
	return errno
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	var t syscall.Termios
	return control(f.Fd(), syscall.TCGETS, unsafe.Pointer(&t)) == 0
}

// size returns how many lines and columns a terminal has.
func size(f *os.File) (lines, width int) {
	var s struct{ lines, width, x, y uint16 }
	if control(f.Fd(), syscall.TIOCGWINSZ, unsafe.Pointer(&s)) != 0 || s.lines < 2 || s.width < 2 {
		return 24, 80
	}
	return int(s.lines), int(s.width)
}

// singleKeys lets a terminal send each key at once and not show it, until restore is called. ^C and
// ^Z go on to be signals.
func singleKeys(f *os.File) (restore func()) {
	var before syscall.Termios
	if control(f.Fd(), syscall.TCGETS, unsafe.Pointer(&before)) != 0 {
		return func() {}
	}
	now := before
	now.Lflag &^= syscall.ICANON | syscall.ECHO
	now.Cc[syscall.VMIN], now.Cc[syscall.VTIME] = 1, 0
	control(f.Fd(), syscall.TCSETS, unsafe.Pointer(&now))
	return func() { control(f.Fd(), syscall.TCSETS, unsafe.Pointer(&before)) }
}

// stopSelf stops this process until the shell lets it go on.
func stopSelf() { stop(syscall.SIGTSTP) }
