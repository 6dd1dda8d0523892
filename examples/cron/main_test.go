package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/redlocktest"
)

func TestEveryTickIsRunOnce(t *testing.T) {
	for name, fault := range map[string]func(c *redlocktest.Cluster){
		"no fault": func(*redlocktest.Cluster) {},
		"one node is slow": func(c *redlocktest.Cluster) {
			c.Node(0).Delay(100 * time.Millisecond)
		},
		"two nodes are down": func(c *redlocktest.Cluster) {
			c.Node(1).Down()
			c.Node(3).Freeze()
		},
		// It stays away until its locks have expired: otherwise it could grant them again.
		"a node forgets": func(c *redlocktest.Cluster) {
			time.AfterFunc(5*time.Minute+10*time.Millisecond, func() {
				c.Node(2).Down()
				time.AfterFunc(memory, func() { c.Node(2).Restart(false) })
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := redlocktest.New(t, 5)
				fault(c)
				var out bytes.Buffer
				o := options{name: "replica", replicas: 5, every: time.Minute, ticks: 10,
					see: &watch{metrics: true}}
				require.NoError(t, play(t.Context(), &out, c.Pools(), o), out.String())
				assert.Contains(t, out.String(), "      10  acquire, ok\n")
				assert.Contains(t, out.String(), "      40  acquire, taken\n")
				assert.Equal(t, 10, strings.Count(out.String(), "  ok\n"), out.String())
				time.Sleep(time.Minute)
			})
		})
	}
}

// Without a quorum nobody knows whether the job is run, and somebody is told.
func TestATickWithoutAQuorumIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		c.Node(0).Down()
		c.Node(2).Down()
		var out, log bytes.Buffer
		see := watch{verbose: true, log: &log}
		err := play(t.Context(), &out, c.Pools(),
			options{replicas: 1, every: time.Minute, ticks: 2, see: &see})
		assert.Contains(t, log.String(), `msg="redlock: no quorum of nodes" lock=cron:report:`)
		assert.NotContains(t, out.String(), "What the locks have done", "nobody asked")
		require.EqualError(t, err, "the job was run for 0 of 2 ticks")
		assert.Equal(t, 2, strings.Count(out.String(), "no quorum"), out.String())
	})
}

func TestTwoRunsOfATickAreFound(t *testing.T) {
	l := newLog(&bytes.Buffer{})
	tick := time.Now()
	l.ran(tick, "replica-1", nil)
	assert.Error(t, l.verify(true, 2))
	l.ran(tick, "replica-2", nil)
	assert.ErrorContains(t, l.verify(false, 1), "was run 2 times")
}
