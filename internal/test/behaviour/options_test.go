package behaviour_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// lesson L8 and others: what cannot work is refused, by name, value and rule, before anything is
// sent.
func TestImpossibleOptionsAreRefusedOnFirstUse(t *testing.T) {
	options := func(o ...redlock.Option) []redlock.Option { return o }
	for _, tt := range []struct {
		want string
		opts []redlock.Option
	}{
		{"WithExpiry(999.999µs): must be at least 1ms",
			options(redlock.WithExpiry(time.Millisecond - 1))},
		{"WithExpiry(0s): must be at least 1ms", options(redlock.WithExpiry(0))},
		{"WithExpiry(-1s): must be at least 1ms", options(redlock.WithExpiry(-time.Second))},
		{"WithExpiry(3ms): must be at least 1ms more than the drift of 2.03ms (expiry × drift " +
			"factor + 2ms)",
			options(redlock.WithExpiry(3*time.Millisecond),
				redlock.WithNodeTimeout(time.Millisecond))},
		{"WithExpiry(10ms): must be at least 1ms more than the drift of 11ms (expiry × drift " +
			"factor + 2ms)",
			options(redlock.WithExpiry(10*time.Millisecond), redlock.WithDriftFactor(0.9))},
		// lesson L85: no node answers in so short a time.
		{"WithExpiry(19ms): must make a node timeout (expiry of 19ms × timeout factor of " +
			"0.05) of at least 1ms, not 950µs",
			options(redlock.WithExpiry(19 * time.Millisecond))},
		{"WithTries(0): must be at least 1, or Unlimited", options(redlock.WithTries(0))},
		{"WithTries(-2): must be at least 1, or Unlimited", options(redlock.WithTries(-2))},
		{"WithMaxWaiters(0): must be at least 1, or Unlimited", options(redlock.WithMaxWaiters(0))},
		{"WithMaxWaiters(-2): must be at least 1, or Unlimited",
			options(redlock.WithMaxWaiters(-2))},
		{"WithRetryDelay(-1ns): must be at least 0", options(redlock.WithRetryDelay(-1))},
		{"WithRetryDelayFunc(<nil>): must be a function", options(redlock.WithRetryDelayFunc(nil))},
		{"WithGenValueFunc(<nil>): must be a function", options(redlock.WithGenValueFunc(nil))},
		{"WithDriftFactor(-0.01): must be at least 0 and less than 1",
			options(redlock.WithDriftFactor(-0.01))},
		{"WithDriftFactor(1): must be at least 0 and less than 1",
			options(redlock.WithDriftFactor(1))},
		{"WithDriftFactor(NaN): must be at least 0 and less than 1",
			options(redlock.WithDriftFactor(math.NaN()))},
		{"WithTimeoutFactor(0): must be more than 0 and at most 1",
			options(redlock.WithTimeoutFactor(0))},
		{"WithTimeoutFactor(1.01): must be more than 0 and at most 1",
			options(redlock.WithTimeoutFactor(1.01))},
		{"WithTimeoutFactor(+Inf): must be more than 0 and at most 1",
			options(redlock.WithTimeoutFactor(math.Inf(1)))},
		{"WithTimeoutFactor(NaN): must be more than 0 and at most 1",
			options(redlock.WithTimeoutFactor(math.NaN()))},
		{"WithTimeoutFactor(0.0001): must make a node timeout (expiry of 8s × timeout factor " +
			"of 0.0001) of at least 1ms, not 800µs",
			options(redlock.WithTimeoutFactor(0.0001))},
		{"WithNodeTimeout(999.999µs): must be at least 1ms",
			options(redlock.WithNodeTimeout(time.Millisecond - 1))},
		{"WithNodeTimeout(-1ns): must be at least 1ms", options(redlock.WithNodeTimeout(-1))},
		{"WithNodeTimeout(9s): must be at most the expiry of 8s",
			options(redlock.WithNodeTimeout(9 * time.Second))},
		{"WithFenceTTL(7s): must be at least the expiry of 8s",
			options(redlock.WithFencing(), redlock.WithFenceTTL(7*time.Second))},
		// lesson L85
		{"WithFenceTTL(6s): must be at least the expiry of 8s",
			options(redlock.WithFenceTTL(6 * time.Second))},
		// lesson L85
		{"Option(option 1 is nil): needs options that are not nil",
			options(redlock.WithTries(1), nil)},
		{"WithRestartGuard(7s): must be at least the expiry of 8s",
			options(redlock.WithRestartGuard(7 * time.Second))},
		{"WithMargin(-1ns): must be at least 0 and at most half of what the drift leaves of " +
			"the expiry: 3.959s",
			options(redlock.WithMargin(-1))},
		{"WithMargin(4s): must be at least 0 and at most half of what the drift leaves of the " +
			"expiry: 3.959s",
			options(redlock.WithMargin(4 * time.Second))},
		{"WithMaxHold(7s): must be at least the expiry of 8s",
			options(redlock.WithMaxHold(7 * time.Second))},
	} {
		t.Run(tt.want, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
				for _, m := range []*redlock.Mutex{
					rl.NewMutex("x", tt.opts...),
					rl.With(tt.opts...).NewMutex("x"),
					rl.With(tt.opts...).With(redlock.WithKeyPrefix("p:")).NewMutex("x",
						redlock.WithPolling()),
				} {
					for op, err := range everyOperation(t, m) {
						var option *redlock.OptionError
						require.ErrorAs(t, err, &option, op)
						assert.EqualError(t, option, "redlock: "+tt.want)
					}
				}
				called := false
				err := rl.With(tt.opts...).Do(t.Context(), "x",
					func(context.Context) error { called = true; return nil })
				assert.ErrorIs(t, err, redlock.ErrFailed)
				assert.False(t, called)
				assert.Zero(t, nodes.Count(""))
				require.NoError(t, rl.With(tt.opts...).Close())
			})
		})
	}
}

