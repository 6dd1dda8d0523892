package redlocktest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// worker writes once a second for a quarter of a minute, under a lock.
type worker func(ctx context.Context, locks *redlock.Redlock, write func()) error

// steps writes until the work is done, or ctx ends.
func steps(ctx context.Context, write func()) error {
	for range 15 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
			write()
		}
	}
	return nil
}

func correct(ctx context.Context, locks *redlock.Redlock, write func()) error {
	return locks.Do(ctx, "account", func(held context.Context) error { return steps(held, write) })
}

// bugs are mistakes of workers that no test finds in which the lock is not lost.
var bugs = map[string]worker{
	"works under the caller's context": func(
		ctx context.Context, locks *redlock.Redlock, write func(),
	) error {
		return locks.Do(ctx, "account", func(context.Context) error { return steps(ctx, write) })
	},
	"extends and does not look": func(
		ctx context.Context, locks *redlock.Redlock, write func(),
	) error {
		m := locks.NewMutex("account")
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		err := steps(ctx, func() {
			_, _ = m.Extend()
			write()
		})
		_, unlockErr := m.Unlock()
		return errors.Join(err, unlockErr)
	},
	"hides the error of Unlock": func(
		ctx context.Context, locks *redlock.Redlock, write func(),
	) error {
		m := locks.NewMutex("account")
		held, err := m.Hold(ctx)
		if err != nil {
			return err
		}
		defer m.Unlock()
		write()
		return held.Err()
	},
}

// patient waits for the lock as long as the test does.
var patient = []redlock.Option{
	redlock.WithTries(redlock.Unlimited), redlock.WithRetryDelay(5 * time.Second),
}

// writes is the test of when a worker writes: never while somebody else has the lock.
func writes(do worker) func(t *testing.T, c *redlocktest.Cluster) {
	return func(t *testing.T, c *redlocktest.Cluster) {
		written := 0
		err := do(t.Context(), c.Redlock(patient...), func() {
			written++
			if owner, held := c.Holder("account"); !held || owner == redlocktest.Other {
				t.Error("wrote without the lock")
			}
		})
		if err != nil && !errors.Is(err, redlock.ErrExpired) && !errors.Is(err, redlock.ErrLost) &&
			!errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("failed for another reason: %v", err)
		}
		if err == nil && written == 0 {
			t.Error("has not worked")
		}
	}
}

// reports is the test of what a worker reports.
func reports(do worker) func(t *testing.T, c *redlocktest.Cluster) {
	return func(t *testing.T, c *redlocktest.Cluster) {
		err := do(t.Context(), c.Redlock(), func() {})
		if owner, _ := c.Holder("account"); owner == redlocktest.Other && err == nil {
			t.Error("reports success without the lock")
		}
	}
}

func TestACorrectWorkerPassesAtEveryCommand(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		redlocktest.AtEveryCommand(t, n, writes(correct), redlocktest.Expired)
		redlocktest.AtEveryCommand(t, n, reports(correct), redlocktest.Stolen)
	}
}

// One who shares the lock loses it at every command, too.
func TestACorrectReaderPassesAtEveryCommand(t *testing.T) {
	reads := func(ctx context.Context, locks *redlock.Redlock, work func()) error {
		return correct(ctx, locks.With(redlock.WithShared()), work)
	}
	redlocktest.AtEveryCommand(t, 3, writes(reads), redlocktest.Expired)
	redlocktest.AtEveryCommand(t, 3, reports(reads), redlocktest.Stolen, redlocktest.Forgotten)
}

// So does one who has several locks at once, or one of several. Each of the locks may be lost.
func TestWorkersWithSeveralNamesPassAtEveryCommand(t *testing.T) {
	all := func(ctx context.Context, locks *redlock.Redlock, work func()) error {
		return locks.DoAll(ctx, []string{"other", "account"}, func(ctx context.Context) error {
			return steps(ctx, work)
		})
	}
	redlocktest.AtEveryCommand(t, 3, writes(all), redlocktest.Expired)
	redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		err := all(t.Context(), c.Redlock(), func() {})
		for _, name := range []string{"account", "other"} {
			if owner, _ := c.Holder(name); owner == redlocktest.Other && err == nil {
				t.Error("reports success without the lock", name)
			}
		}
	}, redlocktest.Stolen)

	slots := redlock.Slots("account", 2)
	redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		var slot string
		err := c.Redlock().DoAny(t.Context(), slots, func(ctx context.Context, name string) error {
			slot = name
			return steps(ctx, func() {})
		})
		if owner, _ := c.Holder(slot); owner == redlocktest.Other && err == nil {
			t.Error("reports success without the slot")
		}
	}, redlocktest.Stolen, redlocktest.Expired)
}

