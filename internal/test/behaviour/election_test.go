package behaviour_test

import (
	"context"
	"errors"
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
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// trip is how long a command and its reply take in the tests of elections.
const trip = 200 * time.Microsecond

// candidate is a process of its own that stands for election.
type candidate struct {
	*redlock.Election
	name string
	rl   *redlock.Redlock
	dead atomic.Bool // nothing reaches the nodes any more
}

func newCandidate(nodes sim.Nodes, name string, opts ...redlock.Option) *candidate {
	c := &candidate{name: name}
	pools := nodes.Pools(name)
	plan(pools, func(sim.Op) sim.Fate {
		f := sim.Slow(trip)
		f.Lost = c.dead.Load()
		return f
	})
	c.rl = redlock.New(pools...)
	opts = append([]redlock.Option{redlock.WithOwner(name)}, opts...)
	c.Election = c.rl.NewElection("leader", opts...)
	return c
}

// poll are candidates that run until the test ends, and what they did.
type poll struct {
	candidates []*candidate
	elected    chan *candidate // each time one is, if there is room
	stop       context.CancelFunc
	running    sync.WaitGroup

	mu      sync.Mutex
	terms   []uint64
	leading int // functions at work
}

// stand lets candidates run. Each function waits for the end of its term.
func stand(t *testing.T, nodes sim.Nodes, n int, opts ...redlock.Option) *poll {
	ctx, stop := context.WithCancel(t.Context())
	p := &poll{elected: make(chan *candidate, 1), stop: stop}
	for i := range n {
		c := newCandidate(nodes, fmt.Sprintf("c%d", i), opts...)
		p.candidates = append(p.candidates, c)
		p.running.Go(func() {
			err := c.Run(ctx, func(held context.Context) error { return p.work(t, held, c) })
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	return p
}

func (p *poll) work(t *testing.T, held context.Context, c *candidate) error {
	term := redlock.FencingToken(held)
	p.mu.Lock()
	if n := len(p.terms); n > 0 {
		assert.Greater(t, term, p.terms[n-1], "terms strictly increase")
	}
	p.terms = append(p.terms, term)
	p.leading++
	assert.Equal(t, 1, p.leading, "functions at work")
	p.mu.Unlock()
	select {
	case p.elected <- c:
	default:
	}
	<-held.Done()
	p.mu.Lock()
	p.leading--
	p.mu.Unlock()
	return held.Err()
}

// end ends all candidates.
func (p *poll) end(t *testing.T, nodes sim.Nodes) {
	p.stop()
	p.running.Wait()
	nodes.Close()
	for _, c := range p.candidates {
		assert.NoError(t, c.rl.Close())
		assert.False(t, c.Leading())
	}
}

// leaders returns those that lead at this moment.
func (p *poll) leaders() (all []*candidate) {
	for _, c := range p.candidates {
		if c.Leading() {
			all = append(all, c)
		}
	}
	return all
}

// Whatever befalls nodes and candidates, no two lead at a time, and terms strictly increase.
func TestThereIsOneLeaderAtATime(t *testing.T) {
	type size struct{ candidates, seeds, expiries int }
	for _, tt := range []size{{1, larger(10), 20}, {3, larger(10), 20}, {50, larger(1), 8}} {
		t.Run(fmt.Sprint(tt.candidates), func(t *testing.T) {
			t.Parallel()
			terms := 0
			for seed := range uint64(tt.seeds) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 17))
					expiry := between(r, 200*time.Millisecond, 4*time.Second)
					nodes := sim.NewNodes([]int{1, 3, 5}[r.IntN(3)])
					p := stand(t, nodes, tt.candidates, redlock.WithExpiry(expiry))
					end := time.Now().Add(time.Duration(tt.expiries) * expiry)
					for time.Now().Before(end) {
						befall(t, r, nodes, p)
						for range 20 {
							if n := len(p.leaders()); n > 1 {
								t.Fatalf("seed %d: %d leaders", seed, n)
							}
							time.Sleep(between(r, 0, expiry/20))
						}
					}
					for _, n := range nodes {
						n.Always(sim.Fate{})
						n.Thaw()
					}
					for _, c := range p.candidates {
						c.dead.Store(false)
					}
					time.Sleep(3*expiry + time.Second)
					assert.Len(t, p.leaders(), 1, "seed %d: somebody leads in the end", seed)
					terms += len(p.terms)
					p.end(t, nodes)
				})
			}
			t.Logf("%d terms", terms)
			assert.Greater(t, terms, tt.seeds)
		})
	}
}

