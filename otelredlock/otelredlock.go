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
	"fmt"
	"strings"

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
// there are none. Metrics never have them. The function f is called when a span ends. Bytes that
// are not UTF-8 are replaced, because exporters refuse them.
func WithNames(f func(name string) string) Option { return func(c *config) { c.name = f } }

// WithNodes adds the metric redlock.node.duration, of each command on each node. Default: off.
func WithNodes() Option { return func(c *config) { c.nodes = true } }

// Events returns functions that make spans and metrics, for [redlock.WithEvents]. One value can be
// used by any number of Redlocks. The error says that an option is nil, or it is the meter's, which
// has refused an instrument.
func Events(opts ...Option) (*redlock.Events, error) {
	var c config
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("otelredlock: Events: option %d is nil", i)
		}
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
		End: r.end, Lost: r.lost, Overrun: r.overrun, Waiting: r.waiting,
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

// finish ends a span about a lock. A lock that is taken, or a caller who does not wait, is no
// error. The name comes last: what makes it is the user's, and may panic.
func (r *recorder) finish(
	s trace.Span, lock string, o redlock.Outcome, token uint64, err error,
) {
	defer s.End()
	if !s.IsRecording() {
		return
	}
	s.SetAttributes(attribute.String("redlock.outcome", string(o)))
	if token != 0 {
		s.SetAttributes(attribute.Int64("redlock.fencing_token", int64(token)))
	}
	switch o {
	case redlock.OutcomeOK, redlock.OutcomeTaken, redlock.OutcomeCancelled:
	default:
		s.SetStatus(codes.Error, validUTF8(err.Error()))
		s.SetAttributes(attribute.String("error.type", string(o)))
	}
	if r.name != nil {
		s.SetAttributes(attribute.String("redlock.name", validUTF8(r.name(lock))))
	}
}

// validUTF8 replaces what is not UTF-8. An exporter would drop the batch of such a span.
func validUTF8(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func (r *recorder) acquire(
	ctx context.Context, _ redlock.Acquiring,
) (context.Context, func(redlock.Acquired)) {
	r.waiters.Add(ctx, 1)
	ctx, span := r.tracer.Start(ctx, "acquire lock")
	return ctx, func(a redlock.Acquired) {
		r.waiters.Add(ctx, -1)
		contended := a.Queued || a.Attempts > 1
		set := r.attributes(acquire{a.Outcome, contended, a.Shared})
		r.acquired.Record(ctx, a.Took.Seconds(), set)
		if a.Err == nil {
			r.held.Add(ctx, 1)
		}
		if a.Raised {
			r.raises.Add(ctx, 1)
		}
		if span.IsRecording() {
			span.SetAttributes(attribute.Int("redlock.attempts", a.Attempts),
				attribute.Bool("redlock.contended", contended),
				attribute.Bool("redlock.shared", a.Shared))
		}
		r.finish(span, a.Name, a.Outcome, a.Token, a.Err)
	}
}

func (r *recorder) extend(
	ctx context.Context, _ redlock.Extending,
) (context.Context, func(redlock.Extended)) {
	ctx, span := r.tracer.Start(ctx, "extend lock")
	return ctx, func(e redlock.Extended) {
		set := r.attributes(e.Outcome)
		r.extended.Record(ctx, e.Took.Seconds(), set)
		r.remaining.Record(ctx, max(e.Left, 0).Seconds(), set)
		if e.Healed > 0 {
			r.heals.Add(ctx, int64(e.Healed))
		}
		r.finish(span, e.Name, e.Outcome, e.Token, e.Err)
	}
}

func (r *recorder) release(
	ctx context.Context, _ redlock.Releasing,
) (context.Context, func(redlock.Released)) {
	ctx, span := r.tracer.Start(ctx, "release lock")
	return ctx, func(u redlock.Released) {
		r.finish(span, u.Name, u.Outcome, u.Token, u.Err)
	}
}

func (r *recorder) end(e redlock.Ended) {
	ctx := context.Background()
	r.held.Add(ctx, -1)
	r.holds.Record(ctx, e.Held.Seconds(), r.attributes(e.Reason))
}

func (r *recorder) lost(e redlock.Ended) {
	r.losses.Add(context.Background(), 1, r.attributes(e.Reason))
}

func (r *recorder) overrun(o redlock.Overrun) {
	// A quorum that still had the lock proves that nobody else had.
	r.overruns.Add(context.Background(), 1, exclusive(o.Err == nil))
}

func (r *recorder) waiting(w redlock.Waiting) {
	o := redlock.OutcomeTaken
	if errors.Is(w.Err, redlock.ErrNoQuorum) {
		o = redlock.OutcomeNoQuorum
	}
	r.longWaits.Add(context.Background(), 1, r.attributes(o))
}

func (r *recorder) node(c redlock.NodeCall) {
	attrs := []attribute.KeyValue{
		attribute.Int("redlock.node", c.Node), attribute.String("redlock.command", c.Command),
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
