package redlock_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/hashicorp/go-multierror"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/redigo"
)

// adapters make a pool of a real server's address, with the client's default options.
var adapters = map[string]func(t testing.TB, addr string) pool.Pool{
	"goredis": func(t testing.TB, addr string) pool.Pool {
		c := goredislib.NewClient(&goredislib.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		return goredis.NewPool(c)
	},
	"redigo": func(t testing.TB, addr string) pool.Pool {
		p := &redis.Pool{MaxIdle: 3, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr)
		}}
		t.Cleanup(func() { _ = p.Close() })
		return redigo.NewPool(p)
	},
}

// hungUp stands for what a client makes of a server that says "ERR max number of clients reached" and hangs
// up at once: mostly it finds the connection closed before it has read that.
const (
	hungUp = "ERR max number of clients reached|" + cut
	cut    = "broken pipe|connection reset|EOF"
)

// mentions reports whether a text contains one of the alternatives in want.
func mentions(text, want string) bool {
	for w := range strings.SplitSeq(want, "|") {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// serverFault is a state of a server in which it answers with errors, and what a lock's commands get
// to hear then; "" for a command that works all the same.
type serverFault struct {
	opts                  []redistest.Option
	prepare               func(t *testing.T, s *redistest.Server)
	inject, heal          func(t *testing.T, s *redistest.Server)
	lock, extend, release string
}

// set makes a fault of two configurations.
func set(inject, heal string) serverFault {
	run := func(commands string) func(*testing.T, *redistest.Server) {
		return func(_ *testing.T, s *redistest.Server) {
			for command := range strings.SplitSeq(commands, ";") {
				s.Must(strings.Fields(command)...)
			}
		}
	}
	return serverFault{inject: run(inject), heal: run(heal)}
}

func (f serverFault) says(lock, extend, release string) serverFault {
	f.lock, f.extend, f.release = lock, extend, release
	return f
}

// eventually waits for a condition that a server reaches by itself.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 10*time.Second, 2*time.Millisecond, what)
}

var serverFaults = map[string]serverFault{
	"OOM": set("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0").
		says("OOM command not allowed", "", ""),
	"READONLY": set("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE").
		says("READONLY You can't write", "READONLY You can't write", "READONLY You can't write"),
	"NOREPLICAS": set("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0").
		says("NOREPLICAS Not enough good replicas", "NOREPLICAS", "NOREPLICAS"),
	"MASTERDOWN": set(
		"CONFIG SET replica-serve-stale-data no;REPLICAOF 127.0.0.1 1",
		"REPLICAOF NO ONE;CONFIG SET replica-serve-stale-data yes").
		says("READONLY You can't write", "MASTERDOWN Link with MASTER is down", "MASTERDOWN Link with MASTER is down"),
	"NOAUTH": set(
		"CONFIG SET requirepass secret;CLIENT KILL TYPE normal",
		"CONFIG SET requirepass nothing;ACL SETUSER default nopass").
		says("NOAUTH ", "NOAUTH ", "NOAUTH "),
	"NOPERM on the key": set("ACL SETUSER default resetkeys ~other:*", "ACL SETUSER default ~*").
		says("NOPERM this user has no permissions to access", "NOPERM", "NOPERM"),
	"NOPERM on scripts": set("ACL SETUSER default -eval -evalsha", "ACL SETUSER default +eval +evalsha").
		says("", "NOPERM this user has no permissions to run the 'eval", "NOPERM this user has no permissions to run the 'eval"),
	"NOPERM inside scripts": set("ACL SETUSER default -del -pexpire", "ACL SETUSER default +del +pexpire").
		says("", "can't run this command or subcommand", "can't run this command or subcommand"),
	"maxclients": set("CONFIG SET maxclients 1;CLIENT KILL TYPE normal", "CONFIG SET maxclients 10000").
		says(hungUp, hungUp, hungUp),
	// lesson L39
	"SCRIPT FLUSH": set("SCRIPT FLUSH", "PING"),
	"MISCONF": {
		inject: func(t *testing.T, s *redistest.Server) {
			// A snapshot cannot be renamed over a directory.
			require.NoError(t, os.Mkdir(filepath.Join(s.Dir(), "dump.rdb"), 0o700))
			s.Must("CONFIG", "SET", "save", "3600 1")
			s.Must("BGSAVE")
			eventually(t, "a failed snapshot", func() bool {
				info, _ := s.Must("INFO", "persistence").(string)
				return strings.Contains(info, "rdb_last_bgsave_status:err")
			})
		},
		heal: func(_ *testing.T, s *redistest.Server) { s.Must("CONFIG", "SET", "save", "") },
		lock: "MISCONF Redis is configured to save RDB snapshots", extend: "MISCONF", release: "MISCONF",
	},
	"BUSY": {
		opts: []redistest.Option{redistest.Args("--busy-reply-threshold", "20")},
		inject: func(t *testing.T, s *redistest.Server) {
			c := s.Dial()
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.Send("EVAL", "while true do end", "0"))
			eventually(t, "a busy server", func() bool {
				_, err := s.Do("PING")
				return err != nil
			})
		},
		heal: func(t *testing.T, s *redistest.Server) {
			s.Must("SCRIPT", "KILL")
			eventually(t, "an idle server", func() bool {
				_, err := s.Do("PING")
				return err == nil
			})
		},
		lock: "BUSY Redis is busy", extend: "BUSY", release: "BUSY",
	},
	"LOADING": {
		opts: []redistest.Option{redistest.AOF(), redistest.Args("--appendfsync", "no")},
		prepare: func(_ *testing.T, s *redistest.Server) {
			s.Must("EVAL", "for i = 1, 150000 do redis.call('SET', i, 'v') end", "0")
		},
		inject: func(_ *testing.T, s *redistest.Server) {
			// While it loads, a server answers once in 1024 keys; it sleeps after one in five.
			s.Restart(redistest.Loading(), redistest.Args("--key-load-delay", "-5"))
		},
		heal: func(_ *testing.T, s *redistest.Server) { s.Restart() },
		lock: "LOADING Redis is loading the dataset", extend: "LOADING", release: "LOADING",
	},
	"CLUSTERDOWN": {
		opts: []redistest.Option{redistest.Args("--cluster-enabled", "yes", "--cluster-node-timeout", "500")},
		prepare: func(t *testing.T, s *redistest.Server) {
			s.Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
			clusterReady(t, s)
		},
		inject: func(_ *testing.T, s *redistest.Server) { s.Must("CLUSTER", "DELSLOTSRANGE", "0", "16383") },
		heal: func(t *testing.T, s *redistest.Server) {
			s.Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
			clusterReady(t, s)
		},
		lock: "CLUSTERDOWN Hash slot not served", extend: "CLUSTERDOWN", release: "CLUSTERDOWN",
	},
}

