package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// order is an invariant of the queue on the nodes (I20): a waiter who listens, and whose agreed
// ticket a quorum of nodes has, is granted the lock before everybody whose first command comes
// later, but for those who share it with the waiter.
//
// It takes down what the nodes execute, step by step, and judges in the end: which ticket a waiter
// has agreed on may show only later.
type order struct {
	nodes, quorum int

	mu      sync.Mutex // guards what follows
	step    int
	members map[string]*member
	first   map[string]int    // the step of a client's first command since its last grant
	listens map[string][]bool // nodes that a client has subscribed to
	votes   map[string]int    // nodes that granted a value
	grants  []grant
	kept    []kept // by node
}

// kept is a reservation, since a step.
type kept struct {
	member string // "": none
	step   int
}

// member is a place in the queue.
type member struct {
	client string
	shared bool
	stands []stood
	final  int64 // the ticket, once the member has shown that it has agreed on it; or 0
	missed bool  // a reservation for it has expired, during which it has not asked
}

// stood is what a node said to one who stands there.
type stood struct {
	step, node int
	ticket     int64
	listens    bool // to a quorum of nodes
}

// grant is a lock that a quorum has granted.
type grant struct {
	client, by string
	shared     bool
	value      string
	first      int // step of the client's first command
	step       int
}

func newOrder(nodes int) *order {
	return &order{
		nodes: nodes, quorum: nodes/2 + 1, members: map[string]*member{}, first: map[string]int{},
		listens: map[string][]bool{}, votes: map[string]int{}, kept: make([]kept, nodes),
	}
}

// watch takes down a command that a node has executed.
func (o *order) watch(e sim.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.step++
	switch e.Command {
	case "set", "acquire", "claim", "stand", "share", "standshare":
		if o.first[e.Client] == 0 {
			o.first[e.Client] = o.step
		}
	}
	o.reserve(e)
	switch {
	case e.Command == "subscribe":
		if o.listens[e.Client] == nil {
			o.listens[e.Client] = make([]bool, o.nodes)
		}
		o.listens[e.Client][e.Node] = true
	case e.Command == "stand" || e.Command == "standshare":
		m := o.members[e.Member]
		if m == nil {
			m = &member{client: e.Client, shared: e.Command == "standshare"}
			o.members[e.Member] = m
		}
		ticket := e.Reply.([]any)[0].(int64)
		if e.Final {
			m.final = ticket
		}
		m.stands = append(m.stands, stood{o.step, e.Node, ticket, o.hears(e.Client)})
	case (e.Command == "release" || e.Command == "unshare") && e.Back:
		o.revoke(e.Value)
	case e.Effect == sim.Granted && e.Command != "heal" && e.Member != "*":
		if o.votes[e.Value]++; o.votes[e.Value] == o.quorum {
			by := e.Command
			if by == "share" && e.Member != "" {
				by = "claim"
			}
			o.grants = append(o.grants, grant{e.Client, by, e.Command == "share", e.Value,
				o.first[e.Client], o.step})
			o.first[e.Client] = 0
		}
	}
}

// revoke forgets a grant that its client has not heard of: it gives that back, and keeps its place.
// The caller holds mu.
func (o *order) revoke(value string) {
	o.grants = slices.DeleteFunc(o.grants, func(g grant) bool {
		if g.value == value {
			o.first[g.client] = g.first
		}
		return g.value == value
	})
}

// hears reports whether a client has subscribed to a quorum of nodes. The caller holds mu.
func (o *order) hears(client string) bool {
	n := 0
	for _, is := range o.listens[client] {
		if is {
			n++
		}
	}
	return n >= o.quorum
}

// reserve takes down whom a node keeps the key for, and who has missed that. The caller holds mu.
func (o *order) reserve(e sim.Event) {
	k := &o.kept[e.Node]
	if m := o.members[k.member]; m != nil && e.Before == "" && e.Command != "subscribe" {
		m.missed = m.missed || m.stands[len(m.stands)-1].step < k.step
		*k = kept{}
	}
	to, is := strings.CutPrefix(e.After, "~")
	switch {
	case !is && e.Command != "subscribe":
		*k = kept{}
	case is && to != k.member:
		*k = kept{to, o.step}
	}
}

