package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// lesson L1: the drift is taken off the validity.
func TestUntilIsStartPlusExpiryMinusDrift(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		expiry := time.Duration(1+r.IntN(100_000))*time.Millisecond +
			time.Duration(r.IntN(1_000_000))
		factor := r.Float64() / 2
		slow := time.Duration(r.Int64N(int64(expiry / 10)))
		whole := expiry.Truncate(time.Millisecond)
		if drift(whole, factor)+max(slow, time.Millisecond) >= whole {
			continue
		}
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for _, n := range nodes {
				n.Always(sim.Slow(slow))
			}
			m := rl.NewMutex("x", redlock.WithExpiry(expiry), redlock.WithDriftFactor(factor),
				redlock.WithTimeoutFactor(1))
			start := time.Now()
			require.NoError(t, m.Lock())
			assert.Equal(t, slow, time.Since(start))
			assert.True(t, start.Add(whole-drift(whole, factor)).Equal(m.Until()),
				"expiry %v, factor %v", expiry, factor)
			mustUnlock(t, m)
		})
	}
}

// lesson L6
func TestUntilCountsFromTheAttemptThatWon(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Always(sim.Slow(time.Millisecond))
		}
		for _, n := range nodes[1:] {
			for range 9 {
				n.Next("set", sim.Fail(errOops))
			}
		}
		m := rl.NewMutex("x", redlock.WithRetryDelay(100*time.Millisecond),
			redlock.WithPolling())
		start := time.Now()
		require.NoError(t, m.Lock())
		tenth := start.Add(9 * 100 * time.Millisecond) // those nodes fail at once
		assert.Equal(t, tenth.Add(redlock.DefaultExpiry-drift(redlock.DefaultExpiry, 0.01)),
			m.Until())
	})
}

// lesson L2 and L9: the quorum is counted from all configured nodes, even numbers included.
func TestLockNeedsAQuorumOfTheConfiguredNodes(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for up := 0; up <= n; up++ {
			bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for i := up; i < n; i++ {
					nodes[i].Always(sim.Hang())
				}
				m := rl.NewMutex("x")
				err := m.TryLock()
				synctest.Wait()
				if up >= n/2+1 {
					require.NoError(t, err, "%d of %d", up, n)
					assert.Equal(t, map[string]int{m.Value(): up}, holders(nodes, "x"))
				} else {
					require.ErrorIs(t, err, redlock.ErrNoQuorum, "%d of %d", up, n)
					assert.Empty(t, m.Value())
					assert.Zero(t, m.Until())
					landed()
					assert.Empty(t, holders(nodes, "x"))
				}
			}, redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(time.Second))
		}
	}
}

// lesson L11
func TestFailureIsDecidedAsSoonAsItIsCertain(t *testing.T) {
	refuse, hang, fail := sim.Refuse(), sim.Hang(), sim.Fail(errOops)
	for name, tt := range map[string]struct {
		fates  []sim.Fate
		want   error
		within time.Duration // more than 0 where it may yet turn out to be taken
	}{
		"2 of 4 refuse": {[]sim.Fate{refuse, refuse, hang, hang}, redlock.ErrTaken,
			0},
		"2 of 3 fail": {[]sim.Fate{fail, fail, hang}, redlock.ErrNoQuorum, 0},
		"1 of 3 refuses, 1 fails": {[]sim.Fate{refuse, fail, hang}, redlock.ErrNoQuorum,
			5 * time.Millisecond},
		"1 of 2 refuses": {[]sim.Fate{refuse, hang}, redlock.ErrTaken, 0},
		"1 of 7 refuses, 3 of 7 fail": {[]sim.Fate{hang, {}, fail, {}, fail, refuse, fail},
			redlock.ErrNoQuorum, 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, len(tt.fates), func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for i, f := range tt.fates {
					nodes[i].Next("set", f)
					nodes[i].Next("release", f)
				}
				start := time.Now()
				err := rl.NewMutex("x").TryLock()
				assert.ErrorIs(t, err, tt.want)
				assert.LessOrEqual(t, time.Since(start), tt.within)
			})
		})
	}
}

