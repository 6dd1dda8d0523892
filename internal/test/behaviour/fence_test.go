package behaviour_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// fenceOf returns the key of the counter that a lock shares with other names, as the docs have it:
// printf %s KEY | sha256sum | cut -c 1-4
func fenceOf(key string) string {
	return "redlock:fence:" + fmt.Sprintf("%x", sha256.Sum256([]byte(key)))[:4]
}

// counters returns the fence counter of x on each node, 0 for none.
func counters(t *testing.T, nodes sim.Nodes) []uint64 {
	t.Helper()
	var all []uint64
	for _, v := range nodes.Values(fenceOf("x")) {
		n, err := strconv.ParseUint(v+"0", 10, 64)
		require.NoError(t, err)
		all = append(all, n/10)
	}
	return all
}

// storedOnAQuorum checks the rule on which the order of tokens rests.
func storedOnAQuorum(t *testing.T, nodes sim.Nodes, token uint64) {
	t.Helper()
	have := 0
	for _, c := range counters(t, nodes) {
		if c >= token {
			have++
		}
	}
	assert.GreaterOrEqual(t, have, len(nodes)/2+1, "counters %v, token %d", counters(t, nodes),
		token)
}

func TestAFencingTokenCostsNoRoundTripWhenTheNodesAgree(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		var last uint64
		for i := range 5 {
			m := rl.NewMutex("x")
			require.NoError(t, m.Lock())
			synctest.Wait()
			assert.Greater(t, m.FencingToken(), last)
			last = m.FencingToken()
			assert.Equal(t, []uint64{last, last, last, last, last}, counters(t, nodes))
			mustUnlock(t, m)
			synctest.Wait()
			assert.Equal(t, 5*(i+1), nodes.Count("acquire"))
		}
		assert.Zero(t, nodes.Count("raise"))
		assert.Zero(t, nodes.Count("set"))
	}, redlock.WithFencing())
}

func TestFencingTokensIncreaseFromOneClientToTheNextWhateverTheirClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		var clients []*redlock.Redlock
		for _, offset := range []time.Duration{0, -time.Hour, 24 * time.Hour,
			-20000 * 24 * time.Hour} {
			pools := []pool.Pool{}
			for _, n := range nodes {
				pools = append(pools, clocked{n.Link("a"), offset})
			}
			clients = append(clients, redlock.New(pools...).With(redlock.WithFencing()))
		}
		var last uint64
		for i := range 40 {
			m := clients[i*7%4].NewMutex("x")
			// Whatever two nodes make the quorum.
			nodes[i%3].Next("acquire", sim.Fail(errOops))
			require.NoError(t, m.Lock())
			assert.Greater(t, m.FencingToken(), last)
			assert.Less(t, m.FencingToken(), uint64(1)<<53)
			last = m.FencingToken()
			storedOnAQuorum(t, nodes, last)
			mustUnlock(t, m)
			synctest.Wait()
		}
		assert.NotZero(t, nodes.Count("raise"), "the clocks disagree")
	})
}

func TestATokenIsRaisedOnAQuorumBeforeTheLockIsGranted(t *testing.T) {
	for high := range 3 {
		told(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock, d *diary) {
			nodes[high].Set(fenceOf("x"), "9000000000000000", 0)
			for _, n := range nodes {
				n.Always(sim.Slow(10 * time.Millisecond))
			}
			nodes[(high+1)%3].Always(sim.Hang())
			m := rl.NewMutex("x")
			start := time.Now()
			require.NoError(t, m.Lock())
			assert.Equal(t, 20*time.Millisecond, time.Since(start))
			assert.True(t, d.last().Acquired.Raised)
			assert.Equal(t, uint64(9000000000000001), m.FencingToken())
			storedOnAQuorum(t, nodes, m.FencingToken())
			assert.Equal(t, start.Add(redlock.DefaultExpiry-drift(redlock.DefaultExpiry, 0.01)),
				m.Until(), "from before the first round")
			_, err := m.Extend()
			require.NoError(t, err)
			assert.Equal(t, uint64(9000000000000001), m.FencingToken())
			mustUnlock(t, m)
		}, redlock.WithFencing())
	}
}