// known returns the step after which a quorum of nodes has the ticket that the member has agreed
// on, or 0. If nobody has seen that ticket, it is what a quorum has: the nodes agreed at once.
func (o *order) known(m *member) int {
	has := make([]int64, o.nodes)
	for _, s := range m.stands {
		if !s.listens {
			continue
		}
		has[s.node] = s.ticket
		same := 0
		for _, t := range has {
			if t == s.ticket {
				same++
			}
		}
		if same >= o.quorum && (m.final == 0 || s.ticket == m.final) {
			return s.step
		}
	}
	return 0
}

// overtaken says who was overtaken by whom. If messages are lost, somebody far behind may miss a
// turn: then that is not said.
func (o *order) overtaken(lossy bool) (all []string) {
	for _, m := range o.members {
		known := o.known(m)
		if known == 0 || lossy && m.missed {
			continue
		}
		for _, g := range o.grants {
			if g.client == m.client && g.step > m.stands[0].step {
				break // it has been served; what it has sent before may still arrive
			}
			if g.first > known && !(m.shared && g.shared) {
				all = append(all, fmt.Sprintf("%s, known at step %d, by %s, who came at step %d "+
					"and got it by %s at step %d",
					m.client, known, g.client, g.first, g.by, g.step))
			}
		}
	}
	return all
}

// farAway is a plan of a process that is up to so far away from the nodes.
func farAway(d dice, c, node int, far time.Duration, start time.Time) sim.Plan {
	return func(op sim.Op) sim.Fate {
		id := []int64{int64(c), int64(node), int64(time.Since(start))}
		return sim.Fate{
			Request: d.between(10*time.Microsecond, far, "request"+op.Command, id...),
			Reply:   d.between(10*time.Microsecond, far, "reply"+op.Command, id...),
		}
	}
}

// losing is a plan whose messages are lost so often.
func losing(p sim.Plan, d dice, c, node int, often float64, start time.Time) sim.Plan {
	return func(op sim.Op) sim.Fate {
		f := p(op)
		f.ReplyLost = op.Command == "message" &&
			d.chance(often, "lost", int64(c), int64(node), int64(time.Since(start)))
		return f
	}
}

// Nobody is overtaken, whatever the delays, numbers and clocks are, how many messages are lost, and
// though others come with an attempt at a free lock. Those who are served come back at once, or
// later. Nobody waits for long: for those who may be before it and, where commands have crossed or
// messages are lost, until somebody asks again.
func TestNobodyIsOvertaken(t *testing.T) { nobodyIsOvertaken(t, false) }

// Nobody who shares the lock is overtaken by one who does not, nor the other way round. Half of the
// processes share it.
func TestNoReaderAndNoWriterIsOvertaken(t *testing.T) { nobodyIsOvertaken(t, true) }

