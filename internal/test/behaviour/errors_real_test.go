package behaviour_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/hashicorp/go-multierror"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/redigo"
)

// adapters make a pool of a real server's address, with the client's default options. The address
// may begin with "user:password@".
var adapters = map[string]func(t testing.TB, addr string) pool.Pool{
	"goredis": func(t testing.TB, addr string) pool.Pool {
		addr, user, password := login(addr)
		c := goredislib.NewClient(&goredislib.Options{Addr: addr, Username: user,
			Password: password})
		t.Cleanup(func() { _ = c.Close() })
		return goredis.NewPool(c)
	},
	"redigo": func(t testing.TB, addr string) pool.Pool {
		addr, user, password := login(addr)
		p := &redis.Pool{MaxIdle: 3, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, redis.DialUsername(user),
				redis.DialPassword(password))
		}}
		t.Cleanup(func() { _ = p.Close() })
		return redigo.NewPoolAt(addr, p)
	},
}

// login takes an address apart.
func login(address string) (addr, user, password string) {
	before, addr, ok := strings.Cut(address, "@")
	if !ok {
		return address, "", ""
	}
	user, password, _ = strings.Cut(before, ":")
	return addr, user, password
}

// hungUp stands for what a client makes of a server that says "ERR max number of clients reached"
// and hangs up at once: usually it finds the connection closed before it has read that.
const (
	hungUp = "ERR max number of clients reached|" + cut
	cut    = "broken pipe|connection reset|EOF"
	// silence is what is said of a server that does not answer.
	silence = "no answer within|deadline exceeded|i/o timeout"
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

// byName returns what Redis says of itself, or a server that was made from it, as alternatives.
func byName(redis string) string {
	return redis + "|" + strings.ReplaceAll(redis, "Redis", "Valkey") +
		"|" + strings.ReplaceAll(redis, "Redis", "Redict")
}

// serverFault is a state of a server in which it answers with errors, and what a lock's commands
// get to hear then; "" for a command that still works.
type serverFault struct {
	opts                  []redistest.Option
	login                 string // of the clients
	prepare               func(t *testing.T, s *redistest.Server)
	inject, heal          func(t *testing.T, s *redistest.Server)
	lock, extend, release string
	// What a fenced lock hears when it acts, if that is not what lock says.
	fenced  string
	cluster bool // a fenced lock has a counter per name
	apart   bool // it leaves traces, or takes long
}

// run makes a step of commands.
func run(commands string) func(*testing.T, *redistest.Server) {
	return func(_ *testing.T, s *redistest.Server) {
		for command := range strings.SplitSeq(commands, ";") {
			s.Must(strings.Fields(command)...)
		}
	}
}

// set makes a fault of two configurations.
func set(inject, heal string) serverFault {
	return serverFault{inject: run(inject), heal: run(heal)}
}

func (f serverFault) says(lock, extend, release string) serverFault {
	f.lock, f.extend, f.release = lock, extend, release
	return f
}

func (f serverFault) setApart() serverFault {
	f.apart = true
	return f
}

func (f serverFault) saysFenced(lock string) serverFault {
	f.fenced = lock
	return f
}

// mustClose closes all of rls at once. Everything must end soon, but may take its time on a busy
// machine.
func mustClose(t *testing.T, rls ...*redlock.Redlock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var closing sync.WaitGroup
	for _, rl := range rls {
		closing.Go(func() { assert.NoError(t, rl.CloseContext(ctx)) })
	}
	closing.Wait()
}

// drop closes all of rls, and does not wait for what is pending for nodes in trouble: that takes up
// to two node timeouts.
func drop(rls ...*redlock.Redlock) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, rl := range rls {
		_ = rl.CloseContext(over) // which says what it has left
	}
}