func TestALockWhoseTokenIsNotOnAQuorumIsNotGranted(t *testing.T) {
	for name, fate := range map[string]sim.Fate{
		"fails": sim.Fail(errOops), "gone": sim.Reply(int64(0)), "foreign": sim.Reply(int64(-1)),
		"hangs": sim.Hang(),
	} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			nodes[0].Set(fenceOf("x"), "9000000000000000", 0)
			nodes[2].Always(sim.Hang())
			nodes[1].Next("raise", fate)
			m := rl.NewMutex("x")
			require.ErrorIs(t, m.TryLock(), redlock.ErrNoQuorum, name)
			assert.Zero(t, m.FencingToken())
			landed()
			assert.Empty(t, holders(nodes, "x"))
		}, redlock.WithFencing(), redlock.WithExpiry(time.Minute))
	}
}

// Nodes that would have stored the token when the context ended have not failed.
func TestAContextEndsWhileATokenIsRaised(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Set(fenceOf("x"), "9000000000000000", 0)
		for _, n := range nodes[1:] {
			n.Next("raise", sim.Slow(300*time.Millisecond))
		}
		nodes[2].Next("acquire", sim.Slow(10*time.Millisecond)) // so that the first has a part
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := rl.NewMutex("x").LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
		landed()
		assert.Empty(t, holders(nodes, "x"))
	}, redlock.WithFencing())
}

func TestATooSlowRaiseRoundIsTooLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Set(fenceOf("x"), "9000000000000000", 0)
		for _, n := range nodes[:2] {
			n.Next("raise", sim.Slow(900*time.Millisecond))
			n.Next("acquire", sim.Slow(100*time.Millisecond))
		}
		nodes[2].Always(sim.Hang())
		m := rl.NewMutex("x")
		require.ErrorIs(t, m.TryLock(), redlock.ErrExpired)
		landed()
		assert.Empty(t, holders(nodes, "x"))
	}, redlock.WithFencing(), redlock.WithExpiry(time.Second), redlock.WithNodeTimeout(time.Second))
}

func TestTokensGoOnAfterTheCountersWereLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		first := m.FencingToken()
		mustUnlock(t, m)
		synctest.Wait()
		for _, n := range nodes {
			n.Flush()
		}
		other := redlock.New(nodes.Pools("b")...).NewMutex("x", redlock.WithFencing())
		time.Sleep(time.Microsecond)
		require.NoError(t, other.Lock())
		assert.Greater(t, other.FencingToken(), first)
	}, redlock.WithFencing())
}

func TestAFenceCounterOfItsOwnOutlivesItsLastUse(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		assert.Equal(t, time.Hour, nodes[0].TTL("{x}:fence"))
		time.Sleep(time.Second)
		_, err := m.Extend()
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, time.Hour, nodes[0].TTL("{x}:fence"))
		mustUnlock(t, m)
		time.Sleep(time.Hour)
		assert.Zero(t, nodes[0].Keys(), "and not for ever")
	}, redlock.WithFencing(), redlock.WithFencePerName(), redlock.WithFenceTTL(time.Hour))
}

// lesson L87: names share a bounded number of counters, which never expire.
func TestNamesShareCountersThatNeverExpire(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		used := map[string]bool{}
		var last uint64
		for i := range 1000 {
			name := fmt.Sprint("order:", i)
			m := rl.NewMutex(name, redlock.WithKeyPrefix("shop:"), redlock.WithFenceTTL(time.Hour))
			require.NoError(t, m.Lock())
			synctest.Wait()
			used[fenceOf("shop:"+name)] = true
			for _, n := range nodes {
				assert.Equal(t, fmt.Sprint(m.FencingToken()), n.Value(fenceOf("shop:"+name)))
			}
			last = m.FencingToken()
			_, err := m.Extend()
			require.NoError(t, err)
			mustUnlock(t, m)
			synctest.Wait()
		}
		for _, n := range nodes {
			assert.Equal(t, len(used), n.Keys())
		}
		assert.Less(t, len(used), 1000, "some share one")
		time.Sleep(400 * 24 * time.Hour)
		for _, n := range nodes {
			assert.Equal(t, len(used), n.Keys(), "none has expired")
			assert.Equal(t, time.Duration(-1), n.TTL(fenceOf("shop:order:999")))
		}
		m := rl.NewMutex("shop:order:999") // the same key
		require.NoError(t, m.Lock())
		assert.Greater(t, m.FencingToken(), last)
	}, redlock.WithFencing())
}