func TestLockReturnsWhenAQuorumHasGranted(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for i, n := range nodes {
			n.Always(sim.Slow(time.Duration(i+1) * 10 * time.Millisecond))
		}
		nodes[4].Always(sim.Deaf(sim.Hang()))
		m := rl.NewMutex("x")
		start := time.Now()
		require.NoError(t, m.Lock())
		assert.Equal(t, 30*time.Millisecond, time.Since(start))
		landed()
		assert.Equal(t, map[string]int{m.Value(): 4}, holders(nodes, "x"),
			"stragglers keep what they granted")
		start = time.Now()
		mustUnlock(t, m)
		assert.Equal(t, 30*time.Millisecond, time.Since(start))
	}, redlock.WithExpiry(time.Minute))
}

// lesson L7
func TestNoLockIsGrantedOfWhichNothingIsLeft(t *testing.T) {
	const expiry = time.Second
	validity := expiry - drift(expiry, redlock.DefaultDriftFactor)
	for _, tt := range []struct {
		takes time.Duration
		held  bool
	}{{validity - 1, true}, {validity, false}, {validity + 1, false}} {
		t.Run(tt.takes.String(), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for _, n := range nodes {
					n.Next("set", sim.Fate{Request: time.Millisecond,
						Reply: tt.takes - time.Millisecond})
				}
				m := rl.NewMutex("x", redlock.WithExpiry(expiry), redlock.WithNodeTimeout(expiry))
				err := m.TryLock()
				if tt.held {
					require.NoError(t, err)
					assert.EqualValues(t, 1, time.Until(m.Until()))
					return
				}
				require.ErrorIs(t, err, redlock.ErrExpired)
				require.ErrorIs(t, err, redlock.ErrFailed)
				assert.NotErrorIs(t, err, redlock.ErrTaken)
				assert.Zero(t, m.Until())
				synctest.Wait()
				assert.Empty(t, holders(nodes, "x"), "cleaned up")
			})
		})
	}
}

// lesson L8
func TestExpiryIsWholeMillisecondsEverywhere(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x", redlock.WithExpiry(10*time.Millisecond+999*time.Microsecond),
			redlock.WithNodeTimeout(10*time.Millisecond))
		start := time.Now()
		require.NoError(t, m.Lock())
		assert.Equal(t, 10*time.Millisecond, nodes[0].TTL("x"))
		assert.Equal(t, start.Add(10*time.Millisecond-drift(10*time.Millisecond, 0.01)), m.Until())
	})
}

// lesson L13: the SET arrives on three of five nodes long after it was given up.
func TestALateSetIsTakenBack(t *testing.T) {
	for name, fate := range map[string]sim.Fate{
		"the client waits":    {Request: 3 * time.Second, Deaf: true},
		"the client gives up": {Request: 900 * time.Millisecond},
		"the client gives up late": {Request: 900 * time.Millisecond, Reply: time.Hour, Deaf: true,
			Timeout: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for _, n := range nodes[2:] {
					n.Next("set", fate)
				}
				m := rl.NewMutex("x", redlock.WithNodeTimeout(500*time.Millisecond))
				require.ErrorIs(t, m.TryLock(), redlock.ErrNoQuorum)
				landed()
				assert.Equal(t, 5, nodes.Count("set"), "all have arrived")
				assert.Empty(t, holders(nodes, "x"))
				assert.NoError(t, rl.NewMutex("x").TryLock(), "free for the next")
			}, redlock.WithExpiry(time.Minute))
		})
	}
}

// lesson L15: an orphan of the first attempt does not stand in the way of the second.
func TestOwnOrphanIsNoObstacle(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes[:2] {
			n.Next("set", sim.LoseReply())
		}
		start := time.Now()
		require.NoError(t, rl.NewMutex("x").Lock())
		assert.Less(t, time.Since(start), time.Second)
	})
}

