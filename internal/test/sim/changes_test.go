package sim_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// These campaigns are about clients that do not have the same list of nodes, because they restart
// one after the other while the list changes. docs/changing-nodes.md says which changes are safe.

// change says which lists of nodes the clients have.
type change struct {
	grantSetup
	lists [][]int // indexes of nodes
	// How clients choose their list when they restart. Without either, any list at any time.
	orderly bool // all go on to the next list, wait for the longest expiry, and so on, to and fro
	// The first list, until a node that only this has is dead for the longest expiry; then any.
	buried bool
}

// upTo is the list of the first n nodes.
func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// One node more or less is safe, at whatever time each client learns of it, and whatever clocks
// say.
func TestSchedulesThatChangeTheNodes(t *testing.T) {
	for name, c := range map[string]change{
		"one and two": {lists: [][]int{upTo(1), upTo(2)},
			grantSetup: grantSetup{clocks: time.Hour}},
		"two and three": {lists: [][]int{upTo(2), upTo(3)},
			grantSetup: grantSetup{clocks: time.Hour}},
		"three and four": {lists: [][]int{upTo(3), upTo(4)},
			grantSetup: grantSetup{clocks: time.Hour}},
		"four and five": {lists: [][]int{upTo(4), upTo(5)},
			grantSetup: grantSetup{clocks: time.Hour}},
		"five and six": {lists: [][]int{upTo(5), upTo(6)},
			grantSetup: grantSetup{clocks: time.Hour}},
		"another node goes": {lists: [][]int{{0, 1, 2, 3}, {3, 1, 2}},
			grantSetup: grantSetup{clocks: time.Hour}},
		"nodes forget, too": {lists: [][]int{upTo(3), upTo(4)},
			grantSetup: grantSetup{clocks: time.Second, loss: true, guard: true}},
		"step by step": {lists: [][]int{upTo(3), upTo(4), upTo(5)}, orderly: true,
			grantSetup: grantSetup{clocks: time.Second / 4}},
		"a dead node leaves": {lists: [][]int{upTo(5), {0, 1, 2, 3, 5}}, buried: true,
			grantSetup: grantSetup{clocks: time.Second / 4}},
	} {
		t.Run(name, func(t *testing.T) {
			r := grantCampaign(t, fencedGrants(500)/20, c.run)
			r.clean(t)
			r.saw(t, "restart", "raise round", "extended", "left to expire",
				"changed hands between lists")
		})
	}
}

// Two nodes at once are not safe: the campaign sees two holders, or what follows from them.
func TestSchedulesThatChangeTooManyNodes(t *testing.T) {
	const seeds = 1000
	for name, c := range map[string]change{
		"three and five":       {lists: [][]int{upTo(3), upTo(5)}},
		"five and three":       {lists: [][]int{upTo(5), {2, 3, 4}}},
		"a swap of three":      {lists: [][]int{upTo(3), {0, 1, 3}}},
		"a swap of five":       {lists: [][]int{upTo(5), {0, 1, 2, 3, 5}}},
		"a step too early":     {lists: [][]int{upTo(3), upTo(4), upTo(5)}},
		"two swapped, by step": {lists: [][]int{upTo(5), {0, 1, 2, 5, 6}}, orderly: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := grantCampaign(t, seeds*grantsPerSeed, c.run)
			require.NotEmpty(t, r.violations)
			t.Logf("found by seed %d: %s", r.seed, r.violations[0])
			assert.Contains(t, []string{"I1 mutual exclusion", "I3 token order", "I6 continuity"},
				r.violations[0].invariant)
		})
	}
}

// Across two changes, tokens rest on clocks: the third list has a quorum that never stored the
// first token. A lock with the list in between carries the token over.
func TestTokensAcrossTwoChangesRestOnClocks(t *testing.T) {
	for _, between := range []bool{false, true} {
		bubble(t, "go test ./internal/test/sim -run "+t.Name(), func(t *testing.T) {
			nodes := sim.NewNodes(5)
			defer nodes.Close()
			// token locks x as a client with a list of the first nodes, of which some do not
			// answer.
			token := func(list int, clock time.Duration, silent ...int) uint64 {
				for i, n := range nodes {
					n.Always(sim.Fate{Lost: slices.Contains(silent, i)})
				}
				o := &owner{grants: &grants{start: time.Now()}}
				o.offset.Store(int64(clock))
				var pools []pool.Pool
				for _, n := range nodes[:list] {
					pools = append(pools, ownerWay{n.Link("a"), n, o})
				}
				rl := redlock.New(pools...)
				m := rl.NewMutex("x", redlock.WithFencing())
				require.NoError(t, m.TryLock())
				time.Sleep(redlock.DefaultExpiry + time.Second) // it is left to expire
				assert.NoError(t, rl.Close())
				return m.FencingToken()
			}
			first := token(3, time.Hour, 2)
			if between {
				assert.Greater(t, token(4, 0, 0), first)
			}
			assert.Equal(t, between, token(5, 0, 0, 1) > first)
		})
	}
}

// changes is a bubble whose clients restart with other lists of nodes.
type changes struct {
	*grants
	change
	from, to atomic.Int64   // the lists that a client may choose
	has      []atomic.Int64 // the list of each client
	lastList map[string]int // of the client that was granted a name last; guarded by mu of grants
}