// befall lets something happen: to the leader, a candidate, or a node of a minority.
func befall(t *testing.T, r *rand.Rand, nodes sim.Nodes, p *poll) {
	c := p.candidates[r.IntN(len(p.candidates))]
	if leaders := p.leaders(); len(leaders) > 0 && r.IntN(3) > 0 {
		c = leaders[0]
	}
	n := nodes[r.IntN((len(nodes)+1)/2)]
	switch r.IntN(8) {
	case 0, 1:
		c.dead.Store(!c.dead.Load())
	case 2, 3:
		_ = c.Resign(t.Context())
	case 4:
		n.Freeze()
	case 5:
		n.Thaw()
	case 6:
		n.Always(sim.LoseReply())
	case 7:
		n.Always(sim.Fate{})
	}
}

// When a leader dies, somebody else is elected as soon as its lock has ended. The retry delay does
// not matter. docs/election.md has the bound.
func TestACrashedLeaderIsReplacedWhenItsLockEnds(t *testing.T) {
	for candidates, seeds := range map[int]uint64{2: 10, 3: 10, 50: 2} {
		var latest time.Duration
		for seed := range seeds {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 18))
				nodes := sim.NewNodes(5)
				p := stand(t, nodes, candidates, redlock.WithExpiry(2*time.Second))
				first := <-p.elected
				time.Sleep(between(r, 0, 5*time.Second))
				first.dead.Store(true)
				time.Sleep(10 * time.Millisecond)
				next := p.candidates[0]
				if next == first {
					next = p.candidates[1]
				}
				l, err := next.Leader(t.Context())
				require.NoError(t, err)
				assert.Equal(t, first.name, l.Owner)
				began, left := time.Now(), l.TTL
				second := <-p.elected
				late := time.Since(began) - left
				assert.NotEqual(t, first, second)
				assert.False(t, first.Leading())
				assert.Less(t, late, 20*time.Millisecond)
				latest = max(latest, late)
				p.end(t, nodes)
			})
		}
		t.Logf("%d candidates: at most %v after the end of the lock", candidates, latest)
	}
}

// Resign hands the lead over at once.
func TestResignHandsOver(t *testing.T) {
	for _, candidates := range []int{2, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			nodes := sim.NewNodes(5)
			p := stand(t, nodes, candidates)
			leader := <-p.elected
			var latest time.Duration
			for range 20 {
				time.Sleep(time.Second)
				began := time.Now()
				require.NoError(t, leader.Resign(t.Context()))
				next := <-p.elected
				latest = max(latest, time.Since(began))
				assert.NotEqual(t, leader, next, "who resigned rests")
				leader = next
			}
			t.Logf("%d candidates: at most %v", candidates, latest)
			assert.Less(t, latest, 20*time.Millisecond)
			p.end(t, nodes)
		})
	}
}

// election runs f in virtual time with nodes and one candidate.
func election(
	t *testing.T, f func(t *testing.T, nodes sim.Nodes, c *candidate), opts ...redlock.Option,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(5)
		c := newCandidate(nodes, "me", opts...)
		f(t, nodes, c)
		nodes.Close()
		assert.NoError(t, c.rl.Close())
	})
}