// eventually waits for a condition that a server reaches by itself. It waits for longer than a
// lock of [redlock.DefaultExpiry] lasts: a test that waits for a key to go gives it an expiry of
// a minute. f runs on the test's goroutine, and may end the test.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	err := redistest.Poll(func() error {
		if !f() {
			return fmt.Errorf("waited too long for %s", what)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What servers of several kinds and versions say.
const (
	noScripts = "NOPERM this user has no permissions to run the 'eval|NOPERM User default has no " +
		"permissions to run the 'eval"
	noKey = "NOPERM this user has no permissions to access one of the keys|NOPERM No " +
		"permissions to access a key"
	noCommand = "ERR The user executing the script can't run this command or subcommand|ERR ACL " +
		"failure in script"
)

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
		says("READONLY You can't write", "MASTERDOWN Link with MASTER is down",
			"MASTERDOWN Link with MASTER is down").
		saysFenced("MASTERDOWN Link with MASTER is down"),
	"NOAUTH": set(
		"CONFIG SET requirepass secret;CLIENT KILL TYPE normal",
		"CONFIG SET requirepass nothing;ACL SETUSER default nopass").
		says("NOAUTH ", "NOAUTH ", "NOAUTH "),
	"NOPERM on the key": set("ACL SETUSER default resetkeys ~other:*", "ACL SETUSER default ~*").
		says(noKey, noKey, noKey),
	"NOPERM on scripts": {
		inject: run("ACL SETUSER default -eval -evalsha"),
		heal:   run("ACL SETUSER default +eval +evalsha"),
		fenced: noScripts, extend: noScripts, release: noScripts,
	},
	"WRONGPASS": {
		login:   "locker:secret@",
		prepare: run("ACL SETUSER locker on >secret ~* &* +@all"),
		inject:  run("ACL SETUSER locker resetpass >other;CLIENT KILL USER locker"),
		heal:    run("ACL SETUSER locker >secret"),
		lock:    "WRONGPASS invalid username-password pair", extend: "WRONGPASS",
		release: "WRONGPASS",
	},
	"CLIENT PAUSE": set("CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE").says(silence, silence,
		silence).setApart(),
	"NOPERM inside scripts": set("ACL SETUSER default -del -pexpire",
		"ACL SETUSER default +del +pexpire").
		says("", noCommand, noCommand),
	"maxclients": set("CONFIG SET maxclients 1;CLIENT KILL TYPE normal",
		"CONFIG SET maxclients 10000").
		says(hungUp, hungUp, hungUp).setApart(),
	"SCRIPT FLUSH": set("SCRIPT FLUSH", "PING"),
	"MISCONF": {
		apart: true,
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
		heal:   func(_ *testing.T, s *redistest.Server) { s.Must("CONFIG", "SET", "save", "") },
		lock:   byName("MISCONF Redis is configured to save RDB snapshots"),
		extend: "MISCONF", release: "MISCONF",
	},
	"MISCONF, full disk": {
		apart: true,
		inject: func(t *testing.T, s *redistest.Server) {
			if _, err := os.Stat("/dev/full"); err != nil {
				t.Skip("needs a device that is always full: ", err)
			}
			dir := filepath.Join(s.Dir(), "appendonlydir")
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.Symlink("/dev/full",
				filepath.Join(dir, "temp-appendonly.aof.incr")))
			s.Must("CONFIG", "SET", "appendonly", "yes")
			eventually(t, "a failed write to the AOF", func() bool {
				_, _ = s.Do("SET", "filler", "v", "PX", "1")
				info, _ := s.Must("INFO", "persistence").(string)
				return strings.Contains(info, "aof_last_write_status:err")
			})
		},
		heal: run("CONFIG SET appendonly no"),
		lock: "MISCONF Errors writing to the AOF file: No space left on device", extend: "MISCONF",
		release: "MISCONF",
	},
	"BUSY": {
		apart: true,
		opts:  []redistest.Option{redistest.Args("--busy-reply-threshold", "20")},
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
		lock:   byName("BUSY Redis is busy"),
		extend: "BUSY", release: "BUSY",
	},
	"LOADING": {
		apart: true,
		opts: []redistest.Option{redistest.Args("--rdbcompression", "no",
			"--loading-process-events-interval-bytes", "1024")},
		prepare: func(_ *testing.T, s *redistest.Server) {
			s.Must("DEBUG", "POPULATE", "1500", "key", "2048")
		},
		inject: func(_ *testing.T, s *redistest.Server) {
			s.Must("SAVE")
			// While it loads, a server sleeps 20 ms before each key, and answers after it: this
			// takes half a minute, in which another server is restarted.
			s.Restart(redistest.Loading(), redistest.Args("--key-load-delay", "20000"))
		},
		heal:   func(_ *testing.T, s *redistest.Server) { s.Restart() },
		lock:   byName("LOADING Redis is loading the dataset"),
		extend: "LOADING", release: "LOADING",
	},
	"CLUSTERDOWN": {
		apart:   true,
		cluster: true,
		opts: []redistest.Option{redistest.Args("--cluster-enabled", "yes",
			"--cluster-node-timeout", "500")},
		prepare: func(t *testing.T, s *redistest.Server) {
			s.Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
			clusterReady(t, s)
		},
		inject: func(_ *testing.T, s *redistest.Server) {
			s.Must("CLUSTER", "DELSLOTSRANGE", "0",
				"16383")
		},
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
	if fault.lock == silence {
		return // a client does not notice before it gives up
	}
	eventually(t, "a client that has noticed", func() bool {
		_, err := p.SetNX(t.Context(), "settled", "v", time.Millisecond)
		if fault.lock == "" {
			return err == nil || strings.Contains(err.Error(), "NOPERM")
		}
		return err != nil && mentions(err.Error(), fault.lock)
	})
}

