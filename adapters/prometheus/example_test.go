package prometheus_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	locks "github.com/sqllock/sqllock/adapters/prometheus"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func Example() {
	ctx := context.Background()
	registry := prometheus.NewRegistry()

	metrics := locks.New(locks.WithNames(func(name string) string {
		kind, _, _ := strings.Cut(name, "/") // "customer/4711" is one of very many

		return kind
	}))
	registry.MustRegister(metrics)

	// In a program: cas.New(postgres.New(pool)).
	locker, err := sqllock.New(sqllocktest.NewMemory(), sqllock.WithObserver(metrics.Observe))
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = locker.Close(ctx) }()

	for _, name := range []string{"customer/4711", "customer/4712"} {
		if err := locker.Do(ctx, name, func(context.Context, *sqllock.Lock) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}

	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if value := metric.GetCounter().GetValue(); value > 0 {
				fmt.Println(family.GetName(), metric.GetLabel()[0].GetValue(), metric.GetLabel()[1].GetValue(), value)
			}
		}
	}
	// Output: sqllock_acquisitions_total customer acquired 2
}

func ExampleNewDatabase() {
	ctx := context.Background()

	locker, err := sqllock.New(sqllocktest.NewMemory())
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = locker.Close(ctx) }()

	registry := prometheus.NewRegistry()
	registry.MustRegister(locks.NewDatabase(locker, 0))

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}

	for _, family := range families {
		fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
	}
	// Output:
	// sqllock_database_holders 0
	// sqllock_database_oldest_wait_seconds 0
	// sqllock_database_unheld_wait_seconds 0
	// sqllock_database_up 1
	// sqllock_database_waiters 0
}
