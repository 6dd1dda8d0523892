package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
)

// terminal is a shell in a terminal of its own, seen from its keyboard and screen.
type terminal struct {
	t      *testing.T
	screen *bufio.Reader
	keys   *os.File
	shell  *exec.Cmd
	seen   []string // lines
	mark   string   // in the environment of all
}

// atTerminal runs a script whose $0 is the tool.
func atTerminal(t *testing.T, nodes *cluster, script string) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keys.Close() })
	var unlock, number int32
	ioctl(t, keys, syscall.TIOCSPTLCK, &unlock)
	ioctl(t, keys, syscall.TIOCGPTN, &number)
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer end.Close()
	cmd := command(t, nodes)
	mark := fmt.Sprint("REDLOCK_TEST_MARK=terminal-", number)
	cmd.Env = append(cmd.Env, mark)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script, os.Args[0]}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	return &terminal{t: t, screen: bufio.NewReader(keys), keys: keys, shell: cmd,
		mark: mark}
}

// stops types ^Z when all wait for something, and waits until everything is stopped but the shell
// and the supervisor. What is yet to read, or to stop, would take what is typed next, or stop
// later.
func (x *terminal) stops() {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		return !slices.ContainsFunc(marked(x.t, x.mark), func(pid int) bool {
			return !is("S", pid)
		})
	}, patient, 10*time.Millisecond)
	x.types("\x1a")
	x.shows(fmt.Sprint("stopped ", 128+int(syscall.SIGTSTP)))
	require.Eventually(x.t, func() bool {
		return !slices.ContainsFunc(marked(x.t, x.mark), func(pid int) bool {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return pid != x.shell.Process.Pid && !is("T", pid) &&
				!strings.HasPrefix(string(line), supervisor+"\x00")
		})
	}, patient, 10*time.Millisecond)
}

func ioctl(t *testing.T, f *os.File, request uintptr, value *int32) {
	t.Helper()
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request,
		uintptr(unsafe.Pointer(value)))
	require.Zero(t, errno)
}

func (x *terminal) types(keys string) {
	x.t.Helper()
	_, err := x.keys.WriteString(keys)
	require.NoError(x.t, err)
}

// shows waits for a line with that text. What else comes, as the echo of what was typed, is not
// looked at. It returns the line from there on.
func (x *terminal) shows(text string) string {
	x.t.Helper()
	for {
		s, err := x.screen.ReadString('\n')
		require.NoError(x.t, err, "%q, after %q", s, x.seen)
		s = strings.TrimSuffix(s, "\r\n")
		x.seen = append(x.seen, s)
		if i := strings.Index(s, text); i >= 0 {
			return s[i:]
		}
	}
}

// A command in a group of its own can read from the terminal, and the shell has that back
// afterwards: also from a script that stays in the foreground itself, and if the output goes
// elsewhere.
func TestTheCommandReadsFromTheTerminal(t *testing.T) {
	t.Parallel()
	for what, script := range map[string]string{
		"script":      "%s",
		"job control": "set -m; %s",
		"pipe":        "%s | cat",
		"pipe before": "true | %s </dev/tty",
	} {
		t.Run(what, func(t *testing.T) {
			nodes, _ := setup(t)
			const run = `"$0" run -wait 1m -name job -- ` +
				`sh -c 'echo ready; read x; echo "<$x>"; exit 7'`
			x := atTerminal(t, nodes, fmt.Sprintf(script, run)+
				`; echo "status $?"; read y; echo "<$y>"`)
			x.shows("ready")
			x.types("to the command\n")
			x.shows("<to the command>")
			want := "status 7"
			if what == "pipe" {
				want = "status 0"
			}
			assert.Equal(t, want, x.shows("status "))
			x.types("to the shell\n")
			x.shows("<to the shell>")
			require.NoError(t, x.shell.Wait())
		})
	}
}

