package otelredlock_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/otelredlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/redlocktest"
)

// seen is what the SDK has recorded.
type seen struct {
	t     *testing.T
	spans *tracetest.InMemoryExporter
	meter *metric.ManualReader
}

// events returns events that an SDK records.
func events(t *testing.T, opts ...otelredlock.Option) (*redlock.Events, *seen) {
	s := &seen{t, tracetest.NewInMemoryExporter(), metric.NewManualReader()}
	e, err := otelredlock.Events(append(opts,
		otelredlock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))),
		otelredlock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(s.meter))))...)
	require.NoError(t, err)
	return e, s
}

// value returns the sum, or the count of a histogram, of the data of a metric with the attributes.
func (s *seen) value(name string, attrs ...attribute.KeyValue) (n int64) {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(s.t, s.meter.Collect(context.Background(), &all))
	has := func(set attribute.Set) bool {
		for _, a := range attrs {
			if v, ok := set.Value(a.Key); !ok || v != a.Value {
				return false
			}
		}
		return true
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if has(p.Attributes) {
						n += p.Value
					}
				}
			case metricdata.Histogram[float64]:
				assert.Equal(s.t, "s", m.Unit)
				for _, p := range data.DataPoints {
					if has(p.Attributes) {
						n += int64(p.Count)
					}
				}
			}
		}
	}
	return n
}

// span returns the last span of a name, and its attributes.
func (s *seen) span(name string) (last tracetest.SpanStub, attrs map[string]any) {
	s.t.Helper()
	attrs = map[string]any{}
	for _, span := range s.spans.GetSpans() {
		if span.Name == name {
			last = span
		}
	}
	require.NotEmpty(s.t, last.Name, "there is no span %q", name)
	for _, a := range last.Attributes {
		attrs[string(a.Key)] = a.Value.AsInterface()
	}
	return last, attrs
}

// cluster runs f in virtual time with five nodes.
func cluster(t *testing.T, f func(t *testing.T, c *redlocktest.Cluster)) {
	synctest.Test(t, func(t *testing.T) { f(t, redlocktest.New(t, 5)) })
}

func outcome(o redlock.Outcome) attribute.KeyValue {
	return attribute.String("redlock.outcome", string(o))
}

func end(r redlock.EndReason) attribute.KeyValue {
	return attribute.String("redlock.end", string(r))
}

// Who shares a lock is told apart from who asks for it alone, also while that one is refused.
func TestReadersAreToldApart(t *testing.T) {
	cluster(t, func(t *testing.T, c *redlocktest.Cluster) {
		e, s := events(t)
		rl := c.Redlock(redlock.WithEvents(e))
		acquired := func(shared bool, o redlock.Outcome) int64 {
			return s.value("redlock.acquire.duration", attribute.Bool("redlock.shared", shared),
				outcome(o))
		}
		for range 2 {
			require.NoError(t, rl.NewMutex("catalogue", redlock.WithShared()).Lock())
			_, attrs := s.span("acquire lock")
			assert.Equal(t, true, attrs["redlock.shared"])
		}
		assert.EqualValues(t, 2, acquired(true, redlock.OutcomeOK))
		assert.EqualValues(t, 2, s.value("redlock.locks.held"))
		require.Error(t, rl.NewMutex("catalogue").TryLock())
		_, attrs := s.span("acquire lock")
		assert.Equal(t, false, attrs["redlock.shared"])
		assert.EqualValues(t, 1, acquired(false, redlock.OutcomeTaken))
		assert.Zero(t, acquired(false, redlock.OutcomeOK)+acquired(true, redlock.OutcomeTaken))
	})
}

func TestALockMakesSpansAndMetrics(t *testing.T) {
	cluster(t, func(t *testing.T, c *redlocktest.Cluster) {
		e, s := events(t, otelredlock.WithNodes(), otelredlock.WithNames(strings.ToUpper))
		rl := c.Redlock(redlock.WithEvents(e), redlock.WithFencing())
		ctx := trace.ContextWithSpanContext(t.Context(),
			trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
			}))
		m := rl.NewMutex("invoice")
		require.NoError(t, m.LockContext(ctx))
		_, attrs := s.span("acquire lock")
		assert.Equal(t, map[string]any{
			"redlock.name": "INVOICE", "redlock.outcome": "ok", "redlock.attempts": int64(1),
			"redlock.contended": false, "redlock.shared": false,
			"redlock.fencing_token": int64(m.FencingToken()),
		}, attrs)
		assert.EqualValues(t, 1, s.value("redlock.acquire.duration", outcome(redlock.OutcomeOK),
			attribute.Bool("redlock.contended", false)))
		assert.EqualValues(t, 1, s.value("redlock.locks.held"))
		assert.Zero(t, s.value("redlock.waiters"))

		_, err := m.ExtendContext(ctx)
		require.NoError(t, err)
		assert.EqualValues(t, 1, s.value("redlock.extend.duration", outcome(redlock.OutcomeOK)))
		assert.EqualValues(t, 1, s.value("redlock.lease.remaining", outcome(redlock.OutcomeOK)))
		_, err = m.UnlockContext(ctx)
		require.NoError(t, err)
		for _, name := range []string{"acquire lock", "extend lock", "release lock"} {
			span, _ := s.span(name)
			assert.Equal(t, trace.SpanID{2}, span.Parent.SpanID(), name)
			assert.Equal(t, trace.SpanKindInternal, span.SpanKind)
			assert.Equal(t, codes.Unset, span.Status.Code)
		}
		assert.Zero(t, s.value("redlock.locks.held"))
		assert.EqualValues(t, 1, s.value("redlock.hold.duration", end(redlock.EndReleased)))
		synctest.Wait()
		assert.EqualValues(t, 5, s.value("redlock.node.duration",
			attribute.String("redlock.command", "acquire")))
		assert.EqualValues(t, 1, s.value("redlock.node.duration",
			attribute.String("redlock.command", "release"), attribute.Int("redlock.node", 4)))
	})
}

func TestAWaitIsSeenWhileItLasts(t *testing.T) {
	cluster(t, func(t *testing.T, c *redlocktest.Cluster) {
		e, s := events(t)
		rl := c.Redlock(redlock.WithEvents(e))
		holder, waiter := rl.NewMutex("x"), rl.NewMutex("x")
		require.NoError(t, holder.Lock())
		var g sync.WaitGroup
		g.Go(func() { assert.NoError(t, waiter.Lock()) })
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, s.value("redlock.waiters"))
		_, err := holder.Unlock()
		require.NoError(t, err)
		g.Wait()
		assert.Zero(t, s.value("redlock.waiters"))
		assert.EqualValues(t, 1, s.value("redlock.acquire.duration",
			attribute.Bool("redlock.contended", true)))
		_, attrs := s.span("acquire lock")
		assert.NotContains(t, attrs, "redlock.name", "names are not meant for everybody")

		require.ErrorIs(t, rl.NewMutex("x").TryLock(), redlock.ErrTaken)
		span, attrs := s.span("acquire lock")
		assert.Equal(t, "taken", attrs["redlock.outcome"])
		assert.Equal(t, codes.Unset, span.Status.Code,
			"to be told that somebody has it is no error")
		_, err = waiter.Unlock()
		require.NoError(t, err)
	})
}

func TestTroubleIsSeen(t *testing.T) {
	cluster(t, func(t *testing.T, c *redlocktest.Cluster) {
		e, s := events(t, otelredlock.WithNodes())
		rl := c.Redlock(redlock.WithEvents(e))
		m := rl.NewMutex("x")
		held, err := m.Hold(t.Context())
		require.NoError(t, err)
		c.Steal("x")
		<-held.Done()
		synctest.Wait()
		assert.EqualValues(t, 1, s.value("redlock.locks.lost", end(redlock.EndLost)))
		assert.EqualValues(t, 1, s.value("redlock.hold.duration", end(redlock.EndLost)))
		assert.Zero(t, s.value("redlock.locks.held"))
		span, attrs := s.span("extend lock")
		assert.Equal(t, codes.Error, span.Status.Code)
		assert.Equal(t, "expired", attrs["error.type"])
		time.Sleep(redlock.DefaultExpiry)
		_, err = m.Unlock()
		require.Error(t, err)
		assert.EqualValues(t, 1, s.value("redlock.overruns",
			attribute.Bool("redlock.proven_exclusive", false)))

		for i := range 3 {
			c.Node(i).Down()
		}
		require.ErrorIs(t, rl.NewMutex("y").TryLock(), redlock.ErrNoQuorum)
		_, attrs = s.span("acquire lock")
		assert.Equal(t, "no_quorum", attrs["error.type"])
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.Error(t, rl.NewMutex("y", redlock.WithTries(redlock.Unlimited)).LockContext(ctx))
		assert.EqualValues(t, 2, s.value("redlock.waits.long",
			attribute.String("redlock.outcome", "no_quorum")))
		synctest.Wait()
		assert.Positive(t, s.value("redlock.node.duration",
			attribute.String("error.type", "refused"))+
			s.value("redlock.node.duration", attribute.String("error.type", "other")))
	})
}

// spans is a pool that notes which span each command is a part of.
type spans struct {
	pool.Pool
	note func(trace.SpanID)
}

func (p spans) SetNX(ctx context.Context, k, v string, d time.Duration) (bool, error) {
	p.note(trace.SpanContextFromContext(ctx).SpanID())
	return p.Pool.SetNX(ctx, k, v, d)
}

func (p spans) Eval(ctx context.Context, s *pool.Script, k []string, a ...any) (any, error) {
	p.note(trace.SpanContextFromContext(ctx).SpanID())
	return p.Pool.Eval(ctx, s, k, a...)
}

func TestSpansOfClientsAreChildren(t *testing.T) {
	cluster(t, func(t *testing.T, c *redlocktest.Cluster) {
		e, s := events(t)
		var mu sync.Mutex
		var parents []trace.SpanID
		pools := c.Pools()
		for i, p := range pools {
			pools[i] = spans{p, func(id trace.SpanID) {
				mu.Lock()
				defer mu.Unlock()
				parents = append(parents, id)
			}}
		}
		rl := redlock.New(pools...).With(redlock.WithEvents(e))
		m := rl.NewMutex("x")
		for name, call := range map[string]func() error{
			"acquire lock": m.Lock,
			"extend lock":  func() error { _, err := m.Extend(); return err },
			"release lock": func() error { _, err := m.Unlock(); return err },
		} {
			if name != "acquire lock" {
				_ = m.TryLock()
			}
			synctest.Wait()
			mu.Lock()
			parents = nil
			mu.Unlock()
			require.NoError(t, call())
			synctest.Wait()
			span, _ := s.span(name)
			for _, p := range parents {
				assert.Equal(t, span.SpanContext.SpanID(), p, name)
			}
			assert.NotEmpty(t, parents)
			_, _ = m.Unlock()
		}
		require.NoError(t, rl.Close())
	})
}

// BenchmarkEvents is what the functions cost that are called for a Lock and an Unlock: without an
// SDK, and with one that records. It does not include the lock, nor the telling.
func BenchmarkEvents(b *testing.B) {
	run := func(name string, opts ...otelredlock.Option) {
		b.Run(name, func(b *testing.B) {
			e, err := otelredlock.Events(opts...)
			require.NoError(b, err)
			ctx := context.Background()
			a, u := redlock.Acquired{Outcome: redlock.OutcomeOK, Attempts: 1}, redlock.Released{}
			u.Outcome = redlock.OutcomeOK
			b.ReportAllocs()
			for b.Loop() {
				_, acquired := e.Acquire(ctx, a.Acquiring)
				acquired(a)
				_, released := e.Release(ctx, u.Releasing)
				e.End(redlock.Ended{Reason: redlock.EndReleased})
				released(u)
			}
		})
	}
	run("noop", otelredlock.WithTracerProvider(tracenoop.NewTracerProvider()),
		otelredlock.WithMeterProvider(metricnoop.NewMeterProvider()))
	run("sdk", otelredlock.WithTracerProvider(sdktrace.NewTracerProvider()),
		otelredlock.WithMeterProvider(metric.NewMeterProvider(
			metric.WithReader(metric.NewManualReader()))))
}

// BenchmarkPair is a Lock and an Unlock on five nodes that answer at once: without Events, and
// with those of a program that has not set a provider.
func BenchmarkPair(b *testing.B) {
	quiet, err := otelredlock.Events(
		otelredlock.WithTracerProvider(tracenoop.NewTracerProvider()),
		otelredlock.WithMeterProvider(metricnoop.NewMeterProvider()))
	require.NoError(b, err)
	for name, events := range map[string]*redlock.Events{"none": nil, "noop": quiet} {
		b.Run(name, func(b *testing.B) {
			rl := redlock.New(sim.NewNodes(5).Instants("a")...)
			if events != nil {
				rl = rl.With(redlock.WithEvents(events))
			}
			m := rl.NewMutex("x")
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Lock(); err != nil {
					b.Fatal(err)
				}
				if _, err := m.Unlock(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// lesson L153: what a program's own function does, or a name, spoils neither gauges nor spans.
func TestNamesSpoilNothing(t *testing.T) {
	cluster(t, func(t *testing.T, c *redlocktest.Cluster) {
		logger := slog.Default()
		t.Cleanup(func() { slog.SetDefault(logger) })
		slog.SetDefault(slog.New(slog.DiscardHandler)) // the panic is reported there
		e, s := events(t, otelredlock.WithNames(func(string) string { panic("no name") }))
		m := c.Redlock(redlock.WithEvents(e)).NewMutex("x")
		for range 10 {
			require.NoError(t, m.Lock())
			assert.EqualValues(t, 1, s.value("redlock.locks.held"))
			_, err := m.Extend()
			require.NoError(t, err)
			_, err = m.Unlock()
			require.NoError(t, err)
		}
		assert.Zero(t, s.value("redlock.locks.held"))
		assert.Zero(t, s.value("redlock.waiters"))
		assert.Len(t, s.spans.GetSpans(), 30)

		e, s = events(t, otelredlock.WithNames(func(name string) string { return name }))
		require.NoError(t, c.Redlock(redlock.WithEvents(e)).NewMutex("a\xffb").TryLock())
		_, attrs := s.span("acquire lock")
		assert.Equal(t, "a\uFFFDb", attrs["redlock.name"])
	})
}

// lesson L152: the increase of a counter that does not exist yet is nothing.
func TestCountersAreThereBeforeTheirFirstEvent(t *testing.T) {
	_, s := events(t)
	var all metricdata.ResourceMetrics
	require.NoError(t, s.meter.Collect(t.Context(), &all))
	require.Len(t, all.ScopeMetrics, 1)
	points := map[string]int{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		sum := m.Data.(metricdata.Sum[int64])
		points[m.Name] = len(sum.DataPoints)
		for _, p := range sum.DataPoints {
			assert.Zero(t, p.Value, m.Name)
		}
	}
	assert.Equal(t, map[string]int{
		"redlock.locks.held": 1, "redlock.waiters": 1, "redlock.fence.raises": 1,
		"redlock.heals": 1, "redlock.overruns": 2, "redlock.locks.lost": 3,
		"redlock.waits.long": 2,
	}, points)
}

// A newer redlock may tell an outcome, or a reason, that this module does not know.
func TestAnOutcomeThatIsNewCounts(t *testing.T) {
	e, s := events(t)
	ctx, acquired := e.Acquire(t.Context(), redlock.Acquiring{Name: "x"})
	acquired(redlock.Acquired{Outcome: "new", Err: redlock.ErrFailed})
	_, extended := e.Extend(ctx, redlock.Extending{Name: "x"})
	extended(redlock.Extended{Outcome: "new", Err: redlock.ErrNoQuorum})
	e.End(redlock.Ended{Name: "x", Reason: "new"})
	outcome := attribute.String("redlock.outcome", "new")
	assert.EqualValues(t, 1, s.value("redlock.acquire.duration", outcome))
	assert.EqualValues(t, 1, s.value("redlock.extend.duration", outcome))
	assert.EqualValues(t, 1,
		s.value("redlock.hold.duration", attribute.String("redlock.end", "new")))
}

// lesson L85
func TestANilOptionIsAnError(t *testing.T) {
	_, err := otelredlock.Events(otelredlock.WithNodes(), nil)
	assert.EqualError(t, err, "otelredlock: Events: option 1 is nil")
}