// A counter that somebody has given an expiry has none after its next use.
func TestASharedCounterLosesAnExpiry(t *testing.T) {
	onAllKinds(t, 3, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		for i, counter := range []string{"5", "9000000000000000"} {
			name := fmt.Sprint("x", i)
			nodes[0].Must("SET", fenceOf(name), counter, "PX", "60000")
			nodes[1].Must("SET", fenceOf(name), "5", "PX", "60000")
			m := rl.NewMutex(name)
			require.NoError(t, m.Lock())
			for _, n := range nodes[:2] {
				eventually(t, "a counter without an expiry",
					func() bool { return n.Must("PTTL", fenceOf(name)) == int64(-1) })
			}
			mustUnlock(t, m)
		}
	})
}

// lesson L102: what redlock keeps beside locks is no name for a lock, whatever the options: neither
// a fence counter nor a key of a queue.
func TestAKeyBesideLocksIsNoLock(t *testing.T) {
	for _, c := range []struct {
		prefix, name string
		refused      bool
	}{
		{"", "redlock:fence:0000", true},
		{"", "redlock:fence:ffff", true},
		{"redlock:", "fence:12ab", true},
		{"redlock:fence:12", "ab", true},
		{"app:", "redlock:fence:12ab", false},
		{"", "redlock:fence:", false},
		{"", "redlock:fence:12a", false},
		{"", "redlock:fence:12abc", false},
		{"", "redlock:fence:12AB", false},
		{"", "redlock:fence:12ag", false},
		{"", "{x}:fence", true},
		{"", "{a}:b:fence", true},
		{"{", "x}:fence", true},
		{"", "x:fence", false},
		{"", "{x}:fences", false},
		{"", "x:{x}:redlock:bid", true},
		{"", "x:{x}:redlock:ticket", true},
		{"x:{x}:", "redlock:queue", true},
		{"{x}:redlock:tag:", "roll", true},
		{"", "{x{y}:redlock:bid", true},
		{"", "x:redlock:bid", false},
		{"", "{x}:bid", false},
	} {
		t.Run(fmt.Sprintf("%q %q", c.prefix, c.name), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				rl = rl.With(redlock.WithKeyPrefix(c.prefix))
				m := rl.NewMutex(c.name)
				_, err := rl.Inspect(t.Context(), c.name)
				if !c.refused {
					require.NoError(t, err)
					require.NoError(t, m.TryLock())
					mustUnlock(t, m)
					return
				}
				for name, err := range everyOperation(t, m) {
					var option *redlock.OptionError
					require.ErrorAs(t, err, &option, name)
					assert.Contains(t, option.Error(), strconv.Quote(c.name))
				}
				var option *redlock.OptionError
				require.ErrorAs(t, err, &option, "Inspect")
				require.Zero(t, nodes.Count(""))
			})
		})
	}
}

func TestARestartedNodeTakesNoPartUntilItsGuardHasPassed(t *testing.T) {
	const maxTTL = 10500 * time.Millisecond // counts as 11 s, and a second more
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes[1:] {
			n.Crash()
			n.Restart(false)
		}
		start := time.Now()
		for _, up := range []time.Duration{0, time.Second, 11 * time.Second, 12*time.Second - 1} {
			time.Sleep(time.Until(start.Add(up)))
			err := rl.NewMutex("x").TryLock()
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			var guard *redlock.GuardError
			require.ErrorAs(t, err, &guard)
			assert.Equal(t, 12*time.Second-up.Truncate(time.Second), guard.Wait)
		}
		time.Sleep(time.Nanosecond)
		m := rl.NewMutex("x")
		require.NoError(t, m.TryLock())
		assert.Zero(t, m.FencingToken(), "a guard alone gives no token")
		mustUnlock(t, m)
	}, redlock.WithRestartGuard(maxTTL))
}

