package behaviour_test

import (
	"context"
	"errors"
	"fmt"
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

// lesson L23: what was never locked has nothing to release, extend or ask for.
func TestAMutexThatIsNotLockedSendsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		check := func() {
			t.Helper()
			sent := nodes.Count("")
			for _, call := range []func() (bool, error){m.Unlock, m.Extend, m.Valid} {
				ok, err := call()
				assert.ErrorIs(t, refused(t, ok, err), redlock.ErrNotHeld)
			}
			assert.Empty(t, m.Value())
			assert.Zero(t, m.Until())
			assert.Zero(t, m.FencingToken())
			landed()
			assert.Equal(t, sent, nodes.Count(""))
		}
		check()
		require.NoError(t, m.Lock())
		mustUnlock(t, m)
		landed()
		check()
		for _, n := range nodes {
			n.Set("x", "", 0) // an empty value is not ours either
		}
		require.ErrorIs(t, m.TryLock(), redlock.ErrTaken)
		landed()
		check()
	}, redlock.WithExpiry(time.Minute), redlock.WithFencing())
}

func TestAfterUnlockTheLockIsFreeForAnybody(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for i, n := range nodes {
			n.Always(sim.Slow(time.Duration(i+1) * 10 * time.Millisecond))
		}
		other := redlock.New(nodes.Pools("b")...)
		for i := range 20 {
			m := []*redlock.Redlock{rl, other}[i%2].NewMutex("x")
			require.NoError(t, m.TryLock(), i)
			mustUnlock(t, m)
		}
	})
}

// lesson L14: an Unlock right after the Lock leaves nothing on the node that was slow with the SET.
func TestUnlockReachesTheSlowMinority(t *testing.T) {
	for _, d := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond,
		450 * time.Millisecond, 2 * time.Second} {
		for _, deaf := range []bool{false, true} {
			t.Run(fmt.Sprint(d, " deaf=", deaf), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					nodes[2].Next("set", sim.Fate{Request: d, Deaf: deaf})
					m := rl.NewMutex("x")
					start := time.Now()
					require.NoError(t, m.Lock())
					synctest.Wait() // sent
					mustUnlock(t, m)
					assert.Zero(t, time.Since(start))
					time.Sleep(d - 1)
					assert.Equal(t, 2, nodes.Count("set"))
					landed()
					assert.Equal(t, 3, nodes.Count("set"))
					assert.Empty(t, holders(nodes, "x"))
				}, redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(1500*time.Millisecond))
			})
		}
	}
}

// lesson L21: what could not be released is kept, to be released later.
func TestUnlockCanBeFinishedLater(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait() // all three have granted it, not only the two that decided
		value := m.Value()
		for _, n := range nodes[1:] {
			n.Always(sim.Hang())
		}
		for range 2 {
			start := time.Now()
			ok, err := m.Unlock()
			require.ErrorIs(t, refused(t, ok, err), redlock.ErrNoQuorum)
			assert.Equal(t, 399*time.Millisecond, time.Since(start),
				"the client gives up a moment before the node timeout")
			assert.Equal(t, value, m.Value())
			assert.Zero(t, m.Until(), "not to be used any more")
			ok, err = m.Extend()
			assert.ErrorIs(t, refused(t, ok, err), redlock.ErrNotHeld)
		}
		deletions := nodes[0].Count("release")
		nodes[1].Always(sim.Fate{})
		mustUnlock(t, m)
		assert.Equal(t, deletions, nodes[0].Count("release"), "what is done is not done again")
		ok, err := m.Unlock()
		assert.ErrorIs(t, refused(t, ok, err), redlock.ErrNotHeld)
	}, redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(400*time.Millisecond))
}

