package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"net"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redistest"
	"github.com/redlock-go/redlock/internal/sim"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/redigo"
)

// healthy are the options of servers about which nothing is to be said.
var healthy = redistest.Args("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")

// goredisPool returns a pool that lives as long as the test.
func goredisPool(t *testing.T, o redis.Options) pool.Pool {
	o.DialerRetries = 1
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	return goredis.NewPool(c)
}

func serverPools(t *testing.T, servers []*redistest.Server) []pool.Pool {
	var pools []pool.Pool
	for _, s := range servers {
		pools = append(pools, goredisPool(t, redis.Options{Addr: s.Addr()}))
	}
	return pools
}

// onServers is patient with servers, whose fsync takes long on a busy disk.
func onServers(t *testing.T, servers []*redistest.Server) *redlock.Redlock {
	return redlock.New(serverPools(t, servers)...).With(patient)
}

// check runs Check, and returns the report and its findings as "severity code nodes".
func check(t *testing.T, rl *redlock.Redlock) (*redlock.Report, []string) {
	t.Helper()
	r, err := rl.Check(t.Context())
	require.NoError(t, err)
	var found []string
	for i, f := range r.Findings {
		found = append(found, fmt.Sprint(f.Severity, " ", f.Code, " ", f.Nodes))
		assert.NotEmpty(t, f.Advice)
		if i > 0 {
			assert.LessOrEqual(t, f.Severity, r.Findings[i-1].Severity, "the worst come first")
		}
	}
	t.Log(r)
	return r, found
}

func TestCheckFindsNothingWrongWithHealthyServers(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3, healthy)
	r, found := check(t, onServers(t, servers))
	assert.Empty(t, found)
	assert.Equal(t, redlock.Severity(0), r.Worst())
	assert.Contains(t, r.String(), "\nNo problems found.\n")
	for i, n := range r.Nodes {
		assert.Equal(t, i, n.Node)
		assert.NoError(t, n.Err)
		assert.Empty(t, n.Unknown)
		assert.Regexp(t, `^(Redis|Valkey) \d+\.\d+\.\d+$`, n.Server)
		assert.Len(t, n.RunID, 40)
		assert.Equal(t, "standalone", n.Mode)
		assert.Equal(t, "master", n.Role)
		assert.Zero(t, n.Replicas)
		assert.Less(t, n.Uptime, time.Minute)
		assert.Zero(t, n.MaxMemory)
		assert.Equal(t, "noeviction", n.Eviction)
		assert.Equal(t, "AOF always", n.Persistence)
		assert.Less(t, n.ClockOffset.Abs(), 100*time.Millisecond+n.ClockError)
		assert.Equal(t, int64(0), servers[i].Must("DBSIZE"), "it leaves nothing behind")
	}
}

func TestCheckFindsTwoPoolsOfOneServer(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 2, healthy)
	pools := append(serverPools(t, servers), serverPools(t, servers[:1])...)
	r, found := check(t, redlock.New(pools...).With(patient))
	assert.Equal(t, []string{"critical same-server [0 2]"}, found)
	assert.Equal(t, redlock.Critical, r.Worst())
}

func TestCheckFindsReplicas(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3, healthy)
	host, port, _ := strings.Cut(servers[0].Addr(), ":")
	servers[1].Must("REPLICAOF", host, port)
	eventually(t, "a replica", func() bool {
		info, _ := servers[0].Must("INFO", "replication").(string)
		return strings.Contains(info, "connected_slaves:1")
	})
	r, found := check(t, onServers(t, servers))
	assert.Equal(t, []string{"critical replica [1]", "warning replicas [0]"}, found)
	assert.Equal(t, 1, r.Nodes[0].Replicas)
	assert.Equal(t, "slave", r.Nodes[1].Role)
}

func TestCheckFindsEviction(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3, healthy)
	servers[0].Must("CONFIG", "SET", "maxmemory", "50mb")
	servers[0].Must("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	servers[1].Must("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	servers[2].Must("CONFIG", "SET", "maxmemory", "50mb")
	r, found := check(t, onServers(t, servers))
	assert.Equal(t, []string{"critical eviction [0]", "note eviction [1]"}, found)
	assert.Equal(t, int64(50<<20), r.Nodes[0].MaxMemory)
	assert.Contains(t, r.Findings[0].Problem, "volatile-ttl")
}

