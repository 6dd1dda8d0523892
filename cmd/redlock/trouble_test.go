//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/redlocktest"
)

// These are troubles that commands of this kind have had, as docs/command.md says.

// No shell reads the arguments.
func TestArgumentsReachTheCommandAsTheyAre(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	words := []string{"a b", "$HOME", "*", `"`, "'", `\n`, "", ";exit 3", "-name", "--", "ü"}
	out, _, status := result(t, underLock(t, nodes, append([]string{"--", "sh", "-c",
		`printf '<%s>\n' "$@"`, "sh"}, words...)...))
	require.Zero(t, status)
	assert.Equal(t, "<"+strings.Join(words, ">\n<")+">\n", out)
}

// Whenever the signal comes, the command gets it or is not started, and the lock is free again.
// lesson L162
func TestASignalAroundTheGrant(t *testing.T) {
	nodes, locks := setup(t)
	name := func(i int) string { return fmt.Sprint("job", i) }
	const n = 24
	var exits []func() int
	for i := range n {
		cmd := command(t, nodes, "run", "-wait", "1m", "-name", name(i), "--", "sh", "-c",
			"echo started; exec sleep 600")
		lines, exit := background(t, cmd)
		switch i % 3 {
		case 0: // most often before the grant
			time.Sleep(time.Duration(i) * time.Millisecond)
		case 1: // some node has granted it
			require.Eventually(t, func() bool {
				return verdict(t, locks, name(i)) != redlock.VerdictFree
			}, patient, time.Millisecond)
		case 2:
			require.Equal(t, "started", line(t, lines))
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		exits = append(exits, func() int {
			status := exit() // when no process can write to the output any more
			signaled := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if i%3 == 0 && signaled.Signaled() && signaled.Signal() == syscall.SIGTERM {
				return 128 + 15 // before main began
			}
			return status
		})
	}
	for i, exit := range exits {
		assert.Equal(t, 128+15, exit(), name(i))
	}
	for i := range n {
		assert.Equal(t, redlock.VerdictFree, verdict(t, locks, name(i)))
	}
}

// If the nodes prove the loss, the command is ended at once: also one that ignores TERM, and one
// that is stopped and gets no signal but KILL.
func TestTheCommandEndsWhenItsLockIsTaken(t *testing.T) {
	t.Parallel()
	for what, script := range map[string]string{
		"ignores TERM": `trap "" TERM; echo $$; while :; do sleep 0.05; done`,
		"stopped":      `echo $$; kill -STOP $$`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			nodes, _ := setup(t)
			lines, wait := background(t, underLock(t, nodes, "-expiry", "3s",
				"--", "sh", "-c", script))
			pid := line(t, lines)
			release(t, nodes, "job")
			assert.Equal(t, exitLost, wait())
			dies(t, pid)
		})
	}
}

// The time to wait does not count any more when the lock is granted, even if it is over just then.
// lesson L132
func TestTheWaitEndsWithTheGrant(t *testing.T) {
	t.Setenv(asTool, "1")
	synctest.Test(t, func(t *testing.T) {
		const patience = time.Second
		over := func(redlock.Acquired) { time.Sleep(2 * patience) } // before Hold returns
		late := redlock.Events{Acquire: func(ctx context.Context, _ redlock.Acquiring) (
			context.Context, func(redlock.Acquired)) {
			return ctx, over
		}}
		c := (&tool{env: os.Getenv, stderr: io.Discard}).lockFlags("run", "", "")
		require.NoError(t, c.parse([]string{"-name", "job", "--", "sleep", "0.2"}))
		c.locks = redlocktest.New(t, 3).Redlock().With(redlock.WithEvents(&late))
		status, err := c.job().whenGranted(patience)
		require.NoError(t, err)
		assert.Zero(t, status)
	})
}

// Who waits learns how many processes are ahead.
func TestAWaitSaysHowManyAreAhead(t *testing.T) {
	said, says := io.Pipe()
	c := (&tool{env: os.Getenv, stderr: says}).lockFlags("run", "", "")
	w := redlock.Waiting{Acquiring: redlock.Acquiring{Name: "job"}, Waited: 2 * time.Second,
		Ahead: 3, Err: errors.New("taken")}
	c.waiting(w)
	assert.Equal(t, `redlock run: still waiting for "job" after 2s, 3 ahead in the queue: taken`,
		line(t, bufio.NewReader(said)))
}

