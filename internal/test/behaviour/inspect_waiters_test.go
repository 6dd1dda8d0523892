package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// waitAs lets a process of its own wait for x until ctx ends.
func waitAs(
	ctx context.Context, t *testing.T, tasks *sync.WaitGroup, rl *redlock.Redlock, owner string,
) {
	tasks.Go(func() {
		assert.ErrorIs(t, rl.NewMutex("x", redlock.WithOwner(owner),
			redlock.WithTries(redlock.Unlimited)).LockContext(ctx), redlock.ErrTaken)
		_ = rl.Close() // nodes may be down
	})
}

// Inspect tells who waits, in order, and since when: also those whom only a quorum has, and no one
// whom only a minority has. It tells nothing with which somebody's place could be ended.
func TestInspectTellsWhoWaits(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x", redlock.WithExpiry(time.Hour))
				in, err := rl.Inspect(t.Context(), "x")
				require.NoError(t, err)
				assert.Equal(t, []redlock.Waiter{}, in.Waiters)
				mustHold(t, m)
				ctx, cancel := context.WithCancel(t.Context())
				var tasks sync.WaitGroup
				var began []time.Time
				owners := []string{"web-3:4711", "", "a b*", "+ \"\n"}
				for i, owner := range owners {
					other := redlock.New(nodes.Pools(fmt.Sprint("other", i))...)
					if i == 2 {
						other = other.With(redlock.WithShared())
					}
					began = append(began, time.Now())
					waitAs(ctx, t, &tasks, other, owner)
					time.Sleep(time.Second)
				}
				for _, node := range nodes[:n/2] {
					node.Crash()
				}
				in, err = rl.Inspect(t.Context(), "x")
				require.NoError(t, err)
				require.Len(t, in.Waiters, len(owners))
				for i, w := range in.Waiters {
					assert.Equal(t, owners[i], w.Owner)
					assert.WithinDuration(t, began[i], w.Since, 200*time.Millisecond)
				}
				for _, node := range nodes {
					for _, member := range node.Queue(queueOf("x")) {
						assert.NotContains(t, fmt.Sprint(*in), member[:39])
					}
				}
				assert.Contains(t, in.String(), "\n"+
					`  4 in the queue, the first for 4s: "web-3:4711" "" "a b*" "+ \"\n"`+"\n")

				cancel()
				tasks.Wait()
				for _, node := range nodes[:n/2] { // a minority still has them
					node.Restart(true)
					assert.Len(t, node.Queue(queueOf("x")), len(owners))
				}
				in, err = rl.Inspect(t.Context(), "x")
				require.NoError(t, err)
				assert.Equal(t, []redlock.Waiter{}, in.Waiters)
				for _, node := range nodes[:n/2+1] {
					node.Crash()
				}
				in, err = rl.Inspect(t.Context(), "x")
				require.NoError(t, err)
				assert.Nil(t, in.Waiters)
				for _, node := range nodes {
					node.Restart(true)
				}
				mustUnlock(t, m)
			})
		})
	}
}

// Nodes that do not let a user see the queue are no reason to tell that nobody waits.
func TestInspectThatMayNotSeeTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		nodes[0].Next("queue", sim.Fail(errors.New("NOPERM")))
		nodes[1].Next("queue", sim.Fail(errors.New("NOPERM")))
		in, err := redlock.New(nodes.Pools("a")...).Inspect(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, redlock.VerdictFree, in.Verdict)
		assert.Nil(t, in.Waiters)
		assert.Contains(t, in.String(), "who waits is not known")
	})
}

// Any text of an owner may stand in the queue: the order is that in which they come, and bids and
// readers' turns are told, which would break if a member had a space or ended like another kind.
func TestOwnersInTheQueueOfRealNodes(t *testing.T) {
	nodes := redistest.Start(t, 3)
	rl := process(t, nodes)
	holder := rl.NewMutex("x")
	require.NoError(t, holder.Lock())
	owners := []string{"a b", "c*", "d+", "~redlock", "", ":", "\x00é"}
	var tasks sync.WaitGroup
	turns := make(chan string, len(owners))
	for i, owner := range owners {
		m := process(t, nodes).NewMutex("x", redlock.WithOwner(owner),
			redlock.WithTries(redlock.Unlimited), redlock.WithRetryDelay(time.Minute))
		tasks.Go(func() {
			assert.NoError(t, m.Lock())
			turns <- owner
			mustUnlock(t, m)
		})
		eventually(t, "a waiter in the queue", func() bool {
			in, err := rl.Inspect(t.Context(), "x")
			return err == nil && len(in.Waiters) == i+1
		})
	}
	in, err := rl.Inspect(t.Context(), "x")
	require.NoError(t, err)
	var told, got []string
	for _, w := range in.Waiters {
		told = append(told, w.Owner)
	}
	assert.Equal(t, owners, told)
	assert.True(t, slices.IsSortedFunc(in.Waiters,
		func(a, b redlock.Waiter) int { return a.Since.Compare(b.Since) }))
	mustUnlock(t, holder)
	tasks.Wait()
	for range owners {
		got = append(got, <-turns)
	}
	assert.Equal(t, owners, got)
}