func TestCheckFindsNodesThatForget(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3, healthy)
	servers[0].Must("CONFIG", "SET", "appendfsync", "everysec")
	servers[1].Must("CONFIG", "SET", "appendonly", "no")
	servers[2].Must("CONFIG", "SET", "appendonly", "no")
	servers[2].Must("CONFIG", "SET", "save", "60 1")
	rl := onServers(t, servers)
	r, found := check(t, rl)
	assert.Equal(t, []string{"warning restart [0]", "warning restart [1]", "warning restart [2]"}, found)
	assert.Equal(t, "AOF everysec", r.Nodes[0].Persistence)
	assert.Equal(t, "none", r.Nodes[1].Persistence)
	assert.Equal(t, "RDB", r.Nodes[2].Persistence)

	// The guard makes up for it; but these servers have just been started.
	r, found = check(t, rl.With(redlock.WithRestartGuard(time.Hour)))
	for _, f := range r.Findings {
		assert.Equal(t, "guard", f.Code)
	}
	assert.NotEmpty(t, found)
}

func TestCheckFindsClocks(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3, healthy, redistest.Clock())
	rl := onServers(t, servers)
	_, found := check(t, rl)
	assert.Empty(t, found)
	servers[1].Jump(-3 * time.Second)
	r, found := check(t, rl)
	assert.Equal(t, []string{"warning clock [1]"}, found)
	assert.InDelta(t, -3, r.Nodes[1].ClockOffset.Seconds(), 0.5)
	servers[0].Jump(-3 * time.Second)
	servers[2].Jump(-3 * time.Second)
	_, found = check(t, rl)
	assert.Equal(t, []string{"warning clock []"}, found, "this machine's")
}

func TestCheckFindsClusterMode(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 2, healthy)
	servers = append(servers, redistest.Start(t, 1, healthy, redistest.Args("--cluster-enabled", "yes"))...)
	servers[2].Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, "a cluster", func() bool { _, err := servers[2].Do("GET", "x"); return err == nil })
	r, found := check(t, onServers(t, servers))
	assert.Equal(t, []string{"warning cluster [2]"}, found)
	assert.Equal(t, "cluster", r.Nodes[2].Mode)
}

func TestCheckFindsNodesOutOfReach(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5, healthy)
	rl := onServers(t, servers)
	servers[1].Kill()
	servers[3].Freeze()
	r, found := check(t, rl)
	assert.Equal(t, []string{"warning refused [1]", "warning timeout [3]"}, found)
	assert.ErrorContains(t, r.Nodes[1].Err, "connection refused")
	assert.ErrorIs(t, r.Nodes[3].Err, redlock.ErrNodeTimeout)
	assert.Contains(t, r.String(), "1     "+servers[1].Addr()+"  unreachable ")
	assert.Contains(t, r.String(), "WARNING (refused), node 1 ("+servers[1].Addr()+")\n")

	servers[4].Kill()
	_, found = check(t, rl)
	assert.Contains(t, found, "critical refused [4]", "nothing can be locked")
}

// What a user may not ask is unknown, and no error.
func TestCheckDegrades(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3, healthy)
	grants := []string{"+info", "+info +config|get", "+time"}
	var pools []pool.Pool
	for i, s := range servers {
		s.Must(append([]string{"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+set", "+get", "+pttl", "+pexpire", "+del", "+eval", "+evalsha", "+publish", "+subscribe", "+unsubscribe", "+ping"}, strings.Fields(grants[i])...)...)
		pools = append(pools, goredisPool(t, redis.Options{Addr: s.Addr(), Username: "app", Password: "pw"}))
	}
	r, found := check(t, redlock.New(pools...).With(patient))
	assert.Equal(t, []string{"note unknown [0]", "note unknown [1]", "note unknown [2]"}, found)
	unknown := func(i int) (what []string) {
		for _, u := range r.Nodes[i].Unknown {
			what = append(what, u.What)
			assert.ErrorContains(t, u.Why, "NOPERM")
		}
		return what
	}
	assert.Equal(t, []string{"persistence", "clock"}, unknown(0))
	assert.Equal(t, []string{"clock"}, unknown(1))
	assert.Equal(t, []string{"server", "run id", "mode", "role", "replicas", "uptime", "memory", "persistence"}, unknown(2))
}