// forget removes the lock from the nodes: whoever leads loses it.
func forget(nodes sim.Nodes) {
	for _, n := range nodes {
		n.Delete("leader")
	}
}

func TestRunEndsWithItsFunction(t *testing.T) {
	for name, want := range map[string]error{"an error": errOops, "no error": nil} {
		t.Run(name, func(t *testing.T) {
			election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
				err := c.Run(t.Context(), func(held context.Context) error {
					assert.True(t, c.Leading())
					assert.NotZero(t, c.Term())
					assert.Equal(t, c.Term(), redlock.FencingToken(held))
					return want
				})
				assert.Equal(t, want, err)
				assert.False(t, c.Leading())
				assert.Zero(t, c.Term())
				synctest.Wait()
				time.Sleep(time.Second)
				assert.Empty(t, holders(nodes, "leader"), "resigned")
			})
		})
	}
}

// After a loss Run rests, so that another candidate is elected, and campaigns again, whatever the
// function returned.
func TestRunCampaignsAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		ends  func(nodes sim.Nodes, c *candidate)
		cause error
		opts  []redlock.Option
	}{
		"a loss": {func(nodes sim.Nodes, _ *candidate) { forget(nodes) }, redlock.ErrLost, nil},
		"Resign": {func(_ sim.Nodes, c *candidate) {
			_ = c.Resign(context.Background())
		}, redlock.ErrReleased, nil},
		"WithMaxHold": {func(sim.Nodes, *candidate) {}, redlock.ErrLost,
			[]redlock.Option{redlock.WithMaxHold(10 * time.Second)}},
	} {
		for _, result := range []error{nil, errOops} {
			t.Run(fmt.Sprintf("%s, %v", name, result), func(t *testing.T) {
				election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
					var terms []uint64
					var over time.Time
					err := c.Run(t.Context(), func(held context.Context) error {
						terms = append(terms, c.Term())
						if len(terms) > 1 {
							assert.GreaterOrEqual(t, time.Since(over), redlock.DefaultMinRetryDelay,
								"a rest")
							assert.Less(t, time.Since(over), time.Second)
							if len(terms) == 3 {
								return errors.New("enough")
							}
						}
						time.Sleep(time.Second)
						tt.ends(nodes, c)
						<-held.Done()
						assert.ErrorIs(t, context.Cause(held), tt.cause)
						assert.False(t, c.Leading())
						over = time.Now()
						return result
					})
					assert.EqualError(t, err, "enough")
					assert.Len(t, terms, 3)
					assert.Less(t, terms[0], terms[1])
					assert.Less(t, terms[1], terms[2])
				}, tt.opts...)
			})
		}
	}
}

// When ctx ends, the function's context does; Run resigns, and returns what the function returned.
func TestRunEndsWithItsContext(t *testing.T) {
	for _, result := range []error{nil, errOops, context.Canceled} {
		election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			err := c.Run(ctx, func(held context.Context) error {
				<-held.Done()
				assert.False(t, c.Leading())
				assert.NotEmpty(t, holders(nodes, "leader"),
					"the lock is kept while the work is wound down")
				return result
			})
			assert.Equal(t, result, err)
			time.Sleep(time.Second)
			assert.Empty(t, holders(nodes, "leader"))
		})
	}
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		other := newCandidate(nodes, "other")
		_, err := other.Campaign(t.Context())
		require.NoError(t, err)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		err = c.Run(ctx, func(context.Context) error { panic("never elected") })
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, why)
		assert.ErrorIs(t, err, redlock.ErrTaken)
		require.NoError(t, other.Resign(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, other.rl.Close())
	})
}

func TestRunEndsWithClose(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		time.AfterFunc(time.Second, func() { assert.NoError(t, c.rl.Close()) })
		err := c.Run(t.Context(), func(held context.Context) error {
			<-held.Done()
			assert.ErrorIs(t, context.Cause(held), redlock.ErrReleased)
			return nil
		})
		assert.ErrorIs(t, err, redlock.ErrClosed)
	})
}