// fresh is the outcome of op on connections that are as old as the fault: a client that keeps
// several may find one more that was cut when the fault began.
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
	said := map[int]*redlock.NodeError{}
	for _, e := range all.Errors {
		var n *redlock.NodeError
		require.ErrorAs(t, e, &n)
		said[n.Node] = n
	}
	for node, text := range texts {
		n := said[node]
		require.NotNil(t, n, "node %d says nothing", node)
		assert.True(t, mentions(n.Err.Error(), text), "node %d says %q, not %q", node, n.Err, text)
		assert.ErrorContains(t, err, fmt.Sprintf("node %d (%s): %v", node, n.Addr, n.Err))
		assert.Regexp(t, `^127\.0\.0\.1:\d+$`, n.Addr)
	}
}

// lesson L43: with a minority of servers in trouble, a lock works; with a majority, the error
// says who is in what trouble; when it is over, the same mutex goes on.
// lesson L90: what servers of several kinds and versions say is known.
func TestServerErrors(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	for name, fault := range serverFaults {
		if fault.apart {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testServerError(t, redistest.Start(t, 3, fault.opts...), name, fault)
			})
		}
	}
	// A start costs more than the rest: the others share servers, one after another.
	t.Run("shared", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 3)
		for name, fault := range serverFaults {
			if fault.apart {
				continue
			}
			t.Run(name, func(t *testing.T) { testServerError(t, servers, name, fault) })
			for _, s := range servers {
				s.Must("FLUSHALL")
				s.Must("SCRIPT", "FLUSH")
			}
		}
	})
}