// While readers have a lock, its owner is nobody of them.
func TestHolderOfASharedLock(t *testing.T) {
	c := redlocktest.New(t, 3)
	m := c.Redlock().NewMutex("x", redlock.WithShared())
	if err := m.Lock(); err != nil {
		t.Fatal(err)
	}
	if owner, held := c.Holder("x"); !held || owner != redlocktest.Readers {
		t.Errorf("%q, %v", owner, held)
	}
	c.Steal("x")
	if _, err := m.Extend(); !errors.Is(err, redlock.ErrExpired) {
		t.Error(err)
	}
	_, _ = m.Unlock()
}

// child is set in the processes that TestAtEveryCommandFindsBugs starts.
const child = "REDLOCKTEST_BUG"

// TestBug is run by TestAtEveryCommandFindsBugs.
func TestBug(t *testing.T) {
	bug, ok := bugs[os.Getenv(child)]
	if !ok {
		t.Skip("TestAtEveryCommandFindsBugs runs this in processes of its own")
	}
	for name, test := range map[string]func(worker) func(*testing.T, *redlocktest.Cluster){
		"writes": writes, "reports": reports,
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("plain", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test(bug)(t, redlocktest.New(t, 3)) })
			})
			t.Run("every", func(t *testing.T) {
				fault := map[string]redlocktest.Fault{
					"writes": redlocktest.Expired, "reports": redlocktest.Stolen,
				}[name]
				redlocktest.AtEveryCommand(t, 3, test(bug), fault)
			})
		})
	}
}

// Each bug passes a plain test and fails at some command: those of the context because they write
// without the lock, the other because it reports success.
func TestAtEveryCommandFindsBugs(t *testing.T) {
	for name := range bugs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := runChild(t, "^TestBug$", name)
			assert.NotRegexp(t, `--- FAIL: TestBug/\w+/plain`, out)
			assert.Regexp(t, `--- PASS: TestBug/writes/plain`, out)
			assert.Regexp(t, `--- PASS: TestBug/reports/plain`, out)
			want, text := "writes/every/expired", "wrote without the lock"
			if name == "hides the error of Unlock" {
				want, text = "reports/every/stolen", "reports success without the lock"
			}
			assert.Regexp(t, `--- FAIL: TestBug/`+want+`/\d{3}_\w+_on_node_\d`, out)
			assert.Contains(t, out, text)
			assert.Regexp(t, `redlocktest: after command \d+, \w+ on node \d, at [\d.]+s, `+
				`("account" is stolen|the nodes fall silent until "account" has expired)\n`, out)

			first := regexp.MustCompile(`    --- FAIL: (TestBug/` + want +
				`/\d{3})`).FindStringSubmatch(out)
			require.NotNil(t, first)
			again := runChild(t, "^"+strings.ReplaceAll(first[1], "/", "$/^"), name)
			assert.Contains(t, again, "--- FAIL: "+first[1])
			assert.Equal(t, 1, strings.Count(again, "redlocktest: after command"),
				"subtests run again")
		})
	}
}

// runChild runs a test that fails in a process of its own, and returns what it has printed.
func runChild(t *testing.T, run, bug string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run="+run, "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), child+"="+bug)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "the process has not failed: %s", out)
	return string(out)
}

// TestMisuse is run by TestMisuseOfAtEveryCommandFails.
func TestMisuse(t *testing.T) {
	locks := func(t *testing.T, c *redlocktest.Cluster) {
		mustUnlock(t, mustLock(t, c.Redlock(), "x"))
	}
	switch os.Getenv(child) {
	case "no fault":
		redlocktest.AtEveryCommand(t, 3, locks)
	case "unknown fault":
		redlocktest.AtEveryCommand(t, 3, locks, redlocktest.Stolen, "lost")
	case "no lock":
		redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			c.Take("x", time.Minute)
			_ = c.Redlock().NewMutex("x").TryLock()
		}, redlocktest.Stolen)
	case "no node":
		redlocktest.AtEveryCommand(t, 0, locks, redlocktest.Stolen)
	case "fewer commands later":
		first := true
		redlocktest.AtEveryCommand(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
			m := mustLock(t, c.Redlock(), "x")
			if first {
				_, _ = m.Extend()
			}
			first = false
			_, _ = m.Unlock()
		}, redlocktest.Stolen)
	case "no lock later":
		first := true
		redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			if first {
				locks(t, c)
			}
			first = false
		}, redlocktest.Stolen)
	case "fails anyway":
		redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			locks(t, c)
			t.Error("fails anyway")
		}, redlocktest.Stolen)
	case "hangs":
		redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
			m := c.Redlock().NewMutex("x")
			held, _ := m.Hold(t.Context())
			time.Sleep(time.Minute)
			if held.Err() != nil {
				select {}
			}
			mustUnlock(t, m)
		}, redlocktest.Stolen)
	default:
		t.Skip("TestMisuseOfAtEveryCommandFails runs this in processes of its own")
	}
}

