//go:build unix

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/embedded"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/redlocktest"
)

// asTool makes this test binary the command itself.
const asTool = "REDLOCK_TEST_AS_TOOL"

func TestMain(m *testing.M) {
	if file := os.Getenv(asStubborn); file != "" && os.Getenv("REDLOCK_NAME") != "" &&
		len(os.Args) == 1 {
		stubborn(file)
		os.Exit(0)
	}
	if os.Getenv(asTool) != "" {
		main()
		os.Exit(0)
	}
	// Package os/signal keeps a goroutine from its first use on, which is no leak, nor of a bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGWINCH)
	// Most tests here run programs, which compute as they start, and then wait. With twenty tests
	// at a time, nodes take longer than their timeouts on two busy processors.
	_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	os.Exit(redistest.Main(m))
}

// patient is far longer than anything here takes.
const patient = time.Minute

// cluster is three nodes and their addresses, comma-separated.
type cluster struct {
	*embedded.Nodes
	list string
}

// setup starts three nodes and returns them, and locks on them.
func setup(t *testing.T) (*cluster, *redlock.Redlock) {
	t.Helper()
	nodes, err := embedded.Start(3)
	require.NoError(t, err)
	var pools []pool.Pool
	for _, addr := range nodes.Addrs() {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redlock.New(pools...)
	t.Cleanup(func() {
		_ = locks.Close()
		nodes.Close()
	})
	return &cluster{nodes, strings.Join(nodes.Addrs(), ",")}, locks
}

// command is the tool with arguments, on nodes.
func command(t *testing.T, nodes *cluster, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	// A program with the race detector otherwise stays for a second when it has ended.
	cmd.Env = append(os.Environ(), asTool+"=1", "GORACE=atexit_sleep_ms=0")
	if nodes != nil {
		cmd.Env = append(cmd.Env, "REDLOCK_NODES="+nodes.list)
	}
	return cmd
}

// underLock is "redlock run" with arguments, of a command under the lock "job". It waits for that,
// because a busy machine may answer a single try too late.
func underLock(t *testing.T, nodes *cluster, args ...string) *exec.Cmd {
	t.Helper()
	return command(t, nodes, append([]string{"run", "-wait", "1m", "-name", "job"}, args...)...)
}

// result runs the tool and returns what it printed and its exit status.
func result(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// background starts the tool. It returns its output by lines, and a function that waits for its
// exit status.
func background(t *testing.T, cmd *exec.Cmd) (lines *bufio.Reader, wait func() int) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return bufio.NewReader(out), func() int {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode()
	}
}

// line reads one line.
func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	require.NoError(t, err, text)
	return strings.TrimSuffix(text, "\n")
}

// inspect looks at a lock until enough nodes answer in time.
func inspect(t *testing.T, locks *redlock.Redlock, name string) (in *redlock.Inspection) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		in, err = locks.Inspect(t.Context(), name)
		return err == nil && in.Verdict != redlock.VerdictUnknown
	}, patient, time.Millisecond)
	return in
}

func verdict(t *testing.T, locks *redlock.Redlock, name string) redlock.Verdict {
	t.Helper()
	return inspect(t, locks, name).Verdict
}

// dies waits until there is no process with that id.
func dies(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	require.NoError(t, err, pid)
	require.Eventually(t, func() bool { return gone(n) }, patient, 10*time.Millisecond,
		"process %s", pid)
}

// gone reports whether a process has ended. A zombie that nobody waits for has.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestRunReturnsTheStatusOfTheCommand(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600))
	for what, tt := range map[string]struct {
		argv []string
		want int
	}{
		"success":        {[]string{"true"}, 0},
		"failure":        {[]string{"false"}, 1},
		"a status":       {[]string{"sh", "-c", "exit 75"}, 75},
		"a signal":       {[]string{"sh", "-c", "kill -9 $$"}, 128 + 9},
		"not found":      {[]string{"no-such-command"}, 127},
		"no such file":   {[]string{"/no/such/file"}, 127},
		"not executable": {[]string{script}, 126},
	} {
		t.Run(what, func(t *testing.T) {
			cmd := underLock(t, nodes, append([]string{"-E", "3", "--"}, tt.argv...)...)
			_, _, status := result(t, cmd)
			assert.Equal(t, tt.want, status)
			assert.Equal(t, redlock.VerdictFree, verdict(t, locks, "job"))
		})
	}
}

