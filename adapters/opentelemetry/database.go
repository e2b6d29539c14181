package opentelemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/sqllock/sqllock/sqllock"
)

// databaseTime bounds the questions of one collection.
const databaseTime = 5 * time.Second

// ObserveDatabase makes gauges of who holds and who waits for locks in the database, in whatever process. The locker is asked
// at each collection, with three short queries that take five seconds together at most; without an answer the
// gauge sqllock.database.up is 0, and the others have no value. Every process that has them reports the same: one is enough.
// Names are no attributes. Unregister what it returns before the locker is closed. Errors are those of the meter.
func ObserveDatabase(provider metric.MeterProvider, locker *sqllock.Locker) (metric.Registration, error) {
	meter := provider.Meter(scope)

	up, upErr := meter.Int64ObservableGauge("sqllock.database.up", metric.WithUnit("1"),
		metric.WithDescription("1 if the database said in time who holds and waits for locks, else 0."))
	holders, holdersErr := meter.Int64ObservableGauge("sqllock.database.holders", metric.WithUnit("{lock}"),
		metric.WithDescription("Grants of locks in the database, by whatever process."))
	waiters, waitersErr := meter.Int64ObservableGauge("sqllock.database.waiters", metric.WithUnit("{process}"),
		metric.WithDescription("Processes that wait for a lock, once for each name."))
	oldest, oldestErr := meter.Float64ObservableGauge("sqllock.database.oldest_wait", metric.WithUnit("s"),
		metric.WithDescription("How long the one waits who has waited longest."))

	recovery, recoveryErr := meter.Float64ObservableGauge("sqllock.database.recovery", metric.WithUnit("s"),
		metric.WithDescription("How long nothing is granted yet after a fail-over. Missing where there is no such pause."))

	if err := errors.Join(upErr, holdersErr, waitersErr, oldestErr, recoveryErr); err != nil {
		return nil, err
	}

	return meter.RegisterCallback(func(ctx context.Context, observer metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, databaseTime)
		defer cancel()

		// First those who wait: one that is granted its lock in between is a holder then.
		waiting, err := locker.Waiters(ctx, sqllock.WaiterFilter{})
		if errors.Is(err, sqllock.ErrUnsupported) {
			err = nil
		}

		var statuses []sqllock.Status
		if err == nil {
			statuses, err = locker.Holders(ctx, sqllock.Filter{})
		}

		if err != nil {
			observer.ObserveInt64(up, 0)

			return err
		}

		held := 0

		for _, status := range statuses {
			if status.Held() { // and not taken by a minimum hold or a lock delay
				held++
			}
		}

		var longest time.Duration
		for _, waiter := range waiting {
			longest = max(longest, waiter.Waited)
		}

		observer.ObserveInt64(up, 1)
		observer.ObserveInt64(holders, int64(held))
		observer.ObserveInt64(waiters, int64(len(waiting)))
		observer.ObserveFloat64(oldest, longest.Seconds())

		if r, err := locker.Recovery(ctx); err == nil {
			observer.ObserveFloat64(recovery, r.Pause().Seconds())
		}

		return nil
	}, up, holders, waiters, oldest, recovery)
}
