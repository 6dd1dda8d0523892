package doctor_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/redigo"
)

// healthy are the options of servers about which nothing is to be said.
var healthy = redistest.AOF()

// goredisPool returns a pool that lives as long as the test.
func goredisPool(t *testing.T, o redis.Options) pool.Pool {
	o.DialerRetries = 1
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	return goredis.NewPool(c)
}

// redigoPool is goredisPool with the other client.
func redigoPool(t *testing.T, addr string, opts ...redigoclient.DialOption) pool.Pool {
	p := &redigoclient.Pool{DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
		return redigoclient.DialContext(ctx, "tcp", addr, opts...)
	}}
	t.Cleanup(func() { _ = p.Close() })
	return redigo.NewPoolAt(addr, p)
}

func serverPools(t *testing.T, servers []*redistest.Server) []pool.Pool {
	var pools []pool.Pool
	for _, s := range servers {
		pools = append(pools, goredisPool(t, redis.Options{Addr: s.Addr()}))
	}
	return pools
}

// patient gives real nodes the time that they take on a busy machine, and veryPatient that which
// they may take beside many other tests.
var (
	patient     = redlock.WithTimeoutFactor(0.25)
	veryPatient = redlock.WithTimeoutFactor(1)
)

// onServers is very patient with servers, whose fsync takes long on a busy disk.
func onServers(t *testing.T, servers []*redistest.Server) *redlock.Redlock {
	return redlock.New(serverPools(t, servers)...).With(veryPatient)
}

// eventually waits for a condition that a server reaches by itself.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.NoError(t, redistest.Poll(func() error {
		if !f() {
			return errors.New("waited too long for " + what)
		}
		return nil
	}))
}

func TestCheckFindsNothingWrongWithHealthyServers(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3, healthy)
	r, found := check(t, onServers(t, servers))
	assert.Empty(t, found)
	assert.Equal(t, doctor.Severity(0), r.Worst())
	assert.Contains(t, r.String(), "\nNo problems found.\n")
	for i, n := range r.Nodes {
		assert.Equal(t, i, n.Node)
		assert.NoError(t, n.Err)
		assert.Empty(t, n.Unknown)
		assert.Regexp(t, `^(Redis|Valkey|Redict) \d+\.\d+\.\d+$`, n.Server)
		assert.Len(t, n.RunID, 40)
		assert.Equal(t, "standalone", n.Mode)
		assert.Equal(t, "master", n.Role)
		assert.Zero(t, n.Replicas)
		assert.Less(t, n.Uptime, time.Minute)
		assert.Zero(t, n.MaxMemory)
		assert.Equal(t, "noeviction", n.Eviction)
		assert.Equal(t, "AOF always", n.Persistence)
		assert.Less(t, n.ClockOffset.Abs(), 100*time.Millisecond+n.ClockUncertainty)
		assert.Equal(t, int64(0), servers[i].Must("DBSIZE"), "it leaves nothing behind")
	}
}

func TestCheckFindsTwoPoolsOfOneServer(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 2, healthy)
	_, port, _ := strings.Cut(servers[0].Addr(), ":")
	again := goredisPool(t, redis.Options{Addr: "localhost:" + port})
	pools := append(serverPools(t, servers), again)
	rl := redlock.New(pools...).With(patient)
	r, found := check(t, rl)
	assert.Equal(t, []string{"critical same-server [0 2]"}, found)
	assert.Equal(t, doctor.Critical, r.Worst())

	// lesson L147: it does so also if nodes do not tell who they are.
	for i, hidden := range []*redistest.Server{servers[1], servers[0]} {
		hidden.Must("ACL", "SETUSER", "default", "-info")
		r, found = check(t, rl)
		assert.Contains(t, found, "critical same-server [0 2]")
		assert.Contains(t, r.String(), []string{"run id", "set is there"}[i])
		assert.Len(t, slices.DeleteFunc(found, func(f string) bool {
			return strings.HasPrefix(f, "note unknown")
		}), 1)
		for _, s := range servers {
			assert.Equal(t, int64(0), s.Must("DBSIZE"), "it leaves nothing behind")
		}
	}
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
	assert.Equal(t, []string{"warning restart [0]", "warning restart [1]", "warning restart [2]"},
		found)
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
	servers = append(servers, redistest.Start(t, 1, healthy,
		redistest.Args("--cluster-enabled", "yes"))...)
	servers[2].Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, "a cluster", func() bool {
		_, err := servers[2].Do("GET", "x")
		return err == nil
	})
	r, found := check(t, onServers(t, servers))
	assert.Equal(t, []string{"warning cluster [2]"}, found)
	assert.Equal(t, "cluster", r.Nodes[2].Mode)
}

