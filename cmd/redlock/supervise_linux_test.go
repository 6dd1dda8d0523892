package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
)

var kills = flag.Int("kills", 2, "how often TestNothingOutlivesTheTool kills the tool")

// marked returns the processes that have a line in their environment, and have not ended.
func marked(t *testing.T, line string) (pids []int) {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile("/proc/" + d.Name() + "/environ") // none of a zombie
		if bytes.Contains(append([]byte{0}, env...), []byte("\x00"+line+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// busy is a command with children everywhere, none of which heeds TERM. It answers USR1.
const busy = `trap "" TERM USR1
sleep 600 | cat & (sleep 600 & (sleep 600 &)) & [ -z "$0" ] || "$0" sleep 600 &
trap "echo heard" USR1; echo $PPID $$; while :; do sleep 0.05; done`

// setsid is the program of that name, or "".
func setsid() string {
	path, _ := exec.LookPath("setsid")
	return path
}

// lesson L128
func TestNothingOutlivesTheTool(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	all := 8 // processes
	if setsid() != "" {
		all++
	}
	for i := range *kills {
		mark := fmt.Sprintf("REDLOCK_TEST_MARK=%d-%d", os.Getpid(), i)
		cmd := underLock(t, nodes, "-expiry", "5s", "--", "sh", "-c", busy, setsid())
		cmd.Env = append(cmd.Env, mark)
		lines, wait := background(t, cmd)
		line(t, lines)
		require.Eventually(t, func() bool { return len(marked(t, mark)) >= all }, patient,
			10*time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		next, nextWait := background(t, underLock(t, nodes, "--", "echo", "next"))
		require.Equal(t, "next", line(t, next))
		assert.Empty(t, marked(t, mark), "alive when the next holder's command ran")
		wait()
		nextWait()
	}
}

// In a PID namespace without a /proc of its own, the processes that /proc shows have other IDs.
// lesson L128
func TestNothingOutlivesTheToolInANamespace(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Getuid() != 0 || setsid() == "" {
		t.Skip("needs root, and the programs unshare and setsid")
	}
	nodes, _ := setup(t)
	const script = `"$0" run -wait 1m -name job -- sh -c "$1" "$2" &
read x; { kill -9 $!; wait $!; } 2>&-; echo killed; read x; exit 7`
	mark := fmt.Sprintf("REDLOCK_TEST_MARK=%d-namespace", os.Getpid())
	cmd := command(t, nodes)
	cmd.Env = append(cmd.Env, mark)
	cmd.Path = unshare
	cmd.Args = []string{"unshare", "-p", "-f", "sh", "-c", script, os.Args[0], busy, setsid()}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	lines, wait := background(t, cmd)
	line(t, lines)
	const outside, all = 2, 11 // unshare and the shell; they, the tool, and what is below it
	require.Eventually(t, func() bool { return len(marked(t, mark)) >= all }, patient,
		10*time.Millisecond)
	_, err = in.Write([]byte("\n"))
	require.NoError(t, err)
	require.Equal(t, "killed", line(t, lines))
	require.Eventually(t, func() bool { return len(marked(t, mark)) == outside }, patient,
		10*time.Millisecond)
	require.NoError(t, in.Close())
	assert.Equal(t, 7, wait())
}

// That there is no supervisor without /proc does not mean that the command is not found.
func TestTheCommandCannotRunWithoutProc(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs root, and the program unshare")
	}
	nodes, locks := setup(t)
	cmd := command(t, nodes)
	cmd.Path = unshare
	cmd.Args = []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /proc || exit 99
exec "$0" run -wait 1m -name job -- true`, os.Args[0]}
	_, errs, status := result(t, cmd)
	if status == 99 {
		t.Skip("needs the right to mount")
	}
	assert.Equal(t, exitCannotRun, status)
	assert.Contains(t, errs, "cannot supervise the command")
	assert.Equal(t, redlock.VerdictFree, verdict(t, locks, "job"))
}

// knows waits until the tool has been told the group of a command that answers USR1.
func knows(t *testing.T, tool *exec.Cmd, lines *bufio.Reader) {
	t.Helper()
	require.NoError(t, tool.Process.Signal(syscall.SIGUSR1))
	require.Equal(t, "heard", line(t, lines))
}

// The tool itself kills what its supervisor would have killed.
// lesson L128
func TestTheCommandDiesWithItsSupervisor(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	cmd := underLock(t, nodes, "--", "sh", "-c", busy, "")
	lines, wait := background(t, cmd)
	var supervisor, command int
	_, err := fmt.Sscan(line(t, lines), &supervisor, &command)
	require.NoError(t, err)
	knows(t, cmd, lines)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	assert.Equal(t, 128+9, wait())
	require.Eventually(t, func() bool { return syscall.Kill(-command, 0) != nil }, patient,
		10*time.Millisecond)
	assert.Equal(t, redlock.VerdictFree, verdict(t, locks, "job"))
}

// A supervisor that somebody has stopped goes on when there is something to kill.
func TestAStoppedSupervisorKills(t *testing.T) {
	t.Parallel()
	if setsid() == "" {
		t.Skip("there is no setsid")
	}
	nodes, _ := setup(t)
	// The child tells its ID once it has left the group, where USR1 would kill it.
	cmd := underLock(t, nodes, "-expiry", "3s", "--", "sh", "-c", `trap "echo heard" USR1
echo $PPID; "$0" sh -c 'echo $$; exec sleep 600' & wait; wait`, setsid())
	lines, wait := background(t, cmd)
	supervisor, moved := line(t, lines), line(t, lines)
	knows(t, cmd, lines)
	pid, err := strconv.Atoi(supervisor)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	release(t, nodes, "job")
	assert.Equal(t, exitLost, wait())
	dies(t, moved)
}

// Who stops the tool alone does not stop what runs beside it: nobody would continue a script.
func TestAStopOfTheToolIsNotOneOfItsGroup(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	cmd := command(t, nodes)
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", `sleep 600 & echo $!
exec "$0" run -wait 1m -expiry 1m -name job -- sh -c 'echo up; exec sleep 600'`, os.Args[0]}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lines, wait := background(t, cmd)
	beside, err := strconv.Atoi(line(t, lines))
	require.NoError(t, err)
	defer func() { _ = syscall.Kill(beside, syscall.SIGKILL) }()
	require.Equal(t, "up", line(t, lines))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTSTP))
	state := func(pid int) string {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(stat), ") ")
		return after[:1]
	}
	require.Eventually(t, func() bool { return state(cmd.Process.Pid) == "T" }, patient,
		10*time.Millisecond)
	assert.Equal(t, "S", state(beside))
	require.NoError(t, syscall.Kill(beside, syscall.SIGKILL))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 128+15, wait())
}

// What has left the command's group or session ends with it, too.
// lesson L128
func TestNothingOutlivesTheCommandInAnotherSession(t *testing.T) {
	t.Parallel()
	if setsid() == "" {
		t.Skip("there is no setsid")
	}
	nodes, _ := setup(t)
	pid, _, status := result(t, underLock(t, nodes, "--", "sh", "-c",
		`pid=$( (setsid sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1' &) ); echo $pid; exit 3`))
	require.Equal(t, 3, status)
	dies(t, strings.TrimSpace(pid))
}

// A signal that nohup or a shell without job control ignores does not end the tool, while it waits
// or later, and not the command.
// lesson L130
func TestSignalsThatAreIgnoredStayIgnored(t *testing.T) {
	t.Parallel()
	for traps, signals := range map[string][]syscall.Signal{
		"HUP": {syscall.SIGHUP}, "INT QUIT": {syscall.SIGINT, syscall.SIGQUIT},
		"TSTP TTIN TTOU": {syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU},
	} {
		t.Run(traps, func(t *testing.T) {
			t.Parallel()
			nodes, locks := setup(t)
			m := locks.NewMutex("job", redlock.WithExpiry(time.Hour))
			require.NoError(t, m.Lock())
			cmd := underLock(t, nodes)
			script := "trap '' " + traps + `; exec "$0" run -wait 1m -name job -- ` +
				"sh -c 'for s in " + traps + "; do kill -s $s $$; done; echo alive; read x'"
			cmd.Args = []string{"sh", "-c", script, os.Args[0]}
			path, err := exec.LookPath("sh")
			require.NoError(t, err)
			cmd.Path = path
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			lines, wait := background(t, cmd)
			send := func() {
				for _, s := range signals {
					require.NoError(t, cmd.Process.Signal(s))
				}
			}
			waits(t, nodes, true)
			send()
			_, err = m.Unlock()
			require.NoError(t, err)
			require.Equal(t, "alive", line(t, lines))
			send()
			_, err = in.Write([]byte("\n"))
			require.NoError(t, err)
			assert.Zero(t, wait())
		})
	}
}

// A shell in between ignores what Go does not keep ignored.
func TestAShellInBetweenIgnoresSignals(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	cmd := underLock(t, nodes, "--", "sh", "-c",
		`trap "" TERM USR1; exec sh -c "echo ready; read x; exit 3"`)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	lines, wait := background(t, cmd)
	require.Equal(t, "ready", line(t, lines))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	require.NoError(t, in.Close())
	assert.Equal(t, 3, wait())
}

// lesson L131
func TestTheFirstProcessOfANamespaceReaps(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs root, and the program unshare")
	}
	nodes, _ := setup(t)
	const script = `(sleep 0.01 &) & sleep 0.01 & exec "$0" run -wait 1m -name job -- sh -c '
(sleep 0.01 &); "$1" sleep 0.01 & sleep 0.3; echo $PPID $(cat /proc/1/stat)
cat /proc/[0-9]*/stat 2>&-' "$0" "$1"`
	cmd := command(t, nodes)
	cmd.Path = unshare
	cmd.Args = []string{"unshare", "-p", "-f", "--mount-proc", "sh", "-c", script, os.Args[0],
		setsid()}
	out, errs, status := result(t, cmd)
	require.Zero(t, status, errs)
	assert.NotContains(t, out, ") Z ", "a zombie")
	assert.Contains(t, out, " 1 (", "the tool is the first process")
}

// The children of this process are found with and without the kernel's list of them, also one that
// has ended and that nobody has waited for. What these have started is not among them.
func TestChildrenAreFound(t *testing.T) {
	parent := exec.Command("sh", "-c", "sleep 600 & echo $!; wait")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var grandchild int
	_, err = fmt.Fscan(out, &grandchild)
	require.NoError(t, err)
	find := func() {
		listed, found := listedChildren(), foundChildren(strconv.Itoa(os.Getpid()))
		if len(listed) > 0 { // the kernel has the list
			assert.Contains(t, listed, parent.Process.Pid)
		}
		assert.Contains(t, found, parent.Process.Pid)
		assert.NotContains(t, listed, grandchild)
		assert.NotContains(t, found, grandchild)
	}
	find()
	require.NoError(t, parent.Process.Kill())
	find()
	require.NoError(t, syscall.Kill(grandchild, syscall.SIGKILL))
	_ = parent.Wait()
}
