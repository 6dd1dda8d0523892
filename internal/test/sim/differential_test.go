package sim_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// The simulated nodes run redlock's scripts as typed operations. Here the Lua text itself runs the
// same random sequences of commands beside them: on miniredis in virtual time, exact to the
// millisecond, and on a real Redis.

// scripts returns the scripts by name.
func scripts(t *testing.T) map[string]*pool.Script {
	found := make(map[string]*pool.Script)
	for _, s := range redlock.Scripts() {
		found[s.Name] = &pool.Script{Name: s.Name, ID: s.ID, Source: s.Source}
	}
	// Releases has no typed operation. A test of internal/scripts says what it does.
	require.Len(t, found, 19, "scripts")
	return found
}

// counters are contents of a fence counter, good and bad.
var counters = []string{
	"7", "1762000000000001", "9007199254740991", "0000000000000012",
	"9007199254740992", "00000000000000012", "12345678901234567", "x1", "-3", "3.5",
	"-123456789012345", " 123456789012345", "12345678901234.5", "17620000000000xy",
	"nan(12345678901)",
}

// members wait in queues: those that listen, and some that are dead. Three share.
var members = []string{
	"redlock:turn:" + strings.Repeat("A", 26) + "1", "redlock:turn:" + strings.Repeat("A", 26) +
		"2",
	"redlock:turn:" + strings.Repeat("B", 26) + "1", "redlock:turn:" + strings.Repeat("C", 26) +
		"1",
	"redlock:turn:" + strings.Repeat("A", 26) + "3*", "redlock:turn:" + strings.Repeat("B", 26) +
		"2*", "redlock:turn:" + strings.Repeat("C", 26) + "2*",
}

// listening are the channels that have a listener.
var listening = []string{members[0][:39], members[2][:39]}

// queues are the keys of the queues of the small world.
var queues = []string{"{0}:queue", "{1}:queue"}

// standings returns the members of a sorted set and their scores, in order.
func standings(t *testing.T, do func(args ...any) (any, error), key string) (all []string) {
	all, err := redis.Strings(do("ZRANGE", key, 0, -1, "WITHSCORES"))
	require.NoError(t, err)
	return all
}

// byMember returns what standings does, without the order, and adds a number to the scores.
func byMember(t *testing.T, all []string, add int64) map[string]int64 {
	scores := map[string]int64{}
	for pair := range slices.Chunk(all, 2) {
		score, err := strconv.ParseInt(pair[1], 10, 64)
		require.NoError(t, err)
		scores[pair[0]] = score + add
	}
	return scores
}

// step is one random command, the same for both sides.
type step struct {
	script string // "" for SET NX PX, "put" to write a key directly
	keys   []string
	args   []any
	sleep  time.Duration // before it, on miniredis
}

func (s step) String() string { return fmt.Sprintf("%s %q %v", s.script, s.keys, s.args) }

