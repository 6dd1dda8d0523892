package scripts_test

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// lesson L38
func TestScriptIDs(t *testing.T) {
	compare := func(t *testing.T, node redistest.Node) {
		for _, s := range redlock.Scripts() {
			assert.Equal(t, node.Must("SCRIPT", "LOAD", s.Source), s.ID, s.Name)
		}
	}
	t.Run("server", func(t *testing.T) { compare(t, redistest.Start(t, 1)[0]) })
	t.Run("embedded", func(t *testing.T) { compare(t, redistest.Embedded(t, 1)[0]) })
}

// Many locks at once are released as each of them would be, or left as they are.
func TestReleasesOfManyLocks(t *testing.T) {
	locks := []struct {
		key   string
		setup string
		want  any // null: it is left to the release alone
		gone  bool
	}{
		{"mine", "SET mine v", int64(1), true},
		{"expires", "SET expires v PX 90000", int64(1), true},
		{"absent", "", nil, true},
		{"theirs", "SET theirs w", nil, false},
		{"list", "LPUSH list v", nil, false},
		{"reserved", "SET reserved ~m", nil, false},
		{"awaited", "SET awaited v", nil, false},
		{"mine", "", nil, true}, // it is gone when its turn comes again
	}
	release := func(t *testing.T, node redistest.Node, keys int) {
		var names []string
		for _, l := range locks {
			names = append(names, l.key)
			if l.setup != "" {
				node.Must(strings.Fields(l.setup)...)
			}
		}
		node.Must("ZADD", "awaited:q", "1", "m")
		replies := releaseAll(node, keys, names...).([]any)
		for i, l := range locks {
			if l.key == "awaited" && keys == 1 { // it is told of no queue
				l.want, l.gone = int64(1), true
			}
			assert.Equal(t, l.want, replies[i], l.key)
			assert.Equal(t, l.gone, node.Must("EXISTS", l.key) == int64(0), l.key)
		}
		node.Must("FLUSHALL")
		for _, c := range []struct {
			locks []string
			want  any
			left  int64
		}{
			{[]string{"a"}, int64(1), 2},
			{[]string{"a", "b", "c"}, int64(3), 0},
			{[]string{"a", "b", "a"}, []any{int64(1), int64(1), nil}, 1},
			{[]string{"a w", "a", "a w"}, []any{nil, int64(1), nil}, 2},
			{[]string{"a w", "b w"}, []any{nil, nil}, 3},
		} {
			node.Must("MSET", "a", "v", "b", "v", "c", "v")
			assert.Equal(t, c.want, releaseAll(node, keys, c.locks...), c.locks)
			assert.Equal(t, c.left, node.Must("DBSIZE"), c.locks)
		}
		node.Must("FLUSHALL")
	}
	for keys := 1; keys <= 2; keys++ {
		t.Run(fmt.Sprint(keys, " keys, server"), func(t *testing.T) {
			release(t, redistest.Start(t, 1)[0], keys)
		})
		t.Run(fmt.Sprint(keys, " keys, embedded"), func(t *testing.T) {
			release(t, redistest.Embedded(t, 1)[0], keys)
		})
	}
}

// releaseAll releases locks of the value v, and returns the reply. A lock is its name, or one with
// another value behind it.
func releaseAll(node redistest.Node, keys int, locks ...string) any {
	line := []string{"EVAL", scripts.Releases.Source, strconv.Itoa(keys * len(locks))}
	var queues, values []string
	for _, lock := range locks {
		name, theirs, _ := strings.Cut(lock, " ")
		line, values = append(line, name), append(values, cmp.Or(theirs, "v"))
		queues = append(queues, name+":q")
	}
	if keys == 2 {
		line = append(line, queues...)
	}
	return node.Must(append(line, values...)...)
}

