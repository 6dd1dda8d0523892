//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// scene is real nodes with 10,000 keys beside the locks, and locks on them with the prefix "app:".
type scene struct {
	*cluster
	servers []*redistest.Server
	locks   *redlock.Redlock
}

func newScene(t *testing.T, n int) *scene {
	t.Helper()
	s := &scene{servers: redistest.Start(t, n)}
	var pools []pool.Pool
	var addrs []string
	for _, server := range s.servers {
		addrs = append(addrs, server.Addr())
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		pools = append(pools, goredis.NewPool(client))
		server.Must("EVAL", `for i = 1, 4000 do
	redis.call('SET', 'app:text' .. i, 'x' .. i, 'PX', 1000000)
	redis.call('HSET', 'app:hash' .. i, 'a', 'b')
	if i % 2 == 0 then redis.call('SET', 'other' .. i, 'AAAAAAAAAAAAAAAAAAAAAA==') end
end`, "0")
	}
	s.cluster = &cluster{list: strings.Join(addrs, ",")}
	s.locks = redlock.New(pools...).With(redlock.WithKeyPrefix("app:"),
		redlock.WithExpiry(time.Hour), redlock.WithTries(redlock.Unlimited))
	t.Cleanup(func() { _ = s.locks.Close() })
	return s
}

// lock takes a lock on all nodes that can.
func (s *scene) lock(t *testing.T, name string, opts ...redlock.Option) *redlock.Mutex {
	t.Helper()
	m := s.locks.NewMutex(name, opts...)
	require.NoError(t, m.Lock())
	return m
}

// crowd puts waiters into the queues of all nodes, an hour apart, and returns who they are.
func (s *scene) crowd(t *testing.T, name string, n int) (owners []string) {
	t.Helper()
	began := time.Now().Add(-time.Duration(n) * time.Hour)
	for i := range n {
		owner := fmt.Sprint("waiter ", i)
		owners = append(owners, owner)
		for _, server := range s.servers {
			server.Must("ZADD", wire.QueueKey("app:"+name),
				strconv.FormatInt(began.Add(time.Duration(i)*time.Hour).UnixMicro(), 10),
				wire.TurnChannel+strings.Repeat("A", 26)+fmt.Sprint(i)+wire.Ending(owner, false))
		}
	}
	return owners
}

// soon wants see to return within a second, unless the machine itself was late.
func soon(t *testing.T, pulse *redistest.Pulse, what string, see func()) {
	t.Helper()
	pulse.Worst()
	began := time.Now()
	see()
	took := time.Since(began)
	if worst := pulse.Worst(); took > time.Second && worst > 50*time.Millisecond {
		t.Logf("%s: seen after %v on a machine that is %v late", what, took, worst)
		return
	}
	assert.LessOrEqual(t, took, time.Second, what)
}

// listed is what status -json says without a name.
type listed struct {
	Nodes []struct{ Addr, Error string }
	Locks []struct {
		Name, Verdict, Owner string
		Votes, Waiting       int
		TTL                  int64 `json:"ttl_ms"`
		Token                uint64
	}
	Complete bool
}

// list runs status until enough nodes have answered: a busy machine may answer too late.
func (s *scene) list(t *testing.T, args ...string) (l listed) {
	t.Helper()
	require.Eventually(t, func() bool {
		out, _, status := result(t, command(t, s.cluster,
			append([]string{"status", "-prefix", "app:", "-json"}, args...)...))
		require.NoError(t, json.Unmarshal([]byte(out), &l), out)
		return status == 0
	}, patient, time.Millisecond)
	return l
}

