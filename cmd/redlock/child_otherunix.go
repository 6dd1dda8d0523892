//go:build unix && !linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// child is a running command in a process group of its own. Signals to the group reach its children
// too. On this system they go on if this process is killed, and cannot read from a terminal.
type child struct {
	cmd     *exec.Cmd
	stops   chan os.Signal      // never
	stopped chan syscall.Signal // never: this system does not tell
	done    chan struct{}       // closed when the command has ended
	err     error               // of Wait; set when done is closed
}

// runSupervisor does nothing here.
func runSupervisor([]string) bool { return false }

// reapOrphans does nothing here.
func reapOrphans() {}

func start(cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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

// signal sends a signal to the group. It may be gone.
func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.cmd.Process.Pid, s) }

// goOn is for a command that was stopped.
func (c *child) goOn() {}

// ask does nothing here.
func (c *child) ask() {}

// follow does nothing here.
func (c *child) follow(syscall.Signal) bool { return false }

// kill kills the group.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// status is the exit status of the command, which has ended.
func (c *child) status() int {
	var exit *exec.ExitError
	if !errors.As(c.err, &exit) {
		if c.err != nil { // its output could not be copied
			return 1
		}
		return 0
	}
	if s := exit.Sys().(syscall.WaitStatus); s.Signaled() {
		return exitSignal + int(s.Signal())
	}
	return exit.ExitCode()
}