func testServerError(t *testing.T, servers []*redistest.Server, name string, fault serverFault) {
	if fault.prepare != nil {
		for _, s := range servers {
			fault.prepare(t, s)
		}
	}
	timeout := 5 * time.Second // a server that loads answers once in a while, on a busy machine
	if fault.lock == silence {
		timeout = 1500 * time.Millisecond // is used up by every call
	}
	var kinds []*faultyLocks
	var all []*redlock.Redlock
	defer func() { drop(all...) }()
	for client, newPool := range adapters {
		plain := &faultyLocks{trouble: name, kind: client + " plain", fault: fault,
			servers: servers}
		for _, s := range servers {
			plain.pools = append(plain.pools, newPool(t, fault.login+s.Addr()))
		}
		plain.rl = redlock.New(plain.pools...).With(redlock.WithExpiry(time.Minute),
			redlock.WithNodeTimeout(timeout))
		all = append(all, plain.rl)
		fenced := *plain
		fenced.kind, fenced.rl, fenced.fenced = client+" fenced",
			plain.rl.With(redlock.WithFencing()), true
		if fault.cluster {
			fenced.rl = fenced.rl.With(redlock.WithFencePerName())
		}
		if fault.fenced != "" {
			fenced.fault.lock = fault.fenced
		}
		kinds = append(kinds, plain, &fenced)
	}
	each := func(when string, f func(l *faultyLocks, t *testing.T)) {
		passed := t.Run(when, func(t *testing.T) {
			for _, l := range kinds {
				t.Run(l.kind, func(t *testing.T) {
					t.Parallel()
					f(l, t)
				})
			}
		})
		if !passed {
			t.FailNow()
		}
	}
	noticed := func(i int, fault serverFault) {
		for _, l := range kinds {
			settled(t, l.pools[i], fault)
		}
	}
	each("before", (*faultyLocks).begin)
	fault.inject(t, servers[0])
	noticed(0, fault)
	each("one of three", (*faultyLocks).outvoteOne)
	fault.inject(t, servers[1])
	noticed(1, fault)
	each("two of three", (*faultyLocks).failWithTwo)
	for i := range 2 {
		fault.heal(t, servers[i])
		noticed(i, serverFault{})
	}
	each("after", (*faultyLocks).goOn)
}

// faultyLocks are the locks of one kind on three servers that get into trouble.
type faultyLocks struct {
	trouble     string // a name, because a lock of an earlier trouble may be set late
	kind        string
	fenced      bool
	fault       serverFault
	servers     []*redistest.Server
	pools       []pool.Pool
	rl          *redlock.Redlock
	held, other *redlock.Mutex
}

func (l *faultyLocks) mutex(name string) *redlock.Mutex {
	return l.rl.NewMutex(l.trouble + " " + l.kind + " " + name)
}

// locked waits until servers have a lock: it is granted before the slowest has answered, and one
// that took longer than the node timeout is not asked any more before the next extension.
func (l *faultyLocks) locked(t *testing.T, m *redlock.Mutex, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		eventually(t, "the lock on each server", func() bool {
			if s.Must("EXISTS", m.Name()) == int64(1) {
				return true
			}
			_, _ = m.Extend()
			return false
		})
	}
}

func (l *faultyLocks) begin(t *testing.T) {
	l.held, l.other = l.mutex("held"), l.mutex("other")
	for _, m := range []*redlock.Mutex{l.held, l.other} {
		require.NoError(t, m.Lock())
		l.locked(t, m, l.servers...)
	}
}

// outvoteOne is with one of three in trouble.
func (l *faultyLocks) outvoteOne(t *testing.T) {
	_, err := l.held.Extend()
	require.NoError(t, err)
	_, err = l.other.Unlock()
	require.NoError(t, err)
	m := l.mutex("minority")
	// What one healthy server has counted, so that the other has to be told.
	const last = "9000000000000000"
	counter := fenceOf(m.Name())
	if l.fault.cluster {
		counter = "{" + m.Name() + "}:fence"
	}
	l.servers[1].Must("SET", counter, last)
	require.NoError(t, m.TryLock())
	if l.fenced && l.fault.lock != "" {
		assert.EqualValues(t, uint64(9000000000000001), m.FencingToken())
		assert.Equal(t, "9000000000000001", l.servers[2].Must("GET", counter))
	}
	// Or the quorum might be one healthy server and the one in trouble.
	l.locked(t, m, l.servers[1:]...)
	_, err = m.Unlock()
	require.NoError(t, err)

	// One in trouble, one where it is taken: only together do they prevent the lock. Two have
	// answered, which is a quorum.
	m = l.mutex("half")
	l.servers[1].Must("SET", m.Name(), "somebody")
	eventually(t, "a try in which the third answers in time", func() bool {
		err = fresh(l.fault, m.TryLock)
		// On a busy machine it may not be waited for, or be silent like the one in trouble.
		return err == nil || !strings.Contains(err.Error(), "no answer yet") &&
			strings.Count(err.Error(), "no answer within") < 2
	})
	if l.fault.lock == "" {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, redlock.ErrTaken)
		saysOf(t, err, map[int]string{0: l.fault.lock, 1: "taken"})
	}
}