// lesson L15: a client that sends SET NX again after a lost reply is refused by its own key.
func TestAFreeLockIsNotTakenBecauseOfAResentSet(t *testing.T) {
	resent := sim.Fate{ReplyLost: true, Again: time.Millisecond}
	for resends := 1; resends <= 3; resends++ {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for range resends {
				nodes[0].Next("set", resent)
				nodes[2].Next("set", resent)
			}
			m := rl.NewMutex("x")
			require.NoError(t, m.TryLock())
			landed()
			assert.Equal(t, map[string]int{m.Value(): 3}, holders(nodes, "x"))
		}, redlock.WithExpiry(time.Minute))
	}
}

func TestAPoolThatAlwaysRefusesIsNotAskedForEver(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Always(sim.Fate{ReplyLost: true, Again: time.Millisecond})
		lying := redlock.New(liar{nodes[0].Link("b")})
		assert.ErrorIs(t, lying.NewMutex("x").TryLock(), redlock.ErrTaken)
		assert.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrTaken)
		nodes[0].Always(sim.Fate{})
		assert.ErrorIs(t, lying.NewMutex("x").TryLock(), redlock.ErrTaken)
	})
}

// liar grants and says that it did not.
type liar struct{ pool.Pool }

func (l liar) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	_, err := l.Pool.SetNX(ctx, key, value, expiry)
	return false, err
}

// lesson L16
func TestEveryAttemptHasAValueOfItsOwn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		log := nodes.Record()
		for _, n := range nodes {
			n.Next("set", sim.FailAfter(errOops), sim.FailAfter(errOops), sim.FailAfter(errOops))
		}
		m := rl.NewMutex("x", redlock.WithGenValueFunc(func() (string, error) {
			return "constant",
				nil
		}))
		require.NoError(t, m.Lock())
		landed()
		perValue := map[string]map[int]bool{}
		for _, e := range log.Events() {
			if e.Command == "set" {
				assert.True(t, strings.HasPrefix(e.Value, "constant:"), e.Value)
				if perValue[e.Value] == nil {
					perValue[e.Value] = map[int]bool{}
				}
				assert.False(t, perValue[e.Value][e.Node], "sent twice to one node")
				perValue[e.Value][e.Node] = true
			}
		}
		assert.GreaterOrEqual(t, len(perValue), 4)
		assert.True(t, strings.HasPrefix(m.Value(), "constant:"))
	}, redlock.WithExpiry(time.Minute))
}

func TestAValueHas128RandomBits(t *testing.T) {
	bubble(t, 1, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		seen := map[string]bool{}
		for range 100 {
			require.NoError(t, m.Lock())
			assert.Regexp(t, "^[A-Za-z0-9+/]{22}==$", m.Value())
			seen[m.Value()] = true
			mustUnlock(t, m)
			assert.Empty(t, m.Value())
		}
		assert.Len(t, seen, 100)
	})
}

func TestAnErrorOfTheValueFuncFailsTheLockAtOnce(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		calls := 0
		m := rl.NewMutex("x", redlock.WithGenValueFunc(func() (string, error) {
			calls++
			return "",
				errOops
		}))
		err := m.Lock()
		require.ErrorIs(t, err, errOops)
		require.ErrorIs(t, err, redlock.ErrFailed)
		assert.Equal(t, 1, calls)
		assert.Zero(t, nodes.Count(""))
	})
}

// lesson L17: what a node may have granted is taken back too, not only what it said it granted.
func TestAFailedLockIsReleasedOnNodesThatSaidNoOrNothing(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Next("set", sim.LoseReply())
		nodes[1].Next("set", sim.FailAfter(io.EOF))
		nodes[2].Next("set", sim.Fate{Answer: &sim.Answer{Value: false}})
		nodes[3].Next("set", sim.Deaf(sim.LoseReply()))
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		landed()
		assert.Equal(t, 10, nodes.Count("set")+nodes.Count("claim"), "in two attempts")
		assert.Equal(t, map[string]int{m.Value(): 5}, holders(nodes, "x"))
	}, redlock.WithExpiry(time.Minute))
}

// lesson L19
func TestAReleaseErrorDoesNotHideTheReasonOfAFailedLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		x, y := errors.New("X"), errors.New("Y")
		for _, n := range nodes {
			n.Always(sim.Fail(y))
			n.Next("set", sim.Fail(x))
		}
		err := rl.NewMutex("x").TryLock()
		assert.ErrorIs(t, err, x)
		assert.NotErrorIs(t, err, y)
	})
}