// Status without a name tells what is locked under a prefix, and only that, whichever minority of
// nodes is dead, frozen or full, with 10,000 keys beside.
func TestStatusListsWhatIsLocked(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			s := newScene(t, n)
			s.lock(t, "owned", redlock.WithOwner("web-3:4711"))
			s.lock(t, "plain", redlock.WithFencing(), redlock.WithFencePerName())
			s.lock(t, "read", redlock.WithShared())
			left := s.lock(t, "left")
			s.crowd(t, "owned", 200)
			_, err := left.Unlock()
			require.NoError(t, err)
			if n > 1 {
				s.servers[0].Kill()
			}
			if n > 3 {
				s.servers[1].Freeze()
				t.Cleanup(s.servers[1].Thaw)
			}
			l := s.list(t, "-fence-per-name")
			assert.True(t, l.Complete)
			require.Len(t, l.Locks, 3, "%+v", l)
			owned, plain, read := l.Locks[0], l.Locks[1], l.Locks[2]
			assert.Equal(t, []string{"owned", "plain", "read"},
				[]string{owned.Name, plain.Name, read.Name})
			assert.Equal(t, "held", owned.Verdict)
			assert.Equal(t, "web-3:4711", owned.Owner)
			assert.Equal(t, 200, owned.Waiting)
			assert.InDelta(t, time.Hour.Milliseconds(), owned.TTL, 6e5)
			assert.Positive(t, plain.Token)
			assert.Zero(t, owned.Token)
			assert.Equal(t, "shared", read.Verdict)
			assert.Equal(t, min(n, n/2+1), len(slices.DeleteFunc(l.Nodes,
				func(n struct{ Addr, Error string }) bool { return n.Error != "" })))

			out, _, status := result(t, command(t, s.cluster, "top", "-prefix", "app:"))
			assert.Zero(t, status)
			assert.Contains(t, out, "web-3:4711")
			assert.NotContains(t, out, "\x1b", "plain text where the output is no terminal")
			for _, server := range s.servers[n/2:] {
				server.Must("FLUSHALL")
			}
			assert.Empty(t, s.list(t).Locks)
		})
	}
}

// A full node answers, and what it has is counted.
func TestStatusWithAFullNode(t *testing.T) {
	s := newScene(t, 3)
	s.servers[0].Must("CONFIG", "SET", "maxmemory", "1")
	s.lock(t, "job", redlock.WithOwner("ada"))
	l := s.list(t)
	require.Len(t, l.Locks, 1)
	assert.Equal(t, "ada", l.Locks[0].Owner)
	assert.Equal(t, 2, l.Locks[0].Votes)
	out, _, _ := result(t, command(t, s.cluster, "status", "-prefix", "app:"))
	assert.Regexp(t, `\d{6,} % of 0.0 MB`, out)
}

// It stops in a great number of keys, and says so.
func TestStatusSaysWhereItStopped(t *testing.T) {
	s := newScene(t, 1)
	s.servers[0].Must("EVAL", `for i = 1, 200000 do redis.call('SET', 'x' .. i, '') end`, "0")
	out, _, status := result(t, command(t, s.cluster, "status", "-prefix", "app:"))
	assert.Zero(t, status)
	assert.Contains(t, out, "Stopped after 100000 keys")
	assert.False(t, s.list(t).Complete)
}

// Of 200 that wait, status names the first, and -json all. No secret is told: neither a value nor
// a place in the queue.
func TestStatusTellsWhoWaits(t *testing.T) {
	s := newScene(t, 3)
	m := s.lock(t, "job", redlock.WithOwner("ada"))
	s.crowd(t, "job", 199)
	watch := command(t, s.cluster, "watch", "-prefix", "app:", "job")
	seen, wait := background(t, watch)
	next := func(want string) {
		t.Helper()
		for text := ""; !strings.Contains(text, want); {
			text = line(t, seen)
		}
	}
	next("199 in the queue, the first for 199h")
	owners := s.crowd(t, "job", 200)
	next("200 in the queue, the first for 200h")
	require.NoError(t, watch.Process.Signal(os.Interrupt))
	assert.Equal(t, 128+2, wait())
	out, _, status := result(t, command(t, s.cluster, "status", "-prefix", "app:", "job"))
	assert.Zero(t, status)
	assert.Contains(t, out, "200 in the queue, the first for 200h0m")
	assert.Contains(t, out, `"waiter 0" "waiter 1"`)
	inJSON, _, _ := result(t, command(t, s.cluster, "status", "-prefix", "app:", "-json", "job"))
	var told struct {
		Owner   string
		Waiters []struct {
			Owner string
			Since time.Time
		}
	}
	require.NoError(t, json.Unmarshal([]byte(inJSON), &told))
	assert.Equal(t, "ada", told.Owner)
	for i, w := range told.Waiters {
		assert.Equal(t, owners[i], w.Owner)
	}
	assert.Len(t, told.Waiters, 200)
	list, _, _ := result(t, command(t, s.cluster, "status", "-prefix", "app:"))
	random := m.Value()[len("ada:"):]
	for _, text := range []string{out, inJSON, list} {
		assert.NotContains(t, text, random)
		assert.NotContains(t, text, wire.TurnChannel)
	}
}