// A reader whose attempt is taken back keeps its place in the queue, or has one again if it had a
// seat. It has none if it was served since. Who is first in the queue is let in at once.
func TestWhoIsBackInTheQueueOfReaders(t *testing.T) {
	member := strings.Repeat("c", 39) + "7*"
	end := strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10)
	unshare := func(t *testing.T, node redistest.Node) {
		for _, s := range []struct {
			why   string
			has   []string
			seats int64
		}{
			{"it waits", []string{"ZADD", "q", "3", member}, 2},
			{"a seat was kept for it", []string{"ZADD", "s", end, "~" + member}, 2},
			{"it had a seat", []string{"ZADD", "s", end, "mine"}, 2},
			{"it was served", []string{"EXISTS", "q"}, 1},
		} {
			node.Must("FLUSHALL")
			node.Must("SET", "k", "~redlock:shared", "PX", "60000")
			node.Must("ZADD", "s", end, "other")
			node.Must(s.has...)
			node.Must("EVAL", scripts.Unshare.Source, "3", "k", "q", "s", "mine", "400", member,
				"3", "60000")
			assert.Equal(t, s.seats, node.Must("ZCARD", "s"), s.why)
			assert.Equal(t, int64(0), node.Must("EXISTS", "q"), s.why)
		}
	}
	t.Run("server", func(t *testing.T) { unshare(t, redistest.Start(t, 1)[0]) })
	t.Run("embedded", func(t *testing.T) { unshare(t, redistest.Embedded(t, 1)[0]) })
}

// The time of a queue begins anew when somebody comes or renews it. To stay is not enough.
func TestWhoRenewsAQueue(t *testing.T) {
	stand := func(t *testing.T, node redistest.Node) {
		node.Must("SET", "k", "held")
		node.Must("SET", "last", "6")
		for _, s := range []struct {
			why                           string
			member, ticket, final, renews string
			gets                          int64
			renewed                       bool
		}{
			{"the first comes", "a", "1", "0", "0", 7, true},
			{"another comes", "b", "1", "0", "0", 8, true},
			{"the first stays", "a", "7", "1", "0", 7, false},
			{"the other takes a ticket before its own", "b", "7", "1", "0", 7, false},
			{"the other stays", "b", "7", "1", "0", 7, false},
			{"the other renews", "b", "7", "1", "1", 7, true},
			{"the last ticket is the greatest", "c", "1", "0", "0", 9, true},
			{"somebody comes with an old ticket", "old", "7", "1", "0", 7, true},
		} {
			for _, key := range []string{"q", "last"} {
				node.Must("PEXPIRE", key, "5000")
			}
			reply := node.Must("EVAL", scripts.Stand.Source, "4", "k", "q", "last", "roll", "400",
				s.member, s.ticket, s.final, "60000", "5", s.renews).([]any)
			assert.Equal(t, s.gets, reply[0], s.why)
			for _, key := range []string{"q", "last"} {
				left := node.Must("PTTL", key).(int64)
				assert.Equal(t, s.renewed, left > 5000, "%s: %s has %d ms", s.why, key, left)
			}
		}
	}
	t.Run("server", func(t *testing.T) { stand(t, redistest.Start(t, 1)[0]) })
	t.Run("embedded", func(t *testing.T) { stand(t, redistest.Embedded(t, 1)[0]) })
}

// What is sent has no comments: they would cost every node that is told a script its time.
func TestCommentsAreNotSent(t *testing.T) {
	for _, s := range redlock.Scripts() {
		assert.NotContains(t, s.Source, "--", s.Name)
		assert.NotEmpty(t, s.Source, s.Name)
	}
}