// ^Z stops the command, and then the tool, so that the shell comes back.
// lesson L129
func TestAStoppedCommandGoesOnWithTheTool(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]string{
		"alone":    `"$0" run -wait 1m -name job -- sh -c '%s'`,
		"script":   `sh -c '"$0" run -wait 1m -name job -- sh -c "$1"; exit $?' "$0" '%s'`,
		"pipe":     `"$0" run -wait 1m -name job -- sh -c '%s' | cat`,
		"children": `"$0" run -wait 1m -name job -- sh -c 'sleep 600 | cat & (%s)'`,
		// The terminal is not the command's yet.
		"script, reads later": `sh -c '"$0" run -wait 1m -name job -- sh -c "$1"; exit $?' ` +
			`"$0" 'echo ready; sleep 2; %s'`,
	} {
		t.Run(what, func(t *testing.T) {
			nodes, _ := setup(t)
			x := atTerminal(t, nodes, "set -m; "+
				fmt.Sprintf(run, `echo ready; read x; echo "<$x>"`)+
				`; echo "stopped $?"; read y; fg; echo "status $?"; read z; echo "<$z>"`)
			x.shows("ready")
			x.stops()
			x.types("\n")
			x.shows(`run -wait`) // what fg brings back
			x.types("to the command\n")
			x.shows("<to the command>")
			assert.Equal(t, "status 0", x.shows("status "))
			x.types("to the shell\n")
			x.shows("<to the shell>")
			require.NoError(t, x.shell.Wait())
		})
	}
}

// Where ^Z was ignored at the start, it stops nobody: neither now nor with the next reason to stop.
func TestAnIgnoredStopStaysIgnored(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	x := atTerminal(t, nodes, `set -m; trap "" TSTP; "$0" run -wait 1m -name job -- `+
		`sh -c 'echo ready; sleep 1; read x; echo "<$x>"' | cat; echo "status $?"`)
	x.shows("ready")
	x.types("\x1a") // the command does not read yet: it is for the tool
	x.types("to the command\n")
	x.shows("<to the command>")
	assert.Equal(t, "status 0", x.shows("status "))
	require.NoError(t, x.shell.Wait())
}

// A command in the background that reads is stopped by the terminal, and the tool with it.
// lesson L129
func TestACommandInTheBackgroundWaitsForTheTerminal(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	x := atTerminal(t, nodes, `set -m; "$0" run -wait 1m -name job -- `+
		`sh -c 'read x; echo "<$x>"' & echo "pid $!"; read y; fg; echo "status $?"`)
	pid, err := strconv.Atoi(strings.TrimPrefix(x.shows("pid "), "pid "))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return is("T", pid) }, patient, 10*time.Millisecond)
	x.types("\n")
	x.shows(`run -wait`)
	x.types("to the command\n")
	x.shows("<to the command>")
	assert.Equal(t, "status 0", x.shows("status "))
	require.NoError(t, x.shell.Wait())
}

// is reports whether a process is in a state: S, if it sleeps, T, if a signal has stopped it.
func is(state string, pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") "+state+" ")
}

// A command whose lock was lost while it was stopped does not go on.
// lesson L129
func TestAStoppedCommandDoesNotGoOnWithoutItsLock(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(t *testing.T, nodes *cluster, locks *redlock.Redlock){
		"expired": func(t *testing.T, _ *cluster, locks *redlock.Redlock) {
			require.NoError(t, locks.NewMutex("job").LockContext(t.Context()))
		},
		"released": func(t *testing.T, nodes *cluster, _ *redlock.Redlock) {
			release(t, nodes, "job")
		},
	} {
		t.Run(what, func(t *testing.T) {
			nodes, locks := setup(t)
			locks = locks.With(redlock.WithTries(redlock.Unlimited))
			x := atTerminal(t, nodes, `set -m; "$0" run -wait 1m -expiry 3s -name job -- `+
				`sh -c 'echo ready; read x; echo goes on'; `+
				`echo "stopped $?"; read y; fg; echo "status $?"`)
			x.shows("ready")
			x.stops()
			lose(t, nodes, locks)
			x.types("\n\n")
			assert.Equal(t, fmt.Sprint("status ", exitLost), x.shows("status "))
			assert.NotContains(t, x.seen, "goes on")
			require.NoError(t, x.shell.Wait())
		})
	}
}