// That a guarded node has no key must not look as if the lock were about to be free.
func TestWaitingForAGuardIsNotBusy(t *testing.T) {
	for _, opts := range [][]redlock.Option{nil, {redlock.WithPolling()}} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for _, n := range nodes[1:] {
				n.Crash()
				n.Restart(false)
			}
			start := time.Now()
			m := rl.NewMutex("x", append(opts, redlock.WithTries(redlock.Unlimited),
				redlock.WithRetryDelay(time.Second))...)
			require.NoError(t, m.Lock())
			assert.Less(t, time.Since(start), 13*time.Second)
			assert.LessOrEqual(t, nodes.Count("acquire"), 3*(2+13))
		}, redlock.WithRestartGuard(11*time.Second))
	}
}

func TestARaiseNeedsAQuorumTogetherWithTheNodesThatHadTheToken(t *testing.T) {
	for raised := range 3 {
		bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			nodes[0].Set(fenceOf("x"), "9000000000000000", 0)
			for _, n := range nodes[1+raised : 3] {
				n.Next("raise", sim.Fail(errOops))
			}
			for _, n := range nodes[3:] {
				n.Always(sim.Hang())
			}
			m := rl.NewMutex("x")
			err := m.TryLock()
			if raised < 2 {
				assert.ErrorIs(t, err, redlock.ErrNoQuorum)
				return
			}
			require.NoError(t, err)
			storedOnAQuorum(t, nodes, m.FencingToken())
		}, redlock.WithFencing())
	}
}

// onAllKinds is onNodes, on servers and on embedded nodes. It flushes nothing in between: fn uses
// names of its own.
func onAllKinds(t *testing.T, n int, f func(t *testing.T, nodes []redistest.Node,
	rl *redlock.Redlock)) {
	t.Helper()
	run := func(t *testing.T, newPool func(testing.TB, string) pool.Pool, nodes []redistest.Node) {
		pools := make([]pool.Pool, len(nodes))
		for i, node := range nodes {
			pools[i] = newPool(t, node.Addr())
		}
		rl := redlock.New(pools...).With(redlock.WithFencing(), patient)
		f(t, nodes, rl)
		mustClose(t, rl)
	}
	for client, newPool := range adapters {
		t.Run(client+"/embedded", func(t *testing.T) {
			if strconv.IntSize < 64 {
				t.Skip("an embedded node keeps numbers of scripts in an int, which is too small " +
					"for tokens here")
			}
			t.Parallel()
			var nodes []redistest.Node
			for _, m := range redistest.Embedded(t, n) {
				nodes = append(nodes, m)
			}
			run(t, newPool, nodes)
		})
		t.Run(client+"/servers", func(t *testing.T) {
			t.Parallel()
			var nodes []redistest.Node
			for _, s := range redistest.Start(t, n) {
				nodes = append(nodes, s)
			}
			run(t, newPool, nodes)
		})
	}
}

const maxToken uint64 = 1<<53 - 1

func TestTokensAreExactUpToTheirEnd(t *testing.T) {
	t.Parallel()
	onAllKinds(t, 3, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		for i, last := range []uint64{1 << 51, 1<<52 - 1, 1 << 52, 1<<52 + 1, maxToken - 12345,
			maxToken - 2, maxToken - 1} {
			// Nodes with that counter; the third may have to be raised.
			for have := 2; have <= 3; have++ {
				name := fmt.Sprintf("x%d-%d", i, have)
				for _, n := range nodes[:have] {
					n.Must("SET", fenceOf(name), fmt.Sprint(last))
				}
				m := rl.NewMutex(name)
				require.NoError(t, m.Lock())
				assert.Equal(t, last+1, m.FencingToken())
				stored := 0
				for _, v := range values(nodes, fenceOf(name)) {
					if v == fmt.Sprint(last+1) {
						stored++
					}
				}
				assert.GreaterOrEqual(t, stored, 2)
				mustUnlock(t, m)
			}
		}
	})
}

