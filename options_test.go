package redlock_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
)

// lesson L8 and others: what cannot work is refused, by name, value and rule, before anything is sent.
func TestImpossibleOptionsAreRefusedOnFirstUse(t *testing.T) {
	options := func(o ...redlock.Option) []redlock.Option { return o }
	for text, opts := range map[string][]redlock.Option{
		"redlock: WithExpiry(999.999µs): must be at least 1ms": options(redlock.WithExpiry(time.Millisecond - 1)),
		"redlock: WithExpiry(0s): must be at least 1ms":        options(redlock.WithExpiry(0)),
		"redlock: WithExpiry(-1s): must be at least 1ms":       options(redlock.WithExpiry(-time.Second)),
		"redlock: WithExpiry(2ms): must be more than the drift of 2.02ms (expiry × drift factor + 2ms)": options(
			redlock.WithExpiry(2 * time.Millisecond)),
		"redlock: WithExpiry(10ms): must be more than the drift of 11ms (expiry × drift factor + 2ms)": options(
			redlock.WithExpiry(10*time.Millisecond), redlock.WithDriftFactor(0.9)),
		"redlock: WithTries(0): must be at least 1, or Unlimited":                     options(redlock.WithTries(0)),
		"redlock: WithTries(-2): must be at least 1, or Unlimited":                    options(redlock.WithTries(-2)),
		"redlock: WithRetryDelay(-1ns): must be at least 0":                           options(redlock.WithRetryDelay(-1)),
		"redlock: WithRetryDelayFunc(<nil>): must be a function":                      options(redlock.WithRetryDelayFunc(nil)),
		"redlock: WithGenValueFunc(<nil>): must be a function":                        options(redlock.WithGenValueFunc(nil)),
		"redlock: WithDriftFactor(-0.01): must be at least 0 and less than 1":         options(redlock.WithDriftFactor(-0.01)),
		"redlock: WithDriftFactor(1): must be at least 0 and less than 1":             options(redlock.WithDriftFactor(1)),
		"redlock: WithDriftFactor(NaN): must be at least 0 and less than 1":           options(redlock.WithDriftFactor(math.NaN())),
		"redlock: WithTimeoutFactor(0): must be more than 0 and at most 1":            options(redlock.WithTimeoutFactor(0)),
		"redlock: WithTimeoutFactor(1.01): must be more than 0 and at most 1":         options(redlock.WithTimeoutFactor(1.01)),
		"redlock: WithTimeoutFactor(+Inf): must be more than 0 and at most 1":         options(redlock.WithTimeoutFactor(math.Inf(1))),
		"redlock: WithTimeoutFactor(NaN): must be more than 0 and at most 1":          options(redlock.WithTimeoutFactor(math.NaN())),
		"redlock: WithTimeoutFactor(1e-12): must leave something of the expiry of 8s": options(redlock.WithTimeoutFactor(1e-12)),
		"redlock: WithNodeTimeout(0s): must be more than 0":                           options(redlock.WithNodeTimeout(0)),
		"redlock: WithNodeTimeout(-1ns): must be more than 0":                         options(redlock.WithNodeTimeout(-1)),
		"redlock: WithNodeTimeout(9s): must be at most the expiry of 8s":              options(redlock.WithNodeTimeout(9 * time.Second)),
		`redlock: WithValue(""): must not be empty`:                                   options(redlock.WithValue("")),
		"redlock: WithFenceTTL(7s): must be at least the expiry of 8s":                options(redlock.WithFencing(), redlock.WithFenceTTL(7*time.Second)),
		"redlock: WithRestartGuard(7s): must be at least the expiry of 8s":            options(redlock.WithRestartGuard(7 * time.Second)),
		"redlock: WithMaxHold(7s): must be at least the expiry of 8s":                 options(redlock.WithMaxHold(7 * time.Second)),
	} {
		t.Run(text, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for _, m := range []*redlock.Mutex{
					rl.NewMutex("x", opts...),
					rl.With(opts...).NewMutex("x"),
					rl.With(opts...).With(redlock.WithKeyPrefix("p:")).NewMutex("x", redlock.WithoutAnnouncements()),
				} {
					for op, err := range everyOperation(t, m) {
						var option *redlock.OptionError
						require.ErrorAs(t, err, &option, op)
						assert.EqualError(t, option, text)
					}
				}
				called := false
				err := rl.With(opts...).Do(t.Context(), "x", func(context.Context) error { called = true; return nil })
				assert.ErrorIs(t, err, redlock.ErrFailed)
				assert.False(t, called)
				assert.Zero(t, nodes.Count(""))
				require.NoError(t, rl.With(opts...).Close())
			})
		})
	}
}