func TestCheckFindsNodesOutOfReach(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5, healthy)
	rl := redlock.New(serverPools(t, servers)...).With(patient)
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
		s.Must(append([]string{"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+set", "+get",
			"+mget", "+pttl", "+pexpire", "+del", "+eval", "+evalsha", "+ping"},
			strings.Fields(grants[i])...)...)
		pools = append(pools, goredisPool(t,
			redis.Options{Addr: s.Addr(), Username: "app", Password: "pw"}))
	}
	r, found := check(t, redlock.New(pools...).With(patient, redlock.WithPolling()))
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
	assert.Equal(t, []string{"server", "run id", "mode", "role", "replicas", "uptime", "memory",
		"persistence"}, unknown(2))
}

// A node is of no use to a user who may not do all that a lock needs. What Check has written is
// deleted nevertheless, or expires soon.
func TestCheckTriesWhatALockNeeds(t *testing.T) {
	t.Parallel()
	const app, fence, own = "~app:*", "~redlock:fence:*", "~{app:*"
	fencing, perName := redlock.WithFencing(), redlock.WithFencePerName()
	guard := redlock.WithRestartGuard(10 * time.Second)
	s := redistest.Start(t, 1)[0] // which waits for no disk
	for name, tt := range map[string]struct {
		denied, keys string
		opts         []redlock.Option
		want         string // "" for nothing
		left         bool   // until it expires
	}{
		"all allowed":               {keys: app},
		"all allowed, with a token": {keys: app + " " + fence, opts: []redlock.Option{fencing}},
		"with a counter of its own": {keys: app + " " + own,
			opts: []redlock.Option{fencing, perName}},
		"INFO needs no lock": {denied: "-info", keys: app},
		"PUBLISH needs no lock": {denied: "-publish", keys: app,
			opts: []redlock.Option{redlock.WithPolling()}},
		"other keys": {keys: "~other:*", want: "acquire: NOPERM"},
		"SET":        {denied: "-set", keys: app, want: "acquire: NOPERM"},
		"EVALSHA": {denied: "-evalsha", keys: app,
			want: "command; release: NOPERM", left: true},
		"GET":     {denied: "-get", keys: app, want: "extend: ERR", left: true},
		"PEXPIRE": {denied: "-pexpire", keys: app, want: "extend: ERR"},
		"PTTL": {denied: "-pttl", keys: app,
			want: "a stranger's release: ERR"},
		"DEL": {denied: "-del", keys: app, want: "lock needs (release: ERR",
			left: true},
		"the counter": {keys: app + " " + own, opts: []redlock.Option{fencing},
			want: "acquire: NOPERM"},
		"the counter of its own": {keys: app + " " + fence,
			opts: []redlock.Option{fencing, perName}, want: "acquire: NOPERM"},
		"INFO under the guard": {denied: "-info", keys: app, opts: []redlock.Option{guard},
			want: "acquire: ERR"},
		"DEL with a token": {denied: "-del", keys: app + " " + own,
			opts: []redlock.Option{fencing, perName}, want: "release: ERR", left: true},
		"PEXPIRE, kept out by guards": {denied: "-pexpire", keys: app,
			opts: []redlock.Option{guard}, want: "extend: ERR"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []pool.Pool{
				goredisPool(t, redis.Options{Addr: s.Addr()}), redigoPool(t, s.Addr()),
			} {
				client := fmt.Sprintf("%T", p)
				s.Must(append([]string{"ACL", "SETUSER", "default", "reset", "on", "nopass", "&*",
					"+@all"}, strings.Fields(tt.denied+" "+tt.keys)...)...)
				rl := redlock.New(p).With(append(tt.opts,
					redlock.WithKeyPrefix("app:"), redlock.WithNodeTimeout(time.Second))...)
				r, found := check(t, rl)
				keys := s.Must("KEYS", "*").([]any)
				keys = slices.DeleteFunc(keys,
					func(key any) bool { return key == "redlock:fence:330d" })
				assert.Equal(t, tt.left, len(keys) > 0, "%s: %s", client, keys)
				for _, key := range keys {
					assert.Contains(t, key, "app:redlock:check:")
					ttl := s.Must("PTTL", key.(string)).(int64)
					assert.True(t, 0 < ttl && ttl <= 11000, "%d ms", ttl)
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
				s.Must("SCRIPT", "FLUSH")
			}
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
	for code, pools := range map[string][]pool.Pool{
		"wrongpass": {
			goredisPool(t, redis.Options{Addr: s.Addr(), Username: "app", Password: "old"}),
			redigoPool(t, s.Addr(),
				redigoclient.DialUsername("app"), redigoclient.DialPassword("old")),
		},
		"tls": {
			goredisPool(t, redis.Options{Addr: unknown.Listener.Addr().String(),
				TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}),
			redigoPool(t, unknown.Listener.Addr().String(), redigoclient.DialUseTLS(true)),
		},
		"name": {
			goredisPool(t, redis.Options{Addr: "not..a..name:6379"}),
			redigoPool(t, "not..a..name:6379"),
		},
		"refused": {
			goredisPool(t, redis.Options{Addr: "127.0.0.1:1"}),
			redigoPool(t, "127.0.0.1:1"),
		},
		"closed": {
			goredisPool(t, redis.Options{Addr: hangsUp.Addr().String()}),
			redigoPool(t, hangsUp.Addr().String()),
		},
	} {
		for _, p := range pools {
			r, err := doctor.Check(t.Context(), redlock.New(p).With(veryPatient))
			require.NoError(t, err)
			assert.Equal(t, code, r.Findings[0].Code, "%T: %v", p, r.Nodes[0].Err)
			assert.Equal(t, doctor.Critical, r.Findings[0].Severity)
		}
	}
}

// A client that panics while it is asked is one node's failure.
func TestCheckAndInspectOutliveAClientThatPanics(t *testing.T) {
	for _, where := range []string{"Do", "Eval", "Subscribe"} {
		synctest.Test(t, func(t *testing.T) {
			pools := sim.NewNodes(3).Pools("a")
			pools[1] = panicsIn{pools[1].(*sim.Link), where}
			rl := redlock.New(pools...)
			r, err := doctor.Check(t.Context(), rl)
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

func (p panicsIn) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any,
	error) {
	p.panic("Eval")
	return p.Link.Eval(ctx, s, keys, args...)
}

func (p panicsIn) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	p.panic("Subscribe")
	return p.Link.Subscribe(ctx, channel)
}

// Whatever the options: all keys are gone but one counter, no lock is touched, and nobody who
// waits for one is woken.
func TestCheckLeavesNothingBehind(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"plain":       nil,
		"token":       {redlock.WithFencing()},
		"own counter": {redlock.WithFencing(), redlock.WithFencePerName()},
		"guard":       {redlock.WithRestartGuard(8 * time.Second)},
		"token, guard": {redlock.WithFencing(), redlock.WithRestartGuard(8 * time.Second),
			redlock.WithKeyPrefix("p:")},
		"long TTLs": {redlock.WithFencing(), redlock.WithExpiry(time.Hour),
			redlock.WithNodeTimeout(time.Second)},
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
				nodes[2].Restart(true) // the guard keeps it out: it is tried nevertheless
				log := nodes.Record()
				r, err := doctor.Check(t.Context(), rl)
				require.NoError(t, err)
				var guard *redlock.GuardError
				assert.Equal(t, strings.Contains(name, "guard"), errors.As(r.Nodes[2].Err, &guard))
				_, err = doctor.Check(t.Context(), rl)
				require.NoError(t, err)
				for i, n := range nodes {
					assert.Equal(t, keys, n.Keys(), "node %d", i)
					assert.Equal(t, 2, n.Count("extend"), "node %d", i)
				}
				checked := map[string]bool{}
				for _, e := range log.Events() {
					if strings.Contains(e.Key, "redlock:check:") {
						checked[e.Key] = true
					} else if e.Command != "subscribe" { // of a channel of the process
						t.Errorf("%s of %s", e.Command, e.Key)
					}
				}
				assert.NotEmpty(t, checked)
				assert.Equal(t, until, m.Until())
				ok, err := m.Valid()
				assert.True(t, ok, err)
				_, err = m.Unlock()
				require.NoError(t, err)
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
		_, err := doctor.Check(ctx, rl)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(1500 * time.Millisecond) // less than the keys would live
		synctest.Wait()
		for i, n := range nodes {
			assert.Equal(t, 1, n.Count("set"), "node %d", i)
			assert.Zero(t, n.Keys(), "node %d", i)
		}
	})
}

// What Check cannot delete expires after eleven node timeouts, whatever the expiry of locks.
func TestCheckWritesShortLivedKeys(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		50 * time.Millisecond: time.Second,
		time.Second:           11 * time.Second,
	} {
		t.Run(timeout.String(), func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes sim.Nodes, _ *redlock.Redlock) {
				pools := nodes.Pools("b")
				pools[0].(*sim.Link).Plan(func(op sim.Op) sim.Fate {
					if op.Command == "set" {
						return sim.Fate{}
					}
					return sim.Fail(errOops)
				})
				rl := redlock.New(pools...).
					With(redlock.WithExpiry(time.Hour), redlock.WithNodeTimeout(timeout))
				_, err := doctor.Check(t.Context(), rl)
				require.NoError(t, err)
				time.Sleep(want - time.Millisecond)
				assert.Equal(t, 1, nodes[0].Keys())
				time.Sleep(time.Millisecond)
				assert.Zero(t, nodes[0].Keys())
				require.NoError(t, rl.Close())
			})
		})
	}
}

// RESP2, RESP3 and redigo give maps and lists in different forms.
func TestCheckReadsAllClients(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, 1, healthy)[0]
	for name, p := range map[string]pool.Pool{
		"RESP2":  goredisPool(t, redis.Options{Addr: s.Addr(), Protocol: 2}),
		"RESP3":  goredisPool(t, redis.Options{Addr: s.Addr(), Protocol: 3}),
		"redigo": redigoPool(t, s.Addr()),
	} {
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
