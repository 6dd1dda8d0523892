package sim_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/clock/clocktest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// These campaigns are about one thing, and made for numbers: the tokens and the holders of a few
// names, which share one counter. A million:
//
//	go test ./internal/test/sim -run '^TestSchedulesOfGrants' -grants 1000000 -timeout 0 -v
var grantsWanted = flag.Int("grants", 0, "fenced grants of each campaign about tokens; 0 for "+
	"as many as usual")

// fencedGrants is the number of grants of a campaign that usually has n.
func fencedGrants(n int) int { return cmp.Or(*grantsWanted, n**times) }

// grantsPerSeed is how many grants a bubble lasts.
const grantsPerSeed = 50

// Without loss of data, tokens rest on no clock: those of the clients are up to an hour off, and
// jump.
func TestSchedulesOfGrantsWhateverTheClocks(t *testing.T) {
	r := grantCampaign(t, fencedGrants(500), grantSetup{clocks: time.Hour}.run)
	r.clean(t)
	r.saw(t, "raise round", "restart", "jump", "extended", "left to expire",
		"overtaken by another name")
}

// With loss of data, and nodes that are back at once, they rest on the restart guard and on
// clocks that are about right.
func TestSchedulesOfGrantsThoughNodesForget(t *testing.T) {
	r := grantCampaign(t, fencedGrants(500), grantSetup{clocks: time.Second, loss: true,
		guard: true}.run)
	r.clean(t)
	r.saw(t, "raise round", "restart", "jump", "extended", "left to expire",
		"overtaken by another name", "guard refused")
}

// What makes tokens grow is necessary, and what the campaigns look at finds that out.
func TestSchedulesOfGrantsWithPlantedBugs(t *testing.T) {
	const seeds = 1000
	for name, planted := range map[string]struct {
		bug    grantSetup
		breaks []string
	}{
		"tokens by INCR and maximum": {grantSetup{clocks: time.Hour, plainIncr: true},
			[]string{"I3 token order"}},
		"no raise round": {grantSetup{clocks: time.Hour, noRaise: true},
			[]string{"I3 token order"}},
		"counters go with the lock": {grantSetup{clocks: time.Hour, noCounter: true},
			[]string{"I3 token order"}},
		"no restart guard": {grantSetup{clocks: time.Second, loss: true},
			[]string{"I1 mutual exclusion", "I3 token order", "I6 continuity"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := grantCampaign(t, seeds*grantsPerSeed, planted.bug.run)
			require.NotEmpty(t, r.violations)
			t.Logf("found by seed %d: %s", r.seed, r.violations[0])
			assert.Contains(t, planted.breaks, r.violations[0].invariant)
		})
	}
}

// grantSetup says what happens to the nodes and clients of a campaign.
type grantSetup struct {
	clocks    time.Duration // how far a client's clock is off at most, to either side
	loss      bool          // nodes restart empty, else with what they had
	guard     bool
	plainIncr bool // a planted bug: the token is the greatest counter, each incremented by itself
	noRaise   bool // a planted bug: nothing is raised
	noCounter bool // a planted bug: a release deletes the counter, too
}

// grantReport is what a campaign has seen. The first seed that breaks something ends it.
type grantReport struct {
	mu         sync.Mutex
	states     map[string]int
	grants     int
	violations []violation
	seed       uint64 // of the violations
}

// clean requires that nothing was wrong.
func (r *grantReport) clean(t *testing.T) {
	t.Helper()
	if r.violations != nil {
		t.Errorf("%d violations in\n\tseed %d\n%s%s", len(r.violations), r.seed, some(r.violations),
			grantSeed(t, r.seed))
	}
}

// grantSeed is the command that runs one seed again; it stops at a grant, or at what is wrong
// before.
func grantSeed(t *testing.T, seed uint64) string {
	top, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("go test ./internal/test/sim -run '^%s$' -v -first %d -grants 1 -parallel 1",
		top, seed)
}

// saw requires that the campaign has reached what makes it worth running, if it was not a short
// one.
func (r *grantReport) saw(t *testing.T, states ...string) {
	t.Helper()
	if r.grants < 500 {
		return
	}
	for _, s := range states {
		assert.NotZero(t, r.states[s], "the campaign has not reached: %s", s)
	}
}

