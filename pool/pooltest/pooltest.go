// Package pooltest proves that a [pool.Pool] does what redlock needs. An adapter's author calls
// it in one line:
//
//	func TestPool(t *testing.T) {
//		pooltest.Run(t, func(t *testing.T) pool.Pool { return newPool(t, "127.0.0.1:6379") })
//	}
//
// It works on any Redis or Valkey, real or embedded. Other tests may use the server at the same
// time, if they can bear a SCRIPT FLUSH and the loss of Pub/Sub connections. The keys and channels
// have names of their own, begin with "pooltest:" and expire. Run it with -race.
//
// What a Pool cannot do is skipped: the optional interfaces that it does not implement. So are
// calls of Subscribe and Do whose error matches [errors.ErrUnsupported]. On a cluster, what one of
// its servers alone could tell is skipped too. Each skip says why.
package pooltest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redlock-go/redlock/pool"
)

// Run runs the suite as subtests of t. It calls open at the beginning of each of them, with the
// subtest. The function open may return the same Pool every time, or register with t.Cleanup what
// closes it.
func Run(t *testing.T, open func(t *testing.T) pool.Pool) {
	calls := []group{
		{"SetNX", setNXTests},
		{"Eval", evalTests},
		{"Context", contextTests},
		{"Concurrency", concurrencyTests},
	}
	for _, g := range slices.Concat(calls,
		[]group{{"Do", doTests}, {"Subscribe", subscribeTests}, {"Explain", explainTests}}) {
		g.run(t, open)
	}
	t.Run("Start", func(t *testing.T) {
		if _, ok := open(t).(pool.Starter); !ok {
			t.Skip("the Pool does not implement pool.Starter")
		}
		for _, g := range calls {
			g.run(t, func(t *testing.T) pool.Pool {
				p := open(t)
				return &started{Pool: p, starter: p.(pool.Starter), t: t}
			})
		}
		group{"Start", startTests}.run(t, open)
	})
	t.Run("Carry", func(t *testing.T) {
		if _, ok := open(t).(pool.Carrier); !ok {
			t.Skip("the Pool does not implement pool.Carrier")
		}
		for _, g := range calls {
			g.run(t, func(t *testing.T) pool.Pool {
				p := open(t)
				return &started{Pool: p, starter: carried{p.(pool.Carrier)}, t: t}
			})
		}
		group{"Carry", startTests}.run(t, func(t *testing.T) pool.Pool {
			p := open(t)
			return &started{Pool: p, starter: carried{p.(pool.Carrier)}, t: t}
		})
	})
}

// group is tests that belong together.
type group struct {
	name  string
	tests []test
}

func (g group) run(t *testing.T, open func(t *testing.T) pool.Pool) {
	t.Run(g.name, func(t *testing.T) {
		for _, test := range g.tests {
			t.Run(test.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				t.Cleanup(cancel)
				p := open(t)
				if p == nil {
					t.Fatal("pooltest: open returned a nil Pool")
				}
				test.run(&suite{T: t, ctx: ctx, pool: p, id: "pooltest:{" + rand.Text() + "}:"})
			})
		}
	})
}

const (
	// limit bounds each subtest.
	limit = 2 * time.Minute
	// expiry is that of the keys whose expiry does not matter.
	expiry = 30 * time.Second
)

// arrival bounds the wait for a message. Only the suite's own tests change it.
var arrival = 10 * time.Second

type test struct {
	name string
	run  func(*suite)
}

// suite is what one subtest works with. Its helpers end the subtest when they fail.
type suite struct {
	*testing.T
	ctx  context.Context
	pool pool.Pool
	id   string // a prefix that no other subtest uses, with a hash tag
}

func (s *suite) key(name string) string { return s.id + name }

// lock is SetNX where no error is expected.
func (s *suite) lock(key, value string, d time.Duration) bool {
	s.Helper()
	ok, err := s.pool.SetNX(s.ctx, key, value, d)
	if err != nil {
		s.Fatalf("SetNX(%.40q, %.40q, %v): %v", key, value, d, err)
	}
	return ok
}

// supported skips the subtest if an error says that the Pool cannot do what was asked of it.
func (s *suite) supported(err error) {
	s.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		s.Skipf("the Pool cannot do it: %v", err)
	}
}

