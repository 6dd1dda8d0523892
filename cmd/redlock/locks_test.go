//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// showLocks prints what a command is told of its locks.
const showLocks = `for v in "$REDLOCK_NAME" "$REDLOCK_TOKEN" "$REDLOCK_SLOT"; do
echo $v; done; cat`

// holds lets a command that reads its standard input go on while f runs.
func holds(t *testing.T, nodes *cluster, args []string, f func(lines *bufio.Reader)) (status int) {
	t.Helper()
	cmd := command(t, nodes, append(append([]string{"run", "-wait", "1m"}, args...), "--",
		"sh", "-c", showLocks)...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	lines, wait := background(t, cmd)
	f(lines)
	require.NoError(t, in.Close())
	return wait()
}

// refused returns what run says with the arguments if a lock is taken. On a busy machine, the nodes
// may answer too late to tell.
func refused(t *testing.T, nodes *cluster, args string) (errs string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var out string
		var status int
		line := strings.Fields("run -E 7 " + args + " -- echo ran")
		out, errs, status = result(t, command(t, nodes, line...))
		assert.Empty(t, out)
		return status == 7
	}, patient, time.Millisecond)
	return errs
}

// A command with several names runs under all of these locks. It is told them and their tokens as
// they were given, and another one waits, whatever it has in common with the first, and in
// whichever order.
func TestRunUnderSeveralLocks(t *testing.T) {
	nodes, locks := setup(t)
	status := holds(t, nodes, []string{"-name", "b", "-name", "a", "-name", "b"},
		func(lines *bufio.Reader) {
			assert.Equal(t, "b a b", line(t, lines))
			tokens := strings.Fields(line(t, lines))
			require.Len(t, tokens, 3)
			assert.Equal(t, tokens[0], tokens[2])
			assert.NotEqual(t, tokens[0], tokens[1])
			assert.Empty(t, line(t, lines))
			for _, name := range []string{"a", "b"} {
				assert.Equal(t, redlock.VerdictHeld, verdict(t, locks, name))
			}
			for _, args := range []string{"-name b -name c", "-name c -wait 100ms -name a"} {
				assert.Regexp(t, `^redlock run: "[ab]" not acquired: `, refused(t, nodes, args))
				assert.Equal(t, redlock.VerdictFree, verdict(t, locks, "c"), "left locked")
			}
		})
	assert.Zero(t, status)
	for _, name := range []string{"a", "b"} {
		assert.Equal(t, redlock.VerdictFree, verdict(t, locks, name))
	}
}

// The end of the first of its locks ends the command, and all locks are released.
func TestTheLossOfOneLockEndsTheCommand(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"a", "b", "c"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			nodes, locks := setup(t)
			lines, wait := background(t, command(t, nodes, "run", "-wait", "1m", "-name", "a",
				"-name", "b", "-name", "c", "--", "sh", "-c",
				`trap "" TERM; echo $$; while :; do sleep 0.05; done`))
			pid := line(t, lines)
			release(t, nodes, lost)
			assert.Equal(t, exitLost, wait())
			dies(t, pid)
			for _, name := range []string{"a", "b", "c"} {
				assert.Equal(t, redlock.VerdictFree, verdict(t, locks, name))
			}
		})
	}
}

// One lock cannot be extended, and the command ignores TERM. It is killed at once when another one
// is proven to be lost: the first of them to end counts.
func TestTheFirstLockToEndCounts(t *testing.T) {
	t.Setenv(asTool, "1")
	_, locks := setup(t)
	lost := make(chan error, 2)
	j := &job{tool: &tool{}, lost: lost}
	for _, name := range []string{"a", "b"} {
		m := locks.NewMutex(name, redlock.WithExpiry(time.Hour))
		require.NoError(t, m.Lock())
		j.locked = append(j.locked, m)
	}
	assert.True(t, j.confirmed())
	cmd := exec.Command("sh", "-c", `trap "" TERM; echo ready; while :; do sleep 0.05; done`)
	output, input, err := os.Pipe()
	require.NoError(t, err)
	defer output.Close()
	cmd.Stdout = input
	child, err := start(cmd)
	require.NoError(t, err)
	require.NoError(t, input.Close())
	require.Equal(t, "ready", line(t, bufio.NewReader(output)))
	ended := make(chan error)
	go func() { ended <- j.attend(child) }()
	lost <- errors.New("the margin of a")
	select {
	case <-ended:
		t.Error("killed although an hour is left")
	case <-time.After(300 * time.Millisecond):
	}
	_, err = j.locked[1].Unlock()
	require.NoError(t, err)
	assert.Zero(t, j.until())
	assert.False(t, j.confirmed())
	lost <- errors.New("b is gone")
	select {
	case err := <-ended:
		assert.EqualError(t, err, "the margin of a", "what came first")
	case <-time.After(patient):
		child.kill()
		t.Error("not killed")
	}
	assert.Equal(t, 128+9, child.status())
}