func TestOptionsAtTheirLimitsWork(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"20 ms": {redlock.WithExpiry(20 * time.Millisecond)},
		"4 ms": {redlock.WithExpiry(4 * time.Millisecond),
			redlock.WithNodeTimeout(time.Millisecond)},
		"3 ms": {redlock.WithExpiry(3 * time.Millisecond),
			redlock.WithNodeTimeout(time.Millisecond), redlock.WithDriftFactor(0)},
		"longest expiry": {redlock.WithExpiry(100 * 365 * 24 * time.Hour),
			redlock.WithNodeTimeout(time.Second)},
		"one try":         {redlock.WithTries(1)},
		"one waiter":      {redlock.WithMaxWaiters(1)},
		"all may wait":    {redlock.WithMaxWaiters(redlock.Unlimited)},
		"no drift factor": {redlock.WithDriftFactor(0)},
		"whole timeout":   {redlock.WithTimeoutFactor(1)},
		"equal timeout":   {redlock.WithNodeTimeout(redlock.DefaultExpiry)},
		"no delay":        {redlock.WithRetryDelay(0)},
		"equal times": {redlock.WithFencing(), redlock.WithFenceTTL(redlock.DefaultExpiry),
			redlock.WithRestartGuard(redlock.DefaultExpiry),
			redlock.WithMaxHold(redlock.DefaultExpiry)},
		"unused fence TTL": {redlock.WithFenceTTL(redlock.DefaultExpiry)},
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
		assert.Equal(t, 100*time.Millisecond,
			took(redlock.WithTimeoutFactor(0.1), redlock.WithNodeTimeout(100*time.Millisecond)))
		assert.Equal(t, 800*time.Millisecond,
			took(redlock.WithNodeTimeout(100*time.Millisecond), redlock.WithTimeoutFactor(0.1)))
		assert.Equal(t, time.Second, took(redlock.WithExpiry(20*time.Second)))
		// lesson L118: the default does not grow with the expiry for ever, and what was asked for
		// does.
		long := redlock.WithExpiry(6 * time.Hour)
		assert.Equal(t, 2*time.Second, took(long))
		assert.Equal(t, 2*time.Second, took(redlock.WithExpiry(41*time.Second)))
		assert.Equal(t, 18*time.Minute,
			took(redlock.WithTimeoutFactor(redlock.DefaultTimeoutFactor), long))
		assert.Equal(t, time.Minute, took(long, redlock.WithNodeTimeout(time.Minute)))
		bad := redlock.WithRetryDelay(-1)
		assert.Equal(t, 400*time.Millisecond,
			took(bad, redlock.WithRetryDelayFunc(redlock.ConstantDelay(1))))
	})
}

// lesson L53: options keep no state; one set of them serves any number of mutexes, any number of
// times.
func TestOptionsAreUsedByManyAtOnce(t *testing.T) {
	opts := []redlock.Option{
		redlock.WithTries(3), redlock.WithRetryDelayFunc(redlock.ExponentialDelay(1,
			time.Millisecond)),
		redlock.WithExpiry(time.Minute), redlock.WithFencing(), redlock.WithPolling(),
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
			alone := append(opts, redlock.WithGenValueFunc(func() (string,
				error) {
				tries++
				return "v", nil
			}))
			require.ErrorIs(t, rl.NewMutex("y", alone...).Lock(), redlock.ErrNoQuorum)
			assert.Equal(t, 3, tries, "each Lock has all its tries")
		}
	})
}