// Watch and status tell of each change within a second, whichever minority of nodes is dead or
// frozen, with 10,000 keys beside and 200 that wait.
func TestWatchAndStatusAreRightWithinASecond(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			s := newScene(t, n)
			pulse := redistest.TakePulse(t, s.servers[n-1])
			watch := command(t, s.cluster, "watch", "-prefix", "app:", "job")
			seen, wait := background(t, watch)
			next := func(want string) {
				t.Helper()
				soon(t, pulse, want, func() {
					for !strings.Contains(line(t, seen), want) {
					}
				})
				soon(t, pulse, "status: "+want, func() {
					status := command(t, s.cluster, "status", "-prefix", "app:", "job")
					out, _, _ := result(t, status)
					assert.Contains(t, out, want)
				})
			}
			for !strings.Contains(line(t, seen), "free") {
			}
			m := s.lock(t, "job", redlock.WithOwner("ada"))
			next(`held by "ada:`)
			s.crowd(t, "job", 200)
			next("200 in the queue, the first for 200h")
			if n > 1 {
				s.servers[0].Kill()
			}
			if n > 3 {
				s.servers[1].Freeze()
				t.Cleanup(s.servers[1].Thaw)
			}
			for _, server := range s.servers[n/2:] {
				server.Must("DEL", "app:job", wire.QueueKey("app:job"))
			}
			next("free")
			_, err := m.Unlock()
			assert.ErrorIs(t, err, redlock.ErrExpired)
			s.lock(t, "job", redlock.WithOwner("eve"))
			next(`held by "eve:`)
			require.NoError(t, watch.Process.Signal(os.Interrupt))
			assert.Equal(t, 128+2, wait())
		})
	}
}

// The commands of a view need no right that docs/rights.md does not give them.
func TestViewsNeedTheRightsOfThePage(t *testing.T) {
	s := newScene(t, 1)
	page, err := os.ReadFile("../../docs/rights.md")
	require.NoError(t, err)
	rights := []string{"ACL", "SETUSER", "app", "on", ">pw", "-@all", "~app:*"}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `Inspect`") || strings.HasPrefix(line, "| `redlock top`") {
			for _, word := range strings.Fields(line) {
				if strings.HasPrefix(word, "`+") {
					rights = append(rights, strings.Trim(word, "`"))
				}
			}
		}
	}
	s.servers[0].Must(rights...)
	s.lock(t, "job", redlock.WithOwner("ada"))
	s.crowd(t, "job", 3)
	user := &cluster{list: "redis://app:pw@" + s.servers[0].Addr()}
	for _, args := range [][]string{{"status", "job"}, {"status"}, {"top"}} {
		out, errs, status := result(t, command(t, user,
			append([]string{args[0], "-prefix", "app:"}, args[1:]...)...))
		assert.Zero(t, status, errs)
		assert.Contains(t, out, "ada")
		assert.Contains(t, out, "3")
		for _, entry := range s.servers[0].Must("ACL", "LOG").([]any) {
			assert.Contains(t, fmt.Sprint(entry), "client|", "setinfo alone is denied")
		}
	}
	s.servers[0].Must("ACL", "SETUSER", "app", "-time", "-info")
	out, _, status := result(t, command(t, user, "status", "-prefix", "app:"))
	assert.Zero(t, status)
	assert.Contains(t, out, "NOPERM")
	assert.Contains(t, out, "ada", "the locks are seen nevertheless")
}

// Without -owner, the holder of a lock and those who wait for it are named by host and process.
func TestTheOwnerIsHostAndProcess(t *testing.T) {
	nodes, locks := setup(t)
	host, err := os.Hostname()
	require.NoError(t, err)
	first := underLock(t, nodes, "--", "sh", "-c", "echo ready; exec sleep 600")
	lines, wait := background(t, first)
	assert.Equal(t, "ready", line(t, lines))
	owner := fmt.Sprintf("%s:%d", host, first.Process.Pid)
	assert.Equal(t, owner, inspect(t, locks, "job").Owner)

	out, _, _ := result(t, command(t, nodes, "status"))
	assert.Contains(t, out, owner, "in a list, too")

	second := underLock(t, nodes, "-owner", "the other", "--", "true")
	_, waitSecond := background(t, second)
	require.Eventually(t, func() bool {
		in := inspect(t, locks, "job")
		return len(in.Waiters) == 1 && in.Waiters[0].Owner == "the other"
	}, patient, 10*time.Millisecond)
	_, errs, status := result(t, command(t, nodes, "run", "-name", "job", "--", "true"))
	assert.NotZero(t, status)
	if status == exitTaken { // else the machine is too busy for a single try
		assert.Contains(t, errs, owner)
	}
	require.NoError(t, first.Process.Signal(os.Interrupt))
	wait()
	assert.Zero(t, waitSecond())
}