// lesson L22, L99: each node is asked, and is asked once.
func TestUnlockOfAnExpiredLockAsksEveryNodeOnce(t *testing.T) {
	for name, somebodyElse := range map[string]bool{"free": false, "somebody else's": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x")
				require.NoError(t, m.Lock())
				time.Sleep(redlock.DefaultExpiry)
				other := rl.NewMutex("x")
				if somebodyElse {
					require.NoError(t, other.Lock())
				}
				ok, err := m.Unlock()
				require.ErrorIs(t, refused(t, ok, err), redlock.ErrExpired)
				ok, err = m.Unlock()
				require.ErrorIs(t, refused(t, ok, err), redlock.ErrNotHeld)
				time.Sleep(time.Second)
				synctest.Wait()
				for i := range nodes {
					assert.Equal(t, 1, nodes[i].Count("release"), "node %d", i)
				}
				if somebodyElse {
					assert.Equal(t, map[string]int{other.Value(): 3}, holders(nodes, "x"),
						"not touched")
					mustUnlock(t, other)
				}
			})
		})
	}
}

func TestUnlockSaysWhetherTheLockMayHaveBeenLost(t *testing.T) {
	for lost := range 6 {
		bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			require.NoError(t, m.Lock())
			synctest.Wait()
			for _, n := range nodes[:lost] {
				n.Flush()
			}
			ok, err := m.Unlock()
			if lost <= 2 {
				require.NoError(t, err, "a quorum had it all the time")
				return
			}
			assert.ErrorIs(t, refused(t, ok, err), redlock.ErrExpired)
		})
	}
}

// lesson L67: a client that sends a release again, because its answer was lost, is told that
// there was nothing to delete. So is one whose nodes have lost their data. As long as a quorum
// has deleted the lock, Unlock is fine. Beyond that it cannot know that the lock was never lost,
// does not say so, and says what may have happened.
func TestAReleaseThatIsSentAgainLooksLikeALoss(t *testing.T) {
	resent := sim.Fate{ReplyLost: true, Again: time.Millisecond}
	for _, n := range []int{1, 2, 3, 4, 5} {
		for some := range n + 1 {
			for name, fault := range map[string]func(*sim.Node){
				"sent again": func(node *sim.Node) { node.Next("release", resent) },
				"flushed":    func(node *sim.Node) { node.Flush() },
			} {
				t.Run(fmt.Sprintf("%s on %d of %d", name, some, n), func(t *testing.T) {
					bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
						unlock := func(err error) {
							synctest.Wait()
							assert.Zero(t, keys(nodes))
							if some <= n-(n/2+1) {
								assert.NoError(t, err)
								return
							}
							assert.ErrorIs(t, err, redlock.ErrExpired)
							assert.NotErrorIs(t, err, redlock.ErrLost)
							assert.ErrorContains(t, err, "before its end: they have lost it, or "+
								"a release whose answer was lost has deleted it")
						}
						m := rl.NewMutex("x")
						require.NoError(t, m.Lock())
						synctest.Wait()
						for _, node := range nodes[:some] {
							fault(node)
						}
						ok, err := m.Unlock()
						assert.Equal(t, err == nil, ok)
						landed()
						unlock(err)

						unlock(rl.Do(t.Context(), "y", func(context.Context) error {
							synctest.Wait()
							for _, node := range nodes[:some] {
								fault(node)
							}
							return nil
						}))
					}, redlock.WithExpiry(time.Minute))
				})
			}
		}
	}
}

// lesson L67: the answers to a release are lost, and so it fails. The next Unlock finds nothing
// to delete.
func TestAnUnlockAfterLostAnswersSaysWhatMayHaveHappened(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		for _, n := range nodes[1:] {
			n.Next("release", sim.LoseReply())
		}
		_, err := m.Unlock()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		_, err = m.Unlock()
		require.ErrorIs(t, err, redlock.ErrExpired)
		assert.ErrorContains(t, err, "or a release whose answer was lost has deleted it")
	})
}

// A node that never got the SET cannot have lost it for anybody else's sake, but has no vote for
// us either.
func TestUnlockOfALockThatOnlyAQuorumGot(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[2].Next("set", sim.Fail(errOops))
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		mustUnlock(t, m)
	})
}

func TestConcurrentUnlocksReleaseOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Always(sim.Slow(100 * time.Millisecond))
		}
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		var all sync.WaitGroup
		var done, notHeld atomic.Int64
		for range 10 {
			all.Go(func() {
				ok, err := m.Unlock()
				assert.Equal(t, err == nil, ok)
				if ok {
					done.Add(1)
				} else if assert.ErrorIs(t, err, redlock.ErrNotHeld) {
					notHeld.Add(1)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 1, done.Load())
		assert.EqualValues(t, 9, notHeld.Load())
		synctest.Wait()
		assert.Equal(t, 3, nodes.Count("release"))
	})
}