// grantCampaign runs bubbles with ever new seeds until they have seen so many grants, or a
// violation.
func grantCampaign(t *testing.T, wanted int, run func(t *testing.T, d dice) *grants) *grantReport {
	r := &grantReport{states: make(map[string]int)}
	begun := time.Now()
	var next atomic.Uint64
	done := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.grants >= wanted || r.violations != nil
	}
	t.Run("shards", func(t *testing.T) {
		for shard := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for !done() && !t.Failed() {
					seed := *first + next.Add(1) - 1
					bubble(t, grantSeed(t, seed),
						func(t *testing.T) { r.add(run(t, dice(seed)), seed) })
				}
			})
		}
	})
	t.Logf("%d grants in %v, %d seeds, %v", r.grants, time.Since(begun).Round(time.Millisecond),
		next.Load(), r.states)
	return r
}

func (r *grantReport) add(g *grants, seed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants += g.granted
	for state, n := range g.states {
		r.states[state] += n
	}
	if len(g.violations) > 0 && r.violations == nil {
		r.violations, r.seed = g.violations, seed
	}
}

// theCounter is the key of the counter that all of namesOfOne share.
var theCounter, namesOfOne = func() (string, []string) {
	byCounter := make(map[string][]string)
	for i := 0; ; i++ {
		name := fmt.Sprint("x", i)
		c := "redlock:fence:" + fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:4]
		if byCounter[c] = append(byCounter[c], name); len(byCounter[c]) == 3 {
			return c, byCounter[c]
		}
	}
}()

// grants is one bubble: some clients want some locks, whose names share a counter.
type grants struct {
	grantSetup
	dice
	nodes  sim.Nodes
	start  time.Time
	expiry time.Duration
	faulty float64 // part of the commands to which something happens
	names  []string
	own    bool // the one name has a counter of its own
	over   chan struct{}

	mu         sync.Mutex
	states     map[string]int
	granted    int
	locks      map[string]*lastGrant
	last       uint64 // token of any name
	violations []violation
}

// lastGrant is what is known of the last grant of a name.
type lastGrant struct {
	token  uint64
	holder *redlock.Mutex
	until  time.Duration // of its lease, by the true clock
}

func (s grantSetup) run(t *testing.T, d dice) *grants {
	g := &grants{
		grantSetup: s, dice: d, start: time.Now(), over: make(chan struct{}),
		states: make(map[string]int), locks: make(map[string]*lastGrant),
		nodes:  sim.NewNodes([]int{3, 3, 3, 3, 5, 4}[d.below(6, "nodes")]),
		expiry: time.Second,
		faulty: []float64{0.05, 0.2, 0.4}[d.below(3, "faulty")],
	}
	names := d.below(4, "names")
	g.names, g.own = namesOfOne[:max(1, names)], names == 0
	for _, name := range g.names {
		g.locks[name] = &lastGrant{}
	}
	if s.loss {
		g.expiry = []time.Duration{4 * time.Second, 8 * time.Second}[d.below(2, "expiry")]
	}
	var owners, nemeses sync.WaitGroup
	for i, n := range g.nodes {
		n.Clock(1+0.009*(2*d.unit("rate", int64(i))-1), 0)
		nemeses.Go(func() { g.crashes(int64(i), n) })
	}
	for i := range []int{2, 2, 3}[d.below(3, "clients")] {
		o := &owner{grants: g, id: int64(i)}
		o.jump()
		nemeses.Go(o.jumps)
		owners.Go(func() { o.run(t) })
	}
	owners.Wait()
	close(g.over)
	nemeses.Wait()
	time.Sleep(5 * g.expiry) // what is under way lands
	for i, n := range g.nodes {
		if keys := n.Keys(); keys > 1 || keys == 1 && g.own == (n.Value(theCounter) != "") {
			g.violate("I8 no leaks", "node %d holds something else than the counter", i)
		}
	}
	g.nodes.Close()
	g.states["raise round"] += g.nodes.Count("raise")
	return g
}