func TestAnUnusableFenceCounterIsAClearError(t *testing.T) {
	t.Parallel()
	onAllKinds(t, 3, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		i := 0
		for content, want := range map[string]string{
			fmt.Sprint(maxToken):     "ERR redlock: the fence counter %s is at its end",
			fmt.Sprint(maxToken + 1): "ERR redlock: the fence counter %s holds something else",
			"99999999999999999999":   "ERR redlock: the fence counter %s holds something else",
			"text":                   "ERR redlock: the fence counter %s holds something else",
			"":                       "ERR redlock: the fence counter %s holds something else",
			"-5":                     "ERR redlock: the fence counter %s holds something else",
			"1.5":                    "ERR redlock: the fence counter %s holds something else",
			"1e3":                    "ERR redlock: the fence counter %s holds something else",
			"0x10":                   "ERR redlock: the fence counter %s holds something else",
			" 7":                     "ERR redlock: the fence counter %s holds something else",
			"-123456789012345":       "ERR redlock: the fence counter %s holds something else",
			" 123456789012345":       "ERR redlock: the fence counter %s holds something else",
			"12345678901234.5":       "ERR redlock: the fence counter %s holds something else",
			"17620000000000xy":       "ERR redlock: the fence counter %s holds something else",
			"nan(12345678901)":       "ERR redlock: the fence counter %s holds something else",
			"a list": "WRONGTYPE Operation against a key holding the wrong kind " +
				"of value",
		} {
			i++
			for bad := 1; bad <= 3; bad++ {
				name := fmt.Sprintf("x%d-%d", i, bad)
				key := fenceOf(name)
				if strings.Contains(want, "%s") {
					want = fmt.Sprintf(want, key)
				}
				for _, n := range nodes[:bad] {
					if content == "a list" {
						n.Must("LPUSH", key, content)
					} else {
						n.Must("SET", key, content)
					}
				}
				m := rl.NewMutex(name)
				err := m.TryLock()
				if bad == 1 {
					require.NoError(t, err, "%q on a minority", content)
					require.NotZero(t, m.FencingToken())
					mustUnlock(t, m)
				} else {
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
					var node *redlock.NodeError
					require.ErrorAs(t, err, &node)
					assert.ErrorContains(t, err, want)
					assert.Zero(t, m.FencingToken())
				}
				for _, n := range nodes[:bad] {
					assert.Equal(t, nodes[0].Must("TYPE", key), n.Must("TYPE", key))
					if content != "a list" {
						assert.Equal(t, content, n.Must("GET", key), "not touched")
					}
				}
				want = strings.Replace(want, key, "%s", 1)
			}
		}
	})
}

// What somebody has done to one counter must not reach other names by way of what a client has
// seen.
func TestACounterAtItsEndDoesNotSpread(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Set(fenceOf("y"), fmt.Sprint(maxToken-1), 0)
		}
		y := rl.NewMutex("y")
		require.NoError(t, y.Lock())
		require.EqualValues(t, maxToken, y.FencingToken())
		mustUnlock(t, y)
		require.ErrorContains(t, y.TryLock(),
			"ERR redlock: the fence counter "+fenceOf("y")+" is at its end")
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		assert.Less(t, m.FencingToken(), uint64(time.Now().Add(25*time.Hour).UnixMicro()))
		for _, n := range nodes {
			n.Delete(fenceOf("y")) // as the docs say
		}
		require.NoError(t, y.TryLock())
		assert.Less(t, y.FencingToken(), uint64(time.Now().Add(25*time.Hour).UnixMicro()))
	}, redlock.WithFencing())
}

func TestHandedOverLocksAreHealedWithoutAToken(t *testing.T) {
	for _, opts := range [][]redlock.Option{nil, {redlock.WithRestartGuard(time.Minute)}} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			require.NoError(t, m.Lock())
			synctest.Wait()
			taker := rl.NewMutex("x", append(opts, redlock.WithValue(m.Value()))...)
			nodes[1].Flush()
			_, err := taker.Extend()
			require.NoError(t, err)
			synctest.Wait()
			assert.Equal(t, m.Value(), nodes[1].Value("x"))
			assert.Empty(t, nodes[1].Value(fenceOf("x")), "not known")
			assert.Zero(t, taker.FencingToken())
			mustUnlock(t, taker)
			synctest.Wait()
			assert.Empty(t, holders(nodes, "x"))
		}, redlock.WithFencing())
	}
}

