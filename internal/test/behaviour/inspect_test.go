package behaviour_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// scene makes simulated nodes of a word with one letter each: - for no key, x for an error, r for a
// key that is kept for a process that waits. Any other stands for a key with a value of three such
// letters, which expires after ttl.
func scene(word string, ttl time.Duration) sim.Nodes {
	nodes := sim.NewNodes(len(word))
	for i, c := range word {
		switch c {
		case '-':
		case 'x':
			nodes[i].Always(sim.Fail(errOops))
		case 'r':
			nodes[i].Set("job", "~redlock:turn:"+strings.Repeat("A", 26)+fmt.Sprint(i), ttl)
		default:
			nodes[i].Set("job", strings.Repeat(string(c), 3), ttl)
		}
	}
	return nodes
}

func TestInspectVerdict(t *testing.T) {
	for word, want := range map[string]redlock.Verdict{
		"-":       redlock.VerdictFree,
		"a":       redlock.VerdictHeld,
		"x":       redlock.VerdictUnknown,
		"aa":      redlock.VerdictHeld,
		"a-":      redlock.VerdictSplit,
		"ab":      redlock.VerdictSplit,
		"-x":      redlock.VerdictUnknown,
		"aab":     redlock.VerdictHeld,
		"a--":     redlock.VerdictFree,
		"ab-":     redlock.VerdictSplit,
		"abc":     redlock.VerdictSplit,
		"abx":     redlock.VerdictUnknown,
		"aa--":    redlock.VerdictSplit,
		"aaa-":    redlock.VerdictHeld,
		"a---":    redlock.VerdictFree,
		"aax-":    redlock.VerdictUnknown,
		"abx-":    redlock.VerdictSplit,
		"-----":   redlock.VerdictFree,
		"---xx":   redlock.VerdictFree,
		"aa---":   redlock.VerdictFree,
		"aaaxx":   redlock.VerdictHeld,
		"abaca":   redlock.VerdictHeld,
		"aabb-":   redlock.VerdictSplit,
		"aab--":   redlock.VerdictSplit,
		"abc-x":   redlock.VerdictSplit,
		"aabbx":   redlock.VerdictUnknown,
		"--xab":   redlock.VerdictUnknown,
		"xxxaa":   redlock.VerdictUnknown,
		"xxxxx":   redlock.VerdictUnknown,
		"aaaabbb": redlock.VerdictHeld,
		"aaa---x": redlock.VerdictUnknown,
		"rrr":     redlock.VerdictReserved,
		"rr-":     redlock.VerdictReserved,
		"r--":     redlock.VerdictFree,
		"ar-":     redlock.VerdictReserved,
		"aar":     redlock.VerdictHeld,
		"abr":     redlock.VerdictSplit,
		"rxx":     redlock.VerdictUnknown,
		"rrabx":   redlock.VerdictUnknown,
	} {
		t.Run(word, func(t *testing.T) {
			in, err := redlock.New(scene(word, time.Minute).Pools("a")...).Inspect(t.Context(),
				"job")
			require.NoError(t, err, word)
			assert.Equal(t, want, in.Verdict, word)
			require.Len(t, in.Nodes, len(word))
			for i, n := range in.Nodes {
				assert.Equal(t, i, n.Node)
				assert.Equal(t, word[i] == 'x', n.Err != nil, "%s: node %d: %v", word, i, n.Err)
				assert.Equal(t, word[i] != 'x' && word[i] != '-', n.Found, "%s: node %d", word, i)
				assert.Equal(t, word[i] == 'r', n.Reserved, "%s: node %d", word, i)
			}
			if want == redlock.VerdictHeld {
				assert.Equal(t, "aaa", in.Value, word)
				assert.GreaterOrEqual(t, in.Votes, in.Quorum, word)
			}
		})
	}
}