// A lock that is lost during the wait for the next one ends the wait.
func TestALossDuringTheWaitForAnotherLock(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	m := locks.NewMutex("b", redlock.WithExpiry(time.Hour))
	require.NoError(t, m.Lock())
	_, wait := background(t, command(t, nodes, "run", "-wait", "forever", "-name", "a",
		"-name", "b", "--", "echo", "ran"))
	require.Eventually(t, func() bool { return verdict(t, locks, "a") == redlock.VerdictHeld },
		patient, 10*time.Millisecond)
	release(t, nodes, "a")
	assert.Equal(t, exitLost, wait())
}

// -max is for the command, however long it waited for the last lock.
func TestTheLimitCountsFromTheLastGrant(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	m := locks.NewMutex("b", redlock.WithExpiry(time.Hour))
	require.NoError(t, m.Lock())
	lines, wait := background(t, command(t, nodes, "run", "-wait", "1m", "-expiry", "5s", "-max",
		"5s", "-name", "a", "-name", "b", "--", "sh", "-c", "echo ran; sleep 600"))
	time.Sleep(6 * time.Second)
	began := time.Now()
	_, err := m.Unlock()
	require.NoError(t, err)
	require.Equal(t, "ran", line(t, lines))
	assert.Equal(t, exitLost, wait())
	assert.Greater(t, time.Since(began), 4*time.Second)
}

// At most as many commands run as there are slots, each under a lock of its own whose number it is
// told.
func TestRunUnderOneOfSeveralLocks(t *testing.T) {
	nodes, locks := setup(t)
	slots := []string{"-any-of", "job", "-slots", "2"}
	var seen []string
	look := func(lines *bufio.Reader) {
		name, token, slot := line(t, lines), line(t, lines), line(t, lines)
		assert.Equal(t, "job#"+slot, name)
		assert.NotEmpty(t, token)
		assert.NotContains(t, seen, name)
		assert.Equal(t, redlock.VerdictHeld, verdict(t, locks, name))
		seen = append(seen, name)
	}
	assert.Zero(t, holds(t, nodes, slots, func(lines *bufio.Reader) {
		look(lines)
		assert.Zero(t, holds(t, nodes, slots, func(lines *bufio.Reader) {
			look(lines)
			for _, wait := range []string{"", " -wait 100ms"} {
				assert.Regexp(t, `^redlock run: "job#[01]" not acquired`,
					refused(t, nodes, "-any-of job -slots 2"+wait))
			}
		}))
	}))
	slices.Sort(seen)
	assert.Equal(t, []string{"job#0", "job#1"}, seen)
	for _, name := range seen {
		assert.Equal(t, redlock.VerdictFree, verdict(t, locks, name))
	}
}

// Commands that share their locks run at the same time, and one that shares none of them waits for
// all. Then they wait for that.
func TestRunUnderSharedLocks(t *testing.T) {
	for _, tt := range []struct{ first, second, alone, name string }{
		{"-name job", "-name job", "-name job", "job"},
		{"-name b -name a", "-name a -name c", "-name a", "a"},
		{"-any-of job -slots 1", "-any-of job -slots 1", "-any-of job -slots 1", "job#0"},
	} {
		t.Run(tt.first, func(t *testing.T) {
			nodes, locks := setup(t)
			shared := func(names string) []string {
				return append(strings.Fields(names), "-shared", "-owner", "web-3")
			}
			assert.Zero(t, holds(t, nodes, shared(tt.first), func(lines *bufio.Reader) {
				assert.NotEmpty(t, line(t, lines))
				assert.NotEmpty(t, line(t, lines), "the token")
				assert.Zero(t, holds(t, nodes, shared(tt.second), func(lines *bufio.Reader) {
					assert.NotEmpty(t, line(t, lines))
					in := inspect(t, locks, tt.name)
					assert.Equal(t, redlock.VerdictShared, in.Verdict)
					assert.Len(t, in.Readers, 2)
					for _, r := range in.Readers {
						assert.Regexp(t, `^web-3 \w{26}$`, r.Owner)
					}
				}))
				assert.Regexp(t, `^redlock run: "`+tt.name+`" not acquired`,
					refused(t, nodes, tt.alone))
			}))
			assert.Equal(t, redlock.VerdictFree, verdict(t, locks, tt.name))
			assert.Zero(t, holds(t, nodes, strings.Fields(tt.alone), func(lines *bufio.Reader) {
				assert.NotEmpty(t, line(t, lines))
				refused(t, nodes, tt.second+" -shared")
			}))
		})
	}
}

