package behaviour_test

import (
	"context"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// stubborn is a node that answers every command in the same way.
type stubborn struct {
	reply any
	err   error
	_     *byte // none is like another
}

func (s *stubborn) SetNX(context.Context, string, string, time.Duration) (bool, error) {
	return s.reply == true, s.err
}

func (s *stubborn) Eval(context.Context, *pool.Script, []string, ...any) (any, error) {
	return s.reply, s.err
}

// starter is a stubborn node of a client that needs no goroutine for each command, as go-redis's
// adapter.
type starter struct {
	*stubborn
	late bool // it tells the outcome when Start has returned
}

func (s starter) Start(_ context.Context, _ *pool.Command, to pool.Receiver) {
	if s.late {
		go to.Receive(s.reply, s.err)
	} else {
		to.Receive(s.reply, s.err)
	}
}

// FuzzReplies (lesson L99): whatever three nodes reply, the answer is yes if and only if two of
// them said exactly that. Each digit of ways, to the base of three, says how a node's client is
// used.
func FuzzReplies(f *testing.F) {
	const operations, kinds = 11, 17
	for op := range byte(operations) {
		for kind := range byte(kinds) {
			for ways := range byte(3) { // the same for each node
				f.Add(op, ways*(1+3+9), kind, kind, byte(0), int64(1), "1")
			}
		}
		f.Add(op, byte(0), byte(0), byte(0), byte(0), int64(math.MaxInt64), "")
		f.Add(op, byte(13), byte(0), byte(0), byte(0), int64(math.MinInt64), "")
		f.Add(op, byte(5), byte(0), byte(1), byte(2), int64(0), "OK")
	}
	f.Fuzz(func(t *testing.T, op, ways, a, b, c byte, n int64, text string) {
		synctest.Test(t, func(t *testing.T) {
			var pools []pool.Pool
			yes, free, found := 0, 0, 0
			if op%operations == 8 { // an Inspect of a lock that readers have
				text = wire.Marker
			}
			for i, kind := range []byte{a, b, c} {
				n := n + int64(i) // fence counters that disagree are raised
				s := &stubborn{reply: []any{
					n, true, false, nil, errOops, int(n), uint64(n), float64(n), text, []byte(text),
					[]any{},
					[]any{n}, []any{text, n}, []any{n, text}, []any{text, text},
					map[any]any{text: n}, []any{text, n, text},
				}[kind%kinds]}
				if err, ok := s.reply.(error); ok {
					s.reply, s.err = nil, err
				}
				switch reply := s.reply.(type) {
				case bool:
					if op%operations == 0 && reply {
						yes++
					}
				case int64:
					if op%operations != 0 && reply > 0 {
						yes++
					}
				case []any:
					if len(reply) == 0 {
						free++
					} else if kind%kinds == 12 { // a value and milliseconds
						found++
					} else if kind%kinds == 16 && op%operations == 6 { // and a counter
						found++
					}
				}
				switch ways % 3 {
				case 0:
					pools = append(pools, s)
				case 1:
					pools = append(pools, starter{s, false})
				case 2:
					pools = append(pools, starter{s, true})
				}
				ways /= 3
			}
			rl := redlock.New(pools...)
			defer func() { require.NoError(t, rl.Close()) }()
			m := rl.NewMutex("x", redlock.WithValue("v"))
			var ok bool
			var err error
			switch op % operations {
			case 0:
				err = m.TryLock()
				ok = err == nil
			case 1:
				m = rl.NewMutex("x", redlock.WithFencing(), redlock.WithRestartGuard(time.Minute))
				err = m.TryLock()
				ok = err == nil
				assert.Equal(t, ok, m.FencingToken() > 0)
			case 2:
				ok, err = m.Extend()
			case 3:
				ok, err = m.Valid()
			case 4:
				ok, err = m.Unlock()
			case 5, 8:
				in, err := rl.Inspect(t.Context(), "x")
				require.NoError(t, err)
				assert.NotEmpty(t, in.String())
				shared := in.Verdict == redlock.VerdictShared
				assert.Equal(t, found >= 2, shared || in.Verdict == redlock.VerdictHeld)
				assert.Equal(t, found >= 2 && text == wire.Marker, shared && len(in.Readers) > 0)
				assert.Equal(t, free >= 2, in.Verdict == redlock.VerdictFree)
				return
			case 7:
				_, err = m.Adopt(t.Context(), "redlock1.eyJrIjoiZUE9PSIsInYiOiJkZz09In0")
				if ok = err == nil; ok {
					mustUnlock(t, m)
				}
			case 9, 10:
				opts := []redlock.Option{redlock.WithShared()}
				if op%operations == 10 {
					opts = append(opts, redlock.WithFencing())
				}
				m = rl.NewMutex("x", opts...)
				err = m.TryLock()
				if ok = err == nil; ok {
					assert.Equal(t, op%operations == 10, m.FencingToken() > 0)
					for _, f := range []func() (bool, error){m.Valid, m.Extend, m.Unlock} {
						still, err := f()
						assert.True(t, still, "%v", err)
					}
				}
			case 6:
				l, err := rl.NewElection("x").Leader(t.Context())
				assert.Equal(t, found >= 2, l.TTL != 0)
				assert.Equal(t, found >= 2 || free >= 2, err == nil && (l.TTL != 0 || free >= 2))
				return
			}
			assert.Equal(t, err == nil, ok)
			assert.Equal(t, yes >= 2, ok, "%v", err)
			if err != nil {
				var e *redlock.Error
				require.ErrorAs(t, err, &e)
				assert.NotEmpty(t, err.Error())
			}
		})
	})
}

// FuzzOptions: a combination of options is refused by all operations before anything is sent, or
// it works and means what the comments of the options say.
func FuzzOptions(f *testing.F) {
	const ms, s = int64(time.Millisecond), int64(time.Second)
	f.Add(uint16(0), 0*s, 0*s, 0*s, 0*s, 0*s, 0*s, 0, 0.0, 0.0, "")
	f.Add(uint16(0xfff), 10*s, s, 11*s, 12*s, 13*s, 0*s, 1, 0.02, 0.1, "value")
	f.Add(uint16(0x7ff), 10*s, 10*s, 10*s, 10*s, 10*s, s, -1, 0.0, 1.0, "v")
	f.Add(uint16(0x001), 2*ms, 0*s, 0*s, 0*s, 0*s, 0*s, 0, 0.0, 0.0, "")
	f.Add(uint16(0x009), 3*ms+ms/2, 0*s, 0*s, 0*s, 0*s, 0*s, 0, 0.0, 0.0, "")
	f.Add(uint16(1<<8), 0*s, 0*s, 0*s, int64(math.MaxInt64), 0*s, 0*s, 0, 0.0, 0.0, "")
	f.Add(uint16(1<<7|1<<11), 0*s, 0*s, 0*s, 0*s, 0*s, 0*s, 0, 0.0, 0.0, "")
	f.Add(uint16(1<<12), 0*s, 0*s, 0*s, 0*s, 0*s, 3*s, 0, 0.0, 0.0, "")
	f.Add(uint16(1<<12|1), int64(math.MaxInt64), 0*s, 0*s, 0*s, 0*s, int64(math.MaxInt64/3), 0, 0.0,
		0.0, "")
	f.Add(uint16(1<<7|1), 25*3600*s, 0*s, 0*s, 0*s, 0*s, 0*s, 0, 0.0, 0.0, "")
	f.Add(uint16(1<<11|1<<7|1), 25*3600*s, 0*s, 0*s, 0*s, 0*s, 0*s, 0, 0.0, 0.0, "")
	// lesson L66: nothing overflows with options at their extremes.
	for _, factor := range []float64{0, 0.01, 0.5, 1 - 1e-9, math.Nextafter(1, 0), 1} {
		for _, d := range []int64{math.MaxInt64, math.MaxInt64 - ms, math.MaxInt64/3 + 1, 1 << 62} {
			f.Add(uint16(0x001), d, 0*s, 0*s, 0*s, 0*s, 0*s, 0, 0.0, 0.0, "")
			f.Add(uint16(0xa7f), d, d, d, d, d, d, math.MaxInt, factor, factor, "v")
			f.Add(uint16(0xaff), d, d, d, d, d, d, 1, factor, factor, "v")
			f.Add(uint16(0x037), d, d, d, d, d, d, math.MaxInt, factor, factor, "v")
		}
	}
	for bit := range 13 {
		f.Add(uint16(1<<bit), -s, -s, -s, -s, -s, -s, -2, -0.1, -0.1, "")
		f.Add(uint16(1<<bit), ms, 9*s, 7*s, 7*s, 7*s, -s, 0, 1.0, 1.1, "v")
		f.Add(uint16(1<<bit|1), 3*ms-1, 3*ms, 2*ms, 2*ms, 2*ms, ms, 3, math.NaN(), math.NaN(), "")
	}
	f.Fuzz(func(t *testing.T, given uint16, expiry, nodeTimeout, fenceTTL, guard, maxHold,
		delay int64, tries int, driftFactor, timeoutFactor float64, value string) {
		var opts []redlock.Option
		add := func(bit int, o redlock.Option) bool {
			if given&(1<<bit) == 0 {
				return false
			}
			opts = append(opts, o)
			return true
		}
		span := func(ns int64) time.Duration { return time.Duration(ns) }
		lasts, works := redlock.DefaultExpiry, true
		must := func(ok bool) { works = works && ok }
		if add(0, redlock.WithExpiry(span(expiry))) {
			lasts = span(expiry).Truncate(time.Millisecond)
			must(lasts > 0)
		}
		factor := redlock.DefaultDriftFactor
		if add(1, redlock.WithDriftFactor(driftFactor)) {
			factor = driftFactor
			must(factor >= 0 && factor < 1)
		}
		must(lasts-drift(lasts, factor) >= time.Millisecond)
		share := redlock.DefaultTimeoutFactor
		if add(2, redlock.WithTimeoutFactor(timeoutFactor)) {
			share = timeoutFactor
		}
		if add(3, redlock.WithNodeTimeout(span(nodeTimeout))) {
			must(span(nodeTimeout) >= time.Millisecond && span(nodeTimeout) <= lasts)
		} else {
			must(share > 0 && share <= 1 && part(lasts, share) >= time.Millisecond)
		}
		if add(4, redlock.WithTries(tries)) {
			must(tries > 0 || tries == redlock.Unlimited)
		}
		if add(5, redlock.WithRetryDelay(span(delay))) {
			must(delay >= 0)
		}
		keeps := redlock.DefaultFenceTTL
		kept := add(6, redlock.WithFenceTTL(span(fenceTTL)))
		if kept {
			keeps = span(fenceTTL)
		}
		fenced := add(7, redlock.WithFencing())
		own := add(11, redlock.WithFencePerName())
		must(!(fenced && own) && !kept || keeps >= lasts)
		guarded := add(8, redlock.WithRestartGuard(time.Duration(guard)))
		must(!guarded || time.Duration(guard) >= lasts)
		limited := add(9, redlock.WithMaxHold(span(maxHold)))
		must(!limited || span(maxHold) >= lasts)
		if add(10, redlock.WithValue(value)) {
			must(value != "")
		}
		if add(12, redlock.WithMargin(span(delay))) {
			must(delay >= 0 && span(delay) <= (lasts-drift(lasts, factor))/2)
		}

		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x", opts...)
			if !works {
				for name, err := range everyOperation(t, m) {
					var option *redlock.OptionError
					require.ErrorAs(t, err, &option, name)
				}
				require.Zero(t, nodes.Count(""))
				return
			}
			if guarded && lasts > 1<<60 {
				// What is released once more, one node timeout later, is not in the bubble's time.
				return
			}
			if guarded {
				for _, n := range nodes {
					n.Crash()
					n.Restart(false)
				}
				var guard *redlock.GuardError
				require.ErrorAs(t, m.TryLock(), &guard, "a server that has just begun")
				if guard.Wait > 1<<60 { // beyond the end of the bubble's time
					time.Sleep(1 << 61)
					return
				}
				time.Sleep(guard.Wait)
			}
			held, err := m.Hold(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			assert.Equal(t, lasts-drift(lasts, factor), time.Until(m.Until()))
			// The clock of a node began days ago, and does not go further than the longest
			// duration.
			const longest = math.MaxInt64 - 2000*24*time.Hour
			assert.Equal(t, min(lasts, longest), min(nodes[0].TTL("x"), longest))
			assert.Equal(t, fenced, m.FencingToken() > 0)
			counters := [2]time.Duration{} // the shared one and the lock's own
			switch {
			case fenced && own:
				counters[1] = min(keeps.Truncate(time.Millisecond), longest)
			case fenced:
				counters[0] = -1 // for ever
			}
			assert.Equal(t, counters, [2]time.Duration{nodes[0].TTL(fenceOf("x")),
				min(nodes[0].TTL("{x}:fence"), longest)})
			if deadline, ok := held.Deadline(); limited {
				assert.Equal(t, span(maxHold), time.Until(deadline))
			} else {
				assert.False(t, ok)
			}
			for _, call := range []func() (bool, error){m.Extend, m.Valid, m.Unlock} {
				_, err := call()
				require.NoError(t, err)
			}
			synctest.Wait() // the nodes that nobody waited for answer, too
		})
	})
}