// lesson L34
func TestNothingIsTrustedAfterUnlock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x", redlock.WithFencing())
		require.NoError(t, m.Lock())
		assert.NotZero(t, m.Until())
		assert.NotZero(t, m.FencingToken())
		for _, n := range nodes {
			n.Next("release", sim.Slow(100*time.Millisecond))
		}
		time.AfterFunc(50*time.Millisecond, func() {
			assert.Zero(t, m.Until(), "from the beginning of Unlock on")
			assert.Zero(t, m.FencingToken())
		})
		mustUnlock(t, m)
		assert.Zero(t, m.Until())
		assert.Empty(t, m.Value())
		assert.Zero(t, m.FencingToken())
	})
}

// lesson L44: values are compared whole.
func TestAPrefixOfTheValueIsNotTheValue(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		v := m.Value()
		// Base64 has no question mark.
		for _, wrong := range []string{v[:3], v + "x", v[1:], " " + v, "?" + v[1:]} {
			thief := rl.NewMutex("x", redlock.WithValue(wrong))
			for _, call := range []func() (bool, error){thief.Valid, thief.Extend, thief.Unlock} {
				ok, err := call()
				assert.ErrorIs(t, refused(t, ok, err), redlock.ErrExpired)
			}
			assert.Equal(t, map[string]int{v: 3}, holders(nodes, "x"))
		}
		mustUnlock(t, m)
	})
}

// A renewal has seconds to be answered. An Unlock does not wait for one that is lost.
func TestUnlockDoesNotWaitForARenewal(t *testing.T) {
	for _, n := range []int{1, 3} {
		bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			m := rl.NewMutex("x")
			_, err := m.Hold(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			for _, node := range nodes {
				node.Next("extend", sim.Hang())
			}
			time.Sleep(20 * time.Second) // a third of the validity, and a bit
			start := time.Now()
			mustUnlock(t, m)
			assert.Zero(t, time.Since(start))
			synctest.Wait()
			assert.Empty(t, holders(nodes, "x"))
		}, redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(400*time.Millisecond))
	}
}

// A deletion that came too late for an Unlock, or that was made later, counts for the next
// one.
func TestUnlockCountsWhatWasDeletedInTheMeantime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		nodes[0].Next("release", sim.Fail(errors.New("NOREPLICAS Not enough good replicas to "+
			"write.")))
		nodes[1].Next("release", sim.Fail(errors.New("NOREPLICAS Not enough good replicas to "+
			"write.")))
		_, err := m.Unlock()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		require.Empty(t, holders(nodes, "x"), "the release was sent again")
		mustUnlock(t, m)
	})
}

// A node that was never sent the lock's SET has no vote for us, and is no reason to try again
// either.
func TestANodeThatWasNeverAskedCountsAsOneWithoutTheLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		nodes[2].Always(sim.Deaf(sim.Hang()))
		mustUnlock(t, m)
		synctest.Wait() // until it hangs
		require.NoError(t, m.Lock())
		nodes[0].Flush()
		ok, err := m.Unlock()
		require.ErrorIs(t, refused(t, ok, err), redlock.ErrExpired)
		assert.ErrorContains(t, err, "gone on 2 of 3 nodes")
	})
}

func TestWhatUnlockWithdrawsIsNotHeldAnyMore(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		require.NoError(t, m.Lock())
		synctest.Wait()
		for _, n := range nodes {
			n.Next("valid", sim.Slow(100*time.Millisecond))
		}
		var both sync.WaitGroup
		for _, call := range []func() (bool, error){m.Valid, m.Extend} {
			both.Go(func() {
				ok, err := call()
				assert.False(t, ok)
				assert.ErrorIs(t, err, redlock.ErrNotHeld)
				assert.NotErrorIs(t, err, redlock.ErrNoQuorum)
			})
			synctest.Wait() // the second one waits behind the first
		}
		mustUnlock(t, m)
		both.Wait()
		assert.Zero(t, nodes.Count("extend"))
	})
}