// The lock is held as long as the node that makes the quorum has it, and not as long as any has.
func TestInspectTTLIsThatOfTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := scene("aaab-", 0)
		for i, ttl := range []time.Duration{9 * time.Second, 3 * time.Second, 5 * time.Second} {
			nodes[i].Set("job", "aaa", ttl)
		}
		rl := redlock.New(nodes.Pools("a")...)
		in, err := rl.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, in.TTL)
		nodes[4].Set("job", "aaa", 4*time.Second)
		in, err = rl.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, 4*time.Second, in.TTL)
		assert.Equal(t, 4, in.Votes)

		for i := range 2 {
			nodes[i].Set("job", "aaa", 0)
		}
		in, err = rl.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, 5*time.Second, in.TTL)
		nodes[2].Set("job", "aaa", 0)
		in, err = rl.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, redlock.NoExpiry, in.TTL)
	})
}

func TestInspectString(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"abaxa", `lock "job": held by "a"… on 3 of 5 nodes, expires in 7s unless extended
  node 0  "a"…, expires in 7s
  node 1  "b"…, expires in 7s
  node 2  "a"…, expires in 7s
  node 3  oops
  node 4  "a"…, expires in 7s
`},
		{"a--", `lock "job": free, at least 2 of 3 nodes have no key
  node 0  "a"…, expires in 7s
  node 1  no key
  node 2  no key
`},
		{"ab-", `lock "job": split, nobody has or can get 2 of 3 nodes before keys go away
  node 0  "a"…, expires in 7s
  node 1  "b"…, expires in 7s
  node 2  no key
`},
		{"rr-", `lock "job": reserved, at least 2 of 3 nodes have no key or keep it for ` +
			`a process that waits
  node 0  kept for a process that waits, expires in 7s
  node 1  kept for a process that waits, expires in 7s
  node 2  no key
`},
		{"x-x", `lock "job": unknown, only 1 of 3 nodes answered
  node 0  oops
  node 1  no key
  node 2  oops
`},
	} {
		t.Run(c.word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, err := redlock.New(scene(c.word,
					7*time.Second).Pools("a")...).Inspect(t.Context(), "job")
				require.NoError(t, err)
				assert.Equal(t, c.want, in.String())
			})
		})
	}
}

// What is printed may go to a log, and whoever reads that must not be able to release the lock.
func TestInspectStringDoesNotShowTheWholeValue(t *testing.T) {
	nodes := sim.NewNodes(1) // of several, one may not have the key yet
	rl := redlock.New(nodes.Pools("a")...)
	m := rl.NewMutex("job", redlock.WithGenValueFunc(func() (string, error) {
		return "web-3", nil
	}))
	require.NoError(t, m.Lock())
	in, err := rl.Inspect(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, m.Value(), in.Value)
	assert.NotContains(t, in.String(), m.Value())
	shown := fmt.Sprintf("%q…", m.Value()[:len("web-3:")+6])
	assert.Contains(t, in.String(), "held by "+shown+" on ")
	for _, printed := range []string{fmt.Sprint(in.Nodes), fmt.Sprintf("%+v", in.Nodes)} {
		assert.NotContains(t, printed, m.Value())
		assert.Contains(t, printed, "node 0: "+shown+", expires in ")
	}
}

// Values of other libraries may be as short as these.
func TestInspectStringShowsNoShortValue(t *testing.T) {
	for value, want := range map[string]string{
		"": `""`, "x": `""…`, "xy": `""…`, "owner": `"o"…`, "0123456789abcdef": `"01234"…`,
		"0123456789abcdef01": `"012345"…`, "0123456789abcdef0123": `"012345"…`,
		"0123456789abcdef0123456789": `"01234567"…`,
	} {
		t.Run(value, func(t *testing.T) {
			nodes := sim.NewNodes(1)
			nodes[0].Set("job", value, 0)
			in, err := redlock.New(nodes.Pools("a")...).Inspect(t.Context(), "job")
			require.NoError(t, err)
			assert.Contains(t, in.String(), "held by "+want+" on 1 of 1 nodes")
		})
	}
}

