package behaviour_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// mustHandOff hands the lock of a mutex off.
func mustHandOff(t *testing.T, m *redlock.Mutex) string {
	t.Helper()
	synctest.Wait()
	handoff, err := m.Handoff()
	require.NoError(t, err)
	return handoff
}

// mustAdopt adopts a lock.
func mustAdopt(t *testing.T, m *redlock.Mutex, handoff string) context.Context {
	t.Helper()
	held, err := m.Adopt(t.Context(), handoff)
	require.NoError(t, err)
	synctest.Wait()
	return held
}

func TestALockIsHandedOver(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 7} {
		for name, opts := range map[string][]redlock.Option{
			"plain": nil, "fencing": {redlock.WithFencing()},
			"a counter of its own": {redlock.WithFencing(), redlock.WithFencePerName()},
			"polling":              {redlock.WithPolling()},
			"an owner":             {redlock.WithOwner("pod-7")},
		} {
			t.Run(fmt.Sprintf("%d nodes, %s", n, name), func(t *testing.T) {
				bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					opts := append(opts, redlock.WithKeyPrefix("app:"))
					other := redlock.New(nodes.Pools("b")...).With(opts...)
					taken := func(when string) {
						synctest.Wait()
						m := redlock.New(nodes.Pools("c")...).With(opts...).NewMutex("x")
						assert.ErrorIs(t, m.TryLock(), redlock.ErrTaken, when)
					}
					from, to := rl.With(opts...).NewMutex("x"), other.NewMutex("x")
					held := mustHold(t, from)
					time.Sleep(time.Minute)
					token, value, sent := from.FencingToken(), from.Value(), nodes.Count("")
					handoff := mustHandOff(t, from)
					assert.ErrorIs(t, context.Cause(held), redlock.ErrReleased)
					assert.Zero(t, from.Until())
					assert.Empty(t, from.Value())
					assert.Zero(t, from.FencingToken())
					_, err := from.Extend()
					assert.ErrorIs(t, err, redlock.ErrNotHeld)
					_, err = from.Unlock()
					assert.ErrorIs(t, err, redlock.ErrNotHeld)
					assert.Equal(t, sent, nodes.Count(""), "it sends nothing")
					taken("on its way")

					held = mustAdopt(t, to, handoff)
					assert.Equal(t, n, nodes.Count("swap"))
					assert.NotEqual(t, value, to.Value())
					assert.Equal(t, map[string]int{to.Value(): n}, holders(nodes, "app:x"))
					if token != 0 {
						assert.Greater(t, to.FencingToken(), token)
						assert.Equal(t, to.FencingToken(), redlock.FencingToken(held))
					}
					taken("adopted")
					time.Sleep(time.Minute)
					require.NoError(t, held.Err(), "it is kept extended")
					taken("a minute later")

					late := rl.With(opts...).NewMutex("x", redlock.WithValue(value))
					_, err = late.Extend()
					assert.ErrorIs(t, err, redlock.ErrExpired, "by the old value")
					late = rl.With(opts...).NewMutex("x", redlock.WithValue(value))
					_, err = late.Unlock()
					assert.ErrorIs(t, err, redlock.ErrExpired)
					mustUnlock(t, to)
					synctest.Wait()
					assert.Empty(t, holders(nodes, "app:x"))
					require.NoError(t, other.Close())
				})
			})
		}
	}
}

// A lock may go through many hands, and back.
func TestALockIsHandedOverAgainAndAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		rl = rl.With(redlock.WithFencing())
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock(), "it need not be held")
		token := m.FencingToken()
		for range 50 {
			handoff := mustHandOff(t, m)
			time.Sleep(time.Second)
			mustAdopt(t, m, handoff)
			assert.Greater(t, m.FencingToken(), token)
			token = m.FencingToken()
		}
		mustUnlock(t, m)
		synctest.Wait()
		assert.Empty(t, holders(nodes, "x"))
	})
}

// Keys and values are any bytes.
func TestAHandoffOfAnyBytes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		rl = rl.With(redlock.WithGenValueFunc(func() (string, error) { return "\xff", nil }))
		m, heir := rl.NewMutex("x\xfe"), rl.NewMutex("x\xfe")
		require.NoError(t, m.Lock())
		mustAdopt(t, heir, mustHandOff(t, m))
		mustUnlock(t, heir)
	})
}