// randomStep draws a command of a small world, so that commands meet each other.
// Milliseconds are drawn from ms; without guard, the restart guard is left out.
func randomStep(r *rand.Rand, ms []int64, guard bool) step {
	name := strconv.Itoa(r.IntN(2))
	key, value := "{"+name+"}", "v"+strconv.Itoa(r.IntN(3))
	fence := "{" + strconv.Itoa(r.IntN(2)) + "}:fence" // of the name, or shared with the other
	some := func() int64 { return ms[r.IntN(len(ms))] }
	// A counter's expiry, 0 for none.
	keep := func() int64 { return append([]int64{0, 0}, ms...)[r.IntN(len(ms)+2)] }
	s := step{keys: []string{key}, args: []any{value}}
	if r.IntN(4) == 0 {
		s.sleep = time.Duration(r.IntN(40)) * time.Millisecond
	}
	fenced := r.IntN(3) > 0
	if fenced {
		s.keys = append(s.keys, fence)
	}
	tokens := []int64{1, 2, int64(r.IntN(50)), 1 << 40, 1_762_000_000_000_000 + int64(r.IntN(3)),
		1<<53 - 2}
	proposed := tokens[r.IntN(len(tokens))]
	if r.IntN(200) == 0 {
		proposed = []int64{1<<53 - 1, 1 << 53}[r.IntN(2)]
	}
	queue, last, member := "{"+name+"}:queue", "{"+name+"}:ticket", members[r.IntN(len(members))]
	bid, seats := "{"+name+"}:bid", "{"+name+"}:seats"
	grace := int64(3600) // the clocks of a real server and of a node do not begin a second together
	if !guard {
		grace = int64(r.IntN(2))
	}
	switch n := r.IntN(220); {
	case n >= 205:
		s.script = "standshare"
		s.keys = []string{key, queue, last, "{" + name + "}:roll", seats}
		s.args = []any{some(), member, int64(1 + r.IntN(20)), int64(r.IntN(2)), some(), grace,
			int64(r.IntN(2))}
		if r.IntN(2) == 0 {
			s.args = append(s.args, value)
		}
	case n >= 190:
		s.script, s.keys = "unshare", []string{key, queue, seats}
		s.args = []any{value, some()}
		if r.IntN(3) > 0 {
			s.args = append(s.args, member)
		}
		if len(s.args) == 3 && r.IntN(2) == 0 {
			s.args = append(s.args, int64(1+r.IntN(20)), some())
		}
	case n >= 182:
		s.script, s.keys = "seat", append(s.keys, seats)
		if r.IntN(3) > 0 {
			s.args = append(s.args, some())
			if fenced {
				s.args = append(s.args, some())
			}
		}
	case n >= 178:
		s.script, s.keys = "lift", []string{key, fence, seats}
		s.args = append(s.args, proposed, keep())
	case n >= 150:
		s.script, s.keys = "share", append(s.keys, queue, seats)
		s.args = append(s.args, some())
		if fenced {
			s.args = append(s.args, proposed, keep())
		}
		if guard && r.IntN(4) == 0 {
			s.args = append(s.args, int64(1_000_000))
		}
		s.args = append(s.args, some(), []string{"", "*", member}[r.IntN(3)])
	case n >= 144:
		if r.IntN(4) == 0 { // which is that of the other key
			bid = "{" + strconv.Itoa(r.IntN(2)) + "}:bid"
		}
		s.script, s.keys = "bid", []string{key, bid}
		s.args = append(s.args, some(), member, strconv.Itoa(r.IntN(9)), some())
	case n >= 130:
		s.script, s.keys = "release", []string{key, queue}
		s.args = []any{value, some()}
		if r.IntN(4) > 0 {
			s.args = append(s.args, member)
		}
		if len(s.args) == 3 && r.IntN(2) == 0 {
			s.args = append(s.args, int64(1+r.IntN(20)), some())
		}
	case n >= 115:
		s.script, s.keys = "stand", []string{key, queue, last, "{" + name + "}:roll"}
		s.args = []any{some(), member, int64(1 + r.IntN(20)), int64(r.IntN(2)), some(), grace,
			int64(r.IntN(2))}
		if r.IntN(2) == 0 {
			s.args = append(s.args, value)
		}
	case n >= 105:
		s.script, s.keys = "claim", append(s.keys, queue)
		s.args = append(s.args, some())
		if fenced {
			s.args = append(s.args, proposed, some())
		}
		s.args = append(s.args, member)
	case n >= 100:
		s.script = []string{"heal", "swap"}[r.IntN(2)]
		s.args = append(s.args, some())
		if fenced {
			s.args = append(s.args, proposed, some())
		}
		if s.script == "swap" {
			other := "v" + strconv.Itoa(r.IntN(3))
			if other == value { // a new value is never that which was handed off
				other = "v3"
			}
			s.args = append(s.args, other)
		}
	case n < 5:
		// What else may be found under a fence counter, or a lock that never expires.
		s.script, s.keys = "put", []string{fence}
		s.args = []any{counters[r.IntN(len(counters))]}
		if r.IntN(3) == 0 {
			s.keys, s.args = []string{key}, []any{value}
		}
	case n < 20:
		s.keys, s.args = s.keys[:1], []any{value, some()}
	case n < 45:
		s.script = "release"
		s.keys, s.args = s.keys[:1], []any{value}
	case n < 55:
		s.script = "extend"
		s.args = append(s.args, some())
		if fenced {
			s.args = append(s.args, some())
		}
	case n < 60:
		s.script, s.keys = "valid", s.keys[:1]
	case n < 63:
		s.script, s.args = "inspect", nil
		switch r.IntN(4) {
		case 0, 1:
			s.script, s.keys = "readers", []string{key, seats}
		case 2:
			s.script, s.keys = "queue", []string{key, queue}
		}
	case n < 90:
		s.script = "acquire"
		s.args = append(s.args, some())
		if fenced {
			s.args = append(s.args, proposed, keep())
		}
		if guard && r.IntN(4) == 0 {
			s.args = append(s.args, int64(1_000_000))
		}
	default:
		s.script = "raise"
		s.keys, s.args = []string{key, fence}, append(s.args, proposed, keep())
	}
	return s
}