// lesson L19: also if the attempt was decided before the node had failed.
func TestAReleaseErrorDoesNotHideTheReasonOfANodeThatFailsLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		x, y := errors.New("X"), errors.New("Y")
		nodes[0].Next("set", sim.Refuse())
		nodes[1].Next("set", sim.Fail(io.EOF))
		nodes[2].Always(sim.Fail(y))
		late := sim.Fail(x)
		late.Reply = time.Millisecond
		nodes[2].Next("set", late)
		err := rl.NewMutex("x").TryLock()
		assert.ErrorIs(t, err, x)
		assert.NotErrorIs(t, err, y)
	})
}

// lesson L42: one node's trouble, whatever it is, is no trouble.
func TestOneFaultyNodeOfThreeHarmsNothing(t *testing.T) {
	faults := map[string]sim.Fate{
		"refused": sim.Fail(&net.OpError{Op: "dial", Net: "tcp",
			Err: errors.New("connection refused")}),
		"reset":   sim.FailAfter(io.ErrUnexpectedEOF),
		"dns":     sim.Fail(&net.DNSError{Err: "no such host", Name: "redis-3"}),
		"hang":    sim.Hang(),
		"deaf":    sim.Deaf(sim.Hang()),
		"lost":    sim.LoseReply(),
		"slow":    sim.Slow(300 * time.Millisecond),
		"garbage": sim.Reply("garbage"),
		"nothing": sim.Reply(nil),
		"context": sim.Fail(context.Canceled),
	}
	// lesson L43
	for _, code := range []string{"MISCONF", "READONLY", "OOM", "NOPERM", "LOADING", "WRONGTYPE",
		"MASTERDOWN", "NOAUTH", "BUSY"} {
		faults[code] = sim.Fail(errors.New(code + " and what it means"))
	}
	for name, fate := range faults {
		for _, fencing := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " fencing=", fencing), func(t *testing.T) {
				opts := []redlock.Option{redlock.WithExpiry(time.Minute),
					redlock.WithNodeTimeout(time.Second)}
				if fencing {
					opts = append(opts, redlock.WithFencing())
				}
				bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					nodes[1].Always(fate)
					m := rl.NewMutex("x")
					start := time.Now()
					require.NoError(t, m.Lock())
					for _, call := range []func() (bool, error){m.Extend, m.Valid, m.Unlock} {
						ok, err := call()
						require.NoError(t, err)
						assert.True(t, ok)
					}
					assert.Zero(t, time.Since(start))
					nodes[1].Always(sim.Fate{})
					landed()
					assert.Empty(t, holders(nodes, "x"))
				}, opts...)
			})
		}
	}
}

// lesson L43: what a node said is in the error.
func TestNodeErrorsOfAMajorityAreTold(t *testing.T) {
	for _, code := range []string{"MISCONF", "READONLY", "OOM", "NOPERM", "LOADING", "WRONGTYPE",
		"MASTERDOWN"} {
		said := errors.New(code + " and what it means")
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			nodes[1].Next("set", sim.Fail(said))
			nodes[2].Next("set", sim.Fail(said))
			err := rl.NewMutex("x").TryLock()
			synctest.Wait()
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorIs(t, err, said)
			assert.ErrorContains(t, err, fmt.Sprintf("node 1: %v; node 2: %v)", said, said))

			m := rl.NewMutex("x")
			require.NoError(t, m.TryLock())
			for _, n := range nodes[:2] {
				n.Next("extend", sim.Fail(said))
				n.Next("release", sim.Fail(said))
			}
			_, err = m.Extend()
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			assert.ErrorContains(t, err, fmt.Sprintf("(node 0: %v; node 1: %v", said, said))
			_, err = m.Unlock()
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			assert.ErrorContains(t, err, fmt.Sprintf("(node 0: %v; node 1: %v", said, said))
			mustUnlock(t, m)
		})
	}
}

