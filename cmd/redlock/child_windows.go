package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// heeded returns the signals that end this process. A command in the same console gets them by
// itself.
func heeded() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// outlivePipes does nothing here.
func outlivePipes() {}

// ends reports whether a signal ends the wait for a lock.
func ends(syscall.Signal) bool { return true }

// child is a running command. Windows has no process groups as Unix has: what the command starts
// is not ended with it, and there is no TERM, so a command that loses its lock is ended at once.
type child struct {
	cmd     *exec.Cmd
	stops   chan os.Signal      // never
	stopped chan syscall.Signal // never
	done    chan struct{}       // closed when the command has ended
	err     error               // of Wait; set when done is closed
}

// runSupervisor does nothing here.
func runSupervisor([]string) bool { return false }

// reapOrphans does nothing here.
func reapOrphans() {}

func start(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends when the command does
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

func (c *child) signal(s syscall.Signal) {
	if s == syscall.SIGTERM {
		c.kill()
	}
}

// goOn is for a command that was stopped.
func (c *child) goOn() {}

// ask does nothing here.
func (c *child) ask() {}

// follow does nothing here.
func (c *child) follow(syscall.Signal) bool { return false }

func (c *child) kill() { _ = c.cmd.Process.Kill() }

// status is the exit status of the command, which has ended.
func (c *child) status() int {
	var exit *exec.ExitError
	switch {
	case errors.As(c.err, &exit):
		return exit.ExitCode()
	case c.err != nil:
		return 1
	}
	return 0
}