// crowd is how many wait before the others in some runs: enough for these to be kept on the roll.
const crowd = 398

// crowdStep is the first command of one of them, who listens.
func crowdStep(i int) step {
	return step{script: "stand", keys: []string{"{0}", "{0}:queue", "{0}:ticket", "{0}:roll"},
		args: []any{int64(100_000), fmt.Sprintf("%scrowd%d", listening[0], i), int64(1), int64(0),
			int64(100_000), int64(5), int64(0)}}
}

// onSim performs s on the simulated node.
func (s step) onSim(t *testing.T, node *sim.Node, link *sim.Link, all map[string]*pool.Script) (any,
	error) {
	switch s.script {
	case "":
		return link.SetNX(t.Context(), s.keys[0], s.args[0].(string),
			time.Duration(s.args[1].(int64))*time.Millisecond)
	case "put":
		node.Set(s.keys[0], s.args[0].(string), 0)
		return nil, nil
	default:
		return link.Eval(t.Context(), all[s.script], s.keys, s.args...)
	}
}

// onRedis performs s through do, which sends one command.
func (s step) onRedis(all map[string]*pool.Script, do func(args ...any) (any, error)) (any, error) {
	switch s.script {
	case "":
		reply, err := do("SET", s.keys[0], s.args[0], "NX", "PX", s.args[1])
		if err != nil {
			return nil, err
		}
		return reply != nil, nil
	case "put":
		_, err := do("SET", s.keys[0], s.args[0])
		return nil, err
	default:
		args := []any{"EVAL", all[s.script].Source, len(s.keys)}
		for _, k := range s.keys {
			args = append(args, k)
		}
		return do(append(args, s.args...)...)
	}
}

