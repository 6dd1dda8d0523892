// Package otelredlock makes spans and metrics of what happens to locks, by OpenTelemetry.
//
//	events, err := otelredlock.Events()
//	if err != nil {
//		return err
//	}
//	rl := redlock.New(pools...).With(redlock.WithEvents(events))
//
// Spans are named "acquire lock", "extend lock" and "release lock". The contexts of a lock's
// commands carry them, so that the spans of an instrumented client become their children. The page
// docs/observability.md lists the metrics, and alerts that are worth having.
//
// The package needs the API of OpenTelemetry only. Without an SDK its functions do next to nothing.
package otelredlock

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlock-go/redlock"
)

// scope is the name of the tracer and the meter.
const scope = "github.com/redlock-go/redlock/otelredlock"

// Option configures [Events].
type Option func(*config)

type config struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	name    func(string) string
	nodes   bool
}

// WithTracerProvider sets where spans come from. Nil stands for the default: the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithMeterProvider sets where metrics go. Nil stands for the default: the global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithNames adds the attribute redlock.name to spans, with what f makes of the name of a lock.
// There may be very many names, and they may say what readers of traces must not see. So by default
// there are none. Metrics never have them.
func WithNames(f func(name string) string) Option { return func(c *config) { c.name = f } }

// WithNodes adds the metric redlock.node.duration, of each command on each node. Default: off.
func WithNodes() Option { return func(c *config) { c.nodes = true } }

// Events returns functions that make spans and metrics, for [redlock.WithEvents]. One value can be
// used by any number of Redlocks. The error is the meter's, if it refuses an instrument.
func Events(opts ...Option) (*redlock.Events, error) {
	var c config
	for _, o := range opts {
		o(&c)
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	m, err := newMetrics(c.meters.Meter(scope))
	if err != nil {
		return nil, err
	}
	r := &recorder{tracer: c.tracers.Tracer(scope), metrics: m, name: c.name}
	e := &redlock.Events{
		Acquire: r.acquire, Extend: r.extend, Release: r.release,
		End: r.end, Lost: r.lost, Overrun: r.overrun,
	}
	if c.nodes {
		e.Node = r.node
	}
	return e, nil
}

// recorder is told of events.
type recorder struct {
	*metrics
	tracer trace.Tracer
	name   func(string) string
}

// start starts a span about a lock.
func (r *recorder) start(ctx context.Context, span, lock string) (context.Context, trace.Span) {
	ctx, s := r.tracer.Start(ctx, span)
	if r.name != nil && s.IsRecording() {
		s.SetAttributes(attribute.String("redlock.name", r.name(lock)))
	}
	return ctx, s
}

// finish ends a span. A lock that is taken, or a caller who does not wait, is no error.
func finish(s trace.Span, o redlock.Outcome, token uint64, err error, more ...attribute.KeyValue) {
	if s.IsRecording() {
		s.SetAttributes(attribute.String("redlock.outcome", string(o)))
		s.SetAttributes(more...)
		if token != 0 {
			s.SetAttributes(attribute.Int64("redlock.fencing_token", int64(token)))
		}
		switch o {
		case redlock.OutcomeOK, redlock.OutcomeTaken, redlock.OutcomeCancelled:
		default:
			s.SetStatus(codes.Error, err.Error())
			s.SetAttributes(attribute.String("error.type", string(o)))
		}
	}
	s.End()
}

func (r *recorder) acquire(
	ctx context.Context, a redlock.Acquiring,
) (context.Context, func(redlock.Acquired)) {
	r.waiters.Add(ctx, 1)
	ctx, span := r.start(ctx, "acquire lock", a.Name)
	return ctx, func(a redlock.Acquired) {
		r.waiters.Add(ctx, -1)
		contended := a.Queued || a.Attempts > 1
		r.acquired.Record(ctx, a.Took.Seconds(), r.acquireSet(a.Outcome, contended))
		if a.Err == nil {
			r.held.Add(ctx, 1)
		}
		if a.Raised {
			r.raises.Add(ctx, 1)
		}
		if span.IsRecording() {
			span.SetAttributes(attribute.Int("redlock.attempts", a.Attempts),
				attribute.Bool("redlock.contended", contended))
		}
		finish(span, a.Outcome, a.Token, a.Err)
	}
}

func (r *recorder) extend(
	ctx context.Context, e redlock.Extending,
) (context.Context, func(redlock.Extended)) {
	ctx, span := r.start(ctx, "extend lock", e.Name)
	return ctx, func(e redlock.Extended) {
		set := r.outcomeSet(e.Outcome)
		r.extended.Record(ctx, e.Took.Seconds(), set)
		r.remaining.Record(ctx, max(e.Left, 0).Seconds(), set)
		if e.Healed > 0 {
			r.heals.Add(ctx, int64(e.Healed))
		}
		finish(span, e.Outcome, e.Token, e.Err)
	}
}

func (r *recorder) release(
	ctx context.Context, u redlock.Releasing,
) (context.Context, func(redlock.Released)) {
	ctx, span := r.start(ctx, "release lock", u.Name)
	return ctx, func(u redlock.Released) { finish(span, u.Outcome, u.Token, u.Err) }
}

func (r *recorder) end(e redlock.Ended) {
	ctx := context.Background()
	r.held.Add(ctx, -1)
	r.holds.Record(ctx, e.Held.Seconds(), r.reasonSet(e.Reason))
}

func (r *recorder) lost(e redlock.Ended) {
	r.losses.Add(context.Background(), 1, r.reasonSet(e.Reason))
}

func (r *recorder) overrun(o redlock.Overrun) {
	// A quorum that still had the lock proves that nobody else had.
	r.overruns.Add(context.Background(), 1, metric.WithAttributes(
		attribute.Bool("redlock.proven_exclusive", o.Err == nil)))
}

func (r *recorder) node(c redlock.NodeCall) {
	attrs := []attribute.KeyValue{
		attribute.Int("redlock.node", c.Node), attribute.String("redlock.operation", c.Operation),
	}
	if c.Err != nil {
		attrs = append(attrs, attribute.String("error.type", errorType(c.Err)))
	}
	r.nodes.Record(context.Background(), c.Took.Seconds(), metric.WithAttributes(attrs...))
}

// errorType classes the error of a node.
func errorType(err error) string {
	var guard *redlock.GuardError
	switch {
	case errors.Is(err, redlock.ErrNodeTimeout):
		return "timeout"
	case errors.As(err, &guard):
		return "guard"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return serverError(err)
}