func (l *faultyLocks) extend() error {
	_, err := l.held.Extend()
	return err
}

func (l *faultyLocks) unlock() error {
	_, err := l.held.Unlock()
	return err
}

// failWithTwo is with two of three in trouble.
func (l *faultyLocks) failWithTwo(t *testing.T) {
	err := fresh(l.fault, l.mutex("majority").TryLock)
	if l.fault.lock == "" {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, redlock.ErrFailed)
		require.NotErrorIs(t, err, redlock.ErrTaken)
		saysOf(t, err, map[int]string{0: l.fault.lock, 1: l.fault.lock})
	}
	until := l.held.Until()
	err = fresh(l.fault, l.extend)
	if l.fault.extend == "" {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		saysOf(t, err, map[int]string{0: l.fault.extend, 1: l.fault.extend})
		assert.Equal(t, until, l.held.Until(), "a failed extension leaves the validity as it was")
	}
	err = fresh(l.fault, l.unlock)
	if l.fault.release == "" {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		saysOf(t, err, map[int]string{0: l.fault.release, 1: l.fault.release})
	}
}

// goOn is when it is over.
func (l *faultyLocks) goOn(t *testing.T) {
	if l.fault.release != "" {
		// The first Unlock may have deleted the key on one server after it had returned, or in
		// its second try; then there is nothing left for this one to confirm.
		if err := fresh(serverFault{}, l.unlock); err != nil {
			require.ErrorIs(t, err, redlock.ErrExpired, "the second Unlock finishes")
		}
	}
	require.NoError(t, fresh(serverFault{}, l.held.TryLock), "what was released is free")
	require.NoError(t, l.unlock())
}

// lesson L46: data of another kind under the lock's key.
func TestWrongType(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 3)
			pools := make([]pool.Pool, 3)
			for i, s := range servers {
				pools[i] = newPool(t, s.Addr())
			}
			rl := redlock.New(pools...).With(patient)
			defer mustClose(t, rl)
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
			// lesson L81: with a plain SET NX and with a script, the error says what is in the
			// way on two of three.
			for _, lock := range []func() error{
				m.TryLock, rl.NewMutex("k", redlock.WithFencing()).TryLock,
				rl.NewMutex("k", redlock.WithTries(2)).Lock,
			} {
				// lesson L97: SET NX does not look at what is in the way, and a server of a busy
				// machine may be asked too late.
				eventually(t, "an answer of both in time", func() bool {
					err = lock()
					return strings.Count(err.Error(), "WRONGTYPE") == 2
				})
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				assert.NotErrorIs(t, err, redlock.ErrTaken)
				saysOf(t, err, map[int]string{0: "WRONGTYPE", 1: "WRONGTYPE"})
			}
			for _, s := range servers[:2] {
				assert.Equal(t, "list", s.Must("TYPE", "k"), "the data is left alone")
			}
		})
	}
}

// lesson L39, L42: between any two operations the scripts are forgotten, connections are cut, or
// servers end in order.
func TestScriptFlushAndCutsBetweenOperations(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	for name, trouble := range map[string]func(s *redistest.Server){
		"SCRIPT FLUSH": func(s *redistest.Server) { s.Must("SCRIPT", "FLUSH") },
		"CLIENT KILL": func(s *redistest.Server) {
			s.Must("CLIENT", "KILL", "TYPE", "normal",
				"SKIPME", "yes")
		},
		"SHUTDOWN": func(s *redistest.Server) { s.Stop(); s.Restart() },
	} {
		for client, newPool := range adapters {
			t.Run(name+"/"+client, func(t *testing.T) {
				t.Parallel()
				servers := redistest.Start(t, 3, redistest.AOF())
				for some := 1; some <= 3; some += 2 {
					t.Run(fmt.Sprintf("%d of 3", some), func(t *testing.T) {
						// Without TestOnBorrow, redigo sends the first command after a cut to
						// nobody.
						testTroubleBetween(t, newPool, servers, trouble, some, client == "redigo")
					})
				}
			})
		}
	}
}