func TestRunTellsTheCommandItsLock(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	show := []string{"--", "sh", "-c",
		`echo "$REDLOCK_NAME $REDLOCK_TOKEN $REDLOCK_UNTIL"; cat`}
	var last uint64
	for range 2 {
		cmd := underLock(t, nodes, show...)
		cmd.Stdin = strings.NewReader("standard input\n")
		out, _, status := result(t, cmd)
		require.Zero(t, status)
		first, rest, _ := strings.Cut(out, "\n")
		assert.Equal(t, "standard input\n", rest)
		fields := strings.Fields(first)
		require.Len(t, fields, 3)
		assert.Equal(t, "job", fields[0])
		token, err := strconv.ParseUint(fields[1], 10, 64)
		require.NoError(t, err)
		assert.Greater(t, token, last)
		last = token
		until, err := time.Parse(time.RFC3339Nano, fields[2])
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now().Add(10*time.Second), until, 10*time.Second)
	}
	cmd := underLock(t, nodes, append([]string{"-no-token"}, show...)...)
	cmd.Env = append(cmd.Env, "REDLOCK_TOKEN=7") // that of a lock above
	out, _, _ := result(t, cmd)
	assert.Regexp(t, `^job  \S`, out)
}

func TestRunDoesNotRunWhileTheLockIsTaken(t *testing.T) {
	nodes, locks := setup(t)
	m := locks.NewMutex("job", redlock.WithExpiry(time.Hour))
	require.NoError(t, m.Lock())
	for _, tt := range []struct {
		flags string
		want  int
	}{{"", 75}, {"-wait 0", 75}, {"-wait 1s", 75}, {"-E 7", 7}} {
		args := append([]string{"run", "-name", "job"}, strings.Fields(tt.flags)...)
		out, errs, status := result(t, command(t, nodes, append(args, "--", "echo", "ran")...))
		assert.Equal(t, tt.want, status, tt.flags)
		assert.Empty(t, out)
		assert.Contains(t, errs, "taken on ")
	}
	lines, wait := background(t, command(t, nodes, "run", "-wait", "forever", "-name", "job", "--",
		"echo", "ran"))
	ok, err := m.Unlock()
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, "ran", line(t, lines))
	assert.Zero(t, wait())
}

// -at-least leaves the lock taken when the command has ended, whatever its status, but not if it
// could not be started.
func TestRunLeavesTheLockTaken(t *testing.T) {
	nodes, locks := setup(t)
	for name, tt := range map[string]struct {
		argv []string
		want redlock.Verdict
	}{
		"success":   {[]string{"true"}, redlock.VerdictHeld},
		"failure":   {[]string{"false"}, redlock.VerdictHeld},
		"not found": {[]string{"no-such-command"}, redlock.VerdictFree},
	} {
		run := []string{"run", "-at-least", "1h", "-name", name}
		argv := append([]string{"--"}, tt.argv...)
		result(t, command(t, nodes, append(append(run, "-wait", "1m"), argv...)...))
		in := inspect(t, locks, name)
		assert.Equal(t, tt.want, in.Verdict, name)
		if tt.want == redlock.VerdictHeld {
			assert.Greater(t, in.TTL, 30*time.Minute, name)
			_, _, status := result(t, command(t, nodes, append(run, argv...)...))
			assert.Equal(t, exitTaken, status)
		}
	}
}