// crashes lets a node restart every now and then.
func (g *grants) crashes(id int64, n *sim.Node) {
	peace := 4 * g.expiry
	if g.guard {
		peace = 20 * g.expiry // most of the nodes are to take part most of the time
	}
	for i := int64(0); sleep(g.over, g.between(0, peace, "peace", id, i)); i++ {
		n.Crash()
		time.Sleep(g.between(0, g.expiry/20, "down", id, i))
		n.Restart(!g.loss)
		g.reached("restart")
	}
}

func (g *grants) reached(state string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.states[state]++
}

func (g *grants) violate(invariant, format string, args ...any) {
	g.violations = append(g.violations, violation{invariant,
		fmt.Sprintf("%v: ", time.Since(g.start)) + fmt.Sprintf(format, args...)})
}

// owner is one client. Its wall clock is wrong, its monotonic clock is not.
type owner struct {
	*grants
	id     int64
	offset atomic.Int64
	jumped int64
}

func (o *owner) Clock() clock.Own { return clock.Own{Now: o.Now, Jitter: o.Jitter} }

func (o *owner) Now() time.Time {
	return clocktest.Time(time.Now().Add(time.Duration(o.offset.Load())), time.Since(o.start))
}

// truly returns the true time, since the start, at which the owner's monotonic clock shows t.
func (o *owner) truly(t time.Time) time.Duration { return time.Since(o.start) + t.Sub(o.Now()) }

func (o *owner) Jitter(limit time.Duration) time.Duration {
	return o.between(0, limit, "jitter", o.id, int64(time.Since(o.start)))
}

func (o *owner) jump() {
	o.jumped++
	o.offset.Store(int64(o.between(-o.clocks, o.clocks, "jump", o.id, o.jumped)))
}

func (o *owner) jumps() {
	for sleep(o.over, o.between(0, 4*o.expiry, "until jump", o.id, o.jumped)) {
		o.jump()
		o.reached("jump")
	}
}

// run locks again and again until there are enough grants.
func (o *owner) run(t *testing.T) {
	pools := make([]pool.Pool, len(o.nodes))
	for i, n := range o.nodes {
		link := n.Link(fmt.Sprint(o.id))
		link.Plan(o.plan(int64(i)))
		pools[i] = ownerWay{link, n, o}
	}
	rl := redlock.New(pools...).With(redlock.WithFencing(), redlock.WithExpiry(o.expiry),
		redlock.WithPolling(),
		redlock.WithRetryDelayFunc(func(tries int) time.Duration {
			return o.between(o.expiry/100, o.expiry/10*time.Duration(min(tries, 10)), "retry", o.id,
				int64(tries), int64(time.Since(o.start)))
		}))
	if o.guard {
		rl = rl.With(redlock.WithRestartGuard(o.expiry))
	}
	if o.own {
		rl = rl.With(redlock.WithFencePerName())
	}
	var takers sync.WaitGroup
	for i := range o.names {
		takers.Go(func() { (&taker{owner: o, id: 10*o.id + int64(i)}).run(rl) })
	}
	takers.Wait()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	assert.NoError(t, rl.CloseContext(ctx))
}

// taker takes one lock after the other. An owner has as many as there are names.
type taker struct {
	*owner
	id int64
}

func (o *taker) run(rl *redlock.Redlock) {
	var m *redlock.Mutex
	for i := int64(0); o.wanted(); i++ {
		if m == nil || o.chance(0.3, "new", o.id, i) {
			m = rl.NewMutex(o.names[o.below(len(o.names), "name", o.id, i)])
		}
		if m.Lock() == nil && !o.hold(m, i) {
			m = nil
		}
		time.Sleep(o.between(0, o.expiry/50, "idle", o.id, i))
	}
}

func (g *grants) wanted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.granted < grantsPerSeed && g.violations == nil
}