// Who waits in the process that gave a lock away queues like everybody else.
func TestAWaiterOfTheProcessThatGaveTheLockAwayKeepsItsTurn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		patience := []redlock.Option{redlock.WithTries(redlock.Unlimited),
			redlock.WithRetryDelay(time.Hour), redlock.WithExpiry(time.Minute)}
		rl = rl.With(patience...)
		heirs := redlock.New(nodes.Pools("b")...).With(patience...)
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		served := make(chan string, 3)
		var all sync.WaitGroup
		wait := func(rl *redlock.Redlock, name string, then func(m *redlock.Mutex)) {
			all.Go(func() {
				m := rl.NewMutex("x")
				assert.NoError(t, m.Lock())
				served <- name
				then(m)
			})
			time.Sleep(time.Second)
		}
		handoff := make(chan string, 1)
		wait(rl, "first", func(m *redlock.Mutex) { handoff <- mustHandOff(t, m) })
		wait(rl, "second", func(m *redlock.Mutex) { mustUnlock(t, m) })
		mustUnlock(t, m)
		heir := heirs.NewMutex("x")
		mustAdopt(t, heir, <-handoff)
		time.Sleep(time.Second)
		wait(heirs, "third", func(m *redlock.Mutex) { mustUnlock(t, m) })
		mustUnlock(t, heir)
		all.Wait()
		assert.Equal(t, "first", <-served)
		assert.Equal(t, "second", <-served)
		assert.Equal(t, "third", <-served)
		mustClose(t, heirs)
	})
}

// A node that missed the swap keeps nothing of the old holder.
func TestANodeThatMissedTheSwapIsHealed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m, heir := rl.NewMutex("x"), rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		handoff := mustHandOff(t, m)
		nodes[2].Next("swap", sim.Fail(errOops))
		mustAdopt(t, heir, handoff)
		time.Sleep(redlock.DefaultExpiry)
		assert.Equal(t, map[string]int{heir.Value(): 3}, holders(nodes, "x"))
		mustUnlock(t, heir)
	})
}

// What waits for its turn on the way to a node is not sent after Handoff.
func TestNothingIsSentAfterAHandoff(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		nodes[2].Next("release", sim.Slow(300*time.Millisecond))
		mustUnlock(t, m)
		require.NoError(t, m.Lock())
		mustHandOff(t, m)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, nodes[2].Count("set"), "the second one was waiting for the release")
		assert.Equal(t, 2, nodes[0].Count("set"))
	})
}

// A SET of the old holder that a node executes when the heir has the lock already is taken back.
func TestALateSetOfTheOldHolderIsTakenBack(t *testing.T) {
	for _, late := range []time.Duration{time.Millisecond, 100 * time.Millisecond,
		399 * time.Millisecond} {
		for _, held := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, held=%v", late, held), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					other := redlock.New(nodes.Pools("b")...)
					nodes[2].Next("set", sim.Fate{Request: late})
					m, heir := rl.NewMutex("x"), other.NewMutex("x")
					require.NoError(t, m.Lock())
					old := m.Value()
					mustAdopt(t, heir, mustHandOff(t, m))
					if !held {
						mustUnlock(t, heir)
					}
					time.Sleep(late)
					synctest.Wait()
					require.Equal(t, old, nodes[2].Value("x"), "it has arrived")
					time.Sleep(400 * time.Millisecond) // the node timeout
					synctest.Wait()
					assert.NotEqual(t, old, nodes[2].Value("x"))
					if held {
						mustUnlock(t, heir)
					}
					require.NoError(t, other.Close())
				})
			})
		}
	}
}

// lesson L33: one handoff has one heir, whether they come one after the other or all at once.
func TestAHandoffIsAdoptedOnce(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for _, heirs := range []int{2, 3, 50} {
			t.Run(fmt.Sprintf("%d nodes, %d heirs", n, heirs), func(t *testing.T) {
				bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					won := 0
					for range 20 {
						m := rl.NewMutex("x")
						mustHold(t, m)
						handoff := mustHandOff(t, m)
						var all sync.WaitGroup
						var mu sync.Mutex // guards heir
						var heir *redlock.Mutex
						for range heirs {
							all.Go(func() {
								m := rl.NewMutex("x")
								_, err := m.Adopt(t.Context(), handoff)
								mu.Lock()
								defer mu.Unlock()
								if err != nil {
									assert.Equal(t, "Expired Failed", matched(err))
									return
								}
								assert.Nil(t, heir, "two heirs")
								heir = m
							})
						}
						all.Wait()
						synctest.Wait()
						if heir == nil { // they have split the nodes
							assert.Empty(t, holders(nodes, "x"), "and leave nothing")
							continue
						}
						won++
						_, err := rl.NewMutex("x").Adopt(t.Context(), handoff)
						assert.Equal(t, "Expired Failed", matched(err), "later")
						_, err = heir.Valid()
						require.NoError(t, err)
						mustUnlock(t, heir)
						synctest.Wait()
					}
					if n == 1 {
						assert.Equal(t, 20, won, "nothing can be split")
					}
				})
			})
		}
	}
}