func TestRunResignsWhenItsFunctionPanics(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		assert.PanicsWithValue(t, "oops", func() {
			_ = c.Run(t.Context(), func(context.Context) error { panic("oops") })
		})
		assert.False(t, c.Leading())
		time.Sleep(time.Second)
		assert.Empty(t, holders(nodes, "leader"))
	})
}

// The function has done its work, but the lock was lost and nobody had noticed: Run says so, as Do
// does.
func TestRunTellsOfALossThatItFindsOutByResigning(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		err := c.Run(t.Context(), func(context.Context) error {
			time.Sleep(time.Millisecond)
			forget(nodes)
			return errOops
		})
		assert.ErrorIs(t, err, errOops)
		assert.ErrorIs(t, err, redlock.ErrExpired)
	})
}

func TestLeadingLooksAtTheClock(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		assert.False(t, c.Leading())
		assert.Zero(t, c.Term())
		held, err := c.Campaign(t.Context())
		require.NoError(t, err)
		assert.True(t, c.Leading())
		term := c.Term()
		c.dead.Store(true)
		var last time.Time
		for c.Leading() {
			last = time.Now()
			time.Sleep(10 * time.Millisecond)
		}
		assert.Error(t, held.Err())
		assert.Less(t, time.Since(last), 20*time.Millisecond)
		assert.Greater(t, nodes[0].TTL("leader"), time.Duration(0), "before the nodes' keys expire")
		assert.Equal(t, term, c.Term(), "a write that comes too late must carry it")
		assert.ErrorIs(t, c.Resign(t.Context()), redlock.ErrExpired)
		assert.Zero(t, c.Term())
	})
}

// The term is over when its context is, for whatever reason, although the lock is kept for winding
// down.
//
// lesson L138
func TestLeadingEndsWithTheTermsContext(t *testing.T) {
	for name, tt := range map[string]struct {
		ctx     func(ctx context.Context) (context.Context, context.CancelFunc)
		opts    []redlock.Option
		cancels bool
	}{
		"cancel": {ctx: context.WithCancel, cancels: true},
		"a deadline": {ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}},
		"WithMaxHold": {ctx: context.WithCancel,
			opts: []redlock.Option{redlock.WithMaxHold(time.Minute)}},
	} {
		t.Run(name, func(t *testing.T) {
			election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
				ctx, end := tt.ctx(t.Context())
				held, err := c.Campaign(ctx)
				require.NoError(t, err)
				if d, ok := held.Deadline(); ok {
					time.Sleep(time.Until(d) - time.Nanosecond)
				}
				assert.True(t, c.Leading())
				if tt.cancels {
					end()
				}
				time.Sleep(time.Nanosecond)
				assert.False(t, c.Leading())
				<-held.Done()
				assert.NotEmpty(t, holders(nodes, "leader"))
				require.NoError(t, c.Resign(held))
				end()
				time.Sleep(time.Second)
			}, tt.opts...)
		})
	}
}

// Two Campaigns on one Election: who resigns a term that was lost does not end the next one.
//
// lesson L139
func TestResignEndsItsOwnTerm(t *testing.T) {
	for name, tt := range map[string]struct {
		lost bool
		want error // of the second Resign with the same context
	}{
		"a term that was lost":  {true, redlock.ErrNotHeld},
		"a term that was ended": {false, redlock.ErrNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
				first, err := c.Campaign(t.Context())
				require.NoError(t, err)
				var second context.Context
				var campaign sync.WaitGroup
				campaign.Go(func() {
					second, err = c.Campaign(t.Context())
					assert.NoError(t, err)
				})
				time.Sleep(time.Second)
				if tt.lost {
					forget(nodes)
				} else {
					require.NoError(t, c.Resign(first))
				}
				campaign.Wait()
				assert.Error(t, first.Err())
				derived, cancel := context.WithCancel(first)
				defer cancel()
				if tt.lost {
					assert.ErrorIs(t, c.Resign(derived), redlock.ErrLost)
				}
				assert.ErrorIs(t, c.Resign(derived), tt.want)
				assert.NoError(t, second.Err())
				assert.True(t, c.Leading())
				require.NoError(t, c.Resign(second))
				assert.False(t, c.Leading())
				time.Sleep(time.Second)
				assert.Empty(t, holders(nodes, "leader"))
			})
		})
	}
}

