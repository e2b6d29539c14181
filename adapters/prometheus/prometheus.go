// Package prometheus counts what the locks of a process do, for Prometheus. [Metrics] are fed by the hooks of a locker
// and ask the database nothing:
//
//	metrics := locks.New()
//	registry.MustRegister(metrics)
//	locker, err := sqllock.New(cas.New(postgres.New(pool)), sqllock.WithObserver(metrics.Observe))
//
// [Database] is a second collector for those who want it: it asks the database at each scrape who holds and who waits.
//
// The names of locks are no labels, because there may be millions of them. [WithNames] makes them labels.
//
// All series of a process are there from the start, with zeros, and those of a name from its first event. So a rate
// sees the first loss, too. Only sqllock_closest_call_seconds is missing while nothing was renewed in the last minutes.
package prometheus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqllock/sqllock/sqllock"
)

// Option sets what [New] or [NewDatabase] does.
type Option func(*settings)

type settings struct {
	label func(name string) string // nil: names are no labels
}

// WithNames gives all metrics of locks the label "lock", with what label makes of the lock's name: of "customer/4711",
// say, "customer". It should return few different values, because Prometheus keeps each of them as series of its own. It
// must be quick, and safe for concurrent use. With nil, the default, there is no such label.
func WithNames(label func(name string) string) Option {
	return func(s *settings) { s.label = label }
}

func newSettings(options []Option) settings {
	var s settings

	for _, option := range options {
		option(&s)
	}

	return s
}

// labels are the labels of a metric that has others.
func (s settings) labels(others ...string) []string {
	if s.label == nil {
		return others
	}

	return append(others, "lock")
}

// values are those of labels, for what lock returned.
func (s settings) values(lock string, others ...string) []string {
	if s.label == nil {
		return others
	}

	return append(others, lock)
}

// lock is the label of a name; empty if names are no labels.
func (s settings) lock(name string) string {
	if s.label == nil {
		return ""
	}

	return strings.ToValidUTF8(s.label(name), "\uFFFD")
}

// Metrics are the metrics of the locks of one process. They are safe for concurrent use. Several lockers may have the same.
type Metrics struct {
	settings settings

	acquisitions    *prometheus.CounterVec
	wait            *prometheus.HistogramVec
	hold            *prometheus.HistogramVec
	held            *prometheus.GaugeVec
	losses          *prometheus.CounterVec
	renewals        *prometheus.CounterVec
	renewalFailures *prometheus.CounterVec
	releaseFailures *prometheus.CounterVec
	closestCall     *prometheus.Desc

	mu    sync.Mutex
	calls map[string]*closest // for each label
}

// New returns metrics. Register them, and give their [Metrics.Observe] to the locker. For labels that are the same for all
// locks of a locker, register them with [prometheus.WrapRegistererWith].
func New(options ...Option) *Metrics {
	s := newSettings(options)

	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sqllock_" + name, Help: help}, s.labels(labels...))
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "sqllock_" + name, Help: help, Buckets: buckets}, s.labels(labels...))
	}

	m := &Metrics{
		settings: s,
		calls:    map[string]*closest{},

		acquisitions: counter("acquisitions_total", "Calls that acquired a lock or ended without it, by result.", "result"),
		wait: histogram("wait_seconds", "How long calls took to acquire a lock, or to end without it.",
			[]float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800}, "result"),
		hold: histogram("hold_seconds", "How long locks were held, until their release or loss.",
			[]float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}),
		losses:          counter("losses_total", "Locks that were lost, by reason.", "reason"),
		renewals:        counter("renewals_total", "Renewals that the database confirmed."),
		renewalFailures: counter("renewal_failures_total", "Tries to renew that failed, and left the lock in doubt."),
		releaseFailures: counter("release_failures_total", "Releases that failed; the lease ends these locks at the latest."),
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sqllock_held", Help: "Locks that this process holds now.",
		}, s.labels()),
		closestCall: prometheus.NewDesc("sqllock_closest_call_seconds",
			"The least that was left of a trust window at a renewal, or a try to renew, of the last 5 to 10 minutes.", s.labels(), nil),
	}

	if s.label == nil {
		m.begin("")
	}

	return m
}