// lesson L85: what the compiler lets through, and no error could report without harm, panics in
// words, and before anything is sent or kept.
func TestMisusePanicsInWords(t *testing.T) {
	var noContext context.Context
	var noRedlock redlock.Redlock
	var noMutex redlock.Mutex
	ctx := context.Background()
	nothing := func(context.Context) error { return nil }
	const (
		noCtx    = "redlock: nil context"
		zeroRL   = "redlock: this Redlock is nil or the zero value: make it with New"
		zeroLock = "redlock: this Mutex is nil or the zero value: make it with NewMutex"
	)
	bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		m := rl.NewMutex("x")
		for name, c := range map[string]struct {
			text string
			call func()
		}{
			"LockContext":       {noCtx, func() { _ = m.LockContext(noContext) }},
			"TryLockContext":    {noCtx, func() { _ = m.TryLockContext(noContext) }},
			"UnlockContext":     {noCtx, func() { _, _ = m.UnlockContext(noContext) }},
			"ExtendContext":     {noCtx, func() { _, _ = m.ExtendContext(noContext) }},
			"ValidContext":      {noCtx, func() { _, _ = m.ValidContext(noContext) }},
			"Hold":              {noCtx, func() { _, _ = m.Hold(noContext) }},
			"Do":                {noCtx, func() { _ = rl.Do(noContext, "x", nothing) }},
			"Inspect":           {noCtx, func() { _, _ = rl.Inspect(noContext, "x") }},
			"CloseContext":      {noCtx, func() { _ = rl.CloseContext(noContext) }},
			"FencingToken":      {noCtx, func() { redlock.FencingToken(noContext) }},
			"zero With":         {zeroRL, func() { noRedlock.With(redlock.WithTries(1)) }},
			"zero With nothing": {zeroRL, func() { noRedlock.With() }},
			"zero NewMutex":     {zeroRL, func() { noRedlock.NewMutex("x") }},
			"zero Do":           {zeroRL, func() { _ = noRedlock.Do(ctx, "x", nothing) }},
			"zero Inspect":      {zeroRL, func() { _, _ = noRedlock.Inspect(ctx, "x") }},
			"zero Close":        {zeroRL, func() { _ = noRedlock.Close() }},
			"zero CloseContext": {zeroRL, func() { _ = noRedlock.CloseContext(ctx) }},
			"nil NewMutex":      {zeroRL, func() { (*redlock.Redlock)(nil).NewMutex("x") }},
			"zero Lock":         {zeroLock, func() { _ = noMutex.Lock() }},
			"zero TryLock":      {zeroLock, func() { _ = noMutex.TryLock() }},
			"zero Unlock":       {zeroLock, func() { _, _ = noMutex.Unlock() }},
			"zero Extend":       {zeroLock, func() { _, _ = noMutex.Extend() }},
			"zero Valid":        {zeroLock, func() { _, _ = noMutex.Valid() }},
			"zero Hold":         {zeroLock, func() { _, _ = noMutex.Hold(ctx) }},
			"nil Lock":          {zeroLock, func() { _ = (*redlock.Mutex)(nil).Lock() }},
		} {
			assert.PanicsWithValue(t, c.text, c.call, name)
		}
		assert.Zero(t, nodes.Count(""))
		require.NoError(t, m.Lock(), "none of them has left anything behind")
		mustUnlock(t, m)

		var option *redlock.OptionError
		for want, err := range map[string]error{
			"Do(<nil>): needs a function":              rl.Do(ctx, "x", nil),
			"DoAll(<nil>): needs a function":           rl.DoAll(ctx, []string{"x"}, nil),
			"DoAll(0 names): needs from 1 to 64 names": rl.DoAll(ctx, nil, nothing),
			"DoAny(<nil>): needs a function":           rl.DoAny(ctx, []string{"x"}, nil),
			"LockAny(no names): needs a name": func() error {
				_, err := rl.LockAny(ctx, nil)
				return err
			}(),
			"Run(<nil>): needs a function":     rl.NewElection("x").Run(ctx, nil),
			`WithValue(""): must not be empty`: rl.NewMutex("x", redlock.WithValue("")).Lock(),
			"WithValue(…): is for NewMutex: only one mutex can take a lock over": rl.With(
				redlock.WithValue("v")).NewMutex("x", redlock.WithTries(2)).Lock(),
		} {
			require.ErrorAs(t, err, &option, want)
			assert.EqualError(t, option, "redlock: "+want)
			assert.Equal(t, "Failed", matched(err))
		}
	})
	assert.Zero(t, noMutex.Until())
	assert.Empty(t, noMutex.Value())
	assert.Zero(t, noMutex.FencingToken())
}