// lesson L37: only the integers that a script answers are taken for answers.
func TestStrangeRepliesAreNeverAYes(t *testing.T) {
	for _, reply := range []any{nil, int(1), "1", "OK", true, 1.0, []any{int64(1)}, []byte("1"),
		uint64(1)} {
		t.Run(fmt.Sprintf("%T", reply), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x", redlock.WithFencing())
				require.NoError(t, m.Lock())
				for _, n := range nodes {
					n.Always(sim.Reply(reply))
				}
				errs := map[string]error{"acquire": rl.NewMutex("y",
					redlock.WithFencing()).TryLock()}
				for script, call := range map[string]func() (bool, error){"extend": m.Extend,
					"valid": m.Valid} {
					ok, err := call()
					errs[script] = refused(t, ok, err)
				}
				ok, err := m.Unlock()
				errs["release"] = refused(t, ok, err)
				for script, err := range errs {
					assert.ErrorIs(t, err, redlock.ErrNoQuorum, script)
					var strange *redlock.ReplyError
					require.ErrorAs(t, err, &strange)
					assert.Equal(t, script, strange.Script)
					assert.Equal(t, reply, strange.Reply)
				}
			})
		})
	}
}

// clocked is a client whose clock is wrong.
type clocked struct {
	*sim.Link
	offset time.Duration
}

func (c *clocked) Clock() clock.Own {
	return clock.Own{Now: func() time.Time { return time.Now().Add(c.offset) }}
}

// lesson L45: a client's clock plays no part in when a key expires, also if it jumps while the
// lock is held. If it jumps past until, the lock is not trusted any more, for the machine may
// have been suspended.
func TestAClientsClockDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sim.NewNodes(1)[0]
		for _, offset := range []time.Duration{-1000 * time.Hour, 0, 1000 * time.Hour} {
			for _, jump := range []time.Duration{-1000 * time.Hour, -time.Second, 0,
				400 * time.Millisecond, time.Second, 1000 * time.Hour} {
				c := &clocked{node.Link("a"), offset}
				m := redlock.New(c).NewMutex("x", redlock.WithExpiry(time.Second))
				require.NoError(t, m.Lock())
				assert.Equal(t, time.Second, node.TTL("x"))
				time.Sleep(500 * time.Millisecond)
				c.offset += jump
				_, err := m.Extend()
				if jump >= time.Second {
					require.ErrorIs(t, err, redlock.ErrExpired)
					assert.Equal(t, 500*time.Millisecond, node.TTL("x"), "nothing was sent")
				} else {
					require.NoError(t, err)
					assert.Equal(t, time.Second, node.TTL("x"))
				}
				mustUnlock(t, m)
			}
		}
	})
}

// lesson L46: the prefix keeps the library's keys apart from the application's.
func TestKeyPrefix(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Set("x", "the application's", 0)
		}
		require.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrTaken)
		m := rl.NewMutex("x", redlock.WithKeyPrefix("lock:"))
		require.NoError(t, m.TryLock())
		synctest.Wait()
		assert.Equal(t, map[string]int{m.Value(): 3}, holders(nodes, "lock:x"))
		mustUnlock(t, m)
		assert.Equal(t, map[string]int{"the application's": 3}, holders(nodes, "x"))
	})
}

// keyed tells the keys of each script.
type keyed struct {
	pool.Pool
	tell func(keys []string)
}

func (k keyed) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any, error) {
	k.tell(keys)
	return k.Pool.Eval(ctx, s, keys, args...)
}