// The page has every flag, with its default, and every exit status.
func TestThePageOfTheCommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	page := string(text)
	defined := regexp.MustCompile(`(?m)^  -(\S+).*\n.*?(?:\(default (.*)\))?$`)
	for _, name := range []string{"run", "elect", "status", "watch", "top", "doctor", "release"} {
		_, help, _ := result(t, command(t, nil, name, "-h"))
		flags := defined.FindAllStringSubmatch(help, -1)
		require.NotEmpty(t, flags, name)
		for _, f := range flags {
			assert.Regexp(t, "[` ]-"+f[1]+"[` =]", page, name)
			row := regexp.MustCompile("(?m)^\\| `-" + f[1] + "`[^|]*\\| ([^|]*?) \\|").
				FindStringSubmatch(page)
			if row != nil && row[1] != "" && name == "run" && f[1] != "owner" {
				assert.Equal(t, row[1], cmp.Or(f[2], "0"), f[1])
			}
		}
	}
	for _, status := range []int{exitUsage, exitUnavailable, exitLost, exitOutput, exitTaken} {
		assert.Regexp(t, fmt.Sprintf(`(?m)^\| %d \|`, status), page)
	}
	for _, status := range []int{exitCannotRun, exitNotFound, exitSignal} {
		assert.Contains(t, page, fmt.Sprint(status))
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	const password = "hunter2"
	const withPassword = "status -nodes redis://u:" + password + "@127.0.0.1:1 job"
	const withOwnKey = "run -name a -name redlock:fence:00ff -- true"
	for line, want := range map[string]string{
		"":                                     "usage: redlock COMMAND",
		"fly":                                  `there is no command "fly"`,
		"supervise 3 4 false /bin/true true x": `there is no command "supervise"`,
		"run -fly":                             "flag provided but not defined: -fly",
		"run -- true":                          "needs -name",
		"run -name job":                        "needs a command",
		"run -name job -wait soon -- true":     `or "forever"`,
		"run -name job -expiry 1ms -- true":    "WithExpiry(1ms): must",
		"run -name job -grace 9s -- true":      "WithMargin(9s): must",
		"run -name job -max 1s -- true":        "WithMaxHold(1s): must",
		"run -name job -at-least -1s -- true":  "WithMinHold(-1s): must",
		"run -name job -name= -- true":         "must not be empty",
		withOwnKey:                             "needs a name whose key",
		"run -any-of job -- true":              "-any-of needs -slots",
		"run -any-of job -slots 0 -- true":     "-any-of needs -slots",
		"run -any-of job -slots x -- true":     "parse error",
		"run -slots 8 -name job -- true":       "-slots needs -any-of",
		"run -any-of a -slots 8 -name b -- x":  "-name and -any-of exclude each other",
		"run -any-of job -slots 8":             "needs a command",
		"elect -name a -name b -- true":        "needs one -name, not 2",
		"run -shared -name a -name b} -- true": "WithShared",
		"elect -any-of a -slots 8 -- true":     "flag provided but not defined: -any-of",
		"elect -shared -name job -- true":      "flag provided but not defined: -shared",
		"run -name job -E 256 -- true":         "must be an exit status from 0 to 255",
		"run -name job -E -1 -- true":          "must be an exit status from 0 to 255",
		"elect -name job":                      "needs a command",
		"top job":                              "takes no arguments",
		"status a b":                           "needs the name of one lock, not 2 arguments",
		"watch":                                "needs the name of one lock",
		"doctor job":                           "takes no arguments",
		"release job":                          "needs -force",
		"release -force":                       "needs the name of one lock",
		"status -nodes a:1 -nodes-file b job":  "exclude each other",
		"status -nodes a job":                  "address 1 of 1: neither host:port",
		"status -nodes-file /no/such/file job": "no such file",
		withPassword:                           "-nodes must not contain users and passwords",
	} {
		t.Run(line, func(t *testing.T) {
			out, errs, status := result(t, command(t, nodes, strings.Fields(line)...))
			assert.Equal(t, exitUsage, status)
			assert.Empty(t, out)
			assert.Contains(t, errs, want)
			assert.NotContains(t, errs, password)
		})
	}
	const user = "redis://u:" + password
	for _, env := range []string{"", user + "@host:port", user + "#@127.0.0.1:1"} {
		cmd := command(t, nil, "status", "job")
		cmd.Env = append(cmd.Env, "REDLOCK_NODES="+env)
		out, errs, status := result(t, cmd)
		assert.Equal(t, exitUsage, status)
		assert.Empty(t, out)
		assert.NotContains(t, errs, password)
	}
	_, errs, status := result(t, command(t, nodes, "run", "-h"))
	assert.Zero(t, status)
	assert.Contains(t, errs, "-grace")
}