// heard returns a member of a queue whose channel has a listener until the test ends.
func heard(t *testing.T, node redistest.Node) (member string) {
	conn, err := redis.Dial("tcp", node.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	channel := wire.TurnChannel + strings.Repeat("A", wire.ChannelLength-len(wire.TurnChannel))
	_, err = conn.Do("SUBSCRIBE", channel)
	require.NoError(t, err)
	return channel + "1"
}

// release runs the script of that name as one does who leaves the queue q:queue.
func release(node redistest.Node, key, value, member string) any {
	return node.Must("EVAL", scripts.Release.Source, "2", key, "q:queue", value, "9000", member)
}

// lesson L101: a release takes up a bid for its own key, whatever bid it finds.
func TestABidIsTakenUpForItsOwnKey(t *testing.T) {
	takeUp := func(t *testing.T, node redistest.Node) {
		member := heard(t, node)
		names := []string{"a", "a:{a}", "a a", " a", "a ", "1 a", "1", "", "a\n", "%a", "a\x00"}
		for _, bids := range names {
			for _, released := range names {
				node.Must("FLUSHALL")
				node.Must("SET", released, "held")
				node.Must("EVAL", scripts.Bid.Source, "2", bids, "q:bid", "v w", "9000", member,
					"7", "9000")
				node.Must("ZADD", "q:queue", "1", member)
				assert.Equal(t, int64(2), release(node, released, "held", "another"))
				want := "~" + member
				if bids == released {
					want = "v w"
				}
				assert.Equal(t, want, node.Must("GET", released), "a bid for %q, %q is released",
					bids, released)
			}
		}
	}
	t.Run("server", func(t *testing.T) { takeUp(t, redistest.Start(t, 1)[0]) })
	t.Run("embedded", func(t *testing.T) { takeUp(t, redistest.Embedded(t, 1)[0]) })
}

// lesson L103: one that releases the key and leaves is not in the queue any more, whoever comes
// before it there, and whether it had the key or only a reservation.
func TestOneThatLeavesHasNoPlace(t *testing.T) {
	leave := func(t *testing.T, node redistest.Node) {
		first := heard(t, node)
		for _, has := range []string{"v", "~leaves", "", "another's"} {
			for _, before := range []bool{true, false} {
				node.Must("FLUSHALL")
				if has != "" {
					node.Must("SET", "k", has)
				}
				node.Must("ZADD", "q:queue", "2", "leaves")
				if before {
					node.Must("ZADD", "q:queue", "1", first)
				}
				release(node, "k", "v", "leaves")
				assert.Nil(t, node.Must("ZRANK", "q:queue", "leaves"), "%q %v", has, before)
				if before && (has == "v" || has == "~leaves") {
					assert.Equal(t, "~"+first, node.Must("GET", "k"))
				}
			}
		}
	}
	t.Run("server", func(t *testing.T) { leave(t, redistest.Start(t, 1)[0]) })
	t.Run("embedded", func(t *testing.T) { leave(t, redistest.Embedded(t, 1)[0]) })
}

// A member that takes its place again leaves no key behind where it can have none: on a node that
// is out of memory, or that has something else there, which stays as it is.
func TestAKeyIsReleasedWithoutAPlace(t *testing.T) {
	node := redistest.Start(t, 1)[0]
	queue, member := wire.QueueKey("x"), wire.TurnChannel+strings.Repeat("A", 26)+"1"
	takeBack := func() any {
		v, err := node.Do("EVAL", scripts.Release.Source, "2", "x", queue, "v", "1000", member, "5",
			"60000")
		assert.NoError(t, err)
		return v
	}
	for what, held := range map[string]any{"v": int64(1), "~" + member: int64(0)} {
		node.Must("SET", "x", what)
		node.Must("SET", queue, "something else")
		assert.Equal(t, held, takeBack())
		assert.Equal(t, int64(0), node.Must("EXISTS", "x"))
		assert.Equal(t, int64(-1), node.Must("PTTL", queue))
		node.Must("DEL", queue)

		node.Must("SET", "x", what)
		node.Must("CONFIG", "SET", "maxmemory", "1")
		assert.Equal(t, held, takeBack())
		assert.Equal(t, int64(0), node.Must("EXISTS", "x", queue))
		node.Must("CONFIG", "SET", "maxmemory", "0")

		node.Must("SET", "x", what)
		takeBack()
		assert.Equal(t, "~"+member, node.Must("GET", "x"), "it has its place, and is the first")
		node.Must("DEL", "x", queue)
	}
}
