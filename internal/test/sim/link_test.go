package sim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

var (
	release = &pool.Script{Name: "release"}
	stand   = &pool.Script{Name: "stand"}
	extend  = &pool.Script{Name: "extend"}
	acquire = &pool.Script{Name: "acquire"}
)

func TestInstantNodeAnswersWithoutGoroutinesOrMuchAllocation(t *testing.T) {
	node := sim.NewNodes(1)[0]
	link := node.Link("a")
	ctx := t.Context()

	allocs := testing.AllocsPerRun(100, func() {
		ok, err := link.SetNX(ctx, "k", "v", time.Second)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		node.Delete("k")
	})
	assert.LessOrEqual(t, allocs, 1.0)
	assert.Equal(t, 101, node.Count("set"))
	assert.Equal(t, 101, node.Count(""))
	assert.Equal(t, 0, node.Count("release"))
}

func TestKeysExpireByTheNodesOwnClock(t *testing.T) {
	for _, tt := range []struct {
		name string
		rate float64
		jump time.Duration // half a second after the SET
		want time.Duration
	}{
		{"true", 1, 0, time.Second},
		{"fast", 2, 0, 500 * time.Millisecond},
		{"slow", 0.5, 0, 2 * time.Second},
		{"forward", 1, 300 * time.Millisecond, 700 * time.Millisecond},
		{"back", 1, -time.Second, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := sim.NewNodes(1)[0]
				node.Clock(tt.rate, 0)
				ok, err := node.Link("a").SetNX(t.Context(), "k", "v", time.Second)
				require.NoError(t, err)
				require.True(t, ok)
				start := time.Now()
				if tt.jump != 0 {
					time.Sleep(500 * time.Millisecond)
					node.Clock(tt.rate, tt.jump)
				}
				time.Sleep(time.Until(start.Add(tt.want - 1)))
				assert.Equal(t, "v", node.Value("k"))
				time.Sleep(time.Nanosecond)
				assert.Empty(t, node.Value("k"))
			})
		})
	}
}

func TestFates(t *testing.T) {
	const limit = time.Second
	boom := errors.New("boom")
	for _, tt := range []struct {
		name   string
		fate   sim.Fate
		ok     bool
		err    error
		after  time.Duration
		landed bool // a minute later
	}{
		{"ordinary", sim.Fate{}, true, nil, 0, true},
		{"slow", sim.Slow(100 * time.Millisecond), true, nil, 100 * time.Millisecond, true},
		{"hanging", sim.Hang(), false, context.DeadlineExceeded, limit, false},
		{"reply lost", sim.LoseReply(), false, context.DeadlineExceeded, limit, true},
		{"late", sim.Slow(10 * time.Second), false, context.DeadlineExceeded, limit, true},
		{"deaf", sim.Deaf(sim.Slow(10 * time.Second)), true, nil, 10 * time.Second, true},
		{"client's own limit", sim.Fate{Lost: true, Timeout: 50 * time.Millisecond}, false,
			sim.ErrTimeout, 50 * time.Millisecond, false},
		{"failed", sim.Fail(boom), false, boom, 0, false},
		{"failed after", sim.FailAfter(boom), false, boom, 0, true},
		{"refused", sim.Refuse(), false, nil, 0, false},
		{"resent, second reply", sim.Fate{ReplyLost: true, Again: 10 * time.Millisecond}, false,
			nil, 10 * time.Millisecond, true},
		{"twice, first reply", sim.Fate{Again: 10 * time.Millisecond}, true, nil, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := sim.NewNodes(1)[0]
				node.Next("set", tt.fate)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				ok, err := node.Link("a").SetNX(ctx, "k", "v", time.Hour)
				assert.Equal(t, tt.ok, ok)
				assert.ErrorIs(t, err, tt.err)
				assert.Equal(t, tt.after, time.Since(start))
				time.Sleep(time.Minute)
				assert.Equal(t, tt.landed, node.Value("k") == "v")

				ok, err = node.Link("a").SetNX(t.Context(), "next", "v", time.Hour)
				assert.True(t, ok && err == nil, "the fate was for one command")
			})
		})
	}
}

func TestCommandIsNotSentWithADeadContext(t *testing.T) {
	node := sim.NewNodes(1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := node.Link("a").SetNX(ctx, "k", "v", time.Second)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, node.Count(""))
}

func TestFrozenNodeExecutesWhatItReceivedWhenItThaws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sim.NewNodes(1)[0]
		link := node.Link("a")
		node.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := link.SetNX(ctx, "k", "v", time.Minute)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, node.Value("k"))
		node.Thaw()
		assert.Equal(t, "v", node.Value("k"), "a zombie")
		assert.Equal(t, time.Minute, node.TTL("k"))
	})
}