// Who waits says so, with the reason.
// lesson L136
func TestALongWaitIsSaid(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	for what, tt := range map[string]struct {
		args string
		says []string
	}{
		"taken": {"run -wait forever", []string{`redlock run: still waiting for "job" after 2s`,
			"taken on 3 of 3 nodes"}},
		"missing right": {"elect", []string{`redlock elect: still waiting for "job" after 2s`,
			"NOPERM", `"redlock doctor" says`}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			nodes := &cluster{}
			for _, s := range redistest.Start(t, 3) {
				if what == "taken" {
					s.Must("SET", "job", "somebody")
				}
				s.Must("ACL", "SETUSER", "app", "on", ">pw", "&*", "+@all", "~*")
				if what == "missing right" {
					s.Must("ACL", "SETUSER", "app", "resetkeys", "~job")
				}
				nodes.list += ",redis://app:pw@" + s.Addr()
			}
			nodes.list = nodes.list[1:]
			args := append(strings.Fields(tt.args), "-name", "job", "--", "true")
			cmd := command(t, nodes, args...)
			errs, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines, said := bufio.NewReader(errs), ""
			for _, want := range tt.says {
				for !strings.Contains(said, want) {
					said += line(t, lines)
				}
			}
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			_, _ = io.Copy(io.Discard, errs)
			_ = cmd.Wait()
			assert.Equal(t, 128+15, cmd.ProcessState.ExitCode())
		})
	}
}

// A command that runs the tool with its own lock would wait for itself.
// lesson L134
func TestALockWithinItselfIsAnError(t *testing.T) {
	t.Parallel()
	nodes, _ := setup(t)
	const inner = `"$0" run -wait forever -name other -- ` +
		`"$0" run -wait forever -name job -- echo ran`
	out, errs, status := result(t, underLock(t, nodes, "--", "sh", "-c", inner, os.Args[0]))
	assert.Equal(t, exitTaken, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, `"job" is held by the redlock that runs this command`)

	const others = `"$0" run -wait 1m -prefix a: -name job -- echo ran`
	out, _, status = result(t, underLock(t, nodes, "--", "sh", "-c", others, os.Args[0]))
	assert.Zero(t, status)
	assert.Equal(t, "ran\n", out)
}

var freezes = flag.Int("freezes", 1, "how often TestAFrozenMajorityEndsTheCommand freezes the "+
	"nodes of ten commands")

// asStubborn makes this test binary a command that ignores TERM, and writes again and again into
// the file of that name when it was last alive.
const asStubborn = "REDLOCK_TEST_AS_STUBBORN"

// sign is the pause between two signs of life of a stubborn command.
const sign = 20 * time.Millisecond

func stubborn(file string) {
	signal.Ignore(syscall.SIGTERM)
	f, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for began := time.Now(); time.Since(began) < patient; time.Sleep(sign) {
		alive := binary.NativeEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		if _, err := f.WriteAt(alive, 0); err != nil {
			panic(err)
		}
	}
}

// A majority of the nodes is frozen, and the commands ignore TERM. Each is dead before its keys
// have expired by the clocks of the nodes, on as many of them as somebody else needs.
func TestAFrozenMajorityEndsTheCommand(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	servers := redistest.Start(t, 3)
	pulse := redistest.TakePulse(t, servers[2])
	left, n := *freezes, 0
	for tries := 0; left > 0; tries++ {
		margins := freeze(t, servers)
		worst := pulse.Worst()
		if least := slices.Min(margins); least <= 0 && worst > 100*time.Millisecond {
			t.Logf("the machine stood still for %v", worst)
			if tries > *freezes {
				redistest.SkipBusy(t, "it stands still too often")
			}
			continue
		}
		left, n = left-1, n+len(margins)
		for _, m := range margins {
			assert.Positive(t, m, "the command was alive when its lock had ended")
		}
		t.Logf("%d commands, dead at least %v before the end of the lock", n, slices.Min(margins))
	}
}