func TestMisuseOfAtEveryCommandFails(t *testing.T) {
	for misuse, want := range map[string]string{
		"no fault":      "redlocktest: AtEveryCommand without a fault: give it Stolen, Forgotten",
		"unknown fault": `redlocktest: AtEveryCommand: there is no fault "lost"`,
		"no lock": "redlocktest: AtEveryCommand: the test never holds a lock: there is " +
			"nothing",
		"no node":      "redlocktest: New with 0 nodes: must be at least 1",
		"fails anyway": "fails anyway",
		"hangs":        "deadlock",
	} {
		t.Run(misuse, func(t *testing.T) {
			t.Parallel()
			out := runChild(t, "^TestMisuse$", misuse)
			assert.Contains(t, out, want)
			if misuse == "hangs" {
				assert.Contains(t, out, `after command 1, set on node 1, at 0s, "x" is stolen`)
				return
			}
			assert.NotContains(t, out, "TestMisuse/stolen", "runs with faults")
		})
	}
}

// A fault that does not come is no test passed.
// lesson L161
func TestARunThatLosesNoLockFails(t *testing.T) {
	for misuse, commands := range map[string]int{"fewer commands later": 1, "no lock later": 0} {
		t.Run(misuse, func(t *testing.T) {
			t.Parallel()
			out := runChild(t, "^TestMisuse$", misuse)
			runs := strings.Count(out, "=== RUN   TestMisuse/")
			assert.Greater(t, runs, commands)
			assert.Equal(t, commands, strings.Count(out, "--- PASS: TestMisuse/stolen/"))
			assert.Equal(t, commands, strings.Count(out, "redlocktest: after command"))
			assert.Equal(t, runs-commands,
				strings.Count(out, "redlocktest: no lock was lost in this run"))
			assert.Contains(t, out, "--- FAIL: TestMisuse")
			assert.Contains(t, out, fmt.Sprintf("in %d of %d runs no lock was lost",
				runs-commands, runs))
		})
	}
}

// The name of a lock may be another one in each run.
// lesson L161
func TestALockWithARandomNameIsLost(t *testing.T) {
	run := 0
	redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		run++
		m := mustLock(t, c.Redlock(), rand.Text())
		time.Sleep(time.Second)
		_, err := m.Unlock()
		assert.Equal(t, run > 1, errors.Is(err, redlock.ErrExpired), "%v", err)
	}, redlocktest.Stolen, redlocktest.Forgotten)
	assert.Equal(t, 1+2*3, run)
}

// names returns the subtests of a run of AtEveryCommand in this process.
func names(
	t *testing.T, n int, f func(t *testing.T, c *redlocktest.Cluster), faults ...redlocktest.Fault,
) []string {
	t.Helper()
	var all []string
	t.Run("names", func(t *testing.T) {
		prefix := t.Name() + "/"
		redlocktest.AtEveryCommand(t, n, func(t *testing.T, c *redlocktest.Cluster) {
			f(t, c)
			if name, ok := strings.CutPrefix(t.Name(), prefix); ok {
				all = append(all, name)
			}
		}, faults...)
	})
	return all
}

// The lock can be lost from the command that makes the quorum to the one before that which ends it.
func TestTheMomentsOfALock(t *testing.T) {
	lockAndUnlock := func(_ *testing.T, c *redlocktest.Cluster) {
		m := c.Redlock().NewMutex("x")
		if m.TryLock() == nil {
			_, _ = m.Unlock()
		}
	}
	assert.Equal(t, []string{"stolen/001_set_on_node_0"},
		names(t, 1, lockAndUnlock, redlocktest.Stolen))
	assert.Equal(t, []string{
		"stolen/001_set_on_node_2", "stolen/002_set_on_node_3", "stolen/003_set_on_node_4",
		"stolen/004_release_on_node_0", "stolen/005_release_on_node_1",
		"forgotten/001_set_on_node_2", "forgotten/002_set_on_node_3", "forgotten/003_set_on_node_4",
		"forgotten/004_release_on_node_0", "forgotten/005_release_on_node_1",
	}, names(t, 5, lockAndUnlock, redlocktest.Stolen, redlocktest.Forgotten))
}

