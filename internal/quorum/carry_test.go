package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/pool"
)

// carrier is a client that answers what it carries before it returns, and notes it. What it
// starts waits for an answer.
type carrier struct {
	startFunc
	carried int
}

func (c *carrier) Carry(_ context.Context, _ *pool.Command, to pool.Receiver) {
	c.carried++
	time.Sleep(budget / 2)
	to.Receive(true, nil)
}

// newCarrier returns a carrier, and what answers the first command that it starts.
func newCarrier() (c *carrier, answer func()) {
	started := make(chan pool.Receiver, 10)
	return &carrier{startFunc: func(_ context.Context, _ *pool.Command, to pool.Receiver) {
		started <- to
	}}, func() { (<-started).Receive(true, nil) }
}

func TestWhoWaitsForOneNodeCarriesTheCommand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		nodes int
		waits bool
		want  int
	}{
		{"one node", 1, true, 1},
		{"one node that nobody waits for", 1, false, 0},
		{"two nodes, of which the other may be decisive", 2, true, 0},
		{"three nodes", 3, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pools []pool.Pool
				var answers []func()
				for range tt.nodes {
					c, answer := newCarrier()
					pools, answers = append(pools, c), append(answers, answer)
				}
				for _, kind := range []Kind{Ask, Write, Release} {
					r := startRound(t.Context(), Pipelines(Nodes(pools, NewTracker())), plan{
						Command: setNX, Kind: kind, Need: 1, Budget: budget, Waits: tt.waits,
						Writes: sentBefore(tt.nodes),
					})
					before := r.votes()
					assert.Equal(t, tt.want, before.Yes, "answers when the round has begun")
					for i := range answers {
						if before.Pending > 0 {
							answers[i]()
						}
					}
					won, err := r.Wait(t.Context())
					assert.True(t, won && err == nil)
				}
			})
		})
	}
}

// What waits behind another command is sent by somebody who must not wait for it.
func TestACommandThatHasToWaitIsNotCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, answer := newCarrier()
		pipelines := Pipelines(Nodes([]pool.Pool{c}, NewTracker()))
		p := plan{Command: setNX, Kind: Write, Need: 1, Budget: budget, Writes: sentBefore(1)}
		first := startRound(t.Context(), pipelines, p)
		p.Waits = true
		behind := startRound(t.Context(), pipelines, p)
		for _, r := range []*Round{first, behind} {
			began := time.Now()
			answer()
			assert.Zero(t, time.Since(began))
			won, err := r.Wait(t.Context())
			assert.True(t, won && err == nil)
		}
		assert.Zero(t, c.carried)

		last := startRound(t.Context(), pipelines, p)
		assert.Equal(t, tally{Yes: 1}, last.votes(), "of an idle pipeline")
		assert.Equal(t, 1, c.carried)
	})
}

// What the breaker has kept is sent by the goroutine of another command's answer.
func TestACommandThatTheBreakerKeepsIsNotCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := &carrier{startFunc: starter{s}.Start}
		node, ask := one(t, c)
		trip(t, s, ask)
		r := startRound(t.Context(), Pipelines([]*Node{node}),
			plan{Command: setNX, Kind: Ask, Need: 1, Budget: budget, Waits: true})
		assert.Equal(t, 1, r.votes().Pending)
		s.goOn()
		won, err := r.Wait(t.Context())
		assert.True(t, won && err == nil)
		assert.Zero(t, c.carried)
	})
}

// A client that panics, or ends the goroutine, while it carries a command is a node that fails.
func TestACarrierThatPanicsIsOneNodesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := Nodes([]pool.Pool{&panicking{}}, NewTracker())
		pipelines := Pipelines(nodes)
		r := startRound(t.Context(), pipelines,
			plan{Command: setNX, Kind: Ask, Need: 1, Budget: budget, Waits: true})
		won, err := r.Wait(t.Context())
		assert.True(t, !won && err == nil)
		var why *pool.PanicError
		assert.ErrorAs(t, r.Outcomes()[0].Err, &why)
		assert.Zero(t, nodes[0].tracker.n.Load())
		assert.Nil(t, pipelines[0].running)
	})
}

type panicking struct{ startFunc }

func (*panicking) Carry(context.Context, *pool.Command, pool.Receiver) { panic("carried") }
