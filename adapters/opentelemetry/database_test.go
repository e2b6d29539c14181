package opentelemetry_test

import (
	"context"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	_ "modernc.org/sqlite"

	locks "github.com/sqllock/sqllock/adapters/opentelemetry"
	"github.com/sqllock/sqllock/internal/filelock"
)

// gauges are the values of the database's gauges at a collection.
func gauges(t *testing.T, reader *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()

	var all metricdata.ResourceMetrics

	// Its error is that of the database, which the gauges tell, too.
	_ = reader.Collect(context.WithoutCancel(t.Context()), &all)

	values := map[string]float64{}

	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, point := range data.DataPoints {
					values[m.Name] = float64(point.Value)
				}
			case metricdata.Gauge[float64]:
				for _, point := range data.DataPoints {
					values[m.Name] = point.Value
				}
			}
		}
	}

	return values
}

func TestRecoveryGauge(t *testing.T) {
	t.Parallel()

	locker := filelock.NewPausingLocker(t, 90*time.Second)

	reader := sdkmetric.NewManualReader()
	if _, err := locks.ObserveDatabase(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), locker); err != nil {
		t.Fatal(err)
	}

	if got, ok := gauges(t, reader)["sqllock.database.recovery"]; !ok || got != 90 {
		t.Errorf("sqllock.database.recovery = %v, %v, want 90 seconds", got, ok)
	}
}

func TestObserveDatabase(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	db := filelock.Open(t, file)
	holder, waiter := filelock.NewLocker(t, file), filelock.NewLocker(t, file)
	reader := sdkmetric.NewManualReader()

	registration, err := locks.ObserveDatabase(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), filelock.NewLocker(t, file))
	if err != nil {
		t.Fatal(err)
	}

	want := func(when string, up, holders, waiters float64) {
		t.Helper()

		got := gauges(t, reader)
		if got["sqllock.database.up"] != up || got["sqllock.database.holders"] != holders || got["sqllock.database.waiters"] != waiters ||
			(got["sqllock.database.oldest_wait"] > 0) != (waiters > 0) {
			t.Errorf("%s: %v, want up %v, %v holders and %v waiters", when, got, up, holders, waiters)
		}
	}

	want("at the beginning", 1, 0, 0)

	lock := filelock.Acquire(t, holder, "a")
	other := filelock.Acquire(t, holder, "b")
	waited := make(chan error, 1)

	go func() {
		late, err := waiter.Acquire(context.WithoutCancel(t.Context()), "a")
		if err == nil {
			err = late.Release(context.WithoutCancel(t.Context()))
		}

		waited <- err
	}()

	filelock.UntilWaiting(t, holder, "a", 1)
	want("while one waits", 1, 2, 1)
	filelock.Release(t, lock)

	if err := <-waited; err != nil {
		t.Fatal(err)
	}

	filelock.Release(t, other)

	if _, err := db.ExecContext(t.Context(), "ALTER TABLE sqllock_queue RENAME TO away"); err != nil {
		t.Fatal(err)
	}

	want("without the table", 0, 0, 0)

	if _, err := db.ExecContext(t.Context(), "ALTER TABLE away RENAME TO sqllock_queue"); err != nil {
		t.Fatal(err)
	}

	want("with the table again", 1, 0, 0)

	if err := registration.Unregister(); err != nil {
		t.Fatal(err)
	}
}
