// Package opentelemetry tells OpenTelemetry what the locks of a process do. [Metrics] are fed by the hooks of a locker:
//
//	metrics, err := locks.NewMetrics(otel.GetMeterProvider())
//	locker, err := sqllock.New(cas.New(postgres.New(pool)), sqllock.WithObserver(metrics.Observe))
//
// A [Tracer] makes a span for the wait and one for the hold of each lock that is acquired through it, because
// hooks have no context that a span could belong to:
//
//	tracer := locks.NewTracer(otel.GetTracerProvider())
//	err := tracer.Do(ctx, locker, "invoices/2026-11", f)
package opentelemetry

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// scope is the name of the instrumentation.
const scope = "github.com/sqllock/sqllock/adapters/opentelemetry"

// Attributes of metrics and spans.
const (
	// LockKey is the lock's name on spans, and on metrics what the function of [WithNames] returns for it.
	LockKey = attribute.Key("sqllock.lock")
	// ResultKey says how an acquisition ended: "acquired", "not_acquired", "deadlock", "unreachable" and others.
	ResultKey = attribute.Key("sqllock.result")
	// ReasonKey is the [sqllock.Reason] of a loss.
	ReasonKey = attribute.Key("sqllock.reason")
	// StrategyKey is the name of the strategy.
	StrategyKey = attribute.Key("sqllock.strategy")
	// TokenKey is the fencing token, on spans.
	TokenKey = attribute.Key("sqllock.token")
	// SlotKey is which of the permits it is, on spans.
	SlotKey = attribute.Key("sqllock.slot")
)

// Option sets what [NewMetrics] does.
type Option func(*Metrics)

// WithNames gives the metrics the attribute [LockKey], with what label makes of the lock's name: of "customer/4711",
// say, "customer". It should return few different values. It must be quick, and safe for concurrent use. With nil, the
// default, there is no such attribute.
func WithNames(label func(name string) string) Option {
	return func(m *Metrics) { m.label = label }
}

// Metrics are the metrics of the locks of one process. They are safe for concurrent use. Several lockers may have the same.
type Metrics struct {
	label func(name string) string // nil: names are no attributes

	acquisitions, losses, renewals, renewalFailures, releaseFailures metric.Int64Counter

	held                  metric.Int64UpDownCounter
	wait, hold, remaining metric.Float64Histogram
}

// NewMetrics makes the instruments. Give [Metrics.Observe] to the locker. Errors are those of the meter.
func NewMetrics(provider metric.MeterProvider, options ...Option) (*Metrics, error) {
	m := new(Metrics)

	for _, option := range options {
		option(m)
	}

	meter := provider.Meter(scope)

	var errs []error

	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)

		return c
	}
	seconds := func(name, description string, bounds ...float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)

		return h
	}

	m.acquisitions = counter("sqllock.acquisitions", "{acquisition}", "Calls that acquired a lock or ended without it.")
	m.wait = seconds("sqllock.wait.duration", "How long calls took to acquire a lock, or to end without it.",
		.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800)
	m.hold = seconds("sqllock.hold.duration", "How long locks were held, until their release or loss.",
		.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400)
	m.losses = counter("sqllock.losses", "{lock}", "Locks that were lost.")
	m.renewals = counter("sqllock.renewals", "{renewal}", "Renewals that the database confirmed.")
	m.renewalFailures = counter("sqllock.renewal.failures", "{renewal}", "Tries to renew that failed, and left the lock in doubt.")
	m.remaining = seconds("sqllock.renewal.remaining",
		"What was left of the trust window at a renewal, or a try to renew. The least is the closest call.",
		.05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60)
	m.releaseFailures = counter("sqllock.release.failures", "{lock}", "Releases that failed; the lease ends these locks at the latest.")

	held, err := meter.Int64UpDownCounter("sqllock.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that this process holds now."))
	m.held = held

	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}

	return m, nil
}

