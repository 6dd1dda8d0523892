//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// forwarded are the signals that a command gets too.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
	syscall.SIGUSR2,
}

// ends reports whether a signal ends the wait for a lock.
func ends(s syscall.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

// child is a running command in a process group of its own. Signals to the group reach its children
// too.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the command has ended
	err  error         // of Wait; set when done is closed
}

// start starts a command. Where the system can do that, the command is killed if this process is.
func start(cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	takeBack := lendTerminal(cmd.SysProcAttr)
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() { // ends when the command does
		// The kernel kills the command when the thread ends that started it, not the process. So
		// this thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			takeBack()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// signal sends a signal to the group. It may be gone.
func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.cmd.Process.Pid, s) }

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