func (c change) run(t *testing.T, d dice) *grants {
	nodes := 0
	for _, list := range c.lists {
		for _, i := range list {
			nodes = max(nodes, i+1)
		}
	}
	g := &grants{
		grantSetup: c.grantSetup, dice: d, start: time.Now(), over: make(chan struct{}),
		states: make(map[string]int), locks: make(map[string]*lastGrant),
		nodes: sim.NewNodes(nodes), expiry: time.Second,
		faulty: []float64{0.05, 0.2, 0.4}[d.below(3, "faulty")],
		names:  namesOfOne[:1+d.below(2, "names")],
	}
	for _, name := range g.names {
		g.locks[name] = &lastGrant{}
	}
	if c.loss {
		g.expiry = 4 * time.Second
	}
	w := &changes{grants: g, change: c, has: make([]atomic.Int64, 3),
		lastList: make(map[string]int)}
	if !c.orderly && !c.buried {
		w.to.Store(int64(len(c.lists) - 1))
	}
	var owners, nemeses sync.WaitGroup
	for i, n := range g.nodes {
		n.Clock(1+0.009*(2*d.unit("rate", int64(i))-1), 0)
		if !c.buried || i != len(c.lists[0])-1 {
			nemeses.Go(func() { g.crashes(int64(i), n) })
		}
	}
	switch {
	case c.orderly:
		nemeses.Go(w.walk)
	case c.buried:
		nemeses.Go(func() { w.bury(g.nodes[len(c.lists[0])-1]) })
	}
	for i := range w.has {
		o := &owner{grants: g, id: int64(i)}
		o.jump()
		nemeses.Go(o.jumps)
		owners.Go(func() { w.live(t, o) })
	}
	owners.Wait()
	close(g.over)
	nemeses.Wait()
	time.Sleep(5 * g.expiry) // what is under way lands
	g.nodes.Close()
	g.states["raise round"] += g.nodes.Count("raise")
	return g
}

// walk lets the clients go from list to list, to the last and back, each time when all have the
// list and every lock of the one before has ended.
func (w *changes) walk() {
	for i, by := int64(0), int64(1); ; i += by {
		w.from.Store(i)
		w.to.Store(i)
		for k := range w.has {
			for w.has[k].Load() != i {
				if !sleep(w.over, w.expiry/10) {
					return
				}
			}
		}
		if !sleep(w.over, w.expiry+w.expiry/10) { // clocks of nodes may be slow
			return
		}
		if i+by < 0 || i+by >= int64(len(w.lists)) {
			by = -by
		}
	}
}

// bury lets a node die, and clients have the other lists when it is dead for the longest expiry.
func (w *changes) bury(n *sim.Node) {
	if sleep(w.over, 4*w.expiry) {
		n.Crash()
	}
	if sleep(w.over, w.expiry+w.expiry/10) {
		w.to.Store(int64(len(w.lists) - 1))
	}
}

// live lets a client restart until there are enough grants.
func (w *changes) live(t *testing.T, o *owner) {
	for life := int64(0); o.wanted(); life++ {
		from, to := w.from.Load(), w.to.Load()
		list := from + int64(o.below(int(to-from+1), "list", o.id, life))
		w.has[o.id].Store(list)
		var pools []pool.Pool
		for _, i := range w.lists[list] {
			link := o.nodes[i].Link(fmt.Sprint(o.id))
			link.Plan(o.plan(100*life + int64(i)))
			pools = append(pools, ownerWay{link, o.nodes[i], o})
		}
		rl := redlock.New(pools...).With(redlock.WithFencing(), redlock.WithExpiry(o.expiry),
			redlock.WithPolling(),
			redlock.WithRetryDelayFunc(func(tries int) time.Duration {
				return o.between(o.expiry/100, o.expiry/10*time.Duration(min(tries, 10)), "retry",
					o.id, int64(tries), int64(time.Since(o.start)))
			}))
		if o.guard {
			rl = rl.With(redlock.WithRestartGuard(o.expiry))
		}
		ctx, stop := context.WithTimeout(t.Context(),
			o.between(o.expiry/10, 3*o.expiry, "life", o.id, life))
		var takers sync.WaitGroup
		for i := range o.names {
			takers.Go(func() {
				w.take(ctx, rl, &taker{owner: o, id: 10*o.id + int64(i)}, int(list),
					1000*life)
			})
		}
		takers.Wait()
		stop()
		ctx, stop = context.WithTimeout(context.Background(), time.Minute)
		assert.NoError(t, rl.CloseContext(ctx))
		stop()
	}
}

// take takes one lock after the other until the client ends.
func (w *changes) take(ctx context.Context, rl *redlock.Redlock, o *taker, list int, i int64) {
	for ; o.wanted() && ctx.Err() == nil; i++ {
		m := rl.NewMutex(o.names[o.below(len(o.names), "name", o.id, i)])
		if m.LockContext(ctx) != nil {
			continue
		}
		o.mu.Lock()
		if w.lastList[m.Name()] != list {
			w.lastList[m.Name()] = list
			o.states["changed hands between lists"]++
		}
		o.mu.Unlock()
		o.hold(m, i)
		time.Sleep(o.between(0, o.expiry/50, "idle", o.id, i))
	}
}
