package main

import (
	"os"
	"syscall"
	"unsafe"
)

// control asks a terminal for something, or sets it.
func control(f *os.File, request uintptr, value unsafe.Pointer) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(value))
	return errno == 0
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	var t syscall.Termios
	return control(f, syscall.TCGETS, unsafe.Pointer(&t))
}

// size returns how many lines and columns a terminal has.
func size(f *os.File) (lines, width int) {
	var s struct{ lines, width, x, y uint16 }
	if !control(f, syscall.TIOCGWINSZ, unsafe.Pointer(&s)) || s.lines < 2 || s.width < 2 {
		return 24, 80
	}
	return int(s.lines), int(s.width)
}

// singleKeys lets a terminal send each key at once and not show it, until restore is called. ^C and
// ^Z go on to be signals.
func singleKeys(f *os.File) (restore func()) {
	var before syscall.Termios
	if !control(f, syscall.TCGETS, unsafe.Pointer(&before)) {
		return func() {}
	}
	now := before
	now.Lflag &^= syscall.ICANON | syscall.ECHO
	now.Cc[syscall.VMIN], now.Cc[syscall.VTIME] = 1, 0
	control(f, syscall.TCSETS, unsafe.Pointer(&now))
	return func() { control(f, syscall.TCSETS, unsafe.Pointer(&before)) }
}

// stopSelf stops this process until the shell lets it go on.
func stopSelf() { stop(syscall.SIGTSTP) }