// A process that stood still does not lead for the moment before its timers catch up.
func TestLeadingDoesNotTrustTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(1)
		var by atomic.Int64 // how much later it is than the timers know
		rl := redlock.New(late{nodes[0].Link("a"), &by})
		e := rl.NewElection("leader")
		held, err := e.Campaign(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		assert.True(t, e.Leading())
		by.Store(int64(redlock.DefaultExpiry))
		assert.NoError(t, held.Err())
		assert.False(t, e.Leading())
		_ = e.Resign(t.Context())
		assert.NoError(t, rl.Close())
	})
}

func TestLeaderTellsWhoLeads(t *testing.T) {
	for _, owner := range []string{"pod-7", "", "a:b", "AAAAAAAAAAAAAAAAAAAAAA=="} {
		election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
			other := newCandidate(nodes, "other")
			defer other.rl.Close()
			l, err := c.Leader(t.Context())
			require.NoError(t, err)
			assert.Equal(t, redlock.Leader{}, l, "nobody")
			_, err = c.Campaign(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Second)
			want := redlock.Leader{Owner: owner, Term: c.Term(), Self: true}
			for _, asked := range []*candidate{c, other} {
				l, err = asked.Leader(t.Context())
				require.NoError(t, err)
				assert.InDelta(t, redlock.DefaultExpiry-time.Second, l.TTL, float64(time.Second))
				l.TTL, want.Self = 0, asked == c
				assert.Equal(t, want, l)
			}
			in, err := other.rl.Inspect(t.Context(), "leader")
			require.NoError(t, err)
			assert.Equal(t, owner, in.Owner)
			require.NoError(t, c.Resign(t.Context()))
			time.Sleep(time.Second)
		}, redlock.WithOwner(owner))
	}
}

// Term is that of the leader as long as the nodes that tell it decide it, and 0 otherwise.
func TestLeaderKnowsTheTermOrSaysSo(t *testing.T) {
	counter := func(nodes sim.Nodes, counters ...string) {
		for i, c := range counters {
			nodes[i].Set("{leader}:fence", c, 0)
		}
	}
	const more = "1999999999999998"
	for name, tt := range map[string]struct {
		happens func(nodes sim.Nodes)
		known   bool
	}{
		"all agree": {func(sim.Nodes) {}, true},
		"two are down": {func(nodes sim.Nodes) {
			nodes[3].Crash()
			nodes[4].Crash()
		}, true},
		"two have more": {func(nodes sim.Nodes) { counter(nodes, "1999999999999999", more) }, true},
		"two have less": {func(nodes sim.Nodes) {
			counter(nodes, "1")
			nodes[1].Delete("{leader}:fence")
		}, true},
		"one has less, one more": {func(nodes sim.Nodes) { counter(nodes, "1", more) }, true},
		"one has less, one is down": {func(nodes sim.Nodes) {
			counter(nodes, "1")
			nodes[4].Crash()
		}, true},
		"one has less, two are down": {func(nodes sim.Nodes) {
			counter(nodes, "1")
			nodes[3].Crash()
			nodes[4].Crash()
		}, false},
		"one has more, two lack the value": {func(nodes sim.Nodes) {
			counter(nodes, more)
			nodes[3].Delete("leader")
			nodes[4].Delete("leader")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
				_, err := c.Campaign(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Second)
				tt.happens(nodes)
				l, err := c.Leader(t.Context())
				require.NoError(t, err)
				assert.True(t, l.Self)
				if tt.known {
					assert.Equal(t, c.Term(), l.Term)
				} else {
					assert.Zero(t, l.Term)
				}
				_ = c.Resign(t.Context())
				time.Sleep(time.Second)
			})
		})
	}
}