// Observe is what to give to [sqllock.WithObserver].
func (m *Metrics) Observe(ctx context.Context, e sqllock.Event) {
	switch e.Kind {
	case sqllock.Acquired:
		m.acquired(ctx, e)
	case sqllock.NotAcquired:
		m.notAcquired(ctx, e)
	case sqllock.Renewed:
		m.renewed(ctx, e, m.renewals)
	case sqllock.RenewalFailed:
		m.renewed(ctx, e, m.renewalFailures)
	case sqllock.Lost, sqllock.Released, sqllock.Detached:
		m.released(ctx, e)
	case sqllock.Waiting, sqllock.Recovering:
		// A wait is measured when it has ended.
	}
}

func (m *Metrics) acquired(ctx context.Context, e sqllock.Event) {
	ended := m.attributes(e, ResultKey.String(acquired))

	m.acquisitions.Add(ctx, 1, ended)
	m.wait.Record(ctx, e.Waited.Seconds(), ended)
	m.held.Add(ctx, 1, m.attributes(e))
}

func (m *Metrics) notAcquired(ctx context.Context, e sqllock.Event) {
	ended := m.attributes(e, ResultKey.String(result(e.Err)))

	m.acquisitions.Add(ctx, 1, ended)
	m.wait.Record(ctx, e.Waited.Seconds(), ended)
}

// renewed takes a renewal, or a try.
func (m *Metrics) renewed(ctx context.Context, e sqllock.Event, counter metric.Int64Counter) {
	counter.Add(ctx, 1, m.attributes(e))
	m.remaining.Record(ctx, max(e.Remaining, 0).Seconds(), m.attributes(e))
}

// released takes the end of a lock. A loss may be found by the release only.
func (m *Metrics) released(ctx context.Context, e sqllock.Event) {
	m.held.Add(ctx, -1, m.attributes(e))
	m.hold.Record(ctx, e.HeldFor.Seconds(), m.attributes(e))

	lost := new(sqllock.LostError)

	switch {
	case errors.As(e.Err, &lost):
		m.losses.Add(ctx, 1, m.attributes(e, ReasonKey.String(string(lost.Reason))))
	case e.Err != nil:
		m.releaseFailures.Add(ctx, 1, m.attributes(e))
	}
}

// attributes are those of every measurement, and others.
func (m *Metrics) attributes(e sqllock.Event, others ...attribute.KeyValue) metric.MeasurementOption {
	all := append(others, StrategyKey.String(e.Strategy))

	if m.label != nil {
		all = append(all, LockKey.String(m.label(e.Name)))
	}

	return metric.WithAttributes(all...)
}

// acquired is the result of an acquisition that has the lock.
const acquired = "acquired"

// result says how an acquisition without the lock ended. An error may match several sentinels; the first that it
// matches counts.
func result(err error) string {
	is := func(target error) bool { return errors.Is(err, target) }

	for _, r := range []struct {
		name   string
		errors []error
	}{
		{"deadlock", []error{sqllock.ErrDeadlock}},
		{"closed", []error{sqllock.ErrClosed}},
		{"outer_ended", []error{sqllock.ErrLost, sqllock.ErrReleased}}, // of the lock under whose context it was
		{"unreachable", []error{sqllock.ErrUnreachable}},
		{"too_many_connections", []error{sqllock.ErrTooManyConnections}},
		{"recovering", []error{sqllock.ErrRecovering}},
		{"read_only", []error{sqllock.ErrReadOnly}},
		{"no_schema", []error{sqllock.ErrNoSchema}},
		{"not_allowed", []error{sqllock.ErrNotAllowed}},
		{"unsupported", []error{sqllock.ErrUnsupported}},
		{notAcquired, []error{sqllock.ErrNotAcquired}},
		{tickDone, []error{once.ErrDone}},
		{"canceled", []error{context.Canceled, context.DeadlineExceeded}},
	} {
		if slices.ContainsFunc(r.errors, is) {
			return r.name
		}
	}

	return "error"
}

// These are outcomes and no faults: somebody else has the lock, or the job of its tick was done.
const (
	notAcquired = "not_acquired"
	tickDone    = "tick_done"
)