func TestAHandoffThatFails(t *testing.T) {
	for name, tt := range map[string]struct {
		happen func(t *testing.T, nodes sim.Nodes)
		is     string
		text   string
		left   bool // something stays until it expires
	}{
		"a minority is down": {func(_ *testing.T, nodes sim.Nodes) { nodes[0].Crash() }, "", "",
			false},
		"a majority is down": {func(_ *testing.T, nodes sim.Nodes) {
			nodes[0].Crash()
			nodes[1].Crash()
		}, "Failed NoQuorum", "no quorum: taken over on ", true},
		"a majority is silent": {func(_ *testing.T, nodes sim.Nodes) {
			always(nodes, hangs, hangs, fine)
		}, "Failed NoQuorum NodeTimeout", "no quorum: taken over on ", true},
		"it has expired": {func(*testing.T, sim.Nodes) { time.Sleep(time.Minute) },
			"Expired Failed", "gone on ", false},
		"a majority has lost it": {func(_ *testing.T, nodes sim.Nodes) {
			nodes[0].Flush()
			nodes[2].Flush()
		}, "Expired Failed", "gone on 2 of 3 nodes: it has expired, or was adopted before", false},
		"it is somebody else's": {func(_ *testing.T, nodes sim.Nodes) {
			occupy(nodes, time.Second)
		}, "Expired Failed", "the key is not that of the handoff", true},
		"a reply of the wrong type": {func(_ *testing.T, nodes sim.Nodes) {
			for _, n := range nodes {
				n.Next("swap", sim.Reply("1"))
			}
		}, "Failed NoQuorum", "swap script: unexpected reply", false},
		"it is granted too late": {func(_ *testing.T, nodes sim.Nodes) {
			for _, n := range nodes {
				n.Next("swap", sim.Slow(990*time.Millisecond))
			}
		}, "Expired Failed", "granted by a quorum, but too late", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				if name == "it is granted too late" {
					rl = rl.With(redlock.WithExpiry(time.Second),
						redlock.WithNodeTimeout(time.Second))
				}
				m := rl.NewMutex("x")
				mustHold(t, m)
				handoff := mustHandOff(t, m)
				tt.happen(t, nodes)
				m = rl.NewMutex("x")
				held, err := m.Adopt(t.Context(), handoff)
				assert.Equal(t, tt.is, matched(err))
				if tt.is == "" {
					require.NoError(t, held.Err())
					mustUnlock(t, m)
					return
				}
				assert.Nil(t, held)
				assert.ErrorContains(t, err, tt.text)
				assert.ErrorContains(t, err, `redlock: "x" not adopted: `)
				all(nodes, fine)
				for _, n := range nodes[:2] {
					n.Restart(true)
				}
				if tt.left {
					time.Sleep(redlock.DefaultExpiry + time.Second)
				}
				synctest.Wait()
				next := rl.NewMutex("x")
				require.NoError(t, next.TryLock(), "nobody has it")
				mustUnlock(t, next)
			})
		})
	}
}

