package otelredlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redlock-go/redlock"
)

// metrics are the instruments, and the attributes that are used again and again.
type metrics struct {
	acquired, holds, extended, remaining, nodes metric.Float64Histogram
	held, waiters                               metric.Int64UpDownCounter
	losses, overruns, raises, heals, longWaits  metric.Int64Counter

	sets sync.Map // from an Outcome, an EndReason or an acquire to its metric.MeasurementOption
}

// acquire are the attributes of a call that asks for a lock.
type acquire struct {
	outcome           redlock.Outcome
	contended, shared bool
}

// Bounds of histograms, in seconds.
var (
	operations = metric.WithExplicitBucketBoundaries(
		.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30)
	leases = metric.WithExplicitBucketBoundaries(
		.001, .01, .1, .25, .5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60, 300, 3600)
)

func newMetrics(meter metric.Meter) (*metrics, error) {
	var errs []error
	histogram := func(
		name, about string, bounds metric.HistogramOption,
	) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
			bounds)
		errs = append(errs, err)
		return h
	}
	upDown := func(name, unit, about string) metric.Int64UpDownCounter {
		c, err := meter.Int64UpDownCounter(name, metric.WithUnit(unit),
			metric.WithDescription(about))
		errs = append(errs, err)
		return c
	}
	counter := func(name, unit, about string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		errs = append(errs, err)
		return c
	}
	m := &metrics{
		acquired: histogram("redlock.acquire.duration",
			"How long Lock, TryLock and Hold took.", operations),
		holds: histogram("redlock.hold.duration",
			"How long locks were relied upon.", leases),
		extended: histogram("redlock.extend.duration",
			"How long extensions and renewals took.", operations),
		remaining: histogram("redlock.lease.remaining",
			"How much was left of a lock when its extension ended.", leases),
		nodes: histogram("redlock.node.duration",
			"How long commands on single nodes took.", operations),
		held:    upDown("redlock.locks.held", "{lock}", "Locks that are held."),
		waiters: upDown("redlock.waiters", "{waiter}", "Calls that ask or wait for a lock."),
		losses: counter("redlock.locks.lost", "{lock}",
			"Locks that ended before their holder ended them."),
		overruns: counter("redlock.overruns", "{lock}", "Locks that were used after their end."),
		raises: counter("redlock.fence.raises", "{lock}",
			"Locks for which fence counters had to be raised."),
		longWaits: counter("redlock.waits.long", "{report}",
			"Reports that a call has waited for long."),
		heals: counter("redlock.heals", "{node}", "Nodes that had lost the key of a held lock."),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	m.begin()
	return m, nil
}

// begin gives the counters their first value, which is 0: the increase from one value to the next
// misses an event that makes the first.
func (m *metrics) begin() {
	ctx := context.Background()
	m.held.Add(ctx, 0)
	m.waiters.Add(ctx, 0)
	m.raises.Add(ctx, 0)
	m.heals.Add(ctx, 0)
	m.longWaits.Add(ctx, 0, m.attributes(redlock.OutcomeTaken))
	m.longWaits.Add(ctx, 0, m.attributes(redlock.OutcomeNoQuorum))
	m.overruns.Add(ctx, 0, exclusive(false))
	m.overruns.Add(ctx, 0, exclusive(true))
	for _, r := range []redlock.EndReason{
		redlock.EndLost, redlock.EndMargin, redlock.EndMaxHold,
	} {
		m.losses.Add(ctx, 0, m.attributes(r))
	}
}

func set(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}

// exclusive says of an overrun whether nobody else can have had the lock.
func exclusive(proven bool) metric.MeasurementOption {
	return set(attribute.Bool("redlock.proven_exclusive", proven))
}

// attributes returns the attributes of an [redlock.Outcome], an [redlock.EndReason] or an acquire.
// They are made once each.
func (m *metrics) attributes(of any) metric.MeasurementOption {
	if s, ok := m.sets.Load(of); ok {
		return s.(metric.MeasurementOption)
	}
	var s metric.MeasurementOption
	switch of := of.(type) {
	case redlock.Outcome:
		s = set(attribute.String("redlock.outcome", string(of)))
	case redlock.EndReason:
		s = set(attribute.String("redlock.end", string(of)))
	case acquire:
		s = set(attribute.String("redlock.outcome", string(of.outcome)),
			attribute.Bool("redlock.contended", of.contended),
			attribute.Bool("redlock.shared", of.shared))
	}
	m.sets.Store(of, s)
	return s
}

// serverError classes an error by what the server or the system calls it: "NOPERM", for instance,
// becomes "noperm".
func serverError(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	}
	word, _, _ := strings.Cut(err.Error(), " ")
	if word == "" || len(word) > 20 || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "other"
	}
	return strings.ToLower(word)
}