// hold keeps the lock for a while, and tells whether it has been unlocked.
func (o *taker) hold(m *redlock.Mutex, i int64) bool {
	o.grant(m)
	long, often := o.expiry/50, 0.1
	if o.loss {
		often = 0.5 // or there is too much peace between two grants
	}
	if o.chance(often, "long", o.id, i) {
		long = o.expiry
	}
	lost := false
	for k := int64(0); k < 3 && !lost; k++ {
		time.Sleep(o.between(0, long, "work", o.id, i, k))
		if !o.chance(0.4, "extend", o.id, i, k) {
			break
		}
		_, err := m.Extend()
		if err == nil {
			o.prolong(m)
		}
		lost = errors.Is(err, redlock.ErrExpired) // and what is left of it is being released
	}
	abandon := o.chance(0.05, "abandon", o.id, i)
	o.mu.Lock()
	if l := o.locks[m.Name()]; l.holder == m && (lost || !abandon) {
		l.until = min(l.until, time.Since(o.start))
	}
	o.mu.Unlock()
	if abandon {
		o.reached("left to expire")
		return false
	}
	_, err := m.Unlock()
	return err == nil
}

// grant checks a grant against the one before, of the same name.
func (o *taker) grant(m *redlock.Mutex) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.granted++
	now, token, before := time.Since(o.start), m.FencingToken(), o.locks[m.Name()]
	if token <= before.token || token >= 1<<53 {
		o.violate("I3 token order", "client %d is granted %s with token %d after %d", o.id,
			m.Name(), token, before.token)
	}
	if now < before.until {
		o.violate("I1 mutual exclusion", "client %d is granted %s which another holds until %v",
			o.id, m.Name(), before.until)
	}
	if token <= o.last {
		o.states["overtaken by another name"]++
	}
	o.last = max(o.last, token)
	*before = lastGrant{token, m, o.truly(m.Until())}
}

// prolong notes an extension.
func (o *taker) prolong(m *redlock.Mutex) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.states["extended"]++
	l := o.locks[m.Name()]
	if l.holder != m || l.token != m.FencingToken() {
		o.violate("I6 continuity", "client %d extended %s with token %d after %d was granted", o.id,
			m.Name(), m.FencingToken(), l.token)
	}
	l.until = o.truly(m.Until())
}

// plan lets messages between the client and a node be late, overtaken, lost or doubled.
func (o *owner) plan(node int64) sim.Plan {
	var sent atomic.Int64
	timeout := o.expiry / 20
	return func(sim.Op) sim.Fate {
		i := sent.Add(1)
		f := sim.Fate{
			Request: o.between(10*time.Microsecond, time.Millisecond, "request", o.id, node, i),
			Reply:   o.between(10*time.Microsecond, time.Millisecond, "reply", o.id, node, i),
			Early:   o.between(time.Microsecond, timeout/50, "early", o.id, node, i),
		}
		if !o.chance(o.faulty, "fault", o.id, node, i) {
			return f
		}
		switch o.below(6, "which", o.id, node, i) {
		case 0:
			f.Lost = true
		case 1:
			f.ReplyLost = true
		case 2:
			f.Again = o.between(0, timeout, "again", o.id, node, i)
			f.ReplyLost = o.chance(0.5, "resent", o.id, node, i)
		case 3:
			f.Request += o.between(0, 2*timeout, "slow", o.id, node, i)
		case 4:
			f.Reply += o.between(0, 2*timeout, "slow", o.id, node, i)
		case 5:
			f.Request += o.between(0, 2*o.expiry, "late", o.id, node, i)
		}
		return f
	}
}

// ownerWay is an owner's way to a node, on which a bug may be planted.
type ownerWay struct {
	*sim.Link
	node *sim.Node
	*owner
}

func (w ownerWay) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any,
	error) {
	switch {
	case s.Name == "acquire" && w.plainIncr:
		args = append([]any(nil), args...)
		args[2] = int64(1) // the proposal
	case s.Name == "raise" && (w.plainIncr || w.noRaise):
		return int64(1), ctx.Err()
	}
	reply, err := w.Link.Eval(ctx, s, keys, args...)
	if s.Name == "release" && w.noCounter {
		w.node.Delete(theCounter)
	}
	if n, ok := reply.(int64); ok && n < 0 && s.Name == "acquire" {
		w.reached("guard refused")
	}
	return reply, err
}