func testTroubleBetween(t *testing.T, newPool func(testing.TB, string) pool.Pool,
	servers []*redistest.Server, trouble func(*redistest.Server), some int, again bool) {
	pools := make([]pool.Pool, 3)
	for i, s := range servers {
		pools[i] = newPool(t, s.Addr())
	}
	rl := redlock.New(pools...)
	defer drop(rl)
	name := fmt.Sprint("k", some) // because a lock of an earlier trial may be set late
	m := rl.NewMutex(name, redlock.WithFencing(), redlock.WithExpiry(time.Minute),
		redlock.WithNodeTimeout(5*time.Second))
	for _, step := range []struct {
		name string
		call func() error
	}{
		{"Lock", m.Lock},
		{"Extend", func() error { _, err := m.Extend(); return err }},
		{"Valid", func() error { _, err := m.Valid(); return err }},
		{"Unlock", func() error { _, err := m.Unlock(); return err }},
	} {
		for _, s := range servers[:some] {
			trouble(s)
		}
		err := step.call()
		if again && err != nil {
			err = fresh(serverFault{}, step.call)
		}
		require.NoError(t, err, step.name)
	}
	for i, s := range servers {
		eventually(t, fmt.Sprintf("no key on server %d", i),
			func() bool { return s.Must("EXISTS", name) == int64(0) })
	}
}

// check runs Check, and returns the report and its findings as "severity code nodes".
func check(t *testing.T, rl *redlock.Redlock) (report *doctor.Report, found []string) {
	t.Helper()
	report, err := doctor.Check(t.Context(), rl)
	require.NoError(t, err)
	t.Log(report)
	for _, f := range report.Findings {
		found = append(found, fmt.Sprint(f.Severity, " ", f.Code, " ", f.Nodes))
	}
	return report, found
}

// What a server refuses although the user may, Check finds.
func TestCheckFindsServersThatRefuse(t *testing.T) {
	t.Parallel()
	shared := redistest.Start(t, 3, redistest.AOF())
	for name, want := range map[string][]string{
		"OOM":         {"warning oom [1]"},
		"NOREPLICAS":  {"warning noreplicas [1]"},
		"MISCONF":     {"warning misconf [1]"},
		"NOAUTH":      {"warning noauth [1]"},
		"BUSY":        {"warning busy [1]"},
		"READONLY":    {"critical replica [1]"}, // said once
		"CLUSTERDOWN": {"warning cluster [0 1 2]", "warning clusterdown [1]"},
	} {
		f := serverFaults[name]
		if f.apart {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				servers := redistest.Start(t, 3, append(f.opts, redistest.AOF())...)
				checkFindsFault(t, servers, name, want)
			})
			continue
		}
		t.Run(name, func(t *testing.T) { checkFindsFault(t, shared, name, want) })
	}
}

// checkFindsFault puts the second of three servers in trouble and out of it.
func checkFindsFault(t *testing.T, servers []*redistest.Server, name string, want []string) {
	f := serverFaults[name]
	for _, s := range servers {
		if f.prepare != nil {
			f.prepare(t, s)
		}
	}
	var pools []pool.Pool
	for _, s := range servers {
		pools = append(pools, adapters["goredis"](t, s.Addr()))
	}
	// Close would wait for what is pending for the server in trouble, for two node timeouts.
	rl := redlock.New(pools...).With(veryPatient)
	f.inject(t, servers[1])
	r, found := check(t, rl)
	assert.ErrorContains(t, r.Nodes[1].Err, "acquire: "+name)
	assert.Equal(t, want, found)
	f.heal(t, servers[1])
	r, _ = check(t, rl)
	assert.NoError(t, r.Nodes[1].Err)
}
