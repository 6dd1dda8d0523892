//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// forwarded are the signals that a command gets too.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
	syscall.SIGUSR2,
}

// heeded returns those of them that were not ignored when this process started. The others stay
// ignored, here and by the command: nohup ignores HUP, and a shell without job control INT and QUIT
// for what it runs in the background. Of the others nobody can know: before main, Go replaces the
// action of every signal that ends programs by its own, unless HUP or INT was ignored.
func heeded() (all []os.Signal) {
	if signal.Ignored(syscall.SIGINT) {
		signal.Ignore(syscall.SIGQUIT)
	}
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// outlivePipes lets this process go on after it has written to a pipe that nobody reads. Were the
// signal ignored instead, the command would ignore it too.
func outlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// ends reports whether a signal ends the wait for a lock.
func ends(s syscall.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }
