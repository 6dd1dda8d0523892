package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// known are all errors that a caller may ask for.
var known = map[string]error{
	"Failed": redlock.ErrFailed, "Taken": redlock.ErrTaken, "NoQuorum": redlock.ErrNoQuorum,
	"Self":    redlock.ErrSelf,
	"Expired": redlock.ErrExpired, "NotHeld": redlock.ErrNotHeld, "Lost": redlock.ErrLost,
	"NotReleased": redlock.ErrNotReleased,
	"Released":    redlock.ErrReleased, "Closed": redlock.ErrClosed,
	"NodeTimeout": redlock.ErrNodeTimeout,
	"Canceled":    context.Canceled, "DeadlineExceeded": context.DeadlineExceeded, "oops": errOops,
}

// matched names the known errors that err matches, in order.
func matched(err error) string {
	var names []string
	for name, target := range known {
		if errors.Is(err, target) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// A failure is one way in which an operation fails.
type failure struct {
	name string
	do   func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error
	text string
	is   string // of the known errors, all that it matches
	at   []int  // the nodes in its multierror
}

// locked is a mutex that holds its lock on all nodes.
func locked(t *testing.T, rl *redlock.Redlock, opts ...redlock.Option) *redlock.Mutex {
	t.Helper()
	m := rl.NewMutex("x", opts...)
	require.NoError(t, m.Lock())
	synctest.Wait()
	return m
}

// always gives each node a fate, in order. What comes later is the same for all replies to be
// there.
func always(nodes sim.Nodes, fates ...sim.Fate) {
	for i, f := range fates {
		f.Request += time.Duration(i+1) * time.Millisecond
		nodes[i].Always(f)
	}
}

func end(_ bool, err error) error { return err }

var (
	fine   = sim.Fate{}
	hangs  = sim.Deaf(sim.Hang())
	fails  = sim.Fail(errOops)
	taken  = sim.Fate{Skip: true, Answer: sim.Refuse().Answer}
	absent = sim.Reply(int64(0))
)

var failures = []failure{
	{
		name: "Lock: taken",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, taken, fine, taken)
			return rl.NewMutex("x").TryLock()
		},
		text: `redlock: "x" not acquired: taken on 2 of 3 nodes (node 0: taken; node 2: taken)`,
		is:   "Failed Taken", at: []int{0, 2},
	},
	{
		name: "Lock: taken and an error",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, fails, taken, taken)
			return rl.NewMutex("x").TryLock()
		},
		text: `redlock: "x" not acquired: taken on 2 of 3 nodes (node 0: oops; node 1: taken; ` +
			`node 2: taken)`,
		is: "Failed Taken oops", at: []int{0, 1, 2},
	},
	{
		name: "Lock: taken, and nodes tell by whom",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			for _, n := range nodes[:2] {
				n.Set("x", "pod-7:AAAAAAAAAAAAAAAAAAAAAA==", 0)
			}
			always(nodes, fine, fine, fine)
			return rl.NewMutex("x", redlock.WithOwner("pod-8")).TryLock()
		},
		text: `redlock: "x" not acquired: taken on 2 of 3 nodes by "pod-7" (node 0: taken; node ` +
			`1: taken)`,
		is: "Failed Taken", at: []int{0, 1},
	},
	{
		name: "Lock: taken beside a fault, and nodes tell by whom",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			nodes[0].Set("x", "pod-7:AAAAAAAAAAAAAAAAAAAAAA==", 0)
			always(nodes, fine, fine, fails)
			return rl.NewMutex("x", redlock.WithOwner("pod-8")).TryLock()
		},
		text: `redlock: "x" not acquired: taken on 1 of 3 nodes by "pod-7", granted by 1, 2 ` +
			`needed (node 0: taken; node 2: oops)`,
		is: "Failed Taken oops", at: []int{0, 2},
	},
	{
		name: "Lock: no quorum",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, taken, fails, hangs)
			return rl.NewMutex("x").TryLock()
		},
		text: `redlock: "x" not acquired: no quorum: granted by 0 of 3 nodes, taken on 1, 2 ` +
			`needed (node 0: taken; node 1: oops; node 2: no answer yet)`,
		is: "Failed NoQuorum oops", at: []int{0, 1, 2},
	},
	{
		name: "Lock: node timeout",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, fine, hangs, hangs)
			return rl.NewMutex("x").TryLock()
		},
		text: `redlock: "x" not acquired: no quorum: granted by 1 of 3 nodes, taken on 0, 2 ` +
			`needed (node 1: no answer within 400ms; node 2: no answer within 400ms)`,
		is: "Failed NoQuorum NodeTimeout", at: []int{1, 2},
	},
	{
		name: "Lock: a node's own deadline is not the caller's",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, sim.Fail(context.DeadlineExceeded), sim.Fail(context.Canceled), fine)
			return rl.NewMutex("x").TryLock()
		},
		text: `redlock: "x" not acquired: no quorum: granted by 0 of 3 nodes, taken on 0, 2 ` +
			`needed (node 0: no answer within 1ms: context deadline exceeded; node 1: context ` +
			`canceled; node 2: no answer yet)`,
		is: "Failed NoQuorum NodeTimeout", at: []int{0, 1, 2},
	},
	{
		name: "Lock: too late",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, sim.Slow(990*time.Millisecond), sim.Slow(990*time.Millisecond), fails)
			return rl.NewMutex("x", redlock.WithExpiry(time.Second),
				redlock.WithNodeTimeout(time.Second)).TryLock()
		},
		text: `redlock: "x" not acquired: granted by a quorum, but too late: nothing is left of ` +
			`the expiry of 1s (node 2: oops)`,
		is: "Expired Failed oops", at: []int{2},
	},
	{
		name: "Lock: an option is wrong",
		do: func(_ *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			return rl.NewMutex("x", redlock.WithTries(0)).Lock()
		},
		text: `redlock: "x" not acquired: redlock: WithTries(0): must be at least 1, or Unlimited`,
		is:   "Failed",
	},
	{
		name: "Lock: the value func failed",
		do: func(_ *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			return rl.NewMutex("x", redlock.WithGenValueFunc(func() (string, error) {
				return "",
					errOops
			})).Lock()
		},
		text: `redlock: "x" not acquired: the function of WithGenValueFunc: oops`,
		is:   "Failed oops",
	},
	{
		name: "Lock: closed",
		do: func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			require.NoError(t, rl.Close())
			return rl.NewMutex("x").Lock()
		},
		text: `redlock: "x" not acquired: closed`,
		is:   "Closed Failed",
	},
	{
		name: "Lock: the caller has the lock",
		do: func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			return rl.Do(t.Context(), "x", func(ctx context.Context) error {
				return rl.NewMutex("x").LockContext(ctx)
			})
		},
		text: `redlock: "x" not acquired: held by the caller itself: its context comes from a ` +
			`hold of this lock`,
		is: "Failed Self Taken",
	},
	{
		name: "Lock: too many wait",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			holder := locked(t, rl)
			_, had := waits(t, rl, 3)
			defer had()
			defer mustUnlock(t, holder)
			return rl.NewMutex("x", redlock.WithMaxWaiters(3)).Lock()
		},
		text: `redlock: "x" not acquired: 3 callers of this process wait already`,
		is:   "Failed Taken",
	},
	{
		name: "Lock: context ended before",
		do: func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return rl.NewMutex("x").LockContext(ctx)
		},
		text: `redlock: "x" not acquired: context canceled`,
		is:   "Canceled Failed",
	},
	{
		name: "Lock: context ended with a cause while it waited",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, taken, taken, fails)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute,
				errors.New("too long for me"))
			defer cancel()
			return rl.NewMutex("x", redlock.WithRetryDelay(time.Hour),
				redlock.WithPolling()).LockContext(ctx)
		},
		text: `redlock: "x" not acquired: context deadline exceeded (too long for me); the last ` +
			`attempt: taken on 2 of 3 nodes (node 0: taken; node 1: taken; node 2: oops)`,
		is: "DeadlineExceeded Failed Taken oops", at: nil,
	},
	{
		name: "Lock: the token could not be stored",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			nodes[0].Set(fenceOf("x"), "9007199254740000", 0)
			always(nodes, fine, fine, hangs)
			nodes[1].Next("", fine, fails)
			return rl.NewMutex("x", redlock.WithFencing()).TryLock()
		},
		text: `redlock: "x" not acquired: no quorum: granted by 1 of 3 nodes, taken on 0, 2 ` +
			`needed (node 1: the fencing token was not stored: oops; node 2: no answer within ` +
			`400ms)`,
		is: "Failed NoQuorum NodeTimeout oops", at: []int{1, 2},
	},
	{
		name: "Lock: the counter holds something else",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			for _, n := range nodes[:2] {
				n.Set(fenceOf("x"), "text", 0)
			}
			always(nodes, fine, fine, hangs)
			return rl.NewMutex("x", redlock.WithFencing()).TryLock()
		},
		text: `redlock: "x" not acquired: no quorum: granted by 0 of 3 nodes, taken on 0, 2 ` +
			`needed (node 0: ERR redlock: the fence counter redlock:fence:2d71 holds something ` +
			`else; node 1: ERR redlock: the fence counter redlock:fence:2d71 holds something ` +
			`else; node 2: no answer yet)`,
		is: "Failed NoQuorum", at: []int{0, 1, 2},
	},
	{
		name: "Lock: restart guard",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			for _, n := range nodes[1:] {
				n.Crash()
				n.Restart(false)
			}
			time.Sleep(3 * time.Second)
			always(nodes, fine, fine, fine)
			return rl.NewMutex("x", redlock.WithRestartGuard(10*time.Second)).TryLock()
		},
		text: `redlock: "x" not acquired: no quorum: granted by 1 of 3 nodes, taken on 0, 2 ` +
			`needed (node 1: restarted too recently, takes part again in 8s; node 2: restarted ` +
			`too recently, takes part again in 8s)`,
		is: "Failed NoQuorum", at: []int{1, 2},
	},
	{
		name: "Lock: a reply of the wrong type",
		do: func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, sim.Reply("1"), sim.Reply([]any{int64(1)}), hangs)
			return rl.NewMutex("x", redlock.WithFencing()).TryLock()
		},
		text: `redlock: "x" not acquired: no quorum: granted by 0 of 3 nodes, taken on 0, 2 ` +
			`needed (node 0: acquire script: unexpected reply "1" of type string; ` +
			`node 1: acquire script: unexpected reply []interface {}{1} of type []interface {}; ` +
			`node 2: no answer yet)`,
		is: "Failed NoQuorum", at: []int{0, 1, 2},
	},
	{
		name: "Handoff: not held",
		do: func(_ *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			_, err := rl.NewMutex("x").Handoff()
			return err
		},
		text: `redlock: "x" not handed off: not held`,
		is:   "NotHeld",
	},
	{
		name: "Adopt: expired",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			handoff := mustHandOff(t, locked(t, rl))
			nodes[1].Flush()
			nodes[2].Set("x", "somebody else's", 0)
			always(nodes, fine, fine, fine)
			_, err := rl.NewMutex("x").Adopt(t.Context(), handoff)
			return err
		},
		text: `redlock: "x" not adopted: gone on 2 of 3 nodes: it has expired, or was adopted ` +
			`before (node 1: the key is not that of the handoff; node 2: the key is not that of ` +
			`the handoff)`,
		is: "Expired Failed", at: []int{1, 2},
	},
	{
		name: "Adopt: no quorum",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			handoff := mustHandOff(t, locked(t, rl))
			always(nodes, fine, fails, hangs)
			_, err := rl.NewMutex("x").Adopt(t.Context(), handoff)
			return err
		},
		text: `redlock: "x" not adopted: no quorum: taken over on 1 of 3 nodes, 2 needed (node ` +
			`1: oops; node 2: no answer within 400ms)`,
		is: "Failed NoQuorum NodeTimeout oops", at: []int{1, 2},
	},
	{
		name: "Adopt: not a handoff",
		do: func(_ *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			_, err := rl.NewMutex("x").Adopt(context.Background(), "secret")
			return err
		},
		text: `redlock: "x" not adopted: redlock: Adopt(…): needs what Handoff has returned`,
		is:   "Failed",
	},
	{
		name: "Unlock: not held",
		do: func(_ *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			return end(rl.NewMutex("x").Unlock())
		},
		text: `redlock: "x" not released: not held`,
		is:   "NotHeld NotReleased",
	},
	{
		name: "Unlock: an option is wrong",
		do: func(_ *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			return end(rl.NewMutex("x", redlock.WithValue("")).Unlock())
		},
		text: `redlock: "x" not released: redlock: WithValue(""): must not be empty`,
		is:   "NotReleased",
	},
	{
		name: "Unlock: expired",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			nodes[1].Set("x", "somebody else's", 0)
			nodes[2].Flush()
			always(nodes, fine, fine, fine)
			return end(m.Unlock())
		},
		text: `redlock: "x" not released: gone on 2 of 3 nodes 7.92s before its end: they have ` +
			`lost it, or a release whose answer was lost has deleted it (node 1: the key is ` +
			`somebody else's; node 2: the key is gone)`,
		is: "Expired NotReleased", at: []int{1, 2},
	},
	{
		name: "Unlock: expired some time ago",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			time.Sleep(redlock.DefaultExpiry)
			always(nodes, fine, fine, fine)
			return end(m.Unlock())
		},
		text: `redlock: "x" not released: expired 84ms ago: gone on 2 of 3 nodes (node 0: the ` +
			`key is gone; node 1: the key is gone; node 2: no answer yet)`,
		is: "Expired NotReleased", at: []int{0, 1, 2},
	},
	{
		name: "Unlock: gone, and nobody knows since when",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			always(nodes, fine, fine, fine)
			return end(rl.NewMutex("x", redlock.WithValue("v")).Unlock())
		},
		text: `redlock: "x" not released: gone on 2 of 3 nodes (node 0: the key is gone; node ` +
			`1: the key is gone; node 2: no answer yet)`,
		is: "Expired NotReleased", at: []int{0, 1, 2},
	},
	{
		name: "Unlock: no quorum",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			always(nodes, fine, fails, hangs)
			return end(m.Unlock())
		},
		text: `redlock: "x" not released: no quorum: deleted on 1 of 3 nodes, 2 needed (node 1: ` +
			`oops; node 2: no answer within 400ms)`,
		is: "NoQuorum NodeTimeout NotReleased oops", at: []int{1, 2},
	},
	{
		name: "Unlock: no quorum again, after some have deleted it",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			always(nodes, fine, fails, fails)
			require.Error(t, end(m.Unlock()))
			return end(m.Unlock())
		},
		text: `redlock: "x" not released: no quorum: deleted on 1 of 3 nodes, 2 needed (node 1: ` +
			`oops; node 2: oops)`,
		is: "NoQuorum NotReleased oops", at: []int{1, 2},
	},
	{
		name: "Unlock: lost before",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			nodes[1].Flush()
			nodes[2].Flush()
			always(nodes, fine, fine, fine)
			require.Error(t, end(m.Extend()))
			return end(m.Unlock())
		},
		text: `redlock: "x" not released: lost before: gone on 2 of 3 nodes`,
		is:   "Expired NotReleased",
	},
	{
		name: "Extend: not held",
		do: func(_ *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			return end(rl.NewMutex("x").Extend())
		},
		text: `redlock: "x" not extended: not held`,
		is:   "NotHeld",
	},
	{
		name: "Extend: an option is wrong",
		do: func(_ *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			return end(rl.NewMutex("", redlock.WithValue("v")).Extend())
		},
		text: `redlock: "" not extended: redlock: NewMutex(""): needs a name that is not empty`,
	},
	{
		name: "Extend: expired",
		do: func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			time.Sleep(8 * time.Second)
			return end(m.Extend())
		},
		text: `redlock: "x" not extended: expired 82ms ago`,
		is:   "Expired",
	},
	{
		name: "Extend: lost",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			nodes[0].Set("x", "somebody else's", 0)
			nodes[2].Flush()
			always(nodes, fine, fine, fine)
			return end(m.Extend())
		},
		text: `redlock: "x" not extended: lost: gone on 2 of 3 nodes (node 0: the key is ` +
			`somebody else's; node 2: the key is gone)`,
		is: "Expired", at: []int{0, 2},
	},
	{
		name: "Extend: lost before",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			nodes[0].Flush()
			nodes[2].Flush()
			always(nodes, fine, fine, fine)
			require.Error(t, end(m.Valid()))
			return end(m.Extend())
		},
		text: `redlock: "x" not extended: lost before: gone on 2 of 3 nodes`,
		is:   "Expired",
	},
	{
		name: "Extend: no quorum",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			always(nodes, absent, fails, fine)
			return end(m.Extend())
		},
		text: `redlock: "x" not extended: no quorum: confirmed by 0 of 3 nodes, 2 needed (node ` +
			`0: the key is gone; node 1: oops; node 2: no answer yet)`,
		is: "NoQuorum oops", at: []int{0, 1, 2},
	},
	{
		name: "Extend: too late",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl, redlock.WithExpiry(time.Second),
				redlock.WithNodeTimeout(time.Second))
			for _, n := range nodes {
				n.Always(sim.Fate{Reply: 990 * time.Millisecond})
			}
			return end(m.Extend())
		},
		text: `redlock: "x" not extended: expired during the call`,
		is:   "Expired",
	},
	{
		name: "Extend: context ended",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			always(nodes, hangs, hangs, hangs)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			return end(m.ExtendContext(ctx))
		},
		text: `redlock: "x" not extended: context deadline exceeded`,
		is:   "DeadlineExceeded",
	},
	{
		name: "Extend: released during the call",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			for _, n := range nodes {
				n.Next("extend", sim.Slow(10*time.Millisecond))
			}
			time.AfterFunc(time.Millisecond, func() { _, _ = m.Unlock() })
			return end(m.Extend())
		},
		text: `redlock: "x" not extended: released during the call`,
		is:   "NotHeld",
	},
	{
		name: "Extend: lost during the call",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			nodes[1].Next("extend", fails)
			nodes[2].Next("extend", sim.Slow(10*time.Millisecond))
			for _, n := range nodes {
				n.Next("valid", absent)
			}
			time.AfterFunc(time.Millisecond, func() { _, _ = m.Valid() })
			return end(m.Extend())
		},
		text: `redlock: "x" not extended: lost during the call`,
		is:   "Expired",
	},
	{
		name: "Valid: lost",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			nodes[1].Flush()
			nodes[2].Flush()
			always(nodes, fine, fine, fine)
			return end(m.Valid())
		},
		text: `redlock: "x" not valid: lost: gone on 2 of 3 nodes (node 1: the key is gone; ` +
			`node 2: the key is gone)`,
		is: "Expired", at: []int{1, 2},
	},
	{
		name: "Valid: no quorum",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			always(nodes, fine, fails, hangs)
			return end(m.Valid())
		},
		text: `redlock: "x" not valid: no quorum: confirmed by 1 of 3 nodes, 2 needed (node 1: ` +
			`oops; node 2: no answer within 400ms)`,
		is: "NoQuorum NodeTimeout oops", at: []int{1, 2},
	},
	{
		name: "Valid: expired during the call",
		do: func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
			m := locked(t, rl)
			time.Sleep(time.Until(m.Until()) - time.Millisecond)
			for _, n := range nodes {
				n.Always(sim.Fate{Reply: 2 * time.Millisecond})
			}
			return end(m.Valid())
		},
		text: `redlock: "x" not valid: expired during the call`,
		is:   "Expired",
	},
}

// lesson L43, L48, L49
func TestEveryFailureSaysWhatFailedAndWhy(t *testing.T) {
	for _, tt := range failures {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				err := tt.do(t, nodes, rl)
				require.EqualError(t, err, tt.text)
				want := strings.Fields(tt.is)
				slices.Sort(want)
				assert.Equal(t, strings.Join(want, " "), matched(err))

				var e *redlock.Error
				require.ErrorAs(t, err, &e)
				var all *multierror.Error
				assert.Len(t, e.Nodes(), len(tt.at))
				if tt.at == nil {
					return
				}
				require.ErrorAs(t, err, &all)
				var first *redlock.NodeError
				require.ErrorAs(t, err, &first)
				assert.Equal(t, tt.at[0], first.Node)
				var at []int
				for _, n := range all.Errors {
					node, ok := n.(*redlock.NodeError)
					require.True(t, ok, "%T", n)
					assert.Same(t, node, e.Nodes()[len(at)])
					at = append(at, node.Node)
					assert.Equal(t, fmt.Sprintf("node %d: %v", node.Node, node.Err), node.Error())
				}
				assert.Equal(t, tt.at, at, "in node order")
			})
		})
	}
}

func TestTypedErrorsAreFound(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		err := rl.NewMutex("", redlock.WithTries(0)).Lock()
		var option *redlock.OptionError
		require.ErrorAs(t, err, &option)
		assert.Equal(t, &redlock.OptionError{Option: "NewMutex", Value: `""`,
			Rule: "needs a name that is not empty"}, option)
		assert.ErrorContains(t, err, "WithTries(0)", "all mistakes at once")
		var e *redlock.Error
		require.ErrorAs(t, err, &e)
		assert.Empty(t, e.Name)

		for _, n := range nodes {
			n.Crash()
			n.Restart(false)
		}
		err = rl.NewMutex("x", redlock.WithRestartGuard(8*time.Second)).TryLock()
		var guard *redlock.GuardError
		require.ErrorAs(t, err, &guard)
		assert.Equal(t, 9*time.Second, guard.Wait)

		nodes[0].Always(sim.Reply("1"))
		nodes[1].Always(sim.Reply("1"))
		err = rl.NewMutex("x", redlock.WithFencing()).TryLock()
		var reply *redlock.ReplyError
		require.ErrorAs(t, err, &reply)
		assert.Equal(t, &redlock.ReplyError{Script: "acquire", Reply: "1"}, reply)
		assert.NotErrorAs(t, err, &guard)
		assert.NotErrorAs(t, err, &option)
	})
}

// Users make errors of their own in tests.
func TestErrorsThatOthersHaveMadeCanBeRead(t *testing.T) {
	e := &redlock.Error{Name: "x"}
	assert.NotErrorIs(t, e, redlock.ErrTaken)
	assert.Contains(t, e.Error(), `"x"`)
	assert.Empty(t, e.Nodes())
	assert.Contains(t, (&redlock.NodeError{Node: 2}).Error(), "node 2")
}

func TestAnErrorNamesTheLockWithoutThePrefix(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Always(fails)
		err := rl.NewMutex("x").TryLock()
		var e *redlock.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "x", e.Name)
	}, redlock.WithKeyPrefix("p:"))
}

// A quorum is out of reach as soon as one node has failed and another one has refused, before the
// third one has said that it would refuse, too: somebody has the lock, and Redis is not in
// trouble.
func TestALockThatIsTakenIsTakenThoughANodeIsDown(t *testing.T) {
	for n, down := range map[int]int{2: 0, 3: 1, 4: 1, 5: 2, 7: 3} {
		t.Run(fmt.Sprintf("%d of %d down", down, n), func(t *testing.T) {
			bubble(t, n, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for i, node := range nodes {
					if i < down {
						node.Crash()
						continue
					}
					node.Set("x", "somebody else's", 0)
					node.Always(sim.Slow(time.Duration(i) * 2 * time.Millisecond))
				}
				start := time.Now()
				err := rl.NewMutex("x").TryLock()
				assert.ErrorIs(t, err, redlock.ErrTaken)
				assert.NotErrorIs(t, err, redlock.ErrNoQuorum)
				assert.Regexp(t, fmt.Sprintf("taken on [%d-%d] of %d nodes", n-n/2, n-down, n), err)
				assert.Less(t, time.Since(start), 50*time.Millisecond)
			})
		})
	}
}

// lesson L70: an error is one line, whatever clients, callers and their functions say.
func TestErrorsAreOneLine(t *testing.T) {
	oneLine := func(t *testing.T, err error, text string) {
		t.Helper()
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "\n")
		assert.NotContains(t, err.Error(), "\r")
		assert.Contains(t, err.Error(), text)
	}
	lines := errors.New("first\r\n\n\tsecond\n")
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		both := []redlock.Option{redlock.WithTries(0), redlock.WithRetryDelay(-1)}
		const mistakes = "redlock: WithTries(0): must be at least 1, or Unlimited; redlock: " +
			"WithRetryDelay(-1ns): must be at least 0"
		oneLine(t, rl.NewMutex("x", both...).Lock(), mistakes)
		_, err := doctor.Check(t.Context(), rl.With(both...))
		oneLine(t, err, mistakes)
		_, err = rl.With(both...).Inspect(t.Context(), "x")
		oneLine(t, err, mistakes)

		oneLine(t, rl.NewMutex("x", redlock.WithGenValueFunc(func() (string, error) {
			return "",
				lines
		})).Lock(), "first; second")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(lines)
		oneLine(t, rl.NewMutex("x").LockContext(ctx), "context canceled (first; second)")
		_, err = rl.Inspect(ctx, "x")
		oneLine(t, err, "context canceled (first; second)")
		_, err = doctor.Check(ctx, rl)
		oneLine(t, err, "context canceled (first; second)")

		err = rl.Do(t.Context(), "x", func(context.Context) error {
			synctest.Wait()
			for _, n := range nodes {
				n.Always(sim.Fail(lines))
			}
			return errOops
		})
		oneLine(t, err, "oops; redlock: \"x\" not released")
		assert.ErrorIs(t, err, errOops)
		assert.ErrorIs(t, err, redlock.ErrNoQuorum)

		always(nodes, sim.Fail(lines), fails, sim.Fail(lines))
		nodes[2].Always(sim.Fail(lines))
		err = rl.NewMutex("y").TryLock()
		oneLine(t, err, "node 2: first; second)")
		var all *multierror.Error
		require.ErrorAs(t, err, &all)
		oneLine(t, all, "; node 2: first; second")
		_ = multierror.Append(all, errOops) // it is the caller's own
		assert.Len(t, err.(*redlock.Error).Nodes(), 3)
		var node *redlock.NodeError
		require.ErrorAs(t, err, &node)
		oneLine(t, &redlock.NodeError{Node: 1, Err: lines}, "node 1: first; second")

		in, err := rl.Inspect(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, 4, strings.Count(in.String(), "\n"),
			"a line for the lock and for each node")
		report, err := doctor.Check(t.Context(), rl)
		require.NoError(t, err)
		for _, f := range report.Findings {
			assert.NotContains(t, f.Problem+f.Advice, "\n")
		}
	})
}

// addressed is a pool that knows its address.
type addressed struct {
	*sim.Link
	addr func() string
}

func (a addressed) Addr() string { return a.addr() }

// lesson L76: whoever is woken by an error reads which server to look at, and no password.
func TestErrorsSayWhereANodeIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		pools := nodes.Pools("a")
		for i, addr := range []func() string{
			func() string { return "10.0.0.1:6379" },
			func() string { return "app:se@cret@10.0.0.2:6379" },
			func() string { panic(errOops) },
			func() string { return "" },
		} {
			pools[i] = addressed{nodes[i].Link("a"), addr}
		}
		rl := redlock.New(pools...)
		always(nodes, fails, fails, fails, fails, fails)
		err := rl.NewMutex("x").TryLock()
		assert.ErrorContains(t, err, "node 0 (10.0.0.1:6379): oops; node 1 (10.0.0.2:6379): "+
			"oops; node 2: oops; node 3: ")
		var node *redlock.NodeError
		require.ErrorAs(t, err, &node)
		assert.Equal(t, "10.0.0.1:6379", node.Addr)

		in, err := rl.Inspect(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, "10.0.0.2:6379", in.Nodes[1].Addr)
		assert.Contains(t, in.String(), "node 1 (10.0.0.2:6379)  oops\n")
		assert.Contains(t, in.String(), "node 2                  oops\n")
		require.NoError(t, rl.Close())
	})
}

// What a node did wrong is found by its type wherever it shows: within another error of the node,
// in Events, and in a report.
func TestNodesErrorsAreFoundByType(t *testing.T) {
	wrong := &redlock.ReplyError{Script: "raise", Reply: "1"}
	bubble(t, 2, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Set(fenceOf("x"), "9007199254740000", 0)
		nodes[1].Next("raise", sim.Reply("1"))
		var told calls
		err := rl.NewMutex("x", redlock.WithFencing(),
			redlock.WithEvents(&redlock.Events{Node: told.add})).TryLock()
		var reply *redlock.ReplyError
		require.ErrorAs(t, err, &reply)
		assert.Equal(t, wrong, reply)
		assert.ErrorContains(t, err, `node 1: the fencing token was not stored: raise script: `+
			`unexpected reply "1" of type string`)
		assert.True(t, slices.ContainsFunc(told.seen(), func(c redlock.NodeCall) bool {
			return assert.ObjectsAreEqual(wrong, c.Err)
		}))
	})
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Always(sim.Reply("1"))
		report, err := doctor.Check(t.Context(), rl.With(redlock.WithFencing()))
		require.NoError(t, err)
		var reply *redlock.ReplyError
		require.ErrorAs(t, report.Nodes[0].Err, &reply)
		assert.Equal(t, &redlock.ReplyError{Script: "acquire", Reply: "1"}, reply)
		assert.EqualError(t, report.Nodes[0].Err,
			`acquire: acquire script: unexpected reply "1" of type string`)
	})
}

// lesson L145: neither its length, nor what it contains, makes the reply of a node unfit for a log,
// a terminal or a report.
func TestWhatNodesSayCanBeShown(t *testing.T) {
	said := errors.New("ERR \x1b[31m\x00\xff " + strings.Repeat("x\x1b", 40_000))
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		var mu sync.Mutex // guards log
		var log strings.Builder
		text := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(&log, err)
		}
		rl = rl.With(redlock.WithEvents(&redlock.Events{
			NodeState: func(s redlock.NodeState) { text(s.Err) },
			Node:      func(c redlock.NodeCall) { text(c.Err) },
		}))
		for _, fate := range []sim.Fate{sim.Fail(said), sim.Reply(said.Error())} {
			synctest.Wait()
			log.Reset()
			always(nodes, fate, fate, fate)
			text(rl.NewMutex("x", redlock.WithFencing()).TryLock())
			in, err := rl.Inspect(t.Context(), "x")
			require.NoError(t, err)
			text(errors.New(in.String()))
			text(in.Nodes[0].Err)
			report, err := doctor.Check(t.Context(), rl.With(redlock.WithFencing()))
			require.NoError(t, err)
			text(errors.New(report.String()))
			text(report.Nodes[0].Err)
			synctest.Wait()
			assert.Less(t, log.Len(), 60_000)
			assert.True(t, utf8.ValidString(log.String()))
			assert.NotContains(t, log.String(), "\x1b")
			assert.NotContains(t, log.String(), "\x00")
		}
	})
}
