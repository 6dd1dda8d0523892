package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// supervisor is the name, not an argument that a user could give, under which this program is the
// supervisor of a command.
//
// A command is killed with the process that keeps its lock. The kernel can do that to one process,
// but not to those that it has started. So a supervisor stands between the two. The processes below
// it become its children when their own parents end, wherever they have moved: into another group,
// or another session. It kills them when the process above it ends, and when the command ends.
//
// If the supervisor is killed, the process above it kills the command's group, and the kernel the
// command. Only the kernel does so if that happens before the supervisor has told the group.
const supervisor = "redlock supervisor"

// runSupervisor reports whether the arguments of this process make it a supervisor, and is one.
func runSupervisor(args []string) bool {
	if args[0] != supervisor || len(args) < 5 { // else it is not start who calls
		return false
	}
	supervise(args[1:])
	return true
}

// supervise is the supervisor. Its arguments are those of start; it returns when no process of the
// command is left that it may kill.
func supervise(args []string) {
	// The kernel kills the command when the thread ends that started it, not the process.
	runtime.LockOSThread()
	held, told, lend := inherited(args[0]), inherited(args[1]), args[2] == "true"
	signal.Notify(make(chan os.Signal, 1), heeded()...) // they are for the command
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	const setChildSubreaper = 36
	_, _, _ = syscall.Syscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
	pid, err := syscall.ForkExec(args[3], args[4:], &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2},
		// Ctty is the standard input.
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: lend},
	})
	if err != nil {
		errno, _ := err.(syscall.Errno)
		fmt.Fprintln(told, reportFailed, int(errno))
		return
	}
	fmt.Fprintln(told, reportStarted, pid)
	released := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, held)
		close(released)
	}()
	status := -1 // until the command has ended
	for kill := false; ; {
		alone := reap(func(p int, s syscall.WaitStatus) {
			switch {
			case p != pid:
			case s.Stopped():
				fmt.Fprintln(told, reportStopped, int(s.StopSignal()))
			case s.Signaled():
				status, kill = exitSignal+int(s.Signal()), true
			default:
				status, kill = s.ExitStatus(), true
			}
		})
		left := !alone && kill && killAll(pid)
		if status >= 0 && !left {
			fmt.Fprintln(told, reportEnded, status)
			return
		}
		select {
		case <-ended:
		case <-released:
			kill, released = true, nil
		}
	}
}

// inherited is a file that start has given to the supervisor. The command does not get it.
func inherited(number string) *os.File {
	fd, _ := strconv.Atoi(number)
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "")
}

// reap calls f for each child that has ended or was stopped, and reports whether none is left.
func reap(f func(pid int, s syscall.WaitStatus)) (none bool) {
	for {
		var s syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &s, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return true
		case pid == 0:
			return false
		default:
			f(pid, s)
		}
	}
}

// reapOrphans waits for what ends below this process if it is the first of a PID namespace, whose
// orphans are its children.
func reapOrphans() {
	if os.Getpid() != 1 {
		return
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for ; ; <-ended {
			reap(func(int, syscall.WaitStatus) {})
		}
	}()
}

// killAll kills a process group and the children of this process. It reports whether there was a
// child that it may kill. When that has ended, the children that it had are those of this process.
func killAll(group int) (some bool) {
	_ = syscall.Kill(-group, syscall.SIGKILL) // all at once
	for _, pid := range children() {
		some = syscall.Kill(pid, syscall.SIGKILL) == nil || some
	}
	return some
}

// children returns the children of this process by their IDs in its PID namespace. /proc may show
// one above that.
func children() (pids []int) {
	own := processIDs("self")
	last := len(own) - 1
	if last < 0 || own[last] != os.Getpid() {
		return nil // this kernel does not tell
	}
	shown := listedChildren()
	if len(shown) == 0 {
		shown = foundChildren(strconv.Itoa(own[0]))
	}
	if last == 0 {
		return shown
	}
	for _, pid := range shown {
		if ids := processIDs(strconv.Itoa(pid)); len(ids) > last {
			pids = append(pids, ids[last])
		}
	}
	return pids
}

// processIDs returns a process's ID in each PID namespace from that of /proc down to its own.
func processIDs(name string) (ids []int) {
	status, _ := os.ReadFile("/proc/" + name + "/status")
	for line := range strings.Lines(string(status)) {
		word, rest, _ := strings.Cut(line, ":")
		if word != "Pid" && word != "NSpid" { // which comes later, and has all
			continue
		}
		ids = nil
		for _, field := range strings.Fields(rest) {
			id, _ := strconv.Atoi(field)
			ids = append(ids, id)
		}
	}
	return ids
}

// listedChildren returns the children that the kernel lists, as most do. A process that forks and
// ends again and again is found like that. It has ended when one has looked at all processes.
func listedChildren() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range bytes.Fields(text) {
			pid, _ := strconv.Atoi(string(field))
			pids = append(pids, pid)
		}
	}
	return pids
}

// foundChildren looks for the children of a process among all processes.
func foundChildren(self string) (pids []int) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + name + "/stat") // pid (name) state parent …
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == self {
			pids = append(pids, pid)
		}
	}
	return pids
}
