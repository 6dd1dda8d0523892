package behaviour_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// logged returns the lines that a logger has written at a level or above, without their time.
func logged(t *testing.T, level slog.Level,
	f func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock)) []string {
	t.Helper()
	var out bytes.Buffer
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})
	bubble(t, 3, f, redlock.WithEvents(redlock.LogEvents(slog.New(handler))))
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestLogEventsWarnsOfTroubleOnly(t *testing.T) {
	use := func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		require.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrTaken)
		_, err := m.Extend()
		require.NoError(t, err)
		mustUnlock(t, m)
		synctest.Wait() // until the last node has answered
	}
	assert.Equal(t, []string{""}, logged(t, slog.LevelWarn, use))
	lines := strings.Join(logged(t, slog.LevelDebug, use), "\n")
	for _, want := range []string{
		`level=DEBUG msg="redlock: lock acquired" lock=x took=0s attempts=1 queued=false`,
		`level=DEBUG msg="redlock: lock not acquired" lock=x took=0s attempts=1 queued=false err=`,
		`level=DEBUG msg="redlock: lock extended" lock=x took=0s left=7.918s renewal=false`,
		`level=DEBUG msg="redlock: lock released" lock=x took=0s`,
	} {
		assert.Contains(t, lines, want)
	}

	lines = strings.Join(logged(t, slog.LevelWarn,
		func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x", redlock.WithMaxHold(10*time.Second))
			<-mustHold(t, m).Done()
			time.Sleep(time.Until(m.Until()) + time.Millisecond)
			mustUnlock(t, m)
			nodes[0].Crash()
			nodes[1].Crash()
			require.ErrorIs(t, rl.NewMutex("x", redlock.WithTries(4)).Lock(), redlock.ErrNoQuorum)
			nodes[0].Restart(true)
			nodes[1].Restart(true)
			for range 2 { // the nodes have answered for a while
				require.NoError(t, m.Lock())
				mustUnlock(t, m)
				time.Sleep(time.Minute) // nothing is pending any more
			}
		}), "\n")
	for _, want := range []string{
		`level=WARN msg="redlock: lock lost" lock=x reason=max_hold held=10s overdue=0s err=`,
		`level=WARN msg="redlock: lock used after its end" lock=x operation=release by=1ms`,
		`level=WARN msg="redlock: no quorum of nodes" lock=x operation=acquire err=`,
		`level=WARN msg="redlock: node down" node="node 1" err="`,
		`level=WARN msg="redlock: node answers again" node="node 0"`,
	} {
		assert.Contains(t, lines, want)
	}
	assert.Equal(t, 7, strings.Count(lines, "\n")+1, lines)
}