// What is wrong is found before anything is sent, and no error shows the secret.
func TestAHandoffThatIsNone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		mustHold(t, m)
		value := m.Value()
		handoff := mustHandOff(t, m)
		sent := nodes.Count("")
		for name, tt := range map[string]struct {
			m       *redlock.Mutex
			handoff string
			is      string
		}{
			"nothing":         {rl.NewMutex("x"), "", "Failed"},
			"a value":         {rl.NewMutex("x"), value, "Failed"},
			"cut":             {rl.NewMutex("x"), handoff[:len(handoff)-1], "Failed"},
			"longer":          {rl.NewMutex("x"), handoff + "x", "Failed"},
			"another format":  {rl.NewMutex("x"), "redlock2" + handoff[8:], "Failed"},
			"another lock":    {rl.NewMutex("y"), handoff, "Failed"},
			"another prefix":  {rl.NewMutex("x", redlock.WithKeyPrefix("p:")), handoff, "Failed"},
			"a wrong option":  {rl.NewMutex("x", redlock.WithTries(0)), handoff, "Failed"},
			"no value":        {rl.NewMutex("x"), "redlock1.eyJrIjoiZUE9PSIsInYiOiIifQ", "Failed"},
			"one who queues":  {rl.NewMutex("x"), reservationHandoff, "Failed"},
			"no key":          {rl.NewMutex("x"), "redlock1.e30", "Failed"},
			"not even base64": {rl.NewMutex("x"), "redlock1.%%", "Failed"},
			"not even JSON":   {rl.NewMutex("x"), "redlock1.eHh4", "Failed"},
		} {
			held, err := tt.m.Adopt(t.Context(), tt.handoff)
			assert.Nil(t, held, name)
			assert.Equal(t, tt.is, matched(err), name)
			var option *redlock.OptionError
			assert.ErrorAs(t, err, &option, name)
			assert.NotContains(t, err.Error(), value, name)
			if tt.handoff != "" {
				assert.NotContains(t, err.Error(), tt.handoff, name)
			}
		}
		// lesson L111: a corrupt text is no handoff at all, whatever can still be read of it.
		for _, corrupt := range []string{
			handoff + "x", handoff + "xx", handoff + "xxx", handoff + "xxxx", handoff + "=",
			"redlock1." + base64.RawURLEncoding.EncodeToString(
				[]byte(`{"k":"eA==","v":"dw==","k":5}`)),
			"redlock1." + base64.RawURLEncoding.EncodeToString(
				[]byte(`{"k":"eA==", "v":"dw=="}`)) + "!",
		} {
			for _, name := range []string{"x", "y"} {
				_, err := rl.NewMutex(name).Adopt(t.Context(), corrupt)
				assert.ErrorContains(t, err, "Adopt(…): needs what Handoff has returned", corrupt)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := m.Adopt(ended, handoff)
		assert.Equal(t, "Canceled Failed", matched(err))
		assert.Equal(t, sent, nodes.Count(""))
		mustAdopt(t, m, handoff)
		require.NoError(t, rl.Close())
		_, err = m.Adopt(t.Context(), handoff)
		assert.Equal(t, "Closed Failed", matched(err))
	})
}

// reservationHandoff has a value that begins as that of a key which is kept for one who queues.
const reservationHandoff = "redlock1.eyJrIjoiZUE9PSIsInYiOiJmbkpsWkd4dlkyczZkSFZ5YmpwQiJ9"

func TestOnlyALockThatIsHeldIsHandedOff(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		none := func(is string) {
			handoff, err := m.Handoff()
			assert.Empty(t, handoff)
			assert.Equal(t, is, matched(err))
			assert.ErrorContains(t, err, `redlock: "x" not handed off: `)
		}
		none("NotHeld")
		mustHold(t, m)
		mustHandOff(t, m)
		none("NotHeld")
		time.Sleep(time.Minute)
		require.NoError(t, m.Lock())
		time.Sleep(time.Minute)
		none("Expired")
		held := mustHold(t, m)
		for _, n := range nodes {
			n.Flush()
		}
		<-held.Done()
		none("Expired Lost")
		require.NoError(t, m.Lock())
		mustUnlock(t, m)
		none("NotHeld")
	})
}

// A renewal that is under way at the handoff does not disturb the heir.
func TestAHandoffDuringARenewal(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		mustHold(t, m)
		all(nodes, sim.Slow(50*time.Millisecond))
		time.Sleep(time.Until(m.Until())/3 + time.Millisecond) // it has begun
		handoff, err := m.Handoff()
		require.NoError(t, err)
		all(nodes, fine)
		next := rl.NewMutex("x")
		mustAdopt(t, next, handoff)
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{next.Value(): 3}, holders(nodes, "x"))
		mustUnlock(t, next)
	})
}

func TestEventsTellOfAHandOver(t *testing.T) {
	var ends []redlock.Ended
	var acquired []redlock.Acquired
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		mustHold(t, m)
		handoff := mustHandOff(t, m)
		mustAdopt(t, m, handoff)
		_, err := rl.NewMutex("x").Adopt(t.Context(), handoff)
		require.ErrorIs(t, err, redlock.ErrExpired)
		mustUnlock(t, m)
	}, redlock.WithEvents(&redlock.Events{
		Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			return ctx, func(a redlock.Acquired) { acquired = append(acquired, a) }
		},
		End:  func(e redlock.Ended) { ends = append(ends, e) },
		Lost: func(redlock.Ended) { panic("nothing was lost") },
	}))
	require.Len(t, ends, 2)
	assert.Equal(t, redlock.EndHandedOff, ends[0].Reason)
	assert.ErrorIs(t, ends[0].Err, redlock.ErrReleased)
	assert.Equal(t, redlock.EndReleased, ends[1].Reason)
	require.Len(t, acquired, 3)
	assert.Equal(t, redlock.OutcomeOK, acquired[1].Outcome)
	assert.Equal(t, redlock.OutcomeExpired, acquired[2].Outcome)
}

