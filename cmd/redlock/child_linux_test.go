package main

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A command does not go on without the process that keeps its lock.
func TestTheCommandDiesWithTheTool(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	cmd := underLock(t, nodes, "--", "sh", "-c", "echo $$; exec sleep 600")
	lines, wait := background(t, cmd)
	pid := line(t, lines)
	require.NoError(t, cmd.Process.Kill())
	wait()
	dies(t, pid)
}

// A command in a group of its own can read from the terminal, and the shell has that back
// afterwards.
func TestTheCommandReadsFromTheTerminal(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer terminal.Close()
	var unlock, number int32
	ioctl(t, terminal, syscall.TIOCSPTLCK, &unlock)
	ioctl(t, terminal, syscall.TIOCGPTN, &number)
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer end.Close()

	// The shell stays in the foreground group, the tool is in it, and its command gets a group of
	// its own.
	const script = `"$0" run -wait 1m -name job -- sh -c 'echo ready; read x; echo "<$x>"; exit 7'
echo "status $?"; read y; echo "<$y>"`
	cmd := command(t, nodes, "unused")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script, os.Args[0]}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	end.Close()
	lines := bufio.NewReader(terminal)
	require.Equal(t, "ready\r", line(t, lines))
	_, err = terminal.WriteString("to the command\n")
	require.NoError(t, err)
	require.Equal(t, "to the command\r", line(t, lines), "the echo of the terminal")
	assert.Equal(t, "<to the command>\r", line(t, lines))
	assert.Equal(t, "status 7\r", line(t, lines))
	_, err = terminal.WriteString("to the shell\n")
	require.NoError(t, err)
	require.Equal(t, "to the shell\r", line(t, lines))
	assert.Equal(t, "<to the shell>\r", line(t, lines))
	require.NoError(t, cmd.Wait())
}

func ioctl(t *testing.T, f *os.File, request uintptr, value *int32) {
	t.Helper()
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request,
		uintptr(unsafe.Pointer(value)))
	require.Zero(t, errno)
}