func TestOptionsAtTheirLimitsWork(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"3 ms":             {redlock.WithExpiry(3 * time.Millisecond)},
		"longest expiry":   {redlock.WithExpiry(100 * 365 * 24 * time.Hour), redlock.WithNodeTimeout(time.Second)},
		"one try":          {redlock.WithTries(1)},
		"no drift factor":  {redlock.WithDriftFactor(0)},
		"whole timeout":    {redlock.WithTimeoutFactor(1)},
		"equal timeout":    {redlock.WithNodeTimeout(redlock.DefaultExpiry)},
		"no delay":         {redlock.WithRetryDelay(0)},
		"equal times":      {redlock.WithFencing(), redlock.WithFenceTTL(redlock.DefaultExpiry), redlock.WithRestartGuard(redlock.DefaultExpiry), redlock.WithMaxHold(redlock.DefaultExpiry)},
		"unused fence TTL": {redlock.WithFenceTTL(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
				m := rl.NewMutex("x", opts...)
				require.NoError(t, m.Lock())
				assert.True(t, m.Until().After(time.Now()))
				_, err := m.Extend()
				require.NoError(t, err)
				mustUnlock(t, m)
			})
		})
	}
}

func TestTheLaterOptionCounts(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		nodes[0].Always(sim.Deaf(sim.Hang()))
		took := func(opts ...redlock.Option) time.Duration {
			start := time.Now()
			require.ErrorIs(t, rl.NewMutex("x", opts...).TryLock(), redlock.ErrNodeTimeout)
			return time.Since(start)
		}
		assert.Equal(t, 400*time.Millisecond, took())
		assert.Equal(t, 800*time.Millisecond, took(redlock.WithTimeoutFactor(0.1)))
		assert.Equal(t, 100*time.Millisecond, took(redlock.WithTimeoutFactor(0.1), redlock.WithNodeTimeout(100*time.Millisecond)))
		assert.Equal(t, 800*time.Millisecond, took(redlock.WithNodeTimeout(100*time.Millisecond), redlock.WithTimeoutFactor(0.1)))
		assert.Equal(t, time.Second, took(redlock.WithExpiry(20*time.Second)))
		bad := redlock.WithRetryDelay(-1)
		assert.Equal(t, 400*time.Millisecond, took(bad, redlock.WithRetryDelayFunc(redlock.ConstantDelay(1))))
	})
}

// lesson L53: options keep no state; one set of them serves any number of mutexes, any number of times.
func TestOptionsAreUsedByManyAtOnce(t *testing.T) {
	opts := []redlock.Option{
		redlock.WithTries(3), redlock.WithRetryDelayFunc(redlock.ExponentialDelay(1, time.Millisecond)),
		redlock.WithExpiry(time.Minute), redlock.WithFencing(), redlock.WithoutAnnouncements(),
	}
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		for _, n := range nodes {
			n.Always(sim.Fail(errOops))
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for range 5 {
					assert.ErrorIs(t, rl.NewMutex("x", opts...).Lock(), redlock.ErrNoQuorum)
				}
			})
		}
		all.Wait()
		// Alone, so that no neighbour's attempt stands in for one of these.
		for range 3 {
			tries := 0
			alone := append(opts, redlock.WithGenValueFunc(func() (string, error) { tries++; return "v", nil }))
			require.ErrorIs(t, rl.NewMutex("y", alone...).Lock(), redlock.ErrNoQuorum)
			assert.Equal(t, 3, tries, "each Lock has all its tries")
		}
	})
}