// A user who may not do all that a lock needs is as good as no node. What has been written is gone all the same, or soon.
func TestCheckTriesWhatALockNeeds(t *testing.T) {
	t.Parallel()
	const app, fence, own = "~app:*", "~redlock:fence:*", "~{app:*"
	fencing, perName := redlock.WithFencing(), redlock.WithFencePerName()
	guard := redlock.WithRestartGuard(10 * time.Second)
	for name, tt := range map[string]struct {
		denied, keys string
		opts         []redlock.Option
		want         string // "" for nothing
		left         bool   // until it expires
	}{
		"all allowed":                 {keys: app},
		"all allowed, with a token":   {keys: app + " " + fence, opts: []redlock.Option{fencing}},
		"with a counter of its own":   {keys: app + " " + own, opts: []redlock.Option{fencing, perName}},
		"INFO needs no lock":          {denied: "-info", keys: app},
		"PUBLISH needs no lock":       {denied: "-publish", keys: app, opts: []redlock.Option{redlock.WithoutAnnouncements()}},
		"other keys":                  {keys: "~other:*", want: "acquire: NOPERM"},
		"SET":                         {denied: "-set", keys: app, want: "acquire: NOPERM"},
		"EVALSHA":                     {denied: "-evalsha", keys: app, want: "command; release: NOPERM", left: true},
		"GET":                         {denied: "-get", keys: app, want: "extend: ERR", left: true},
		"PEXPIRE":                     {denied: "-pexpire", keys: app, want: "extend: ERR"},
		"PTTL":                        {denied: "-pttl", keys: app, want: "a stranger's release: ERR"},
		"DEL":                         {denied: "-del", keys: app, want: "lock needs (release: ERR", left: true},
		"the counter":                 {keys: app + " " + own, opts: []redlock.Option{fencing}, want: "acquire: NOPERM"},
		"the counter of its own":      {keys: app + " " + fence, opts: []redlock.Option{fencing, perName}, want: "acquire: NOPERM"},
		"INFO under the guard":        {denied: "-info", keys: app, opts: []redlock.Option{guard}, want: "acquire: ERR"},
		"DEL with a token":            {denied: "-del", keys: app + " " + own, opts: []redlock.Option{fencing, perName}, want: "release: ERR", left: true},
		"PEXPIRE, kept out by guards": {denied: "-pexpire", keys: app, opts: []redlock.Option{guard}, want: "extend: ERR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, 1, healthy)[0]
			for client, newPool := range adapters {
				s.Must(append([]string{"ACL", "SETUSER", "default", "reset", "on", "nopass", "&*", "+@all"}, strings.Fields(tt.denied+" "+tt.keys)...)...)
				rl := redlock.New(newPool(t, s.Addr())).With(append(tt.opts, redlock.WithKeyPrefix("app:"), redlock.WithNodeTimeout(time.Second))...)
				r, found := check(t, rl)
				keys := s.Must("KEYS", "*").([]any)
				keys = slices.DeleteFunc(keys, func(key any) bool { return key == fenceOf("redlock:check:") })
				assert.Equal(t, tt.left, len(keys) > 0, "%s: %s", client, keys)
				for _, key := range keys {
					assert.Contains(t, key, "app:redlock:check:")
					ttl := s.Must("PTTL", key.(string)).(int64)
					assert.True(t, 0 < ttl && ttl <= 8000, "%d ms", ttl)
				}
				err := r.Nodes[0].Err
				if tt.want == "" {
					assert.NoError(t, err, client)
					assert.NotContains(t, found, "critical noperm [0]", client)
				} else {
					assert.Error(t, err, client)
					assert.Contains(t, found, "critical noperm [0]", client)
					assert.Contains(t, r.Findings[0].Problem, tt.want, client)
				}
				require.NoError(t, rl.Close())
				s.Must("FLUSHALL")
			}
		})
	}
}