func TestLeaderIsNotKnownWithoutAQuorum(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		for _, n := range nodes[2:] {
			n.Crash()
		}
		_, err := c.Leader(t.Context())
		assert.ErrorIs(t, err, redlock.ErrNoQuorum)
		assert.NotErrorIs(t, err, redlock.ErrFailed)
		assert.EqualError(t, err, `redlock: "leader" not inspected: no quorum: 2 of 5 nodes `+
			`answered, too few to tell who leads (node 2: sim: connection refused; `+
			`node 3: sim: connection refused; node 4: sim: connection refused)`)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Leader(ctx)
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// Observe yields the leader that there is, and each change: nobody, too.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		a, b, observer := newCandidate(nodes, "a"), newCandidate(nodes, "b"),
			newCandidate(nodes, "c")
		ctx, cancel := context.WithCancel(t.Context())
		var seen []redlock.Leader
		var at []time.Time
		var observing sync.WaitGroup
		start := time.Now()
		observing.Go(func() {
			for l, err := range observer.Observe(ctx) {
				assert.NoError(t, err)
				seen, at = append(seen, l), append(at, time.Now())
			}
		})
		time.Sleep(time.Second)
		var terms []uint64
		elect := func(c *candidate) {
			_, err := c.Campaign(t.Context())
			require.NoError(t, err)
			terms = append(terms, c.Term())
			time.Sleep(10 * time.Second)
		}
		elect(a)
		for _, n := range nodes {
			n.Crash()
		}
		time.Sleep(3 * time.Second) // nothing is known; nothing has changed
		for _, n := range nodes {
			n.Restart(true)
		}
		time.Sleep(3 * time.Second)
		require.NoError(t, a.Resign(t.Context()))
		time.Sleep(10 * time.Second)
		elect(b)
		require.NoError(t, b.Resign(t.Context()))
		elect(b) // a new term
		b.dead.Store(true)
		left, died := nodes[0].TTL("leader"), time.Now()
		time.Sleep(time.Minute)
		cancel()
		observing.Wait()
		nodes.Close()
		for _, c := range []*candidate{a, b, observer} {
			_ = c.rl.Close()
		}

		type short struct {
			owner string
			term  uint64
		}
		var got []short
		for _, l := range seen {
			got = append(got, short{l.Owner, l.Term})
		}
		require.Equal(t, []short{{}, {"a", terms[0]}, {}, {"b", terms[1]}, {"b", terms[2]}, {}},
			got)
		assert.Less(t, at[0].Sub(start), 10*time.Millisecond)
		assert.WithinDuration(t, died.Add(left), at[5], 10*time.Millisecond, "when the lock ended")
	})
}

// sights are what an observer is told, and when.
type sights struct {
	leaders []redlock.Leader
	errs    []error
	at      []time.Time
}

// watch observes the election as long as happens runs.
func watch(t *testing.T, c *candidate, happens func()) (s sights) {
	ctx, cancel := context.WithCancel(t.Context())
	var observing sync.WaitGroup
	observing.Go(func() {
		for l, err := range c.Observe(ctx) {
			s.leaders, s.errs = append(s.leaders, l), append(s.errs, err)
			s.at = append(s.at, time.Now())
		}
	})
	happens()
	cancel()
	observing.Wait()
	return s
}