func nobodyIsOvertaken(t *testing.T, shared bool) {
	begun, done, grants, queued, known, missed := time.Now(), 0, 0, 0, 0, 0
	var longest time.Duration // wait where no messages are lost
	for i := range uint64(schedules(25)) {
		seed := *first + i
		done++
		synctest.Test(t, func(t *testing.T) {
			d := dice(seed)
			n, p := 1+d.below(7, "nodes"), 2+d.below(11, "processes")
			nodes, o := sim.NewNodes(n), newOrder(n)
			nodes.Log().Watch(o.watch)
			start, lost, patience := time.Now(), 0.0,
				2*redlock.DefaultMaxRetryDelay+time.Duration(p)*50*time.Millisecond
			if d.chance(0.5, "mute") && !shared {
				lost, patience = d.unit("messages"), time.Duration(p)*redlock.DefaultExpiry/10
			}
			var mu sync.Mutex // guards waited
			var waited time.Duration
			var all sync.WaitGroup
			for c := range p {
				pools := nodes.Pools(fmt.Sprintf("p%d", c))
				far := d.between(100*time.Microsecond, 2*time.Millisecond, "far", int64(c))
				own := clientClock{start: start, rate: 1, dice: d, id: int64(c)}
				if d.chance(0.5, "skew") {
					own.offset = d.between(0, time.Hour, "clock", int64(c))
				}
				for i, pl := range pools {
					link := pl.(*sim.Link)
					link.Plan(losing(farAway(d, c, i, far, start), d, c, i, lost, start))
					pools[i] = way{link, own}
				}
				rl := redlock.New(pools...)
				if shared && d.chance(0.5, "shared", int64(c)) {
					rl = rl.With(redlock.WithShared())
				}
				m := rl.NewMutex("k", redlock.WithTries(redlock.Unlimited),
					redlock.WithRetryDelayFunc(func(int) time.Duration {
						return d.between(redlock.DefaultMinRetryDelay, redlock.DefaultMaxRetryDelay,
							"delay", int64(c), int64(time.Since(start)))
					}))
				all.Go(func() {
					defer rl.Close()
					for turn := range int64(8) {
						time.Sleep(d.between(0, 20*time.Millisecond, "idle", int64(c), turn))
						asked := time.Now()
						ctx, stop := context.WithTimeout(context.Background(), 2*patience)
						err := m.LockContext(ctx)
						stop()
						mu.Lock()
						waited = max(waited, time.Since(asked))
						mu.Unlock()
						if err != nil {
							return
						}
						time.Sleep(d.between(0, 8*time.Millisecond, "hold", int64(c), turn))
						_, err = m.Unlock()
						assert.NoError(t, err)
					}
				})
			}
			all.Wait()
			nodes.Close()
			grants += len(o.grants)
			for _, g := range o.grants {
				if g.by == "claim" {
					queued++
				}
			}
			for _, m := range o.members {
				if o.known(m) > 0 {
					known++
				}
				if m.missed {
					missed++
				}
			}
			again := fmt.Sprintf("go test ./internal/test/sim -run '^%s$' -first %d -schedules 1",
				t.Name(), seed)
			if passed := o.overtaken(lost > 0); len(passed) > 0 {
				t.Errorf("%d violations in\n\tnodes=%d processes=%d lost=%.2f, %s\n    I20 "+
					"order: %s",
					len(passed), n, p, lost, again,
					strings.Join(passed[:min(3, len(passed))], "; "))
			}
			if waited > patience {
				t.Errorf("1 violations in\n\tnodes=%d processes=%d lost=%.2f, %s\n    I9 "+
					"liveness: somebody waited %v, not %v at most",
					n, p, lost, again, waited, patience)
			}
			if lost == 0 {
				longest = max(longest, waited)
			}
			for i, node := range nodes {
				assert.Empty(t, node.Standings("k:{k}:redlock:queue"), "seed %d: node %d", seed, i)
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d schedules in %v: %d grants, %d of them to those who had queued; %d places were "+
		"known to a quorum; %d missed a turn; longest wait %v",
		done, time.Since(begun), grants, queued, known, missed, longest)
	if !t.Failed() {
		assert.Greater(t, queued, grants/4)
		assert.Greater(t, known, queued*9/10)
	}
}

// Who is far away, or on a machine that is busy, calls Lock long before a quorum of nodes knows.
// Until then others come again and are served, and from then on nobody. It takes four round trips
// at most.
func TestWhoIsNotKnownYetCanBeOvertaken(t *testing.T) {
	const trip, hold = 60 * time.Millisecond, 5 * time.Millisecond
	for _, n := range []int{1, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			nodes, o, start := sim.NewNodes(n), newOrder(n), time.Now()
			var mu sync.Mutex               // guards what follows
			var known, served time.Duration // the far one
			var before []time.Duration      // when the others called that were served before it
			nodes.Log().Watch(func(e sim.Event) {
				o.watch(e)
				o.mu.Lock()
				defer o.mu.Unlock()
				mu.Lock()
				defer mu.Unlock()
				if m := o.members[e.Member]; known == 0 && m != nil && m.client == "far" &&
					o.known(m) > 0 {
					known = time.Since(start)
				}
			})
			open := func(name string, trip time.Duration) *redlock.Redlock {
				pools := nodes.Pools(name)
				for _, pl := range pools {
					pl.(*sim.Link).Plan(func(sim.Op) sim.Fate {
						return sim.Fate{Request: trip / 2, Reply: trip / 2}
					})
				}
				return redlock.New(pools...).With(redlock.WithTries(redlock.Unlimited))
			}
			lock := func(m *redlock.Mutex, granted func(called time.Duration)) {
				called := time.Since(start)
				assert.NoError(t, m.Lock())
				mu.Lock()
				granted(called)
				mu.Unlock()
				time.Sleep(hold)
				_, err := m.Unlock()
				assert.NoError(t, err)
			}
			var all sync.WaitGroup
			for c := range 4 {
				rl := open(fmt.Sprintf("near%d", c), 200*time.Microsecond)
				all.Go(func() {
					defer rl.Close()
					for m, over := rl.NewMutex("k"), false; !over; {
						lock(m, func(called time.Duration) {
							if over = served > 0; !over {
								before = append(before, called)
							}
						})
					}
				})
			}
			rl := open("far", trip)
			all.Go(func() {
				defer rl.Close()
				lock(rl.NewMutex("k"), func(time.Duration) { served = time.Since(start) })
			})
			all.Wait()
			nodes.Close()
			overtook := 0
			for _, called := range before {
				if called > 20*time.Millisecond {
					overtook++
				}
				assert.LessOrEqual(t, called, known)
			}
			t.Logf("%d nodes: known after %v, served after %v, overtaken by %d", n, known, served,
				overtook)
			assert.NotZero(t, overtook)
			assert.LessOrEqual(t, known, 4*trip+5*time.Millisecond)
			assert.Empty(t, o.overtaken(false))
		})
	}
}

// Those who die in the queue cost the others nothing, however many they are: their connections are
// gone, and each node passes them over at once. Of those who are silent, because their machines
// are gone and the nodes do not know, each costs a node timeout, and a delay until somebody asks.
func TestTheDeadCostNobodyATurn(t *testing.T) {
	const hold, expiry = 20 * time.Millisecond, 8 * time.Second
	for _, dead := range []int{0, 1, 4, 16, 64} {
		for _, silent := range []bool{false, true} {
			if silent && dead > 4 {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				d := dice(dead)
				nodes := sim.NewNodes(5)
				start := time.Now()
				var gone atomic.Bool
				open := func(c int, dies bool) *redlock.Redlock {
					pools := nodes.Pools(fmt.Sprintf("p%d", c))
					for i, pl := range pools {
						plan := farAway(d, c, i, 300*time.Microsecond, start)
						pl.(*sim.Link).Plan(func(op sim.Op) sim.Fate {
							f := plan(op)
							f.Lost = dies && gone.Load()
							return f
						})
					}
					return redlock.New(pools...).With(redlock.WithExpiry(expiry),
						redlock.WithTries(redlock.Unlimited))
				}
				holder := open(0, false)
				m := holder.NewMutex("k")
				assert.NoError(t, m.Lock())
				ctx, cancel := context.WithCancel(context.Background())
				var waiting, living sync.WaitGroup
				all := []*redlock.Redlock{holder}
				for c := 1; c <= dead+2; c++ { // the last two live
					rl := open(c, c <= dead)
					all = append(all, rl)
					w := rl.NewMutex("k")
					if c <= dead {
						waiting.Go(func() { assert.Error(t, w.LockContext(ctx)) })
					} else {
						living.Go(func() {
							assert.NoError(t, w.Lock())
							time.Sleep(hold)
							_, err := w.Unlock()
							assert.NoError(t, err)
						})
					}
					time.Sleep(5 * time.Millisecond)
				}
				gone.Store(true)
				for c := 1; c <= dead && !silent; c++ {
					for _, n := range nodes {
						n.Hush(fmt.Sprintf("p%d", c))
					}
				}
				released := time.Now()
				_, err := m.Unlock()
				assert.NoError(t, err)
				living.Wait()
				bound := 2*hold + 10*time.Millisecond
				if silent {
					bound += time.Duration(dead) * (expiry/20 + 2*redlock.DefaultMaxRetryDelay)
				}
				assert.Less(t, time.Since(released), bound, "%d dead, silent: %v", dead, silent)
				cancel()
				waiting.Wait()
				nodes.Close()
				for _, rl := range all {
					_ = rl.Close()
				}
			})
		}
	}
}