// lesson L40: the keys of one lock share a hash slot, because they share a hash tag.
func TestKeysOfALockShareAHashSlot(t *testing.T) {
	for key, want := range map[string][]string{
		"x":     {"x {x}:fence", "x x:{x}:redlock:queue", "x"},
		"a:b:c": {"a:b:c {a:b:c}:fence", "a:b:c a:b:c:{a:b:c}:redlock:queue", "a:b:c"},
		"{a}:b": {"{a}:b {a}:b:fence", "{a}:b {a}:b:redlock:tag:queue", "{a}:b"},
		"p{a}b": {"p{a}b p{a}b:fence", "p{a}b p{a}b:redlock:tag:queue", "p{a}b"},
		"a{b":   {"a{b {a{b}:fence", "a{b {a{b}:redlock:queue", "a{b"},
		"with ☃ ": {"with ☃  {with ☃ }:fence", "with ☃  with ☃ :{with ☃ }:redlock:queue",
			"with ☃ "},
		// No queue: there is no key for it that is sure to have the slot.
		"a}b":  {"a}b a}b:fence", "a}b"},
		"{}a}": {"{}a} {}a}:fence", "{}a}"},
	} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := map[string]bool{}
				rl := redlock.New(keyed{sim.NewNodes(1)[0].Link("a"),
					func(keys []string) { got[strings.Join(keys, " ")] = true }})
				m := rl.NewMutex(key, redlock.WithFencing(), redlock.WithFencePerName(),
					redlock.WithRestartGuard(time.Minute))
				require.NoError(t, m.Lock())
				_, err := m.Extend()
				require.NoError(t, err)
				_, err = m.Valid()
				require.NoError(t, err)
				mustUnlock(t, m)
				for _, w := range want {
					assert.True(t, got[w], w)
					delete(got, w)
				}
				assert.Empty(t, got)
			})
		})
	}
}

// lesson L47: the wait between attempts ends with the context, and nothing is left of it.
func TestCancelDuringTheWaitReturnsAtOnce(t *testing.T) {
	for _, opts := range [][]redlock.Option{nil, {redlock.WithPolling()}} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			require.NoError(t, rl.NewMutex("x").Lock())
			ctx, cancel := context.WithCancel(t.Context())
			start := time.Now()
			time.AfterFunc(10*time.Minute, cancel)
			m := rl.NewMutex("x", append(opts, redlock.WithTries(redlock.Unlimited),
				redlock.WithRetryDelay(24*time.Hour))...)
			err := m.LockContext(ctx)
			assert.Equal(t, 10*time.Minute, time.Since(start))
			assert.ErrorIs(t, err, context.Canceled)
		}, redlock.WithExpiry(48*time.Hour))
	}
}

// lesson L48
func TestTheEndOfTheContextIsRecognisedWithItsCause(t *testing.T) {
	cause := errors.New("shutting down")
	for _, op := range []string{"Lock", "TryLock", "Extend", "Valid"} {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprint(op, " ended before the call=", before), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					m := rl.NewMutex("x")
					if op == "Extend" || op == "Valid" {
						require.NoError(t, m.Lock())
					}
					synctest.Wait()
					sent := nodes.Count("")
					for _, n := range nodes {
						n.Always(sim.Slow(time.Second / 4))
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					wait := time.Second / 8
					if before {
						wait = 0
						cancel(cause)
					}
					time.AfterFunc(wait, func() { cancel(cause) })
					start := time.Now()
					var err error
					switch op {
					case "Lock":
						err = m.LockContext(ctx)
					case "TryLock":
						err = m.TryLockContext(ctx)
					case "Extend":
						_, err = m.ExtendContext(ctx)
					case "Valid":
						_, err = m.ValidContext(ctx)
					}
					assert.Equal(t, wait, time.Since(start))
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorIs(t, err, cause)
					assert.NotErrorIs(t, err, context.DeadlineExceeded)
					assert.NotErrorIs(t, err, redlock.ErrNoQuorum)
					assert.Equal(t, op == "Lock" || op == "TryLock",
						errors.Is(err, redlock.ErrFailed))
					if before {
						landed()
						assert.Equal(t, sent, nodes.Count(""), "nothing was sent")
					}
				}, redlock.WithExpiry(time.Minute))
			})
		}
	}
}

// lesson L49
func TestTryLockMakesOneAttemptAndKeepsItsError(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		require.NoError(t, rl.NewMutex("x").Lock())
		synctest.Wait()
		for _, tries := range []int{1, 2, 32, redlock.Unlimited} {
			sent := nodes.Count("set")
			err := rl.NewMutex("x", redlock.WithTries(tries)).TryLock()
			assert.ErrorIs(t, err, redlock.ErrTaken)
			assert.ErrorIs(t, err, redlock.ErrFailed)
			synctest.Wait()
			assert.LessOrEqual(t, nodes.Count("set")-sent, 3)
		}
	})
}