// What a server refuses although the user may is found in the same way.
func TestCheckFindsServersThatRefuse(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"OOM":         {"warning oom [1]"},
		"NOREPLICAS":  {"warning noreplicas [1]"},
		"MISCONF":     {"warning misconf [1]"},
		"NOAUTH":      {"warning noauth [1]"},
		"BUSY":        {"warning busy [1]"},
		"READONLY":    {"critical replica [1]"}, // said once
		"CLUSTERDOWN": {"warning cluster [0 1 2]", "warning clusterdown [1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serverFaults[name]
			servers := redistest.Start(t, 3, append(f.opts, healthy)...)
			for _, s := range servers {
				if f.prepare != nil {
					f.prepare(t, s)
				}
			}
			rl := onServers(t, servers)
			f.inject(t, servers[1])
			r, found := check(t, rl)
			assert.ErrorContains(t, r.Nodes[1].Err, "acquire: "+name)
			assert.Equal(t, want, found)
			f.heal(t, servers[1])
			r, _ = check(t, rl)
			assert.NoError(t, r.Nodes[1].Err)
		})
	}
}

// lesson L80: passwords, TLS and names, as the clients report them.
func TestCheckFindsHowANodeIsReachedWrongly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, 1, healthy)[0]
	s.Must("ACL", "SETUSER", "app", "on", ">pw", "+@all", "~*", "&*")
	hangsUp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = hangsUp.Close() })
	go func() {
		for {
			c, err := hangsUp.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	unknown := httptest.NewUnstartedServer(nil) // an authority that nobody trusts
	unknown.Config.ErrorLog = log.New(io.Discard, "", 0)
	unknown.StartTLS()
	t.Cleanup(unknown.Close)
	dial := func(addr string, opts ...redigoclient.DialOption) pool.Pool {
		p := &redigoclient.Pool{DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
			return redigoclient.DialContext(ctx, "tcp", addr, opts...)
		}}
		t.Cleanup(func() { _ = p.Close() })
		return redigo.NewPoolAt(addr, p)
	}
	for code, pools := range map[string][]pool.Pool{
		"wrongpass": {
			goredisPool(t, redis.Options{Addr: s.Addr(), Username: "app", Password: "old"}),
			dial(s.Addr(), redigoclient.DialUsername("app"), redigoclient.DialPassword("old")),
		},
		"tls": {
			goredisPool(t, redis.Options{Addr: unknown.Listener.Addr().String(), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}),
			dial(unknown.Listener.Addr().String(), redigoclient.DialUseTLS(true)),
		},
		"name": {
			goredisPool(t, redis.Options{Addr: "not..a..name:6379"}),
			dial("not..a..name:6379"),
		},
		"refused": {
			goredisPool(t, redis.Options{Addr: "127.0.0.1:1"}),
			dial("127.0.0.1:1"),
		},
		"closed": {
			goredisPool(t, redis.Options{Addr: hangsUp.Addr().String()}),
			dial(hangsUp.Addr().String()),
		},
	} {
		for _, p := range pools {
			r, err := redlock.New(p).With(patient).Check(t.Context())
			require.NoError(t, err)
			assert.Equal(t, code, r.Findings[0].Code, "%T: %v", p, r.Nodes[0].Err)
			assert.Equal(t, redlock.Critical, r.Findings[0].Severity)
		}
	}
}