func TestNodesComeFromAFileToo(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	file := filepath.Join(t.TempDir(), "nodes")
	text := "# the nodes\n\n" + strings.Join(nodes.Addrs(), "\n") + "\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	cmd := command(t, nil, "run", "-wait", "1m", "-nodes-file", file, "-name", "job", "--",
		"true")
	cmd.Env = append(cmd.Env, "REDLOCK_NODES=127.0.0.1:1")
	_, errs, status := result(t, cmd)
	assert.Zero(t, status, errs)

	// lesson L133
	text = "redis://u:a,b@127.0.0.1:1\n" + strings.Join(nodes.Addrs(), ",")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, errs, status = result(t, command(t, nil, "status", "-nodes-file", file, "job"))
	assert.Equal(t, exitUsage, status)
	assert.Contains(t, errs, file+": address 2 of 2: neither host:port nor a redis:// or "+
		"rediss:// URL; a line names one node")
}

func TestTooFewNodes(t *testing.T) {
	t.Parallel()
	cmd := command(t, nil, "run", "-nodes", "127.0.0.1:1,127.0.0.1:2", "-name", "job", "--", "echo",
		"ran")
	out, errs, status := result(t, cmd)
	assert.Equal(t, exitUnavailable, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, "connection refused")
	assert.Contains(t, errs, `"redlock doctor" says what is wrong with the nodes.`)
}

// A wait that is over before the nodes have answered does not tell that the lock is taken.
func TestAWaitWithoutAnAnswer(t *testing.T) {
	t.Setenv(asTool, "1")
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.New(t, 3)
		for i := range 3 {
			nodes.Node(i).Freeze()
		}
		c := (&tool{env: os.Getenv, stderr: io.Discard}).lockFlags("run", "", "")
		require.NoError(t, c.parse([]string{"-name", "job", "--", "true"}))
		c.locks = nodes.Redlock()
		status, err := c.job().whenGranted(10 * time.Millisecond)
		assert.ErrorContains(t, err, "waited for 10ms")
		assert.Equal(t, exitUnavailable, status)
	})
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	for _, s := range heeded() { // nohup go test ignores one of them
		const script = `trap "echo got; exit 3" INT TERM HUP QUIT USR1 USR2
echo ready; while :; do sleep 0.05; done`
		cmd := underLock(t, nodes, "--", "sh", "-c", script)
		lines, wait := background(t, cmd)
		require.Equal(t, "ready", line(t, lines))
		require.NoError(t, cmd.Process.Signal(s))
		assert.Equal(t, "got", line(t, lines), s)
		assert.Equal(t, 3, wait(), s)
		assert.Equal(t, redlock.VerdictFree, verdict(t, locks, "job"))
	}
}

// waits waits until somebody waits for a lock, or nobody does: who waits listens.
func waits(t *testing.T, nodes *cluster, want bool) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: nodes.Addrs()[0]})
	defer client.Close()
	require.Eventually(t, func() bool {
		channels, err := client.PubSubChannels(t.Context(), "*").Result()
		return err == nil && len(channels) > 0 == want
	}, patient, 10*time.Millisecond)
}

func TestASignalEndsTheWait(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	m := locks.NewMutex("job", redlock.WithExpiry(time.Hour))
	require.NoError(t, m.Lock())
	for _, s := range heeded() {
		s := s.(syscall.Signal)
		if !ends(s) {
			continue
		}
		cmd := command(t, nodes, "run", "-wait", "forever", "-name", "job", "--", "echo", "ran")
		lines, wait := background(t, cmd)
		waits(t, nodes, true)
		require.NoError(t, cmd.Process.Signal(s))
		text, _ := lines.ReadString('\n')
		assert.Empty(t, text)
		assert.Equal(t, 128+int(s), wait())
		waits(t, nodes, false)
	}
	ok, err := m.Unlock()
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, redlock.VerdictFree, verdict(t, locks, "job"))
}

