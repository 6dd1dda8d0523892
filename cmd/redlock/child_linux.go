package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
)

// child is a running command in a process group of its own, below a supervisor: see supervise.
// Signals to the group reach its children too.
type child struct {
	group   int         // the command's process group, which has its process ID
	above   *os.Process // the supervisor
	leash   *os.File    // it kills all processes when this end is closed
	reports *os.File    // what the supervisor tells

	stops   chan os.Signal      // ^Z, if the command is not the one that it stops
	asked   bool                // the command was asked to stop by it, and has not stopped yet
	stopped chan syscall.Signal // the command was stopped by that signal
	done    chan struct{}       // closed when no process of the command is left
	code    int                 // the exit status; set when done is closed
}

// start starts a command. All its processes are killed if this process is.
func start(cmd *exec.Cmd) (*child, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	held, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer held.Close()
	reports, told, err := os.Pipe()
	if err != nil {
		leash.Close()
		return nil, err
	}
	defer told.Close()
	c := &child{leash: leash, reports: reports, stops: make(chan os.Signal, 1),
		stopped: make(chan syscall.Signal), done: make(chan struct{})}
	above := exec.Command("/proc/self/exe") // this program, also if its file was replaced
	above.Args = slices.Concat([]string{supervisor, bare(held), bare(told),
		strconv.FormatBool(lendsAtOnce()), cmd.Path}, cmd.Args)
	above.Env, above.Stdin, above.Stdout, above.Stderr = cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr
	// A signal to the group of this process must not kill the supervisor.
	above.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := above.Start(); err != nil {
		c.close()
		// Not wrapped: it does not mean that the command is not found, but that there is no /proc.
		return nil, fmt.Errorf("cannot supervise the command: %v", err)
	}
	c.above = above.Process
	told.Close()
	if err := c.begun(cmd.Path); err != nil {
		_ = above.Wait()
		c.close()
		return nil, err
	}
	restore := catchStops(c.stops)
	go func() { // ends when the supervisor does
		c.listen()
		_ = above.Wait()
		takeTerminal(c.group)
		restore()
		c.close()
		close(c.done)
	}()
	return c, nil
}

// bare makes the file one that the next process started has, at the same number, and returns that.
// The others from 3 on are those that this process was started with, and are the command's too.
func bare(f *os.File) string {
	fd := f.Fd()
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFD, 0)
	return strconv.Itoa(int(fd))
}

func (c *child) close() {
	c.leash.Close()
	c.reports.Close()
}

// The words of a supervisor's reports. Each is followed by a number, and ends a line.
const (
	reportFailed  = "failed"  // to start the command, with this errno
	reportStarted = "started" // with this process ID
	reportStopped = "stopped" // by this signal
	reportEnded   = "ended"   // with this exit status, and nothing of the command is left
)

// begun waits until the command of that path has been started, or could not be.
func (c *child) begun(path string) error {
	var word string
	var n int
	if _, err := fmt.Fscanln(c.reports, &word, &n); err != nil {
		return fmt.Errorf("the command's supervisor has ended: %w", err)
	}
	if word == reportFailed {
		return &os.PathError{Op: "exec", Path: path, Err: syscall.Errno(n)}
	}
	c.group = n
	return nil
}

// listen returns when the supervisor has ended, and nothing of the command's group is left.
func (c *child) listen() {
	for {
		var word string
		var n int
		_, err := fmt.Fscanln(c.reports, &word, &n)
		switch {
		case err != nil: // the supervisor was killed
			c.signal(syscall.SIGKILL)
			c.code = exitSignal + int(syscall.SIGKILL)
			return
		case word == reportEnded:
			c.code = n
			_, _ = io.Copy(io.Discard, c.reports)
			return
		}
		c.stopped <- syscall.Signal(n)
	}
}

// signal sends a signal to the group. It may be gone.
func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.group, s) }

// goOn lets the command go on after it was stopped.
func (c *child) goOn() { c.signal(syscall.SIGCONT) }

// kill kills all processes of the command.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	c.leash.Close()
	_ = c.above.Signal(syscall.SIGCONT) // somebody may have stopped the supervisor
}

// status is the exit status of the command, which has ended.
func (c *child) status() int { return c.code }