// A leader whose time is over while a majority is silent is not known to lead any more, nor is it
// known who does. When the nodes answer again, everything is told anew.
//
// lesson L140
func TestObserveTellsThatNothingIsKnown(t *testing.T) {
	for name, crash := range map[string]func(n *sim.Node){
		"nobody listens": func(n *sim.Node) { n.Crash() },
		"silence":        func(n *sim.Node) { n.Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
				observer := newCandidate(nodes, "observer")
				defer observer.rl.Close()
				_, err := c.Campaign(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Second)
				var silent time.Time
				seen := watch(t, observer, func() {
					time.Sleep(5 * time.Second)
					silent = time.Now()
					for _, n := range nodes[:3] {
						crash(n)
					}
					time.Sleep(time.Minute)
					for _, n := range nodes[:3] {
						n.Restart(true)
						n.Thaw()
					}
					time.Sleep(time.Minute)
				})
				require.Len(t, seen.leaders, 3)
				assert.Equal(t, "me", seen.leaders[0].Owner)
				assert.Zero(t, seen.leaders[1])
				assert.ErrorIs(t, seen.errs[1], redlock.ErrNoQuorum)
				known := seen.at[1].Sub(silent)
				assert.Greater(t, known, redlock.DefaultExpiry/2, "it leads until then")
				assert.Less(t, known, redlock.DefaultExpiry+time.Second)
				assert.Equal(t, redlock.Leader{}, seen.leaders[2], "nobody leads")
				assert.NoError(t, seen.errs[2])
				_ = c.Resign(t.Context())
				time.Sleep(time.Second)
			})
		})
	}
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		for _, n := range nodes[:3] {
			n.Crash()
		}
		seen := watch(t, c, func() { time.Sleep(time.Minute) })
		require.Len(t, seen.errs, 1, "known from the start that nothing is known")
		assert.ErrorIs(t, seen.errs[0], redlock.ErrNoQuorum)
	})
}

// A leader is seen when the nodes do not yet agree on its term, and again when they do.
//
// lesson L142
func TestObserveTellsTheTermThatWasNotKnown(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		_, err := c.Campaign(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		term := nodes[0].Value("{leader}:fence")
		nodes[0].Set("{leader}:fence", "1", 0)
		for _, n := range nodes[3:] {
			n.Crash()
		}
		seen := watch(t, c, func() {
			time.Sleep(time.Minute)
			nodes[0].Set("{leader}:fence", term, 0)
			time.Sleep(time.Minute)
			nodes[0].Set("{leader}:fence", "1", 0)
			time.Sleep(time.Minute)
		})
		require.Len(t, seen.leaders, 2)
		assert.Zero(t, seen.leaders[0].Term)
		assert.Equal(t, c.Term(), seen.leaders[1].Term)
		_ = c.Resign(t.Context())
		time.Sleep(time.Second)
	})
}

// Observe ends with its loop, with Close, and at once if the options are wrong.
func TestObserveEnds(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		for range c.Observe(t.Context()) {
			break
		}
		wrong := c.rl.NewElection("leader", redlock.WithExpiry(-1))
		var errs []error
		for l, err := range wrong.Observe(t.Context()) {
			assert.Zero(t, l)
			errs = append(errs, err)
		}
		require.Len(t, errs, 1)
		var misuse *redlock.OptionError
		assert.ErrorAs(t, errs[0], &misuse)
		time.AfterFunc(time.Minute, func() { assert.NoError(t, c.rl.Close()) })
		start := time.Now()
		for range c.Observe(t.Context()) {
		}
		assert.Equal(t, time.Minute, time.Since(start))
	})
}