// freeze runs ten commands with an expiry of 5 s, freezes a majority until they are dead, and
// returns how long before the end of its lock each can have been alive at the latest.
func freeze(t *testing.T, servers []*redistest.Server) (margins []time.Duration) {
	nodes := &cluster{}
	for _, s := range servers {
		nodes.list += "," + s.Addr()
	}
	nodes.list = nodes.list[1:]
	dir, name := t.TempDir(), func(i int) string { return fmt.Sprint("job", i) }
	var outputs []*bufio.Reader
	var waits []func() int
	for i := range 10 {
		cmd := command(t, nodes, "run", "-wait", "1m", "-expiry", "5s", "-name", name(i),
			"--", os.Args[0])
		cmd.Env = append(cmd.Env, asStubborn+"="+filepath.Join(dir, name(i)))
		lines, wait := background(t, cmd)
		outputs, waits = append(outputs, lines), append(waits, wait)
	}
	for _, lines := range outputs {
		require.Equal(t, "ready", line(t, lines))
	}
	ends := frozen(t, servers, len(waits), name)
	defer servers[0].Thaw()
	defer servers[1].Thaw()
	for i, wait := range waits {
		assert.Equal(t, exitLost, wait())
		alive, err := os.ReadFile(filepath.Join(dir, name(i)))
		require.NoError(t, err)
		require.Len(t, alive, 8)
		last := time.Unix(0, int64(binary.NativeEndian.Uint64(alive)))
		margins = append(margins, ends[i].Sub(last)-sign)
	}
	return margins
}

// frozen freezes two of three servers, and returns when n locks are free on two of them if nobody
// extends them. An extension beside the freeze makes it try again.
func frozen(
	t *testing.T, servers []*redistest.Server, n int, name func(int) string,
) (ends []time.Time) {
	t.Helper()
	expire := func(s *redistest.Server) (at []int64) {
		for i := range n {
			var ms int64 // the last node may be granting the lock yet
			for began := time.Now(); ms <= 0; {
				ms, _ = s.Must("PEXPIRETIME", name(i)).(int64)
				require.Less(t, time.Since(began), patient, "%s is not locked", name(i))
			}
			at = append(at, ms)
		}
		return at
	}
	for {
		var all [][]int64
		for _, s := range servers {
			all = append(all, expire(s))
		}
		servers[0].Freeze()
		servers[1].Freeze()
		time.Sleep(20 * time.Millisecond) // for an extension that is under way
		if slices.Equal(all[2], expire(servers[2])) {
			for i := range n {
				at := []int64{all[0][i], all[1][i], all[2][i]}
				slices.Sort(at)
				ends = append(ends, time.UnixMilli(at[1]))
			}
			return ends
		}
		servers[0].Thaw()
		servers[1].Thaw()
	}
}

// Nobody reads what the tool writes, and it has something to say: the wait ends nevertheless.
func TestAWaitEndsThoughNobodyReads(t *testing.T) {
	t.Parallel()
	nodes, locks := setup(t)
	for _, name := range []string{"b", "x#0"} { // until the nodes close
		require.NoError(t, locks.NewMutex(name, redlock.WithExpiry(time.Hour)).Lock())
	}
	for what, args := range map[string][]string{
		"all": {"-name", "a", "-name", "b"}, "any": {"-any-of", "x", "-slots", "1"},
	} {
		t.Run(what, func(t *testing.T) {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer r.Close()
			defer w.Close()
			fd := int(w.Fd())
			require.NoError(t, syscall.SetNonblock(fd, true))
			for err == nil {
				_, err = syscall.Write(fd, make([]byte, 1))
			}
			require.ErrorIs(t, err, syscall.EAGAIN)
			require.NoError(t, syscall.SetNonblock(fd, false))
			cmd := command(t, nodes, slices.Concat([]string{"run", "-wait", "1m"}, args,
				[]string{"--", "true"})...)
			cmd.Stderr = w
			require.NoError(t, cmd.Start())
			time.Sleep(3 * time.Second) // until it has something to say
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			began := time.Now()
			_ = cmd.Wait()
			assert.Equal(t, 128+15, cmd.ProcessState.ExitCode())
			assert.Less(t, time.Since(began), patient/2)
		})
	}
}
