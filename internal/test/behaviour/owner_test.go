package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// ownerIn returns the Owner of an error, which says it in its text, too, unless it is "".
func ownerIn(t *testing.T, err error) string {
	t.Helper()
	var e *redlock.Error
	require.ErrorAs(t, err, &e)
	if e.Owner == "" {
		assert.NotContains(t, err.Error(), " by \"")
	} else {
		assert.Contains(t, err.Error(), fmt.Sprintf(" nodes by %q", e.Owner))
	}
	return e.Owner
}

// lesson L135
func TestAFailedLockSaysWhoseTheLockIs(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 7} {
		for name, opts := range map[string][]redlock.Option{
			"": nil, ", polling": {redlock.WithPolling()},
			", fenced": {redlock.WithFencing()},
		} {
			t.Run(fmt.Sprintf("%d nodes%s", n, name), func(t *testing.T) {
				bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
					holder := locked(t, redlock.New(nodes.Pools("b")...),
						append(opts, redlock.WithOwner("pod-7"), redlock.WithExpiry(time.Hour))...)
					rl = rl.With(append(opts, redlock.WithTries(2))...)
					for what, do := range acquisitions(t.Context(), rl.NewMutex("x"), rl) {
						want := "pod-7"
						if strings.HasPrefix(what, "TryLock") { // its refusals cost nothing more
							want = ""
						}
						asked, err := nodes.Count("inspect"), do()
						assert.Equal(t, want, ownerIn(t, err), what)
						assert.Equal(t, want == "", nodes.Count("inspect") == asked, what)
						synctest.Wait()
					}

					rl = rl.With(redlock.WithOwner("pod-8"))
					for what, do := range acquisitions(t.Context(), rl.NewMutex("x"), rl) {
						synctest.Wait()
						asked, err := nodes.Count("inspect"), do()
						assert.Equal(t, "Failed Taken", matched(err), what)
						assert.Equal(t, "pod-7", ownerIn(t, err), what)
						assert.NotContains(t, err.Error(), holder.Value(), "a secret")
						assert.LessOrEqual(t, nodes.Count("inspect")-asked, n,
							"once, after the last try")
					}
					synctest.Wait()
					asked := nodes.Count("inspect")
					mustUnlock(t, holder)
					m := rl.NewMutex("x")
					require.NoError(t, m.Lock())
					mustUnlock(t, m)
					assert.Equal(t, asked, nodes.Count("inspect"), "a Lock that wins asks nobody")
				})
			})
		}
	}
}

// The context has ended the wait: the question takes 5 ms at most.
func TestALockThatTheContextEndedSaysWhoseTheLockIs(t *testing.T) {
	for name, tt := range map[string]struct {
		slow time.Duration
		want string
		took time.Duration
	}{
		"nodes near by":      {0, "pod-7", 0},
		"nodes not so near":  {4 * time.Millisecond, "pod-7", 4 * time.Millisecond},
		"nodes in the moon":  {2 * time.Second, "", 5 * time.Millisecond},
		"nodes that are mad": {-1, "", 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				locked(t, redlock.New(nodes.Pools("b")...), redlock.WithOwner("pod-7"),
					redlock.WithExpiry(time.Hour))
				for _, n := range nodes {
					fate := sim.Slow(tt.slow)
					if tt.slow < 0 {
						fate = sim.Deaf(sim.Hang())
					}
					n.Next("inspect", fate)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				err := rl.NewMutex("x", redlock.WithOwner("pod-8")).LockContext(ctx)
				assert.Equal(t, time.Second+tt.took, time.Since(start))
				assert.Equal(t, "DeadlineExceeded Failed Taken", matched(err))
				assert.Equal(t, tt.want, ownerIn(t, err))
				if tt.want != "" {
					assert.ErrorContains(t, err, "context deadline exceeded; the last attempt: "+
						"taken on 3 of 3 nodes by \"pod-7\" (node 0: taken; ")
				}
			})
		})
	}
}

// A context may end the wait of many at once. Those without an owner ask nobody.
func TestALockWithoutAnOwnerThatTheContextEndedNamesNobody(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		locked(t, redlock.New(nodes.Pools("b")...), redlock.WithOwner("pod-7"),
			redlock.WithExpiry(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := rl.NewMutex("x").LockContext(ctx)
		assert.Equal(t, "DeadlineExceeded Failed Taken", matched(err))
		assert.Empty(t, ownerIn(t, err))
		assert.Zero(t, nodes.Count("inspect"))
	})
}