func TestTheLifeOfAToken(t *testing.T) {
	t.Parallel()
	onAllKinds(t, 3, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		for i, name := range []string{"x", "{tag}:x", "x{tag}", "a{b", "x", "{tag}:x", "x{tag}",
			"a{b"} {
			own := i >= 4
			if own {
				rl = rl.With(redlock.WithFencePerName())
			}
			m := rl.NewMutex(name)
			var last uint64
			for range 3 {
				assert.Zero(t, m.FencingToken(), "not held")
				require.NoError(t, m.Lock())
				token := m.FencingToken()
				assert.Greater(t, token, last, "new for each lock")
				last = token
				for _, call := range []func() (bool, error){m.Extend, m.Valid, m.Extend} {
					_, err := call()
					require.NoError(t, err)
					assert.Equal(t, token, m.FencingToken())
				}
				mustUnlock(t, m)
			}
			assert.Zero(t, m.FencingToken(), "not held any more")
			fence := fenceOf(name)
			if own {
				fence = []string{"{x}:fence", "{tag}:x:fence", "x{tag}:fence", "{a{b}:fence"}[i-4]
			}
			stored := 0
			for _, v := range values(nodes, fence) {
				if v == fmt.Sprint(last) {
					stored++
				}
			}
			assert.GreaterOrEqual(t, stored, 2)
		}
	})
	onNodes(t, 1, func(t *testing.T, _ []redistest.Node, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		assert.Zero(t, m.FencingToken(), "not asked for")
		mustUnlock(t, m)
	})
}

func TestExtendAndHoldKeepACounterOfItsOwn(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		_, err := m.Hold(t.Context())
		require.NoError(t, err)
		token := m.FencingToken()
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			for _, n := range nodes {
				require.Greater(t, n.TTL("{x}:fence"), ttl-time.Second)
			}
		}
		assert.Equal(t, token, m.FencingToken())
		mustUnlock(t, m)
		time.Sleep(ttl)
		assert.Equal(t, []string{"", "", ""}, nodes.Values("{x}:fence"))
	}, redlock.WithFencing(), redlock.WithFencePerName(), redlock.WithExpiry(time.Second),
		redlock.WithFenceTTL(ttl))

	onAllKinds(t, 3, func(t *testing.T, nodes []redistest.Node, rl *redlock.Redlock) {
		m := rl.NewMutex("x", redlock.WithFencePerName(), redlock.WithFenceTTL(time.Minute))
		require.NoError(t, m.Lock())
		for _, use := range []string{"Lock", "Extend"} {
			for i, n := range nodes {
				eventually(t, fmt.Sprintf("node %d to renew the counter in %s", i, use),
					func() bool {
						left, _ := n.Must("PTTL", "{x}:fence").(int64)
						return left > 50_000 && left <= 60_000
					})
				n.Must("PEXPIRE", "{x}:fence", "5000")
			}
			_, err := m.Extend()
			require.NoError(t, err)
		}
		mustUnlock(t, m)
	})
}

