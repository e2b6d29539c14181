package opentelemetry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	locks "github.com/sqllock/sqllock/adapters/opentelemetry"
	"github.com/sqllock/sqllock/internal/filelock"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func newMetrics(t *testing.T, options ...locks.Option) (*locks.Metrics, *sdkmetric.ManualReader) {
	t.Helper()

	reader := sdkmetric.NewManualReader()

	metrics, err := locks.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), options...)
	if err != nil {
		t.Fatal(err)
	}

	return metrics, reader
}

// collect returns the value of each sum and the count of each histogram, by "name{attributes}", and the histograms'
// data points. The attribute of the strategy, which all have, is left out.
func collect(t *testing.T, reader *sdkmetric.ManualReader) (map[string]int64, map[string]metricdata.HistogramDataPoint[float64]) {
	t.Helper()

	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}

	values, histograms := map[string]int64{}, map[string]metricdata.HistogramDataPoint[float64]{}

	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					values[series(t, m, p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				if m.Unit != "s" {
					t.Errorf("the unit of %s is %q, want s", m.Name, m.Unit)
				}

				for _, p := range data.DataPoints {
					name := series(t, m, p.Attributes)
					values[name], histograms[name] = int64(p.Count), p
				}
			default:
				t.Errorf("%s has data of type %T", m.Name, data)
			}
		}
	}

	return values, histograms
}

func series(t *testing.T, m metricdata.Metrics, set attribute.Set) string {
	t.Helper()

	if v, _ := set.Value(locks.StrategyKey); v.AsString() != "cas" {
		t.Errorf("the strategy of %s is %q, want cas", m.Name, v.AsString())
	}

	rest, _ := set.Filter(func(kv attribute.KeyValue) bool { return kv.Key != locks.StrategyKey })

	return m.Name + "{" + rest.Encoded(attribute.DefaultEncoder()) + "}"
}

// expect waits until the metrics are these.
func expect(t *testing.T, reader *sdkmetric.ManualReader, want map[string]int64) {
	t.Helper()

	filelock.Eventually(t, func() error {
		got, _ := collect(t, reader)
		if !maps.Equal(got, want) {
			return fmt.Errorf("metrics = %v\nwant %v", got, want)
		}

		return nil
	})
}

func TestAcquireWaitRelease(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	metrics, reader := newMetrics(t)
	locker, other := filelock.NewLocker(t, file, sqllock.WithObserver(metrics.Observe)), filelock.NewLocker(t, file)
	theirs := filelock.Acquire(t, other, "name")

	if _, err := locker.TryAcquire(t.Context(), "name"); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Fatalf("TryAcquire = %v, want ErrNotAcquired", err)
	}

	ours := make(chan *sqllock.Lock, 1)

	go func() {
		lock, err := locker.Acquire(t.Context(), "name")
		if err != nil {
			t.Error(err)
		}

		ours <- lock
	}()

	filelock.UntilWaiting(t, other, "name", 1)
	filelock.Release(t, theirs)

	lock := <-ours
	want := map[string]int64{
		"sqllock.acquisitions{sqllock.result=acquired}":      1,
		"sqllock.acquisitions{sqllock.result=not_acquired}":  1,
		"sqllock.wait.duration{sqllock.result=acquired}":     1,
		"sqllock.wait.duration{sqllock.result=not_acquired}": 1,
		"sqllock.held{}": 1,
	}
	expect(t, reader, want)
	filelock.Release(t, lock)

	want["sqllock.held{}"], want["sqllock.hold.duration{}"] = 0, 1
	expect(t, reader, want)
}

func TestForced(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	metrics, reader := newMetrics(t, locks.WithNames(func(name string) string {
		kind, _, _ := strings.Cut(name, "/")

		return kind
	}))

	var renewals, failures int64 // of the goroutine that tells of renewals and losses

	renewed, lost := make(chan struct{}), make(chan struct{})
	observe := func(ctx context.Context, e sqllock.Event) {
		metrics.Observe(ctx, e)

		if e.Kind == sqllock.Lost {
			close(lost)
		}

		if e.Kind == sqllock.RenewalFailed { // on a slow machine
			failures++
		}

		if e.Kind != sqllock.Renewed {
			return
		}

		if renewals++; renewals == 1 {
			close(renewed)
		}
	}

	locker, other := filelock.NewLocker(t, file, sqllock.WithObserver(observe), sqllock.WithLease(2*time.Second)), filelock.NewLocker(t, file)
	lock := filelock.Acquire(t, locker, "customer/4711")

	<-renewed

	if err := sqllocktest.ForceRelease(t.Context(), other, "customer/4711", "for a test"); err != nil {
		t.Fatal(err)
	}

	<-lock.Done()
	<-lost

	want := map[string]int64{
		"sqllock.acquisitions{sqllock.lock=customer,sqllock.result=acquired}":  1,
		"sqllock.wait.duration{sqllock.lock=customer,sqllock.result=acquired}": 1,
		"sqllock.held{sqllock.lock=customer}":                                  0,
		"sqllock.hold.duration{sqllock.lock=customer}":                         1,
		"sqllock.losses{sqllock.lock=customer,sqllock.reason=forced}":          1,
		"sqllock.renewals{sqllock.lock=customer}":                              renewals,
		"sqllock.renewal.remaining{sqllock.lock=customer}":                     renewals + failures,
	}
	if failures > 0 {
		want["sqllock.renewal.failures{sqllock.lock=customer}"] = failures
	}

	expect(t, reader, want)

	_, histograms := collect(t, reader)

	least, _ := histograms["sqllock.renewal.remaining{sqllock.lock=customer}"].Min.Value()
	if least <= 0 || least >= 2 {
		t.Errorf("the closest call is %v, want less than the lease", least)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()

	metrics, reader := newMetrics(t)
	locker, faulty := filelock.NewFaultyLocker(t, filelock.NewFile(t), sqllock.WithObserver(metrics.Observe), sqllock.WithTuning(sqllock.Tuning{NoHandOff: true}))
	lock := filelock.Acquire(t, locker, "name")

	faulty.Fail("release", 10, sqllocktest.Before, nil)

	failed := new(sqllock.ReleaseError)
	if err := lock.Release(t.Context()); !errors.As(err, &failed) {
		t.Fatalf("Release = %v, want a *ReleaseError", err)
	}

	metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.RenewalFailed, Strategy: "cas", Remaining: time.Second})

	for _, err := range []error{sqllock.ErrUnreachable, &sqllock.DeadlockError{}, sqllocktest.ErrBroken} {
		metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.NotAcquired, Strategy: "cas", Err: err})
	}

	want := map[string]int64{
		"sqllock.acquisitions{sqllock.result=acquired}":  1,
		"sqllock.wait.duration{sqllock.result=acquired}": 1,
		"sqllock.held{}":              0,
		"sqllock.hold.duration{}":     1,
		"sqllock.release.failures{}":  1,
		"sqllock.renewal.failures{}":  1,
		"sqllock.renewal.remaining{}": 1,
	}

	for _, result := range []string{"unreachable", "deadlock", "error"} {
		want["sqllock.acquisitions{sqllock.result="+result+"}"] = 1
		want["sqllock.wait.duration{sqllock.result="+result+"}"] = 1
	}

	expect(t, reader, want)
}