// Observe is what to give to [sqllock.WithObserver].
func (m *Metrics) Observe(_ context.Context, e sqllock.Event) {
	switch e.Kind {
	case sqllock.Acquired:
		m.ended(e, "acquired", "acquired")
		m.held.WithLabelValues(m.settings.values(m.settings.lock(e.Name))...).Inc()
	case sqllock.NotAcquired:
		m.ended(e, result(e.Err), "not_acquired")
	case sqllock.Renewed:
		m.renewed(e, m.renewals)
	case sqllock.RenewalFailed:
		m.renewed(e, m.renewalFailures)
	case sqllock.Lost, sqllock.Released, sqllock.Detached:
		m.released(e)
	case sqllock.Waiting, sqllock.Recovering:
		// A wait is measured when it has ended.
	}
}

// ended takes the end of an acquisition.
func (m *Metrics) ended(e sqllock.Event, result, outcome string) {
	lock := m.begin(m.settings.lock(e.Name))

	m.acquisitions.WithLabelValues(m.settings.values(lock, result)...).Inc()
	m.wait.WithLabelValues(m.settings.values(lock, outcome)...).Observe(e.Waited.Seconds())
}

// renewed takes a renewal, or a try.
func (m *Metrics) renewed(e sqllock.Event, counter *prometheus.CounterVec) {
	lock := m.begin(m.settings.lock(e.Name))

	counter.WithLabelValues(m.settings.values(lock)...).Inc()

	m.mu.Lock()
	defer m.mu.Unlock()

	m.calls[lock].add(e.Remaining)
}

// released takes the end of a lock. A loss may be found by the release only.
func (m *Metrics) released(e sqllock.Event) {
	lock := m.begin(m.settings.lock(e.Name))

	m.held.WithLabelValues(m.settings.values(lock)...).Dec()
	m.hold.WithLabelValues(m.settings.values(lock)...).Observe(e.HeldFor.Seconds())

	lost := new(sqllock.LostError)

	switch {
	case errors.As(e.Err, &lost):
		m.losses.WithLabelValues(m.settings.values(lock, string(lost.Reason))...).Inc()
	case e.Err != nil:
		m.releaseFailures.WithLabelValues(m.settings.values(lock)...).Inc()
	}
}

// begin makes all series of a label, once, and returns it.
func (m *Metrics) begin(lock string) string {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.calls[lock] != nil {
		return lock
	}

	m.calls[lock] = new(closest)

	for _, result := range results() {
		m.acquisitions.WithLabelValues(m.settings.values(lock, result.label)...)
	}

	for _, outcome := range []string{"acquired", "not_acquired"} {
		m.wait.WithLabelValues(m.settings.values(lock, outcome)...)
	}

	for _, reason := range []sqllock.Reason{
		sqllock.ReasonExpired, sqllock.ReasonTakenOver, sqllock.ReasonForced, sqllock.ReasonSessionGone,
		sqllock.ReasonMaxHold, sqllock.ReasonUnknown,
	} {
		m.losses.WithLabelValues(m.settings.values(lock, string(reason))...)
	}

	for _, counter := range []*prometheus.CounterVec{m.renewals, m.renewalFailures, m.releaseFailures} {
		counter.WithLabelValues(m.settings.values(lock)...)
	}

	m.hold.WithLabelValues(m.settings.values(lock)...)
	m.held.WithLabelValues(m.settings.values(lock)...)

	return lock
}

// Describe is for the registry.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(descs)
	}

	descs <- m.closestCall
}

// Collect is for the registry. It does not ask the database.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(metrics)
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	for lock, calls := range m.calls {
		if least, ok := calls.least(); ok {
			metrics <- prometheus.MustNewConstMetric(
				m.closestCall, prometheus.GaugeValue, least.Seconds(), m.settings.values(lock)...)
		}
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.acquisitions, m.wait, m.hold, m.held, m.losses, m.renewals, m.renewalFailures, m.releaseFailures,
	}
}

// outcome is a value of the label "result", and the errors that it is for.
type outcome struct {
	label  string
	errors []error
}

// results are the values of the label "result". An error may match several sentinels; the first that it matches counts.
func results() []outcome {
	return []outcome{
		{"acquired", nil},
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
		{"not_acquired", []error{sqllock.ErrNotAcquired}},
		{"canceled", []error{context.Canceled, context.DeadlineExceeded}},
		{"error", nil},
	}
}

// result is the label for the error of an acquisition.
func result(err error) string {
	is := func(target error) bool { return errors.Is(err, target) }

	for _, r := range results() {
		if slices.ContainsFunc(r.errors, is) {
			return r.label
		}
	}

	return "error"
}