func clusterReady(t *testing.T, s *redistest.Server) {
	t.Helper()
	eventually(t, "a cluster node that is ready", func() bool {
		info, _ := s.Must("CLUSTER", "INFO").(string)
		return strings.Contains(info, "cluster_state:ok")
	})
}

// settled waits until a client of the server has noticed what became of it: connections that were
// open before may have to break first. It asks for something no lock uses.
func settled(t *testing.T, p pool.Pool, fault serverFault) {
	t.Helper()
	eventually(t, "a client that has noticed", func() bool {
		_, err := p.SetNX(t.Context(), "settled", "v", time.Millisecond)
		if fault.lock == "" {
			return err == nil || strings.Contains(err.Error(), "NOPERM")
		}
		return err != nil && mentions(err.Error(), fault.lock)
	})
}

// fresh is the outcome of op on connections that are as old as the fault: a client that keeps several may
// find one more that was cut when the fault began.
func fresh(fault serverFault, op func() error) (err error) {
	for range 10 {
		if err = op(); err == nil || fault.lock == hungUp || !mentions(err.Error(), cut) {
			break
		}
	}
	return err
}

// saysOf checks that err carries the texts of nodes by their index.
func saysOf(t *testing.T, err error, texts map[int]string) {
	t.Helper()
	var first *redlock.NodeError
	require.ErrorAs(t, err, &first)
	var all *multierror.Error
	require.ErrorAs(t, err, &all)
	said := map[int]string{}
	for _, e := range all.Errors {
		var n *redlock.NodeError
		require.ErrorAs(t, e, &n)
		said[n.Node] = n.Err.Error()
	}
	for node, text := range texts {
		assert.True(t, mentions(said[node], text), "node %d says %q, not %q", node, said[node], text)
		assert.ErrorContains(t, err, fmt.Sprintf("node %d: %s", node, said[node]))
	}
}

// lesson L43: with a minority of servers in trouble, a lock works; with a majority, the error says who is
// in what trouble; when it is over, the same mutex goes on.
func TestServerErrors(t *testing.T) {
	redistest.Require(t)
	for client, newPool := range adapters {
		for name, fault := range serverFaults {
			t.Run(client+"/"+name, func(t *testing.T) {
				t.Parallel()
				testServerError(t, newPool, fault)
			})
		}
	}
}

