package opentelemetry_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel"

	locks "github.com/sqllock/sqllock/adapters/opentelemetry"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func Example() {
	ctx := context.Background()

	metrics, err := locks.NewMetrics(otel.GetMeterProvider())
	if err != nil {
		log.Fatal(err)
	}

	// In a program: cas.New(postgres.New(pool)).
	locker, err := sqllock.New(sqllocktest.NewMemory(), sqllock.WithObserver(metrics.Observe))
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = locker.Close(ctx) }()

	tracer := locks.NewTracer(otel.GetTracerProvider())

	err = tracer.Do(ctx, locker, "invoices/2026-11", func(_ context.Context, lock *sqllock.Lock) error {
		fmt.Println("working under", lock.Name())

		return nil
	})

	fmt.Println(err)
	// Output:
	// working under invoices/2026-11
	// <nil>
}
