package behaviour_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// lasting are errors of nodes, and whether they stay until somebody changes a node or the client.
var lasting = map[string]bool{
	"NOPERM this user has no permissions":             true,
	"NOAUTH Authentication required":                  true,
	"WRONGPASS invalid username-password pair":        true,
	"READONLY You can't write against a read only":    true,
	"MOVED 866 10.0.0.9:6379":                         true,
	"CROSSSLOT Keys in request don't hash to the":     true,
	"LOADING Redis is loading the dataset in memory":  false,
	"OOM command not allowed":                         false,
	"dial tcp: connection refused":                    false,
	"CLUSTERDOWN The cluster is down":                 false,
	"the node has lost its mind, and says strange th": false,
}

// lesson L107: a call whose tries are limited ends with the second that so many nodes refuse for
// good that the others are no quorum. It says what they said.
func TestErrorsThatLastEndTheCallAfterTheSecondTry(t *testing.T) {
	for text, lasts := range lasting {
		for _, n := range []int{1, 3, 5} {
			bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for _, node := range nodes[:n/2+1] {
					node.Always(sim.Fail(errors.New(text)))
				}
				for call, do := range acquisitions(t.Context(), rl.NewMutex("x"), rl) {
					began := time.Now()
					err := do()
					assert.Equal(t, "Failed NoQuorum", matched(err), "%s: %s", call, text)
					assert.ErrorContains(t, err, text)
					tries := 4
					if lasts {
						tries = 2
					}
					if call == "TryLockContext" {
						tries = 1
					}
					assert.Equal(t, time.Duration(tries-1)*time.Second, time.Since(began),
						"%s: %s", call, text)
				}
			}, redlock.WithTries(4), redlock.WithRetryDelay(time.Second))
		}
	}
}

// Who waits with unlimited tries waits until somebody has mended the nodes. Others do while a
// quorum may still be granted: a minority that fails for good does not count.
func TestErrorsThatLastAreWaitedFor(t *testing.T) {
	noPerm := sim.Fail(errors.New("NOPERM this user has no permissions"))
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		always(nodes, noPerm, noPerm, fine)
		for _, wait := range []func(context.Context) error{
			rl.NewMutex("x", redlock.WithTries(redlock.Unlimited)).LockContext,
			func(ctx context.Context) error {
				_, err := rl.NewElection("y").Campaign(ctx)
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			err := wait(ctx)
			cancel()
			assert.Equal(t, "DeadlineExceeded Failed NoQuorum", matched(err))
			assert.ErrorContains(t, err, "NOPERM")
		}
		always(nodes, noPerm, taken, fine)
		began := time.Now()
		assert.Equal(t, "Failed Taken", matched(rl.NewMutex("x").Lock()))
		assert.GreaterOrEqual(t, time.Since(began), 9*time.Second)
	}, redlock.WithTries(10), redlock.WithRetryDelay(time.Second))
}

// lesson L108: a Do within a Do of the same name, with the outer context, waits in vain. The error
// says that the holder is in the same process.
func TestTheErrorSaysThatThisProcessHasTheLock(t *testing.T) {
	const text = "held by another mutex of this process"
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nested := rl.With(redlock.WithFencing(), redlock.WithTries(2))
		for is, patience := range map[string]time.Duration{
			"Failed Taken": time.Hour, "DeadlineExceeded Failed Taken": time.Second / 2,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			require.NoError(t, rl.Do(t.Context(), "x", func(context.Context) error {
				err := nested.Do(ctx, "x", func(context.Context) error { panic("called") })
				assert.Equal(t, is, matched(err))
				assert.ErrorContains(t, err, " of 3 nodes, "+text+" (node ")
				return nil
			}))
			cancel()
		}
		other := redlock.New(nodes.Pools("b")...).NewMutex("x")
		mustHold(t, other)
		assert.NotContains(t, nested.NewMutex("x").Lock().Error(), text, "of another process")
		mustUnlock(t, other)
		held := rl.NewMutex("x", redlock.WithTries(2))
		mustHold(t, held)
		assert.NotContains(t, held.Lock().Error(), text, "its own")
		mustUnlock(t, held)
	}, redlock.WithRetryDelay(time.Second))
}

// lesson L109: whatever the length of a name, errors and logs are short.
func TestALongNameMakesNoLongTexts(t *testing.T) {
	name := strings.Repeat("long\n", 200_000)
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		var log bytes.Buffer
		rl = rl.With(redlock.WithEvents(redlock.LogEvents(slog.New(slog.NewJSONHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelDebug})))))
		m := rl.NewMutex(name)
		require.NoError(t, m.Lock())
		in, err := rl.Inspect(t.Context(), name)
		require.NoError(t, err)
		errs := []error{rl.NewMutex(name).TryLock(), errors.New(in.String())}
		handoff := mustHandOff(t, m)
		_, err = rl.NewMutex("other").Adopt(t.Context(), handoff)
		errs = append(errs, err)
		_, err = rl.NewMutex("y"+name).Adopt(t.Context(), handoff)
		errs = append(errs, err, end(m.Unlock()))
		mustAdopt(t, m, handoff)
		always(nodes, fails, fails, fails)
		errs = append(errs, end(m.Extend()), rl.NewMutex(name).TryLock(),
			rl.NewMutex("{"+name+"}:fence", redlock.WithFencePerName()).Lock())
		always(nodes, fine, fine, fine)
		mustUnlock(t, m)
		for _, err := range errs {
			assert.ErrorContains(t, err, strings.Repeat(`long\n`, 20))
			assert.Less(t, len(err.Error()), 3000)
		}
		lines := strings.Count(log.String(), "\n")
		assert.Greater(t, lines, 5)
		assert.Less(t, log.Len(), 3000*lines)
	})
}

// lesson L110: a mistake in one option is not reported of others.
func TestAnExpiryOfNothingIsOneMistake(t *testing.T) {
	rl := redlock.New(sim.NewNodes(1).Pools("a")...)
	for _, expiry := range []time.Duration{0, -time.Second, time.Millisecond - 1} {
		err := rl.NewMutex("x", redlock.WithExpiry(expiry)).Lock()
		assert.EqualError(t, err, fmt.Sprintf(`redlock: "x" not acquired: redlock: `+
			"WithExpiry(%v): must be at least 1ms", expiry))
	}
}

// lesson L112: how long a Lock with the defaults takes beside a silent majority depends on whether
// another node says that the lock is taken. The times in its comment
// are usual ones: the retry delay is random.
func TestHowLongALockTakesBesideASilentMajority(t *testing.T) {
	for other, want := range map[string][2]time.Duration{
		"":          {16 * time.Second, 21 * time.Second},
		"another's": {4 * time.Second, 9 * time.Second},
	} {
		for range 10 { // the retry delay is random
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				always(nodes, hangs, hangs, fine)
				if other != "" {
					nodes[2].Set("x", other, 0)
				}
				began := time.Now()
				assert.Error(t, rl.NewMutex("x").Lock())
				assert.GreaterOrEqual(t, time.Since(began), want[0], other)
				assert.LessOrEqual(t, time.Since(began), want[1], other)
			})
		}
	}
}