// A slot is kept while the command runs, for longer than the expiry, and its loss ends the command.
func TestASlotIsKept(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	lines, wait := background(t, command(t, nodes, "run", "-wait", "1m", "-any-of", "job",
		"-slots", "1", "-expiry", "5s", "--", "sh", "-c", "echo ran; sleep 600"))
	require.Equal(t, "ran", line(t, lines))
	time.Sleep(6 * time.Second)
	require.Equal(t, redlock.VerdictHeld, verdict(t, locks, "job#0"))
	release(t, nodes, "job#0")
	assert.Equal(t, exitLost, wait())
}

// Who waits for a slot says so, and gets one that becomes free. The flags of run mean the same.
func TestAWaitForASlot(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	for _, name := range redlock.Slots("job", 2) {
		require.NoError(t, locks.NewMutex(name, redlock.WithExpiry(time.Hour)).Lock())
	}
	cmd := command(t, nodes, "run", "-wait", "forever", "-any-of", "job", "-slots", "2",
		"-at-least", "1h", "-no-token", "--", "sh", "-c", `echo "<$REDLOCK_TOKEN>" >&2`)
	cmd.Env = append(cmd.Env, "REDLOCK_TOKEN=7") // that of a lock above
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(errs)
	assert.Regexp(t, `^redlock run: still waiting for "job" after [2-9]s: redlock: "job#[01]" `+
		`not acquired: .*taken on `, line(t, lines))
	release(t, nodes, "job#1")
	for said := ""; said != "<>"; said = line(t, lines) {
	}
	_, _ = io.Copy(io.Discard, errs)
	require.NoError(t, cmd.Wait())
	in := inspect(t, locks, "job#1")
	assert.Equal(t, redlock.VerdictHeld, in.Verdict)
	assert.Greater(t, in.TTL, 30*time.Minute)

	cmd = command(t, nodes, "run", "-wait", "forever", "-any-of", "job", "-slots", "2", "--",
		"true")
	_, wait := background(t, cmd)
	waits(t, nodes, true)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 128+15, wait())
}

// A command that asks for a lock held above it fails at once. One slot of several may be held
// above, because there are others.
// lesson L134
func TestSeveralLocksWithinThemselves(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	for _, tt := range []struct {
		outer, inner string
		fails        string // by which lock, or ""
	}{
		{"-name a -name b", "-name c -name b", `"b"`},
		{"-name a", "-expiry 2s -name a", `"a"`},
		{"-name a -name b", "-name c", ""},
		{"-any-of job -slots 2", "-any-of job -slots 2", ""},
		{"-any-of job -slots 1", "-any-of job -slots 1", `"job#0"`},
		{"-any-of job -slots 1", "-name job#0", `"job#0"`},
		{"-name job#0 -name job#1", "-any-of job -slots 2", `"job#1"`},
		{"-name job#0 -name b -name c", "-any-of job -slots 2", ""},
		{"-shared -name a -name b", "-name b", `"b"`},
		{"-shared -name a", "-shared -name a", `"a"`},
		{"-shared -name a", "-shared -name c", ""},
	} {
		args := append([]string{"run", "-wait", "1m"}, strings.Fields(tt.outer)...)
		args = append(args, "--", "sh", "-c", `"$0" run -wait 1m `+tt.inner+` -- echo ran`,
			os.Args[0])
		out, errs, status := result(t, command(t, nodes, args...))
		what := tt.outer + ": " + tt.inner
		if tt.fails == "" {
			assert.Zero(t, status, what)
			assert.Equal(t, "ran\n", out, what)
			continue
		}
		assert.Equal(t, exitTaken, status, what)
		assert.Empty(t, out, what)
		assert.Contains(t, errs, tt.fails+" is held by the redlock that runs this command", what)
	}
}

// After a stop the nodes are asked for no longer than until the command must be killed. If they do
// not answer, it goes on only if it still may.
func TestWhoWasStoppedAsksNoLongerThanItsLocksLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(1)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...).With(redlock.WithExpiry(3*time.Second),
			redlock.WithNodeTimeout(300*time.Millisecond))
		j := &job{grace: time.Second,
			locked: []*redlock.Mutex{rl.NewMutex("x"), rl.NewMutex("y")}}
		for _, m := range j.locked {
			require.NoError(t, m.Lock())
		}
		nodes[0].Freeze()
		require.True(t, j.confirmed())
		time.Sleep(j.left() - 400*time.Millisecond)
		require.False(t, j.confirmed())
		require.Equal(t, j.grace/4, j.left())
		nodes[0].Thaw()
		for _, m := range j.locked {
			_, err := m.Extend()
			require.NoError(t, err)
		}
		time.Sleep(j.left() - 400*time.Millisecond)
		require.True(t, j.confirmed())
		require.Greater(t, j.left(), 2*time.Second)
		nodes[0].Delete("x")
		require.False(t, j.confirmed())
		nodes[0].Freeze()
		began := time.Now()
		require.False(t, j.confirmed(), "x is lost")
		require.Zero(t, time.Since(began))
		nodes[0].Thaw()
		require.NoError(t, rl.Close())
	})
}