// same compares two outcomes. Of errors only the text after "ERR redlock" counts, for miniredis
// wraps it. Remaining times may differ by slack.
func same(t *testing.T, s step, got, want any, gotErr, wantErr error, slack int64) {
	t.Helper()
	if wantErr != nil || gotErr != nil {
		require.True(t, wantErr != nil && gotErr != nil, "%s: sim %v, %v; redis %v, %v", s, got,
			gotErr, want, wantErr)
		if _, text, ok := strings.Cut(gotErr.Error(), "ERR redlock"); ok {
			require.Contains(t, wantErr.Error(), text, "%s", s)
		}
		return
	}
	if s.script == "stand" || s.script == "standshare" {
		g, w := got.([]any), want.([]any)
		require.Len(t, g, 3, "%s", s)
		require.Equal(t, w[:2], g[:2], "%s", s)
		require.InDelta(t, w[2], g[2], float64(slack), "%s", s)
		return
	}
	if s.script == "readers" {
		g, w := got.([]any), want.([]any)
		require.Len(t, g, len(w), "%s: sim %v; redis %v", s, got, want)
		for i := 0; i < len(w); i += 2 {
			require.Equal(t, string(w[i].([]byte)), g[i], "%s", s)
			require.InDelta(t, w[i+1], g[i+1], float64(slack), "%s", s)
		}
		return
	}
	if s.script == "queue" {
		g, w := got.([]any), want.([]any)
		require.Len(t, g, len(w), "%s: sim %v; redis %v", s, got, want)
		for i := range w {
			require.Equal(t, string(w[i].([]byte)), g[i], "%s", s)
		}
		return
	}
	if s.script == "inspect" {
		g, w := got.([]any), want.([]any)
		require.Len(t, g, len(w), "%s: sim %v; redis %v", s, got, want)
		if len(w) >= 2 {
			require.Equal(t, string(w[0].([]byte)), g[0], "%s", s)
			require.InDelta(t, w[1], g[1], float64(slack), "%s", s)
		}
		if len(w) == 3 {
			require.Equal(t, string(w[2].([]byte)), g[2], "%s", s)
		}
		return
	}
	g, isNumber := got.(int64)
	w, _ := want.(int64)
	if isNumber && g <= -2 && w <= -2 && g-w <= slack && w-g <= slack {
		return
	}
	require.Equal(t, want, got, "%s", s)
}

// onMiniredis starts a miniredis in the bubble's time, and returns what sends one command to it.
func onMiniredis(t *testing.T) (
	m *miniredis.Miniredis, do func(args ...any) (any, error), end func(),
) {
	m = miniredis.NewMiniRedis()
	m.ClockTTL(true)
	raw, err := m.Dial()
	require.NoError(t, err)
	conn := redis.NewConn(raw, 0, 0)
	do = func(args ...any) (any, error) { return conn.Do(args[0].(string), args[1:]...) }
	return m, do, func() {
		_ = conn.Close()
		m.Close()
	}
}

func TestOperationsEqualScriptsOnMiniredis(t *testing.T) {
	all := scripts(t)
	for seed := range uint64(6 * *times) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			m, do, end := onMiniredis(t)
			defer end()
			node := sim.NewNodes(1)[0]
			// What the node's clock shows.
			begun := time.Now().Unix() - int64(1000*24*time.Hour/time.Second)
			link := node.Link("a")
			raw, err := m.Dial()
			require.NoError(t, err)
			hearing := redis.NewConn(raw, 0, 0)
			defer hearing.Close()
			heard := listen(t, link, hearing, synctest.Wait)
			steps := 200
			if seed%8 == 0 {
				steps += crowd
			}
			for i := range steps {
				s := randomStep(r, []int64{1, 10, 25, 60, 100_000}, false)
				if i < steps-200 {
					s = crowdStep(i)
				}
				time.Sleep(s.sleep)
				got, gotErr := s.onSim(t, node, link, all)
				want, wantErr := s.onRedis(all, do)
				same(t, s, got, want, gotErr, wantErr, 0)
				heard.same(t, s)
				for _, key := range queues {
					require.Equal(t, standings(t, do, key), node.Standings(key), "%s after %s", key,
						s)
				}
				for key, zero := range map[string]int64{"{0}:roll": begun, "{1}:roll": begun,
					"{0}:seats": 1000 * begun, "{1}:seats": 1000 * begun} {
					require.Equal(t, byMember(t, standings(t, do, key), -zero),
						byMember(t, node.Standings(key), 0), "%s after %s", key, s)
				}
				for _, key := range []string{"{0}", "{1}", "{0}:fence", "{1}:fence", "{0}:ticket",
					"{1}:ticket", "{0}:bid", "{1}:bid"} {
					value, _ := m.Get(key)
					require.Equal(t, value, node.Value(key), "%s after %s", key, s)
					require.Equal(t, m.TTL(key), max(0, node.TTL(key)), "expiry of %s after %s",
						key, s)
					require.Equal(t, m.Exists(key), node.TTL(key) != 0, "%s after %s", key, s)
				}
			}
		})
	}
}