// A command that ignores TERM, and its own child, are dead before the lock has ended. They write
// down when they were last alive.
func TestTheCommandIsDeadBeforeTheLockEnds(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	const expiry = 4 * time.Second
	const script = `trap "" TERM; live() { while :; do date +%s%N >"$1"; sleep 0.05; done; }
live "$1.a" & echo $!; echo $$; live "$1.b"`
	diary := filepath.Join(t.TempDir(), "diary")
	cmd := underLock(t, nodes, "-expiry", expiry.String(), "-grace", "1.9s",
		"--", "sh", "-c", script, "sh", diary)
	lines, wait := background(t, cmd)
	pids := []string{line(t, lines), line(t, lines)}
	nodes.Stop(0)
	nodes.Stop(1)
	stopped := time.Now() // no extension after this is confirmed
	assert.Equal(t, exitLost, wait())
	for i, pid := range pids {
		dies(t, pid)
		text, err := os.ReadFile(diary + "." + string("ab"[i]))
		require.NoError(t, err)
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			continue // it was killed while it wrote
		}
		assert.LessOrEqual(t, time.Unix(0, ns).Sub(stopped), expiry)
	}
}

// A command that heeds TERM has the grace to end by itself.
func TestTheCommandIsAskedToEndFirst(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	const script = `trap "echo ending; exit 0" TERM; echo ready; while :; do sleep 0.05; done`
	lines, wait := background(t, underLock(t, nodes, "-expiry", "4s", "-grace",
		"1.9s", "--", "sh", "-c", script))
	require.Equal(t, "ready", line(t, lines))
	nodes.Stop(0)
	nodes.Stop(1)
	assert.Equal(t, "ending", line(t, lines))
	assert.Equal(t, exitLost, wait())
}

func TestTheLimitEndsTheCommand(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	cmd := underLock(t, nodes, "-expiry", "3s", "-max", "3s", "--", "sleep",
		"600")
	_, errs, status := result(t, cmd)
	assert.Equal(t, exitLost, status)
	assert.Contains(t, errs, "held for the maximum of 3s")
	assert.Equal(t, redlock.VerdictFree, verdict(t, locks, "job"))
}

// Who reads the output elsewhere must not take a result that is missing for a good one.
func TestAResultThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	nodes, _ := setup(t)
	for why, out := range map[string]*os.File{
		"no space left on device": full, "broken pipe": unreadPipe(t),
	} {
		for _, line := range []string{"status job", "watch job", "doctor", "release -force job"} {
			cmd := command(t, nodes, strings.Fields(line)...)
			var errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = out, &errs
			_ = cmd.Run()
			assert.Equal(t, exitOutput, cmd.ProcessState.ExitCode(), line)
			assert.Equal(t, "redlock "+strings.Fields(line)[0]+": write /dev/stdout: "+why+"\n",
				errs.String())
		}
	}
}

// unreadPipe returns a pipe that nobody reads any more.
func unreadPipe(t *testing.T) *os.File {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	t.Cleanup(func() { w.Close() })
	return w
}

// The end of who reads the standard error ends neither redlock, which writes there that the lock
// was lost, nor what it has to do then. The command has the signal's default action.
func TestAPipeWithoutAReaderEndsNobody(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	cmd := underLock(t, nodes, "--", "sh", "-c", "echo ready; exec sleep 600")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = unreadPipe(t)
	require.NoError(t, cmd.Start())
	require.Equal(t, "ready", line(t, bufio.NewReader(out)))
	release(t, nodes, "job")
	_ = cmd.Wait()
	assert.Equal(t, exitLost, cmd.ProcessState.ExitCode())

	_, _, status := result(t, underLock(t, nodes, "--", "sh", "-c", "kill -PIPE $$"))
	assert.Equal(t, exitSignal+int(syscall.SIGPIPE), status)
}

// A process may stand still after the grant.
func TestNoCommandIsStartedWithoutALock(t *testing.T) {
	t.Parallel()
	_, locks := setup(t)
	never, lost := locks.NewMutex("job"), make(chan error, 1)
	lost <- redlock.ErrLost
	j := &job{tool: &tool{}, locked: []*redlock.Mutex{never}, argv: []string{"echo"}, lost: lost}
	status, err := j.execute()
	assert.Equal(t, exitLost, status)
	assert.ErrorIs(t, err, redlock.ErrLost)
	assert.Empty(t, lost, "the next command of elect would be ended by it")
}