// lesson L80: each kind of trouble has a code and advice of its own, whatever the server's version calls it.
func TestCheckTellsTroublesApart(t *testing.T) {
	advice := map[string]string{}
	for text, code := range map[string]string{
		"NOAUTH Authentication required.":                                                         "noauth",
		"WRONGPASS invalid username-password pair or user is disabled.":                           "wrongpass",
		"ERR invalid password":                                                                    "wrongpass",
		"NOPERM this user has no permissions to run the 'eval' command":                           "noperm",
		"NOPERM No permissions to access a key":                                                   "noperm",
		"ERR The user executing the script can't run this command or subcommand script: f80":      "noperm",
		"ERR ACL failure in script: User app has no permissions to run the 'del' command":         "noperm",
		"MOVED 3999 127.0.0.1:6381":                                                               "moved",
		"ASK 3999 127.0.0.1:6381":                                                                 "moved",
		"CROSSSLOT Keys in request don't hash to the same slot":                                   "crossslot",
		"CLUSTERDOWN Hash slot not served":                                                        "clusterdown",
		"LOADING Redis is loading the dataset in memory":                                          "loading",
		"LOADING Valkey is loading the dataset in memory":                                         "loading",
		"READONLY You can't write against a read only replica.":                                   "readonly",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":        "readonly",
		"OOM command not allowed when used memory > 'maxmemory'.":                                 "oom",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to.":        "misconf",
		"NOREPLICAS Not enough good replicas to write.":                                           "noreplicas",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL.":                     "busy",
		"ERR max number of clients reached":                                                       "maxclients",
		"tls: first record does not look like a TLS handshake":                                    "tls",
		"tls: failed to verify certificate: x509: certificate signed by unknown authority":        "tls",
		"dial tcp: lookup redis-1: no such host":                                                  "name",
		"dial tcp 10.0.0.1:6379: connect: connection refused":                                     "refused",
		"no answer within 400ms: the last dial: dial tcp 10.0.0.1:1: connect: connection refused": "refused",
		"dial tcp 10.0.0.1:6379: i/o timeout":                                                     "timeout",
		"read tcp 10.0.0.9:1->10.0.0.1:6379: read: connection reset by peer":                      "closed",
		"EOF":                        "closed",
		"ERR unknown command 'EVAL'": "unreachable",
		"THELOADINGS are not a word": "unreachable",
	} {
		ds, pools := doers(5)
		ds[1].Pool.(*sim.Link).Plan(func(sim.Op) sim.Fate { return sim.Fail(errors.New(text)) })
		r, found := check(t, redlock.New(pools...))
		assert.Equal(t, []string{"warning " + code + " [1]"}, found, text)
		f := r.Findings[0]
		assert.Contains(t, f.Problem, strings.TrimRight(text, "."))
		assert.NotContains(t, f.Problem+f.Advice, "..")
		if said := advice[code]; said != "" {
			assert.Equal(t, said, f.Advice)
		}
		advice[code] = f.Advice
	}
	seen := map[string]string{}
	for code, text := range advice {
		if code != "moved" && code != "clusterdown" { // which have one remedy
			assert.Empty(t, seen[text], "%s and %s have the same advice", code, seen[text])
		}
		seen[text] = code
	}
}

// lesson L80: that there is a cluster comes before the errors that come of it, also where they prevent every lock.
func TestCheckPutsTheClusterBeforeItsSymptoms(t *testing.T) {
	ds, pools := doers(3)
	for i, d := range ds {
		d.info["redis_mode"] = "cluster"
		if i > 0 {
			d.Pool.(*sim.Link).Plan(func(sim.Op) sim.Fate { return sim.Fail(errors.New("MOVED 3999 127.0.0.1:6381")) })
		}
	}
	_, found := check(t, redlock.New(pools...))
	assert.Equal(t, []string{"critical cluster [0 1 2]", "critical moved [1 2]"}, found)
}

// A client that panics while it is asked is one node's failure.
func TestCheckAndInspectOutliveAClientThatPanics(t *testing.T) {
	for _, where := range []string{"Do", "Eval", "Subscribe"} {
		synctest.Test(t, func(t *testing.T) {
			pools := sim.NewNodes(3).Pools("a")
			pools[1] = panicsIn{pools[1].(*sim.Link), where}
			rl := redlock.New(pools...)
			r, err := rl.Check(t.Context())
			require.NoError(t, err)
			assert.ErrorContains(t, r.Nodes[1].Err, "panic", where)
			assert.NoError(t, r.Nodes[0].Err)
			in, err := rl.Inspect(t.Context(), "x")
			require.NoError(t, err)
			assert.Equal(t, where == "Eval", in.Nodes[1].Err != nil)
			require.NoError(t, rl.Close())
		})
	}
}

// panicsIn is a pool of which one method panics.
type panicsIn struct {
	*sim.Link
	where string
}

func (p panicsIn) panic(where string) {
	if where == p.where {
		panic(where)
	}
}

func (p panicsIn) Do(context.Context, ...any) (any, error) {
	p.panic("Do")
	return nil, errOops
}

func (p panicsIn) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any, error) {
	p.panic("Eval")
	return p.Link.Eval(ctx, s, keys, args...)
}

func (p panicsIn) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	p.panic("Subscribe")
	return p.Link.Subscribe(ctx, channel)
}

// Whatever the options: all keys are gone but one counter, no lock is touched, and nobody who waits for one is woken.
func TestCheckLeavesNothingBehind(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"plain":          nil,
		"token":          {redlock.WithFencing()},
		"own counter":    {redlock.WithFencing(), redlock.WithFencePerName()},
		"guard":          {redlock.WithRestartGuard(8 * time.Second)},
		"token, guard":   {redlock.WithFencing(), redlock.WithRestartGuard(8 * time.Second), redlock.WithKeyPrefix("p:")},
		"long TTLs":      {redlock.WithFencing(), redlock.WithExpiry(time.Hour), redlock.WithNodeTimeout(time.Second)},
		"short timeouts": {redlock.WithFencing(), redlock.WithNodeTimeout(time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				synctest.Wait()
				keys, until := nodes[0].Keys(), m.Until()
				if keys == 2 && name != "own counter" {
					keys++ // the counter that all trials share
				}
				nodes[2].Restart(true) // the guard keeps it out: it is tried all the same
				log := nodes.Record()
				r, err := rl.Check(t.Context())
				require.NoError(t, err)
				var guard *redlock.GuardError
				assert.Equal(t, strings.Contains(name, "guard"), errors.As(r.Nodes[2].Err, &guard))
				_, err = rl.Check(t.Context())
				require.NoError(t, err)
				for i, n := range nodes {
					assert.Equal(t, keys, n.Keys(), "node %d", i)
					assert.Equal(t, 2, n.Count("extend"), "node %d", i)
				}
				checked := map[string]bool{}
				for _, e := range log.Events() {
					if strings.Contains(e.Key, "redlock:check:") {
						checked[e.Key] = true
					} else {
						t.Errorf("%s of %s", e.Command, e.Key)
					}
				}
				assert.NotEmpty(t, checked)
				assert.Equal(t, until, m.Until())
				ok, err := m.Valid()
				assert.True(t, ok, err)
				mustUnlock(t, m)
			}, opts...)
		})
	}
}

// A trial is cleaned up like a lock: after its context has ended, and after a SET that came late.
func TestCheckCleansUpWhatComesLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Next("set", sim.Slow(300*time.Millisecond))
		nodes[1].Next("set", sim.Fate{Request: 600 * time.Millisecond})
		nodes[2].Next("release", sim.Slow(300*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := rl.Check(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(1500 * time.Millisecond) // less than the keys would live
		synctest.Wait()
		for i, n := range nodes {
			assert.Equal(t, 1, n.Count("set"), "node %d", i)
			assert.Zero(t, n.Keys(), "node %d", i)
		}
	})
}

// A client that sends SET again after its reply was lost is refused by its own key.
func TestCheckAllowsForClientsThatResend(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[1].Next("set", sim.Fate{ReplyLost: true, Again: 10 * time.Millisecond})
		r, _ := check(t, rl)
		assert.NoError(t, r.Nodes[1].Err)
		assert.Zero(t, nodes[1].Keys())
	})
}

// An address behind which there are several servers grants what it does not have a moment later.
func TestCheckFindsNodesThatForgetAtOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[1].Next("extend", sim.Reply(int64(0)))
		_, found := check(t, rl)
		assert.Contains(t, found, "warning unreachable [1]")
		nodes[1].Next("release", sim.Reply(int64(1)))
		_, found = check(t, rl)
		assert.Contains(t, found, "warning unreachable [1]", "it deletes without looking at the value")
	})
}

// RESP2, RESP3 and redigo give maps and lists in different forms.
func TestCheckReadsAllClients(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, 1, healthy)[0]
	pools := map[string]pool.Pool{
		"RESP2": goredisPool(t, redis.Options{Addr: s.Addr(), Protocol: 2}),
		"RESP3": goredisPool(t, redis.Options{Addr: s.Addr(), Protocol: 3}),
	}
	p := &redigoclient.Pool{DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
		return redigoclient.DialContext(ctx, "tcp", s.Addr())
	}}
	t.Cleanup(func() { _ = p.Close() })
	pools["redigo"] = redigo.NewPool(p)
	for name, p := range pools {
		r, found := check(t, redlock.New(p).With(patient))
		assert.Equal(t, []string{"warning single []"}, found, name)
		assert.Empty(t, r.Nodes[0].Unknown, name)
		assert.Equal(t, "AOF always", r.Nodes[0].Persistence, name)
	}
}

// An embedded node tells little, and a pool that is no Doer nothing.
func TestCheckOfEmbeddedNodes(t *testing.T) {
	pools := sim.NewNodes(2).Pools("a")
	pools = append(pools, goredisPool(t, redis.Options{Addr: redistest.Embedded(t, 1)[0].Addr()}))
	r, found := check(t, redlock.New(pools...))
	assert.Equal(t, []string{"note unknown [0 1]", "note unknown [2]"}, found)
	assert.Len(t, r.Nodes[0].Unknown, 9)
	assert.ErrorContains(t, r.Nodes[0].Unknown[0].Why, "no pool.Doer")
	for _, u := range r.Nodes[2].Unknown {
		assert.NotEqual(t, "clock", u.What)
	}
}

// doer is a node that tells what it is told to.
type doer struct {
	pool.Pool
	info   map[string]string
	config string
	reply  func(parameter, value string) any // of CONFIG GET, in the form of some client; nil for a list
	clock  func() time.Time
	hang   chan struct{} // not nil: do not answer before it is closed
	slow   map[string]time.Duration
	asked  []string
}

func (d *doer) Do(ctx context.Context, args ...any) (any, error) {
	name := args[0].(string)
	d.asked = append(d.asked, name)
	if d.hang != nil {
		<-d.hang
	}
	if d.slow[name] > 0 {
		defer time.Sleep(d.slow[name])
	}
	if d.slow[name] < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	switch name {
	case "INFO":
		if d.info == nil {
			return nil, errOops
		}
		text := "# Server\r\n"
		for k, v := range d.info {
			text += k + ":" + v + "\r\n"
		}
		return text, nil
	case "TIME":
		now := d.clock()
		return []any{strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond() / 1000)}, nil
	case "CONFIG":
		if d.reply != nil {
			return d.reply(args[2].(string), d.config), nil
		}
		return []any{args[2], d.config}, nil
	}
	return nil, errors.New("ERR unknown command")
}

// doers returns nodes about which nothing is to be said.
func doers(n int) ([]*doer, []pool.Pool) {
	var ds []*doer
	pools := sim.NewNodes(n).Pools("a")
	for i := range pools {
		d := &doer{Pool: pools[i], config: "always", clock: time.Now, info: map[string]string{
			"redis_version": "7.2.4", "run_id": strings.Repeat(strconv.Itoa(i), 40), "redis_mode": "standalone", "role": "master",
			"connected_slaves": "0", "uptime_in_seconds": "3600", "maxmemory": "0", "maxmemory_policy": "noeviction", "aof_enabled": "1",
		}}
		ds = append(ds, d)
		pools[i] = d
	}
	return ds, pools
}

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

// lesson L89: what servers say that are like Redis.
func TestCheckKnowsServersThatAreNotRedis(t *testing.T) {
	for name, info := range map[string]map[string]string{
		"Valkey 8.0.1": {"valkey_version": "8.0.1", "server_mode": "standalone", "server_name": "valkey"},
		"Redict 7.3.6": {"redict_version": "7.3.6", "redict_mode": "standalone"},
		"Valkey 8.1.0": {"valkey_version": "8.1.0", "redis_mode": "standalone"}, // extended-redis-compatibility yes
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

func TestCheckFindsWhoTheGuardKeepsOut(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		kept := func(want ...string) *redlock.Report {
			t.Helper()
			r, found := check(t, rl)
			assert.Equal(t, want, found)
			return r
		}
		nodes[0].Restart(true)
		time.Sleep(60 * time.Second)
		r := kept("note guard [0]", "note unknown [0 1 2]")
		assert.Equal(t, &redlock.GuardError{Wait: time.Second}, r.Nodes[0].Err)
		assert.NotContains(t, r.String(), "unreachable")
		nodes[2].Restart(true)
		kept("critical guard [0]", "critical guard [2]", "note unknown [0 1 2]")
		time.Sleep(time.Second)
		nodes[1].Always(sim.Fail(errOops))
		kept("critical unreachable [1]", "critical guard [2]", "note unknown [0 2]")
	}, redlock.WithRestartGuard(time.Minute))
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
		ds[1].slow = map[string]time.Duration{"TIME": 3 * time.Second} // all of it after the clock was read
		r, found := check(t, redlock.New(pools...).With(redlock.WithNodeTimeout(4*time.Second)))
		assert.Empty(t, found)
		assert.Equal(t, -1500*time.Millisecond, r.Nodes[1].ClockOffset)
		assert.Equal(t, 1500*time.Millisecond, r.Nodes[1].ClockError)
	})
}

// Each command has a node timeout of its own: the answers that come are not lost for one that does not.
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

func TestCheckEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		nodes[1].Always(sim.Deaf(sim.Hang()))
		rl := redlock.New(nodes.Pools("a")...)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(errOops) })
		start := time.Now()
		r, err := rl.Check(ctx)
		assert.Nil(t, r)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errOops)
		assert.Equal(t, time.Millisecond, time.Since(start))

		// A client that does not come back costs a node timeout.
		start = time.Now()
		r, err = rl.Check(t.Context())
		require.NoError(t, err)
		assert.ErrorIs(t, r.Nodes[1].Err, redlock.ErrNodeTimeout)
		assert.Equal(t, 400*time.Millisecond, time.Since(start))

		// Nor does one that hangs only later cost more than a node timeout for each command.
		ds, pools := doers(3)
		ds[1].hang = make(chan struct{})
		late := redlock.New(pools...)
		start = time.Now()
		r, err = late.Check(t.Context())
		require.NoError(t, err)
		assert.ErrorIs(t, r.Nodes[1].Err, redlock.ErrNodeTimeout)
		assert.Equal(t, 2800*time.Millisecond, time.Since(start))
		close(ds[1].hang)
		require.NoError(t, late.Close())
		nodes.Close()
		require.NoError(t, rl.Close())
	})
	_, err := redlock.New().Check(t.Context())
	assert.ErrorAs(t, err, new(*redlock.OptionError))
}

func TestReportString(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds, pools := doers(4)
		ds[0].info["maxmemory"], ds[0].info["maxmemory_policy"] = "104857600", "allkeys-lru"
		ds[1].info["run_id"] = ds[0].info["run_id"]
		ds[1].info["connected_slaves"] = "1"
		ds[0].slow = map[string]time.Duration{"TIME": 3 * time.Millisecond}              // lesson L96: all of it after the clock was read
		ds[1].clock = func() time.Time { return time.Now().Add(-40 * time.Microsecond) } // lesson L80: less than what is shown
		ds[2].clock = func() time.Time { return time.Now().Add(90 * time.Second) }
		ds[3].Pool.(*sim.Link).Plan(func(sim.Op) sim.Fate { return sim.Hang() })
		rl := redlock.New(pools...)
		r, err := rl.Check(t.Context())
		require.NoError(t, err)
		require.NoError(t, rl.Close()) // which sends the release once more
		assert.Equal(t, `4 nodes, quorum 3: 2 critical, 4 warnings, 0 notes

node  server       up      role               memory                  persistence  clock
0     Redis 7.2.4  1h0m0s  master             100.0 MiB, allkeys-lru  AOF always   -1.5ms ± 1.5ms
1     Redis 7.2.4  1h0m0s  master, 1 replica  no limit                AOF always   +0.0ms ± 0.0ms
2     Redis 7.2.4  1h0m0s  master             no limit                AOF always   +1m30s ± 0.0ms
3     unreachable  ?       ?                  ?                       ?            ?

CRITICAL (same-server), nodes 0, 1
  These pools reach one and the same server (run id 00000000…), whose vote counts 2 times.
  -> Give every pool a server of its own, on a machine of its own.

CRITICAL (eviction), node 0
  When its memory is full, a node drops keys (maxmemory-policy allkeys-lru), held locks among them.
  -> Set maxmemory-policy noeviction, or use a server that is for locks alone.

WARNING (even), deployment
  4 nodes survive the loss of 1, as 3 would, and votes are split more easily.
  -> Use 3 nodes or 5.

WARNING (replicas), node 1
  A failover to a replica (1 connected) forgets the locks that it had not received.
  -> Take the replicas away, or make sure that none is promoted sooner than the longest expiry after
     the end of its master.

WARNING (timeout), node 3
  Does not answer in time (acquire: no answer within 400ms: context deadline exceeded).
  -> See whether the server is up, frozen or overloaded, and whether a firewall drops what is sent
     to it, or the client speaks TLS to a port without. If it is only far away, raise
     WithNodeTimeout.

WARNING (clock), node 2
  The clock differs from the others' by 1m30s or more. Locks do not need clocks that agree, but when
  it is put right by a jump they expire early or late.
  -> Let chrony or ntpd keep the time, by slewing.
`, r.String())
	})
}