// hashed is what of a key decides about its slot, as Redis's cluster specification has it.
func hashed(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
		return tag
	}
	return key
}

// ownKey is what the docs say that a key looks like which redlock keeps beside locks.
var ownKey = regexp.MustCompile(
	`(?s)^redlock:fence:[0-9a-f]{4}$|}(.*):(fence|redlock:(tag:)?(queue|ticket|roll|bid))$`)

// FuzzNames: the key is prefix and name, byte for byte. The shared counter follows from the key.
// The channel, and a counter of its own, are others in the same slot; there is none in the slot
// of a key with a closing brace and no tag. The key of a counter or of a queue is refused.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"x", "a:b", "{tag}:x", "x{tag}", "a{b", "a}b", "{}", "{}{x}", "}{", "{{x}", "{x}}", " ",
		"é☃", "\x00\xff\r\n", "",
		"redlock:fence:12ab", "redlock:fence:12aB", "{x}:fence", "a}:fence", "a}\n:fence",
		"x:fence", "x:{x}:redlock:queue", "{x}:redlock:tag:bid", "x:redlock:bid", "{}:redlock:roll",
	} {
		for _, prefix := range []string{"", "p:", "{p}", "{"} {
			f.Add(prefix, name, false)
			f.Add(prefix, name, true)
		}
	}
	f.Add("redlock:", "fence:0000", false)
	f.Fuzz(func(t *testing.T, prefix, name string, own bool) {
		synctest.Test(t, func(t *testing.T) {
			node := sim.NewNodes(1)[0]
			var all [][]string
			rl := redlock.New(keyed{node.Link("a"),
				func(keys []string) { all = append(all, keys) }}).With(redlock.WithFencing())
			if own {
				rl = rl.With(redlock.WithFencePerName())
			}
			m := rl.NewMutex(name, redlock.WithKeyPrefix(prefix))
			require.Equal(t, name, m.Name())
			err := m.TryLock()
			key := prefix + name
			if name == "" || ownKey.MatchString(key) {
				var option *redlock.OptionError
				require.ErrorAs(t, err, &option)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, m.Value(), node.Value(key))
			_, err = m.Extend()
			require.NoError(t, err)
			mustUnlock(t, m)
			assert.Empty(t, node.Value(key))
			others := map[string]bool{}
			for _, keys := range all {
				assert.Equal(t, key, keys[0])
				for _, other := range keys[1:] {
					others[other] = true
					if other == fenceOf(key) {
						assert.False(t, own)
					} else if !strings.Contains(key, "}") || hashed(key) != key {
						assert.Equal(t, hashed(key), hashed(other))
					}
				}
			}
			if hashed(key) == key && strings.Contains(key, "}") {
				assert.Len(t, others, 1, "a counter: no other key is sure to lie in the same slot")
			} else {
				assert.Len(t, others, 2, "a counter and a queue")
			}
			assert.Equal(t, own, !others[fenceOf(key)])
			assert.NotContains(t, others, key)
		})
	})
}