// lesson L38: on servers that know the scripts, each operation is one command, EVALSHA, or SET
// for a lock without a token.
func TestEachOperationIsOneCommandANode(t *testing.T) {
	t.Parallel()
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 5)
			pools := make([]pool.Pool, len(servers))
			cycle := func(name string, opts []redlock.Option, pools ...pool.Pool) (value string) {
				rl := redlock.New(pools...).With(redlock.WithExpiry(time.Minute))
				defer mustClose(t, rl)
				m := rl.NewMutex(name, opts...)
				require.NoError(t, m.Lock())
				value = m.Value()
				for _, call := range []func() (bool, error){m.Extend, m.Valid, m.Unlock} {
					_, err := call()
					require.NoError(t, err)
				}
				return value
			}
			fenced := []redlock.Option{redlock.WithFencing()}
			for i, s := range servers {
				pools[i] = newPool(t, s.Addr())
				cycle("warm", fenced, pools[i])
			}
			for _, c := range []struct {
				name string
				opts []redlock.Option
				lock string
			}{{"x", nil, "SET"}, {"x", fenced, "EVALSHA"}, {"x", fenced, "EVALSHA"},
				{"{tag}:x", fenced, "EVALSHA"}} {
				var monitors []*redistest.Monitor
				for _, s := range servers {
					monitors = append(monitors, s.Monitor())
				}
				value := cycle(c.name, c.opts, pools...)
				total := 0
				for i, mon := range monitors {
					var sent []string
					for _, line := range mon.Lines() {
						if strings.Contains(line, value) && !strings.Contains(line, " lua]") {
							// Every other one is the command or an argument.
							words := strings.Split(line, "\"")
							sent = append(sent, strings.ToUpper(words[1]))
						}
					}
					// A server that is slow to answer may not be asked to extend, nor whether the
					// lock is valid.
					want := []string{c.lock, "EVALSHA", "EVALSHA", "EVALSHA"}
					assert.Equal(t, want[:max(2, min(len(sent), 4))], sent, "server %d", i)
					total += len(sent)
				}
				assert.GreaterOrEqual(t, total, 5+3+3+5)
			}
		})
	}
}

// Every script with two keys, with and without hash tags, on nodes that check the slots. Where
// the names share counters, the error says what a cluster needs. lesson L87
func TestFencingOnClusterNodes(t *testing.T) {
	t.Parallel()
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 3, redistest.Args("--cluster-enabled", "yes"))
			for _, s := range servers {
				s.Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
			}
			for _, s := range servers {
				clusterReady(t, s)
			}
			shared := reaching(t, newPool, servers, 0, 1, 2).With(redlock.WithFencing())
			const advice = "this node is part of a cluster, where fencing needs WithFencePerName"
			err := shared.NewMutex("x").TryLock()
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, "CROSSSLOT")
			require.ErrorContains(t, err, advice)
			r, found := check(t, shared)
			assert.Contains(t, found, "critical crossslot [0 1 2]")
			for _, n := range r.Nodes {
				assert.ErrorContains(t, n.Err, advice)
			}
			rl := shared.With(redlock.WithFencePerName())
			r, _ = check(t, rl)
			for _, n := range r.Nodes {
				assert.NoError(t, n.Err)
			}
			for name, fence := range map[string]string{"x": "{x}:fence", "{tag}:x": "{tag}:x:fence",
				"x{tag}": "x{tag}:fence", "a{b": "{a{b}:fence"} {
				for _, s := range servers[:2] {
					s.Must("SET", fence, "9000000000000000")
				}
				m := rl.NewMutex(name, redlock.WithRestartGuard(redlock.DefaultExpiry))
				var guard *redlock.GuardError
				require.ErrorAs(t, m.TryLock(), &guard)
				m = rl.NewMutex(name)
				require.NoError(t, m.Lock())
				assert.Equal(t, uint64(9000000000000001), m.FencingToken())
				for _, call := range []func() (bool, error){m.Extend, m.Valid, m.Unlock} {
					_, err := call()
					require.NoError(t, err)
				}
			}
		})
	}
}

// What the docs say of users of one name with different kinds of counters: tokens rise if the
// clocks agree. If they do not, a holder's token may be smaller than the one before, and a
// claimed resource refuses it.
func TestTwoKindsOfCountersRestOnTheClocks(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprint("clocks apart by ", ahead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(3)
				users := make([]*redlock.Redlock, 2)
				for i, offset := range []time.Duration{ahead, 0} {
					pools := []pool.Pool{}
					for _, n := range nodes {
						pools = append(pools, &clocked{n.Link("a"), offset})
					}
					users[i] = redlock.New(pools...).With(redlock.WithFencing())
				}
				users[0] = users[0].With(redlock.WithFencePerName())
				var seen uint64
				refused := 0
				for i := range 10 {
					m := users[i%2].NewMutex("x")
					require.NoError(t, m.Lock())
					if m.FencingToken() < seen {
						refused++
					}
					seen = max(seen, m.FencingToken())
					mustUnlock(t, m)
					time.Sleep(time.Millisecond)
				}
				assert.Equal(t, map[bool]int{false: 0, true: 5}[ahead > 0], refused)
			})
		})
	}
}