// What the nodes have is named only if it is whose the lock is, and only the owner's text of it.
func TestNobodyIsNamedWhoDoesNotHaveTheLock(t *testing.T) {
	const a, b = "a:AAAAAAAAAAAAAAAAAAAAAA==", "b:AAAAAAAAAAAAAAAAAAAAAA=="
	long := strings.Repeat("ä", 400)
	for name, tt := range map[string]struct {
		values [5]string
		fate   sim.Fate // of the question on node 0
		want   string
	}{
		"a quorum, and leftovers": {values: [5]string{a, a, a, b, b}, want: "a"},
		"all that refused":        {values: [5]string{a, a, a, "", ""}, want: "a"},
		"a split vote":            {values: [5]string{a, a, b, b, ""}},
		"the bits alone":          {values: [5]string{a[2:], a[2:], a[2:], a[2:], a[2:]}},
		"another library's":       {values: [5]string{"host:1", "host:1", "host:1", "host:1"}},
		"no bits":                 {values: [5]string{"a:", "a:", "a:", "a:", "a:"}},
		"kept for one who waits":  {values: [5]string{reserved, reserved, reserved, reserved}},
		"it is free when asked":   {values: [5]string{}, fate: sim.Fate{}},
		"a node fails":            {values: [5]string{a, a, a, a, a}, fate: fails, want: "a"},
		"a strange reply":         {values: [5]string{a, a, a, a, a}, fate: absent, want: "a"},
		"a text of many lines":    {values: same5("a\nb\"c" + a[1:]), want: "a\nb\"c"},
		"a text that is far too long": {values: same5(long + a[1:]),
			want: strings.Repeat("ä", 30) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				always(nodes, fine, fine, fine, fine, fine)
				for i, n := range nodes {
					if tt.values[i] != "" {
						n.Set("x", tt.values[i], time.Hour)
					} else if name == "it is free when asked" {
						n.Next("set", taken)
					}
				}
				nodes[0].Next("inspect", tt.fate)
				err := rl.NewMutex("x", redlock.WithOwner("me")).TryLock()
				require.ErrorIs(t, err, redlock.ErrTaken)
				assert.Equal(t, tt.want, ownerIn(t, err))
				assert.NotContains(t, err.Error(), "AAAA", "a secret")
				assert.NotContains(t, err.Error(), "\n")
				assert.Less(t, len(err.Error()), 400)
				assert.True(t, utf8.ValidString(err.Error()))
			})
		})
	}
}

const reserved = "~redlock:turn:ABCDEFGHIJKLMNOPQRSTUVWXYZ:AAAAAAAAAAAAAAAAAAAAAA=="

func same5(value string) [5]string { return [5]string{value, value, value, value, value} }

// Nobody is asked where nobody has the lock, or where that is known without.
func TestWhoseTheLockIsIsAskedOnlyIfItIsTaken(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		rl = rl.With(redlock.WithOwner("me"), redlock.WithMaxWaiters(1))
		always(nodes, fails, fails, fine)
		assert.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrNoQuorum)
		all(nodes, fine)
		m := rl.NewMutex("x")
		held := mustHold(t, m)
		assert.ErrorIs(t, rl.NewMutex("x").LockContext(held), redlock.ErrSelf)
		_, had := waits(t, rl, 1)
		assert.ErrorContains(t, rl.NewMutex("x").Lock(), "waits already")
		mustUnlock(t, m)
		assert.Equal(t, 1, had())
		require.NoError(t, rl.Close())
		assert.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrClosed)
		assert.Zero(t, nodes.Count("inspect"))

		var e *redlock.Error
		assert.False(t, errors.As(rl.NewMutex("", redlock.WithOwner("me")).TryLock(), &e) &&
			e.Owner != "")
	})
}

// A node that is silent to the question does not hold the call up for more than a node timeout, and
// the end of the context ends it.
func TestAFailedLockDoesNotWaitForWhoseTheLockIs(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		locked(t, redlock.New(nodes.Pools("b")...), redlock.WithOwner("pod-7"),
			redlock.WithExpiry(time.Hour))
		m := rl.NewMutex("x", redlock.WithOwner("me"),
			redlock.WithNodeTimeout(300*time.Millisecond))
		nodes[0].Next("inspect", hangs)
		start := time.Now()
		assert.Equal(t, "pod-7", ownerIn(t, m.TryLock()), "the others tell")
		assert.LessOrEqual(t, time.Since(start), 300*time.Millisecond)

		silence := func() {
			for _, n := range nodes {
				n.Next("inspect", hangs)
			}
		}
		silence()
		start = time.Now()
		assert.Empty(t, ownerIn(t, m.TryLock()))
		assert.Equal(t, 300*time.Millisecond, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		silence()
		start = time.Now()
		err := m.TryLockContext(ctx)
		assert.Equal(t, "Failed Taken", matched(err), "that was known before")
		assert.Empty(t, ownerIn(t, err))
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}