// What a command leaves running in its group would go on without the lock, and keep who reads the
// output waiting for its end.
func TestNothingOutlivesTheCommand(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	for _, script := range []string{"sleep 600 >&- 2>&- & echo $!", "sleep 600 & echo $!"} {
		pid, _, status := result(t, underLock(t, nodes, "--", "sh", "-c",
			script))
		require.Zero(t, status)
		dies(t, strings.TrimSpace(pid))
	}
}

func TestElectRunsTheCommandInOneProcess(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	leader := func(owner string) (*exec.Cmd, *bufio.Reader, func() int) {
		cmd := command(t, nodes, "elect", "-name", "scheduler", "-expiry", "4s", "-owner", owner,
			"--", "sh", "-c", "echo $REDLOCK_TOKEN; exec sleep 600")
		lines, wait := background(t, cmd)
		return cmd, lines, wait
	}
	first, firstLines, firstWait := leader("ada")
	term := line(t, firstLines)
	in := inspect(t, locks, "scheduler")
	assert.Contains(t, in.Value, "ada:")
	second, secondLines, secondWait := leader("grace")
	waits(t, nodes, true)

	// Somebody takes the lock from the first: its command is ended, and it stands again.
	release(t, nodes, "scheduler")
	later := line(t, secondLines)
	assert.Greater(t, later, term)
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 128+15, secondWait(), "the command was ended by a signal")
	assert.Greater(t, line(t, firstLines), later, "elected again")
	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 128+15, firstWait())
}

// A signal ends elect also if the lock is lost while the command winds down.
func TestElectDoesNotStandAgainAfterASignal(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	cmd := command(t, nodes, "elect", "-name", "scheduler", "-expiry", "4s", "--", "sh", "-c",
		`trap "echo told" TERM; echo ready; while :; do sleep 0.05; done`)
	lines, wait := background(t, cmd)
	require.Equal(t, "ready", line(t, lines))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "told", line(t, lines))
	release(t, nodes, "scheduler")
	assert.Equal(t, exitLost, wait())
}

// A signal that the command survives does not end elect when the lock is lost later.
func TestElectStandsAgainAfterASignalThatEndsNobody(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	survived := syscall.SIGHUP
	if !slices.Contains(heeded(), os.Signal(survived)) { // nohup go test
		survived = syscall.SIGQUIT
	}
	cmd := command(t, nodes, "elect", "-name", "scheduler", "-expiry", "4s", "--", "sh", "-c",
		`trap "echo told" HUP QUIT; echo ready; while :; do sleep 0.05; done`)
	lines, wait := background(t, cmd)
	require.Equal(t, "ready", line(t, lines))
	require.NoError(t, cmd.Process.Signal(survived))
	require.Equal(t, "told", line(t, lines))
	release(t, nodes, "scheduler")
	require.Equal(t, "ready", line(t, lines))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 128+15, wait())
}

// release takes a lock from its holder. A busy machine may answer too late.
func release(t *testing.T, nodes *cluster, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, _, status := result(t, command(t, nodes, "release", "-force", name))
		return status == 0
	}, patient, time.Millisecond)
}

