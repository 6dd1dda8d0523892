package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Only the process group in the foreground can read from a terminal. The command has a group of its
// own. So it gets the terminal if this process's group has it: at once, or when it asks for it.
//
// ^Z stops the group in the foreground. Whichever that is, the command is stopped first, and this
// process after it. It does not go on before this process has gone on, and has the lock.

// lendsAtOnce reports whether the command gets the terminal as it starts. Not from a script, which
// ^C ends too, nor if the output goes to somebody who may need it more: redlock run … | less.
func lendsAtOnce() bool {
	var out syscall.Stat_t
	_ = syscall.Fstat(1, &out)
	group, err := foreground(0)
	return err == nil && group == os.Getpid() && out.Mode&syscall.S_IFMT != syscall.S_IFIFO
}

// foreground returns the process group in the foreground of a terminal, if that is the one that
// controls this process.
func foreground(fd int) (group int, err error) {
	var id int32
	if errno := control(uintptr(fd), syscall.TIOCGPGRP, unsafe.Pointer(&id)); errno != 0 {
		return 0, errno
	}
	return int(id), nil
}

// passTerminal gives the terminal from one process group to another, and reports whether the first
// had it.
func passTerminal(from, to int) bool {
	tty, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(tty)
	if group, err := foreground(tty); err != nil || group != from {
		return false
	}
	// The kernel stops a process in the background that does this, unless it ignores the signal.
	id, before := int32(to), setAction(syscall.SIGTTOU, &action{ignored})
	errno := control(uintptr(tty), syscall.TIOCSPGRP, unsafe.Pointer(&id))
	setAction(syscall.SIGTTOU, &before)
	return errno == 0
}

// lendTerminal gives the terminal to a group if this process's group has it; takeTerminal takes it
// back if that group has it.
func lendTerminal(group int) bool { return passTerminal(syscall.Getpgrp(), group) }
func takeTerminal(group int) bool { return passTerminal(group, syscall.Getpgrp()) }

// catchStops sends ^Z to the channel until the returned function is called.
func catchStops(stops chan<- os.Signal) (restore func()) {
	before := setAction(syscall.SIGTSTP, nil)
	if before[0] == ignored {
		return func() {}
	}
	signal.Notify(stops, syscall.SIGTSTP)
	return func() {
		signal.Stop(stops) // which leaves a handler that does nothing
		setAction(syscall.SIGTSTP, &before)
	}
}

// ask passes ^Z on.
func (c *child) ask() {
	c.asked = true
	c.signal(syscall.SIGTSTP)
}

// follow reacts to a signal that has stopped the command. It either lends the command the terminal,
// or stops this process as well until the shell continues it. It reports whether the command may go
// on: this process may have been stopped for longer than the lock lives.
func (c *child) follow(s syscall.Signal) (goOn bool) {
	reads, alone := s == syscall.SIGTTIN || s == syscall.SIGTTOU, c.asked
	switch {
	case !reads && s != syscall.SIGTSTP: // somebody has stopped it, and may let it go on
		return false
	case alone: // a ^Z has stopped the rest of this group, too, or somebody this process alone
		c.asked, s = false, syscall.SIGTSTP
	case reads && lendTerminal(c.group):
		c.goOn()
		return false
	case reads: // perhaps a ^Z has just moved this group to the background: this answers it
		select {
		case <-c.stops:
		case <-time.After(50 * time.Millisecond):
		}
	}
	had := takeTerminal(c.group)
	if !alone {
		others(s)
	}
	stop(s)
	select {
	case <-c.stops: // a ^Z just before is over with this: else it would stop the command again
	default:
	}
	if had || reads {
		lendTerminal(c.group)
	}
	return true
}

// others sends a signal to the rest of this process's group.
func others(s syscall.Signal) {
	before := setAction(s, &action{ignored})
	_ = syscall.Kill(0, s)
	// If the first thread blocks the signal, as that of package os/signal does, it is now pending.
	// This discards it.
	setAction(s, &action{ignored})
	setAction(s, &before)
}

// stop stops this process by a signal, and returns when it goes on. The kernel does not stop it if
// there is no shell that could let its group go on.
func stop(s syscall.Signal) {
	before := setAction(s, &action{})
	defer setAction(s, &before)
	runtime.LockOSThread() // a thread that gets a signal of its own handles it at once
	defer runtime.UnlockOSThread()
	_, _, _ = syscall.Syscall(syscall.SYS_TGKILL, uintptr(syscall.Getpid()),
		uintptr(syscall.Gettid()), uintptr(s))
}

// action is the kernel's struct sigaction, which begins with the handler: 0 is the default. Package
// os/signal neither reads it nor goes back to the default action of a signal that stops.
type action [8]uintptr

const ignored = 1

// setAction sets the action of a signal unless it is nil, and returns the one before.
func setAction(s syscall.Signal, a *action) (before action) {
	const sizeofMask = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(&before)), sizeofMask, 0, 0)
	return before
}