// While messages are slow and lost, a lock goes from hand to hand, others want it, and a thief
// tries handoffs of the past: it is in one hand at a time, and tokens rise from one hand to the
// next.
func TestAHandOverThroughFaults(t *testing.T) {
	var seen handedOn
	beside(t, func(t *testing.T, shard, shards uint64) {
		for seed := shard; seed < larger(uint64(40)); seed += shards {
			handOverThroughFaults(t, seed, &seen)
		}
	})
	t.Logf("%d handed on, %d failures, %d stolen", seen.adopted.Load(), seen.failed.Load(),
		seen.stolen.Load())
	assert.Greater(t, seen.adopted.Load(), int64(1000))
	assert.Greater(t, seen.failed.Load(), int64(100))
	assert.Greater(t, seen.stolen.Load(), int64(5))
}

// handedOn counts what became of handoffs.
type handedOn struct{ adopted, failed, stolen atomic.Int64 }

func handOverThroughFaults(t *testing.T, seed uint64, seen *handedOn) {
	r := rand.New(rand.NewPCG(seed, 7))
	n := []int{1, 3, 5}[r.IntN(3)]
	bubble(t, n, func(t *testing.T, nodes sim.Nodes, _ *redlock.Redlock) {
		var mu sync.Mutex // guards r and past
		pools := nodes.Pools("b")
		plan(pools, func(sim.Op) sim.Fate {
			mu.Lock()
			defer mu.Unlock()
			f := sim.Fate{Request: between(r, 0, 30*time.Millisecond),
				Reply: between(r, 0, 30*time.Millisecond)}
			if r.IntN(20) == 0 {
				f = sim.Hang()
			}
			return f
		})
		var inside atomic.Int32
		var last atomic.Uint64
		enter := func(token uint64) {
			assert.EqualValues(t, 1, inside.Add(1), "seed %d: two holders", seed)
			assert.Greater(t, token, last.Swap(token), "seed %d", seed)
		}
		rl := redlock.New(pools...).With(redlock.WithFencing(),
			redlock.WithExpiry(time.Second), redlock.WithNodeTimeout(100*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var past []string // handoffs
		handOn := func(m *redlock.Mutex) string {
			handoff, _ := m.Handoff() // or what nobody can adopt
			mu.Lock()
			defer mu.Unlock()
			past = append(past, handoff)
			return handoff
		}
		some := func() (handoff string) {
			mu.Lock()
			defer mu.Unlock()
			if len(past) > 0 {
				handoff = past[max(r.IntN(len(past)), len(past)-3)]
			}
			return handoff
		}
		var everybody sync.WaitGroup
		for range 3 {
			everybody.Go(func() {
				for ctx.Err() == nil {
					m := rl.NewMutex("x")
					held, err := m.Hold(ctx)
					for ; err == nil; held, err = m.Adopt(ctx, handOn(m)) {
						enter(m.FencingToken())
						select {
						case <-held.Done():
						case <-time.After(50 * time.Millisecond):
						}
						inside.Add(-1)
						if held.Err() != nil {
							_, _ = m.Unlock()
							break
						}
						seen.adopted.Add(1)
					}
					if err != nil {
						seen.failed.Add(1)
					}
				}
			})
		}
		everybody.Go(func() { // a thief
			for ctx.Err() == nil {
				time.Sleep(17 * time.Millisecond)
				m := rl.NewMutex("x")
				held, err := m.Adopt(ctx, some())
				if err != nil {
					continue
				}
				seen.stolen.Add(1)
				enter(m.FencingToken())
				select {
				case <-held.Done():
				case <-time.After(20 * time.Millisecond):
				}
				inside.Add(-1)
				_, _ = m.Unlock()
			}
		})
		everybody.Wait()
		nodes.Close()
		_ = rl.Close()
	})
}

func FuzzHandoff(f *testing.F) {
	f.Add("redlock1.eyJrIjoiZUE9PSIsInYiOiJkZz09In0")
	f.Add(reservationHandoff)
	f.Add("redlock1.")
	f.Fuzz(func(t *testing.T, handoff string) {
		nodes := sim.NewNodes(1)
		rl := redlock.New(nodes.Instants("a")...)
		held, err := rl.NewMutex("x").Adopt(context.Background(), handoff)
		assert.Nil(t, held)
		assert.ErrorIs(t, err, redlock.ErrFailed)
		assert.NoError(t, rl.Close())
	})
}