// A member that lost its place when the roll was called stands anew. It is alive: the node reserves
// the key for it. The script took it out of the queue again, and failed. With 20 times as many
// sequences as usual, TestOperationsEqualScriptsOnMiniredis found that.
func TestOneThatStandsAnewAnswersTheRoll(t *testing.T) {
	all := scripts(t)
	synctest.Test(t, func(t *testing.T) {
		_, do, end := onMiniredis(t)
		defer end()
		node := sim.NewNodes(1)[0]
		link := node.Link("a")
		stand := func(member string) step {
			return step{
				script: "stand", keys: []string{"{0}", "{0}:queue", "{0}:ticket", "{0}:roll"},
				args: []any{int64(10), member, int64(1), int64(0), int64(100_000), int64(0),
					int64(0)},
			}
		}
		var got any
		for _, s := range []step{
			{keys: []string{"{0}"}, args: []any{"v0", int64(30)}},
			stand(members[2]),
			stand(members[3]), // calls the roll, and has its turn; nobody hears
			stand(members[2]),
		} {
			var err, wantErr error
			got, err = s.onSim(t, node, link, all)
			want, wantErr := s.onRedis(all, do)
			require.NoError(t, err, "%s", s)
			require.NoError(t, wantErr, "%s", s)
			same(t, s, got, want, nil, nil, 0)
			time.Sleep(20 * time.Millisecond) // the key and reservations expire
		}
		require.Equal(t, int64(-1), got.([]any)[1], "it is its turn")
	})
}

func TestOperationsEqualScriptsOnRealRedis(t *testing.T) {
	all := scripts(t)
	server := redistest.Start(t, 1)[0]
	conn, err := redis.Dial("tcp", server.Addr())
	require.NoError(t, err)
	defer conn.Close()
	do := func(args ...any) (any, error) { return conn.Do(args[0].(string), args[1:]...) }

	node := sim.NewNodes(1)[0]
	link := node.Link("a")
	node.Crash()
	node.Restart(true) // as young as the server
	hearing, err := redis.Dial("tcp", server.Addr())
	require.NoError(t, err)
	defer hearing.Close()
	heard := listen(t, link, hearing, func() {})
	r := rand.New(rand.NewPCG(7, 7))
	for range 750 * *times {
		s := randomStep(r, []int64{3_600_000, 7_200_000}, true)
		got, gotErr := s.onSim(t, node, link, all)
		want, wantErr := s.onRedis(all, do)
		same(t, s, got, want, gotErr, wantErr, 5_000)
		heard.same(t, s)
		for _, key := range queues {
			require.Equal(t, standings(t, do, key), node.Standings(key), "%s after %s", key, s)
		}
		for _, key := range s.keys {
			if slices.Contains(queues, key) || strings.HasSuffix(key, ":roll") {
				continue
			}
			if strings.HasSuffix(key, ":seats") {
				require.Equal(t, slices.Sorted(maps.Keys(byMember(t, standings(t, do, key), 0))),
					slices.Sorted(maps.Keys(byMember(t, node.Standings(key), 0))),
					"%s after %s", key, s)
				continue
			}
			value, err := redis.String(do("GET", key))
			if err != redis.ErrNil {
				require.NoError(t, err)
			}
			require.Equal(t, value, node.Value(key), "%s after %s", key, s)
			ttl, err := redis.Int64(do("PTTL", key))
			require.NoError(t, err)
			require.InDelta(t, max(ttl, 0), max(0, node.TTL(key).Milliseconds()), 5_000,
				"expiry of %s after %s", key, s)
		}
	}
}