func TestLockMakesSoManyTries(t *testing.T) {
	for _, tries := range []int{1, 2, 5} {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for _, n := range nodes {
				n.Always(sim.Fail(errOops))
			}
			var asked []int
			m := rl.NewMutex("x", redlock.WithTries(tries), redlock.WithPolling(),
				redlock.WithRetryDelayFunc(func(try int) time.Duration {
					asked = append(asked,
						try)
					return time.Second
				}))
			start := time.Now()
			require.ErrorIs(t, m.Lock(), errOops)
			assert.Equal(t, time.Duration(tries-1)*time.Second, time.Since(start))
			assert.Zero(t, nodes.Count("set"))
		})
	}
}

// lesson L52
func TestLockDoesNotWaitInSilenceForANodeThatIsDown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Crash()
		}
		start := time.Now()
		err := rl.NewMutex("x").Lock()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, sim.ErrRefused)
		assert.NotErrorIs(t, err, redlock.ErrTaken)
		assert.Less(t, time.Since(start), 31*redlock.DefaultMaxRetryDelay+time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = rl.NewMutex("x", redlock.WithTries(redlock.Unlimited)).LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlock.ErrNoQuorum, "unlimited tries say so when the context ends")
		require.ErrorIs(t, err, sim.ErrRefused)
	})
}

// The context ends at the very moment of the quorum, before or after.
func TestALockIsHeldOrLeavesNothing(t *testing.T) {
	held, failed := 0, 0
	for i := range 300 {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			for _, n := range nodes {
				n.Always(sim.Slow(10 * time.Millisecond))
			}
			ctx, cancel := context.WithTimeout(t.Context(),
				10*time.Millisecond+time.Duration(i%3-1))
			defer cancel()
			m := rl.NewMutex("x")
			err := m.LockContext(ctx)
			landed()
			if err == nil {
				held++
				assert.Equal(t, map[string]int{m.Value(): 3}, holders(nodes, "x"))
				return
			}
			failed++
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Empty(t, m.Value())
			assert.Empty(t, holders(nodes, "x"))
		}, redlock.WithExpiry(time.Minute))
	}
	assert.NotZero(t, held)
	assert.NotZero(t, failed)
}

func TestALockedMutexCompetesWithItself(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		value, until := m.Value(), m.Until()
		require.ErrorIs(t, m.TryLock(), redlock.ErrTaken)
		assert.Equal(t, value, m.Value())
		assert.Equal(t, until, m.Until())
		mustUnlock(t, m)
		require.NoError(t, m.TryLock())
		assert.NotEqual(t, value, m.Value())
	})
}

func TestTheFinalTryWaitsForSlowVotesAfterARefusal(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Set("x", "somebody else's", time.Minute)
		nodes[1].Always(sim.Slow(100 * time.Millisecond))
		nodes[2].Always(sim.Slow(100 * time.Millisecond))
		m := rl.NewMutex("x")
		require.NoError(t, m.TryLock())
		mustUnlock(t, m)
	})
}

// aloneness checks what a pool is told of the number of nodes.
type aloneness struct {
	sim.Instant
	told func(c *pool.Command)
}

func (a aloneness) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	a.told(c)
	a.Instant.Start(ctx, c, to)
}

// Pools hold a command of a group of one node up for less.
func TestCommandsSayThatTheirNodeIsAlone(t *testing.T) {
	for n := 1; n <= 5; n += 2 {
		sent := 0
		pools := sim.NewNodes(n).Instants("a")
		for i, p := range pools {
			pools[i] = aloneness{p.(sim.Instant), func(c *pool.Command) {
				sent++
				assert.Equal(t, n == 1, c.Alone, "%d nodes: %v", n, c.Args())
			}}
		}
		m := redlock.New(pools...).NewMutex("x")
		require.NoError(t, m.Lock())
		_, err := m.Extend()
		require.NoError(t, err)
		_, err = m.Unlock()
		require.NoError(t, err)
		assert.Equal(t, 3*n, sent)
	}
}
