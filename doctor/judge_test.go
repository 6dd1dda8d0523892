package doctor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/sim"
)

func TestCheckFindsVersions(t *testing.T) {
	for version, want := range map[string][]string{
		"7.2.4":  nil,
		"6.2.0":  nil,
		"6.0.16": {"warning version [1]"},
		"4.0.9":  {"critical version [1]", "warning version [1]"},
		"10.1.0": nil,
	} {
		ds, pools := doers(3)
		ds[1].info["redis_version"] = version
		_, found := check(t, redlock.New(pools...).With(redlock.WithRestartGuard(10*time.Second)))
		assert.Equal(t, want, found, version)
	}
}

func TestCheckFindsTheNumberOfNodes(t *testing.T) {
	for n, want := range map[int][]string{
		1: {"warning single []"}, 2: {"warning even []"}, 3: nil, 4: {"warning even []"}, 5: nil,
	} {
		_, pools := doers(n)
		_, found := check(t, redlock.New(pools...))
		assert.Equal(t, want, found, n)
	}
}

func TestCheckFindsSentinels(t *testing.T) {
	ds, pools := doers(3)
	ds[2].info["redis_mode"] = "sentinel"
	_, found := check(t, redlock.New(pools...))
	assert.Equal(t, []string{"critical sentinel [2]"}, found)
}

// lesson L66: clocks that differ by more than a duration can be.
func TestCheckFindsClocksThatAreCenturiesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds, pools := doers(3)
		ds[0].clock = func() time.Time { return time.Now().AddDate(-400, 0, 0) }
		ds[1].clock = func() time.Time { return time.Now().AddDate(400, 0, 0) }
		ds[2].clock = ds[1].clock
		_, found := check(t, redlock.New(pools...))
		assert.Equal(t, []string{"warning clock [0]", "warning clock []"}, found)
	})
}

func TestReportString(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds, pools := doers(4)
		ds[0].info["maxmemory"], ds[0].info["maxmemory_policy"] = "104857600", "allkeys-lru"
		ds[1].info["run_id"] = ds[0].info["run_id"]
		ds[1].info["connected_slaves"] = "1"
		// lesson L96: all of it after the clock was read
		ds[0].slow = map[string]time.Duration{"TIME": 3 * time.Millisecond}
		// lesson L80: less than what is shown
		ds[1].clock = func() time.Time { return time.Now().Add(-40 * time.Microsecond) }
		ds[2].clock = func() time.Time { return time.Now().Add(90 * time.Second) }
		ds[3].Pool.(*sim.Link).Plan(func(sim.Op) sim.Fate { return sim.Hang() })
		rl := redlock.New(pools...)
		r, err := doctor.Check(t.Context(), rl)
		require.NoError(t, err)
		require.NoError(t, rl.CloseContext(t.Context())) // which sends the release once more
		assert.Equal(t, `4 nodes, quorum 3: 2 critical, 4 warnings, 0 notes

node  server       up      role               memory                  persistence  clock
0     Redis 7.2.4  1h0m0s  master             100.0 MiB, allkeys-lru  AOF always   -1.5ms ± 1.5ms
1     Redis 7.2.4  1h0m0s  master, 1 replica  no limit                AOF always   +0.0ms ± 0.0ms
2     Redis 7.2.4  1h0m0s  master             no limit                AOF always   +1m30s ± 0.0ms
3     unreachable  ?       ?                  ?                       ?            ?

CRITICAL (same-server), nodes 0, 1
  These pools reach the same server (run id 00000000…), whose vote counts 2 times.
  -> Give every pool a server of its own, on a machine of its own.

CRITICAL (eviction), node 0
  A node whose memory is full drops keys (maxmemory-policy allkeys-lru), held locks among them.
  -> Set maxmemory-policy noeviction, or use a server for locks alone.

WARNING (even), deployment
  4 nodes survive the loss of 1, as 3 nodes do, and split votes more easily.
  -> Use 3 nodes or 5.

WARNING (replicas), node 1
  A failover to a replica (1 connected) forgets the locks that it has not received.
  -> Remove the replicas. Otherwise promote one only after its master has been down for the longest
     expiry.

WARNING (timeout), node 3
  Does not answer in time (acquire: no answer within 400ms: context deadline exceeded).
  -> See whether the server is down, frozen or overloaded. A firewall may drop the traffic, or the
     client may speak TLS to a port without it. If the server is only far away, raise
     WithNodeTimeout.

WARNING (clock), node 2
  The clock differs from the others' by 1m30s or more. Locks do not need equal clocks, but a jump
  that corrects this one makes them expire early or late.
  -> Let chrony or ntpd keep the time, by slewing.
`, r.String())
	})
}