func testServerError(t *testing.T, newPool func(testing.TB, string) pool.Pool, fault serverFault) {
	servers := redistest.Start(t, 3, fault.opts...)
	pools := make([]pool.Pool, 3)
	for i, s := range servers {
		if fault.prepare != nil {
			fault.prepare(t, s)
		}
		pools[i] = newPool(t, s.Addr())
	}
	rl := redlock.New(pools...).With(redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(time.Second))
	defer func() { assert.NoError(t, rl.Close()) }()
	mutex := func(name string) *redlock.Mutex { return rl.NewMutex(name) }
	held, other := mutex("held"), mutex("other")
	require.NoError(t, held.Lock())
	require.NoError(t, other.Lock())
	for _, s := range servers {
		// A lock is granted before the slowest node has answered.
		eventually(t, "both locks on every server", func() bool {
			return s.Must("EXISTS", "held") == int64(1) && s.Must("EXISTS", "other") == int64(1)
		})
	}

	// One of three in trouble.
	fault.inject(t, servers[0])
	settled(t, pools[0], fault)
	_, err := held.Extend()
	require.NoError(t, err, "extend, one server in trouble")
	_, err = other.Unlock()
	require.NoError(t, err, "unlock, one server in trouble")
	m := mutex("minority")
	require.NoError(t, m.TryLock(), "lock, one server in trouble")
	for _, s := range servers[1:] { // or the quorum might be one healthy server and the one in trouble
		eventually(t, "the lock on the healthy servers", func() bool { return s.Must("EXISTS", "minority") == int64(1) })
	}
	_, err = m.Unlock()
	require.NoError(t, err, "unlock, one server in trouble")

	// One in trouble, one where it is taken: only together do they prevent the lock.
	servers[1].Must("SET", "half", "somebody")
	err = fresh(fault, mutex("half").TryLock)
	if fault.lock == "" {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		saysOf(t, err, map[int]string{0: fault.lock, 1: "taken"})
	}

	// Two of three in trouble.
	fault.inject(t, servers[1])
	settled(t, pools[1], fault)
	err = fresh(fault, mutex("majority").TryLock)
	if fault.lock == "" {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, redlock.ErrFailed)
		require.NotErrorIs(t, err, redlock.ErrTaken)
		saysOf(t, err, map[int]string{0: fault.lock, 1: fault.lock})
	}
	until := held.Until()
	extend := func() error {
		ok, err := held.Extend()
		assert.Equal(t, err == nil, ok)
		return err
	}
	unlock := func() error {
		ok, err := held.Unlock()
		assert.Equal(t, err == nil, ok)
		return err
	}
	err = fresh(fault, extend)
	if fault.extend == "" {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		saysOf(t, err, map[int]string{0: fault.extend, 1: fault.extend})
		assert.Equal(t, until, held.Until(), "a failed extension leaves the validity as it was")
	}
	err = fresh(fault, unlock)
	if fault.release == "" {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		saysOf(t, err, map[int]string{0: fault.release, 1: fault.release})
	}

	// It is over.
	healthy := serverFault{}
	for i := range 2 {
		fault.heal(t, servers[i])
		settled(t, pools[i], healthy)
	}
	if fault.release != "" {
		// The first Unlock may have deleted the key on one server after it had returned, or in its second
		// try; then there is nothing left for this one to confirm.
		if err = fresh(healthy, unlock); err != nil {
			require.ErrorIs(t, err, redlock.ErrExpired, "the second Unlock finishes")
		}
	}
	require.NoError(t, fresh(healthy, held.TryLock), "what was released is free")
	require.NoError(t, unlock())
}

// lesson L46: data of another kind under the lock's key.
func TestWrongType(t *testing.T) {
	redistest.Require(t)
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 3)
			pools := make([]pool.Pool, 3)
			for i, s := range servers {
				pools[i] = newPool(t, s.Addr())
			}
			rl := redlock.New(pools...)
			defer func() { assert.NoError(t, rl.Close()) }()
			m := rl.NewMutex("k")

			servers[0].Must("LPUSH", "k", "data")
			require.NoError(t, m.Lock(), "one of three")
			servers[1].Must("DEL", "k")
			servers[1].Must("LPUSH", "k", "data")
			_, err := m.Extend()
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			saysOf(t, err, map[int]string{0: "WRONGTYPE", 1: "WRONGTYPE"})
			_, err = m.Unlock()
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			saysOf(t, err, map[int]string{0: "WRONGTYPE", 1: "WRONGTYPE"})
			assert.ErrorIs(t, m.TryLock(), redlock.ErrTaken, "a key is in the way on two of three")
			for _, s := range servers[:2] {
				assert.Equal(t, "list", s.Must("TYPE", "k"), "the data is left alone")
			}
		})
	}
}

// lesson L39: the scripts are forgotten between any two operations.
func TestScriptFlushBetweenOperations(t *testing.T) {
	redistest.Require(t)
	for client, newPool := range adapters {
		for flushed := 1; flushed <= 3; flushed += 2 {
			t.Run(fmt.Sprintf("%s/on %d of 3", client, flushed), func(t *testing.T) {
				t.Parallel()
				servers := redistest.Start(t, 3)
				pools := make([]pool.Pool, 3)
				for i, s := range servers {
					pools[i] = newPool(t, s.Addr())
				}
				rl := redlock.New(pools...)
				defer func() { assert.NoError(t, rl.Close()) }()
				m := rl.NewMutex("k", redlock.WithFencing())
				flush := func() {
					for _, s := range servers[:flushed] {
						s.Must("SCRIPT", "FLUSH")
					}
				}
				for range 2 {
					flush()
					require.NoError(t, m.Lock())
					flush()
					_, err := m.Extend()
					require.NoError(t, err)
					flush()
					_, err = m.Valid()
					require.NoError(t, err)
					flush()
					_, err = m.Unlock()
					require.NoError(t, err)
					for i, s := range servers {
						eventually(t, fmt.Sprintf("no key on server %d", i), func() bool { return s.Must("EXISTS", "k") == int64(0) })
					}
				}
			})
		}
	}
}
