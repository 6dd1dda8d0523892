package doctor_test

import (
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// lesson L89: what servers say that are like Redis.
func TestCheckKnowsServersThatAreNotRedis(t *testing.T) {
	for name, info := range map[string]map[string]string{
		"Valkey 8.0.1": {
			"valkey_version": "8.0.1", "server_mode": "standalone", "server_name": "valkey",
		},
		"Redict 7.3.6": {"redict_version": "7.3.6", "redict_mode": "standalone"},
		// With extended-redis-compatibility yes.
		"Valkey 8.1.0": {"valkey_version": "8.1.0", "redis_mode": "standalone"},
		"Redis 7.2.4":  {"redis_mode": "standalone"},
	} {
		ds, pools := doers(3)
		delete(ds[1].info, "redis_mode")
		maps.Copy(ds[1].info, info)
		r, found := check(t, redlock.New(pools...))
		assert.Empty(t, found, name)
		assert.Equal(t, name, r.Nodes[1].Server)
		assert.Equal(t, "standalone", r.Nodes[1].Mode)
		for field := range info {
			if strings.HasSuffix(field, "_mode") {
				ds[1].info[field] = "cluster"
			}
		}
		_, found = check(t, redlock.New(pools...))
		assert.Equal(t, []string{"warning cluster [1]"}, found, name)
	}
	ds, pools := doers(3)
	delete(ds[1].info, "redis_mode")
	r, found := check(t, redlock.New(pools...))
	assert.Equal(t, []string{"note unknown [1]"}, found)
	assert.Equal(t, "mode", r.Nodes[1].Unknown[0].What)
}

// lesson L89: the map of RESP3, as clients give it.
func TestCheckReadsMapsOfAllClients(t *testing.T) {
	for name, reply := range map[string]func(parameter, value string) any{
		"map[any]any":       func(p, v string) any { return map[any]any{p: v} },
		"map[string]any":    func(p, v string) any { return map[string]any{p: v} },
		"map[string]string": func(p, v string) any { return map[string]string{p: v} },
	} {
		ds, pools := doers(3)
		ds[1].reply = reply
		r, found := check(t, redlock.New(pools...))
		assert.Empty(t, found, name)
		assert.Equal(t, "AOF always", r.Nodes[1].Persistence, name)
		ds[1].reply = func(_, v string) any { return reply("other", v) }
		_, found = check(t, redlock.New(pools...))
		assert.Equal(t, []string{"note unknown [1]"}, found, name)
	}
}

func TestCheckNotesWhatIsGarbled(t *testing.T) {
	ds, pools := doers(3)
	ds[0].info["uptime_in_seconds"] = "long"
	delete(ds[1].info, "maxmemory_policy")
	delete(ds[2].info, "aof_enabled")
	r, found := check(t, redlock.New(pools...))
	assert.Equal(t, []string{"note unknown [0]", "note unknown [1]", "note unknown [2]"}, found)
	for i, what := range []string{"uptime", "memory", "persistence"} {
		require.Len(t, r.Nodes[i].Unknown, 1)
		assert.Equal(t, what, r.Nodes[i].Unknown[0].What)
	}
}

// lesson L111: a time that cannot be read is not known, and is no clock that is wrong.
func TestCheckNotesATimeThatItCannotRead(t *testing.T) {
	for _, reply := range []any{"noon", []any{}, []any{"1700000000"}, []any{"1700000000", "half"}} {
		ds, pools := doers(3)
		ds[1].time = reply
		r, found := check(t, redlock.New(pools...))
		assert.Equal(t, []string{"note unknown [1]"}, found, "%v", reply)
		require.Len(t, r.Nodes[1].Unknown, 1)
		assert.Equal(t, "clock", r.Nodes[1].Unknown[0].What)
		assert.Zero(t, r.Nodes[1].ClockOffset)
		assert.Zero(t, r.Nodes[1].ClockUncertainty)
	}
}

// A node that claims to be older than a duration can be has been up for the longest.
//
// lesson L66
func TestCheckOfAnAgelessNode(t *testing.T) {
	ds, pools := doers(1)
	ds[0].info["uptime_in_seconds"] = "9300000000"
	r, _ := check(t, redlock.New(pools...))
	assert.Equal(t, time.Duration(math.MaxInt64), r.Nodes[0].Uptime)
}

// Half a round trip is how well a clock is known. What could be that alone is no finding.
func TestCheckAllowsForTheRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds, pools := doers(3)
		ds[1].slow = map[string]time.Duration{
			"TIME": 3 * time.Second,
		} // all of it after the clock was read
		r, found := check(t, redlock.New(pools...).With(redlock.WithNodeTimeout(4*time.Second)))
		assert.Empty(t, found)
		assert.Equal(t, -1500*time.Millisecond, r.Nodes[1].ClockOffset)
		assert.Equal(t, 1500*time.Millisecond, r.Nodes[1].ClockUncertainty)
	})
}

// Each command has a node timeout of its own: the answers that come are not lost for one that does
// not.
func TestCheckGivesUpOneCommandAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds, pools := doers(3)
		ds[1].slow = map[string]time.Duration{"CONFIG": -1}
		start := time.Now()
		r, found := check(t, redlock.New(pools...))
		assert.Equal(t, 400*time.Millisecond, time.Since(start))
		assert.Equal(t, []string{"note unknown [1]"}, found)
		require.Len(t, r.Nodes[1].Unknown, 1)
		assert.Equal(t, "persistence", r.Nodes[1].Unknown[0].What)
	})
}

// A node that answers neither a script nor INFO is left alone.
func TestCheckDoesNotInsist(t *testing.T) {
	ds, pools := doers(3)
	ds[1].Pool.(*sim.Link).Plan(func(sim.Op) sim.Fate { return sim.Fail(errOops) })
	ds[1].info = nil
	_, found := check(t, redlock.New(pools...))
	assert.Equal(t, []string{"warning unreachable [1]"}, found)
	assert.Equal(t, []string{"INFO"}, ds[1].asked)
}