// Of several locks, each is lost alone.
func TestTheMomentsOfSeveralLocks(t *testing.T) {
	got := names(t, 1, func(t *testing.T, c *redlocktest.Cluster) {
		locks := c.Redlock()
		outer, inner := locks.NewMutex("outer"), locks.NewMutex("in/ner")
		if outer.TryLock() == nil && inner.TryLock() == nil {
			_, innerErr := inner.Unlock()
			_, outerErr := outer.Unlock()
			stolen := func(name string) bool {
				owner, _ := c.Holder(name)
				return owner == redlocktest.Other
			}
			assert.Equal(t, stolen("outer"), errors.Is(outerErr, redlock.ErrExpired))
			assert.Equal(t, stolen("in/ner"), errors.Is(innerErr, redlock.ErrExpired))
			assert.Equal(t, strings.Contains(t.Name(), "stolen/001"), stolen("outer"))
			assert.Equal(t, strings.Contains(t.Name(), "stolen/002"), stolen("in/ner"))
		}
	}, redlocktest.Stolen)
	assert.Equal(t, []string{"stolen/001_set_on_node_0", "stolen/002_set_on_node_0"}, got)
}

// What the faults promise to the test.
func TestFaultsOfAtEveryCommand(t *testing.T) {
	parent := t.Name()
	redlocktest.AtEveryCommand(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		locks := c.Redlock(patient...)
		m := locks.NewMutex("x")
		held, err := m.Hold(t.Context())
		require.NoError(t, err)
		if t.Name() == parent {
			time.Sleep(10 * time.Second)
			require.NoError(t, held.Err())
			return
		}
		select {
		case <-held.Done():
			require.ErrorIs(t, context.Cause(held), redlock.ErrLost)
		case <-time.After(time.Minute):
			t.Fatal("the lock is not lost")
		}
		owner, taken := c.Holder("x")
		switch fault, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), parent+"/"), "/"); fault {
		case "stolen":
			assert.Equal(t, redlocktest.Other, owner)
		case "forgotten":
			assert.False(t, taken)
		case "expired":
			assert.Equal(t, m.Value(), owner, "until the keys expire")
			time.Sleep(redlock.DefaultExpiry / 50) // more than the drift
			owner, _ = c.Holder("x")
			assert.Equal(t, redlocktest.Other, owner)
		}
		_, err = m.Unlock()
		require.ErrorIs(t, err, redlock.ErrExpired)
		require.NoError(t, m.Lock(), "in a minute")
		mustUnlock(t, m)
	}, redlocktest.Stolen, redlocktest.Forgotten, redlocktest.Expired)
}

// A test may skip itself.
func TestATestThatSkips(t *testing.T) {
	skipped := false
	t.Run("skips", func(t *testing.T) {
		t.Cleanup(func() { skipped = t.Skipped() })
		redlocktest.AtEveryCommand(t, 3, func(t *testing.T, _ *redlocktest.Cluster) {
			t.Skip("for a reason")
		}, redlocktest.Stolen)
	})
	assert.True(t, skipped)
}

// Of several workers, those that wait may lose the lock as well. What they send while they wait is
// no moment.
func TestSeveralWorkersAtEveryCommand(t *testing.T) {
	commands := names(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		var group sync.WaitGroup
		for i := range 3 {
			group.Go(func() {
				// One after the other: no vote is split, and each command has one owner.
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				writes(correct)(t, c)
			})
		}
		group.Wait()
	}, redlocktest.Expired)
	// Of each worker: an acquisition, five renewals and a release.
	assert.GreaterOrEqual(t, len(commands), 3*(2+5*3+1))
	assert.Less(t, len(commands), 3*25)
}

// A node that is down or slow changes nothing: somebody else has the lock when the keys expire.
func TestExpiryBesideFaultsOfNodes(t *testing.T) {
	redlocktest.AtEveryCommand(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		c.Node(1).Down()
		c.Node(2).Delay(300 * time.Millisecond)
		writes(correct)(t, c)
	}, redlocktest.Expired)
}