// lesson L141
func TestElectionSaysWhatIsWrong(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		never := func(context.Context) error { panic("called") }
		var misuse *redlock.OptionError
		assert.ErrorAs(t, c.Run(t.Context(), nil), &misuse)
		for _, e := range []*redlock.Election{
			c.rl.NewElection(""), c.rl.NewElection("x", redlock.WithExpiry(0)),
			c.rl.NewElection("{x}:fence"),
			c.rl.NewElection("x", redlock.WithMinHold(time.Minute)),
			c.rl.With(redlock.WithMinHold(time.Minute)).NewElection("x"),
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := e.Campaign(ctx)
			assert.ErrorAs(t, err, &misuse)
			assert.ErrorAs(t, e.Run(ctx, never), &misuse)
			cancel()
			assert.ErrorAs(t, e.Resign(t.Context()), &misuse)
			_, err = e.Leader(t.Context())
			assert.ErrorAs(t, err, &misuse)
			assert.False(t, e.Leading())
			assert.Zero(t, e.Term())
		}
		assert.Zero(t, nodes.Count(""))
		const made = "redlock: this Election is nil or the zero value: make it with NewElection"
		for _, e := range []*redlock.Election{nil, {}} {
			for _, use := range []func(){
				func() { e.Leading() }, func() { e.Term() },
				func() { _, _ = e.Campaign(t.Context()) }, func() { _ = e.Resign(t.Context()) },
				func() { _ = e.Run(t.Context(), never) }, func() { e.Observe(t.Context()) },
				func() { _, _ = e.Leader(t.Context()) },
			} {
				assert.PanicsWithValue(t, made, use)
			}
		}
	})
}

// The tries and the bound on waiters that the options give do not count, and who locks the name of
// an election is a rival.
func TestCampaignWaitsWithoutEnd(t *testing.T) {
	election(t, func(t *testing.T, nodes sim.Nodes, c *candidate) {
		rival := redlock.New(nodes.Pools("rival")...)
		defer rival.Close()
		m := rival.NewMutex("leader", redlock.WithFencing(), redlock.WithFencePerName())
		_, err := m.Hold(t.Context())
		require.NoError(t, err)
		waits, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.rl.NewMutex("leader", redlock.WithTries(redlock.Unlimited)).LockContext(waits)
		time.Sleep(time.Second)
		time.AfterFunc(time.Second, cancel)
		time.AfterFunc(time.Minute, func() { mustUnlock(t, m) })
		start := time.Now()
		_, err = c.Campaign(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, time.Minute, time.Since(start), float64(20*time.Millisecond))
		assert.ErrorIs(t, m.TryLock(), redlock.ErrTaken)
		require.NoError(t, c.Resign(t.Context()))
		time.Sleep(time.Second)
	}, redlock.WithTries(1), redlock.WithMaxWaiters(1))
}

// An election on real servers, through both adapters.
func TestElectionOnServers(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			stand := func(owner string) *redlock.Election {
				var pools []pool.Pool
				for _, s := range servers {
					pools = append(pools, newPool(t, s.Addr()))
				}
				rl := redlock.New(pools...).With(veryPatient)
				t.Cleanup(func() { _ = rl.Close() })
				return rl.NewElection(client, redlock.WithOwner(owner))
			}
			a, b := stand("a"), stand("b")
			l, err := b.Leader(t.Context())
			require.NoError(t, err)
			assert.Equal(t, redlock.Leader{}, l)
			_, err = a.Campaign(t.Context())
			require.NoError(t, err)
			first := a.Term()
			eventually(t, "the term is known", func() bool {
				l, err = b.Leader(t.Context())
				return err == nil && l.Term != 0
			})
			assert.Equal(t, redlock.Leader{Owner: "a", Term: first, TTL: l.TTL}, l)
			elected := make(chan error)
			go func() {
				_, err := b.Campaign(t.Context())
				elected <- err
			}()
			require.NoError(t, a.Resign(t.Context()))
			require.NoError(t, <-elected)
			assert.False(t, a.Leading())
			assert.True(t, b.Leading())
			assert.Greater(t, b.Term(), first)
			for l, err := range a.Observe(t.Context()) {
				assert.NoError(t, err)
				assert.Equal(t, "b", l.Owner)
				break
			}
			assert.NoError(t, b.Resign(t.Context()))
		})
	}
}