// A frozen node costs the node timeout, also if its client does not come back.
func TestInspectWaitsForTheNodeTimeoutOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := scene("aaaaa", 0)
		nodes[1].Always(sim.Deaf(sim.Hang()))
		nodes[3].Always(sim.Hang())
		nodes[4].Always(sim.Slow(300 * time.Millisecond))
		rl := redlock.New(nodes.Pools("a")...)
		start := time.Now()
		in, err := rl.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, 400*time.Millisecond, time.Since(start))
		assert.ErrorIs(t, in.Nodes[1].Err, redlock.ErrNodeTimeout)
		assert.ErrorIs(t, in.Nodes[3].Err, redlock.ErrNodeTimeout)
		assert.Equal(t, redlock.VerdictHeld, in.Verdict)
		assert.Equal(t, 3, in.Votes)

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start = time.Now()
		require.NoError(t, rl.CloseContext(ctx))
		assert.Equal(t, time.Millisecond, time.Since(start),
			"it waits for the client that was left behind")
		nodes.Close()
		require.NoError(t, rl.Close())
	})
}

func TestInspectEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		nodes[1].Always(sim.Deaf(sim.Hang()))
		rl := redlock.New(nodes.Pools("a")...)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(errOops) })
		start := time.Now()
		in, err := rl.Inspect(ctx, "job")
		assert.Nil(t, in)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errOops)
		assert.EqualError(t, err, `redlock: "job" not inspected: context canceled (oops)`)
		assert.Equal(t, time.Millisecond, time.Since(start))
		nodes.Close()
		require.NoError(t, rl.Close())
	})
}

func TestInspectMisuse(t *testing.T) {
	var o *redlock.OptionError
	_, err := redlock.New().Inspect(t.Context(), "job")
	require.ErrorAs(t, err, &o)
	assert.Equal(t, "New", o.Option)
	_, err = redlock.New(sim.NewNodes(1).Pools("a")...).Inspect(t.Context(), "")
	require.ErrorAs(t, err, &o)
	assert.Equal(t, "Inspect", o.Option)
}

func TestInspectReplies(t *testing.T) {
	for _, reply := range []any{nil, int64(1), "a", []any{"a"}, []any{int64(1), int64(2)},
		[]any{"a", "b"}, []any{"a", int64(1), int64(2)}} {
		nodes := sim.NewNodes(1)
		nodes[0].Always(sim.Reply(reply))
		in, err := redlock.New(nodes.Pools("a")...).Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.ErrorContains(t, in.Nodes[0].Err, "inspect script: unexpected reply ", "%#v",
			reply)
		assert.Equal(t, redlock.VerdictUnknown, in.Verdict)
	}
}

// On real nodes, with both adapters: what is there is seen, and nothing is changed.
func TestInspectOnNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, 5, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		rl = rl.With(redlock.WithKeyPrefix("app:"))
		in, err := rl.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, redlock.VerdictFree, in.Verdict)

		m := rl.NewMutex("job")
		require.NoError(t, m.Lock())
		eventually(t, "the key on all nodes", func() bool {
			return assert.ObjectsAreEqual(everywhere(5, m.Value()), values(nodes, "app:job"))
		})
		nodes[0].Must("DEL", "app:job")
		nodes[0].Must("RPUSH", "app:job", "x")
		nodes[1].Must("SET", "app:job", "")
		in, err = rl.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, redlock.VerdictHeld, in.Verdict)
		assert.Equal(t, "job", in.Name)
		assert.Equal(t, "app:job", in.Key)
		assert.Equal(t, m.Value(), in.Value)
		assert.Equal(t, 3, in.Votes)
		assert.InDelta(t, 8, in.TTL.Seconds(), 2)
		assert.ErrorContains(t, in.Nodes[0].Err, "WRONGTYPE")
		assert.Equal(t, redlock.NodeKey{Node: 1, Addr: nodes[1].Addr(), Found: true,
			TTL: redlock.NoExpiry}, in.Nodes[1])
		mustUnlock(t, m)
	})
}