func TestStatusAndWatch(t *testing.T) {
	nodes, locks := setup(t)
	watch := command(t, nodes, "watch", "job")
	seen, wait := background(t, watch)
	next := func(want string) {
		t.Helper()
		for { // each change has a line for the lock, and one for each node
			if text := line(t, seen); strings.Contains(text, `lock "job"`) {
				assert.Contains(t, text, `lock "job": `+want)
				return
			}
		}
	}
	next("free")
	m := locks.NewMutex("job", redlock.WithExpiry(time.Hour))
	require.NoError(t, m.Lock())
	next("held by ")
	out, _, status := result(t, command(t, nodes, "status", "job"))
	assert.Zero(t, status)
	assert.Contains(t, out, `lock "job": held by `)
	assert.NotContains(t, out, m.Value())
	_, err := m.Unlock()
	require.NoError(t, err)
	next("free")
	for i := range 2 {
		reader := locks.NewMutex("job", redlock.WithShared(), redlock.WithExpiry(time.Hour),
			redlock.WithOwner(fmt.Sprint("reader", i)))
		require.NoError(t, reader.Lock())
		next(fmt.Sprintf("shared by %d on ", i+1))
	}
	require.NoError(t, watch.Process.Signal(syscall.SIGINT))
	assert.Equal(t, 128+2, wait())

	_, _, status = result(t, command(t, nodes, "status", "-prefix", "app:", "job"))
	assert.Zero(t, status)
	nodes.Stop(0)
	nodes.Stop(1)
	out, _, status = result(t, command(t, nodes, "status", "job"))
	assert.Equal(t, exitUnavailable, status)
	assert.Contains(t, out, "unknown, only 1 of 3 nodes answered")
}

func TestReleaseTakesTheLockFromItsHolder(t *testing.T) {
	nodes, locks := setup(t)
	m := locks.NewMutex("job", redlock.WithExpiry(time.Hour))
	require.NoError(t, m.Lock())
	out, _, status := result(t, command(t, nodes, "release", "-force", "job"))
	assert.Zero(t, status)
	assert.NotContains(t, out, `lock "job": held`)
	_, err := m.Extend()
	assert.ErrorIs(t, err, redlock.ErrExpired)
}

// A value that no lock of redlock has may be left. Then the lock is not free.
func TestReleaseSaysWhatItCannotDelete(t *testing.T) {
	nodes, locks := setup(t)
	for _, addr := range nodes.Addrs() {
		client := redis.NewClient(&redis.Options{Addr: addr})
		require.NoError(t, client.Set(t.Context(), "job", "", 0).Err())
		require.NoError(t, client.Close())
	}
	slow := locks.With(redlock.WithExpiry(patient), redlock.WithNodeTimeout(patient))
	status, err := (&tool{stdout: io.Discard}).forceRelease(t.Context(), slow, "job")
	assert.Equal(t, exitTaken, status)
	assert.ErrorContains(t, err, "not deleted")
}

// A first look that too few nodes answer must not pass for a lock that is free.
func TestReleaseThatSawNoHolderSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		c.Take("job", time.Hour)
		for i := range 3 {
			c.Node(i).LoseReplies(2) // the first look asks for the key and for the queue at once
		}
		status, err := (&tool{stdout: io.Discard}).forceRelease(t.Context(), c.Redlock(), "job")
		assert.Equal(t, exitUnavailable, status)
		assert.ErrorContains(t, err, "too few nodes answered")
		_, held := c.Holder("job")
		assert.True(t, held)
	})
}

// When the command has ended, run says what it could not do with the lock, and what is known of it.
func TestRunTellsOfALockThatItCouldNotRelease(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		meanwhile func(t *testing.T, nodes *cluster, locks *redlock.Redlock)
		says      string
	}{
		"no quorum": {func(_ *testing.T, nodes *cluster, _ *redlock.Redlock) {
			nodes.Stop(0)
			nodes.Stop(1)
		}, "redlock: the lock is not released, and ends within its expiry: redlock: "},
		"gone": {func(t *testing.T, _ *cluster, locks *redlock.Redlock) {
			value := inspect(t, locks, "job").Value
			_, err := locks.NewMutex("job", redlock.WithValue(value)).Unlock()
			require.NoError(t, err)
		}, "redlock: the lock may have been lost before the command ended: redlock: "},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			nodes, locks := setup(t)
			// A renewal, which would find that out, is minutes away.
			cmd := underLock(t, nodes, "-expiry", "10m", "--", "sh", "-c", "echo ready; cat")
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			require.NoError(t, cmd.Start())
			lines := bufio.NewReader(out)
			require.Equal(t, "ready", line(t, lines))
			tt.meanwhile(t, nodes, locks)
			require.NoError(t, in.Close())
			_, _ = io.Copy(io.Discard, lines)
			require.NoError(t, cmd.Wait())
			assert.Contains(t, errs.String(), tt.says)
		})
	}
}