// eval is Eval where no error is expected.
func (s *suite) eval(script *pool.Script, keys []string, args ...any) any {
	s.Helper()
	reply, err := s.pool.Eval(s.ctx, script, keys, args...)
	if err != nil {
		s.Fatalf("Eval(%s, %.80q): %v", script.Name, keys, err)
	}
	return reply
}

// want fails the test if a reply is not exactly the expected one, type included.
func (s *suite) want(what string, got, want any) {
	s.Helper()
	if got != want {
		s.Errorf("%s = %T(%.80v), want %T(%.80v)", what, got, got, want, want)
	}
}

// script returns a script made of source that the node has never seen: a
// comment makes it unlike every other. The node computes the ID, because SHA-1 is not
// available everywhere.
func (s *suite) script(name, source string) *pool.Script {
	s.Helper()
	source = "-- " + rand.Text() + "\n" + source
	id, ok := s.eval(sha1hex, nil, source).(string)
	if !ok || len(id) != 40 {
		s.Fatalf("Eval(sha1hex) = %T %v, want a string of 40 characters", id, id)
	}
	return &pool.Script{Name: name, Source: source, ID: id}
}

// Scripts with fixed sources; a test of this package checks their IDs.
var (
	sha1hex = &pool.Script{Name: "sha1hex",
		Source: "return redis.sha1hex(ARGV[1])",
		ID:     "a0e05a99d84be1af701165680cf050a4c8a31d64"}
	// same tells whether the key holds exactly the value: 1 or 0, -1 without the key.
	same = &pool.Script{Name: "same",
		Source: "local v = redis.call('GET', KEYS[1]) if not v then return -1 end if v == " +
			"ARGV[1] then return 1 end return 0",
		ID: "541f045d704abdc045def55ca25ae21ee7ba956b"}
	pttl = &pool.Script{Name: "pttl",
		Source: "return redis.call('PTTL', KEYS[1])",
		ID:     "43761249a5e42637f9639eea2ce4f422c1a8fcd1"}
	// take deletes the key and returns what pttl would have.
	take = &pool.Script{Name: "take",
		Source: "local ms = redis.call('PTTL', KEYS[1]) redis.call('DEL', KEYS[1]) return ms",
		ID:     "23683be6135d073a7f1d02686666189b96805bf6"}
	// count counts its own runs.
	count = &pool.Script{Name: "count",
		Source: "local n = redis.call('INCR', KEYS[1]) redis.call('PEXPIRE', KEYS[1], 30000) " +
			"return n",
		ID: "46e0c41e57028646e19218ab80baf632468a6bca"}
	// list makes the key a list, on which string commands fail.
	list = &pool.Script{Name: "list",
		Source: "redis.call('RPUSH', KEYS[1], 'x') return redis.call('PEXPIRE', KEYS[1], 30000)",
		ID:     "249aeea663e8dc210b291034a79e4f3ff450b5a4"}
	// release deletes the key if it holds the value.
	release = &pool.Script{Name: "release",
		Source: "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) " +
			"end return 0",
		ID: "6fbe84d1140fd2047394924af9d845b83c070bec"}
	queue = &pool.Script{Name: "queue",
		Source: "redis.call('ZADD', KEYS[1], 1, ARGV[1]) return redis.call('PEXPIRE', KEYS[1], " +
			"30000)",
		ID: "20295a01e256974c2a8f581f6544d31b438be696"}
	echo = &pool.Script{Name: "echo",
		Source: "return ARGV[1]",
		ID:     "098e0f0d1448c0a81dafe820f66d460eb09263da"}
	publish = &pool.Script{Name: "publish",
		Source: "return redis.call('PUBLISH', ARGV[1], ARGV[2])",
		ID:     "32200fcb97ca9e65919f934e7dfadd95126bc513"}
	flood = &pool.Script{Name: "flood",
		Source: "local n = tonumber(ARGV[2]) for i = 1, n do redis.call('PUBLISH', ARGV[1], i) " +
			"end return n",
		ID: "462165e7a7e66233dbaf4821a0490d5890d8c4f6"}
)