func TestCrashBreaksConnectionsAndRestartResetsUptime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sim.NewNodes(1)[0]
		link := node.Link("a")
		node.Next("set", sim.Slow(time.Second))
		go func() {
			time.Sleep(100 * time.Millisecond)
			node.Crash()
			node.Restart(true)
		}()
		_, err := link.SetNX(t.Context(), "k", "v", time.Minute)
		assert.ErrorIs(t, err, sim.ErrReset)

		node.Crash()
		_, err = link.SetNX(t.Context(), "k", "v", time.Minute)
		assert.ErrorIs(t, err, sim.ErrRefused)

		node.Set("old", "v", time.Hour)
		node.Restart(true)
		assert.Equal(t, "v", node.Value("old"))
		time.Sleep(3 * time.Second)
		reply, err := link.Eval(t.Context(), acquire, []string{"k"}, "v", 1000, 10)
		require.NoError(t, err)
		assert.Equal(t, int64(-7), reply, "the guard refuses for another 7 s")

		node.Crash()
		node.Restart(false)
		assert.Empty(t, node.Value("old"))
	})
}

// Commands that are alike in all but their turn meet their fates in the order of their turns. In
// which order they were sent makes no difference.
func TestOfLikeCommandsTheLowestTurnComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(1)
		nodes[0].Always(sim.Fate{Lost: true, Timeout: time.Second, Order: 1})
		for _, sent := range [][]uint64{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			ended := make(chan uint64, len(sent))
			for _, turn := range sent {
				ctx := t.Context() // of turn 0
				if turn > 0 {
					ctx = sim.WithTurn(ctx, turn)
				}
				go func() {
					_, err := nodes[0].Link("a").SetNX(ctx, "k", "v", time.Minute)
					assert.ErrorIs(t, err, sim.ErrTimeout)
					ended <- turn
				}()
				synctest.Wait()
			}
			assert.Equal(t, []uint64{0, 1, 2}, []uint64{<-ended, <-ended, <-ended}, "%v", sent)
		}
	})
}

func TestSubscribersHearOfReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sim.NewNodes(1)[0]
		a, b := node.Link("a"), node.Link("b")
		channel := "redlock:turn:" + strings.Repeat("A", 26)
		sub, err := b.Subscribe(t.Context(), channel)
		require.NoError(t, err)
		publish := func(key string) {
			node.Set(key, "v", 0)
			_, err := a.Eval(t.Context(), stand,
				[]string{key, key + ":queue", key + ":ticket", key + ":roll"},
				400, channel+"v", 1, 0, 60000, 3, 0)
			require.NoError(t, err)
			_, err = a.Eval(t.Context(), release, []string{key, key + ":queue"}, "v", 400)
			require.NoError(t, err)
		}
		publish("k")
		assert.Equal(t, "v", <-sub.Messages())

		b.Plan(func(op sim.Op) sim.Fate {
			if op.Command == "message" {
				return sim.Fate{ReplyLost: true}
			}
			return sim.Fate{}
		})
		publish("k")
		assert.Empty(t, sub.Messages(), "lost")
		b.Plan(nil)

		node.Crash()
		node.Restart(true)
		assert.Equal(t, "", <-sub.Messages(), "may have missed some")
		publish("k")
		assert.Equal(t, "v", <-sub.Messages())

		require.NoError(t, sub.Close())
		require.NoError(t, sub.Close())
		assert.Zero(t, node.Subscriptions())
	})
}

func TestSubscribeThatIsGivenUpLeavesNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []sim.Fate{sim.LoseReply(), sim.Slow(10 * time.Second)} {
			node := sim.NewNodes(1)[0]
			node.Next("subscribe", f)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := node.Link("a").Subscribe(ctx, "ch")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			assert.Zero(t, node.Subscriptions())
		}
	})
}

func TestCloseEndsWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(1)
		nodes[0].Always(sim.Deaf(sim.Hang()))
		go func() {
			time.Sleep(time.Hour)
			nodes.Close()
		}()
		link := nodes[0].Link("a")
		_, err := link.SetNX(t.Context(), "k", "v", time.Second)
		assert.ErrorIs(t, err, sim.ErrClosed)
		_, err = link.Eval(t.Context(), extend, []string{"k"}, "v", 1000)
		assert.ErrorIs(t, err, sim.ErrClosed)
	})
}

func TestLogTellsWhoDidWhat(t *testing.T) {
	nodes := sim.NewNodes(2)
	link := nodes[1].Link("a")
	_, _ = link.SetNX(t.Context(), "before", "v", time.Second)
	log := nodes.Record()
	_, _ = link.SetNX(t.Context(), "k", "v", time.Second)
	_, _ = link.Eval(t.Context(), release, []string{"k"}, "v")

	events := log.Events()
	require.Len(t, events, 2)
	assert.Equal(t, sim.Granted, events[0].Effect)
	assert.Equal(t, 1, events[1].Node)
	assert.Equal(t, "release", events[1].Command)
	assert.Equal(t, "v", events[1].Before)
	assert.Equal(t, sim.Deleted, events[1].Effect)
}
