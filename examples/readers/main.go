// Readers reads a catalog in two parts while another goroutine replaces both, one after the other. Reports
// run at the same time as each other, under shared locks, and none of them sees half of a new catalog. It needs no
// server; with DATABASE_URL, a postgres URL, it uses that instead, and several processes share the name:
//
//	go run ./examples/readers
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	go run ./examples/readers & go run ./examples/readers
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const reports, editions = 12, 3

// catalog has the same edition in both parts, except while it is being replaced. Each process has one of its own.
type catalog struct{ goods, prices atomic.Int64 }

func run(ctx context.Context, url string) error {
	var strategy strategies.Strategy = sqllocktest.NewMemory()

	if url != "" {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		defer pool.Close()

		strategy = cas.New(postgres.New(pool))
	}

	locker, err := sqllock.New(strategy)
	if err != nil {
		return err
	}

	defer func() { _ = locker.Close(ctx) }()

	var (
		books catalog
		group sync.WaitGroup
		errs  = make([]error, reports+1)
	)

	for i := range reports {
		group.Go(func() {
			errs[i] = locker.Do(ctx, "catalog", func(context.Context, *sqllock.Lock) error { return books.report() }, sqllock.WithShared())
		})
	}

	group.Go(func() {
		for range editions {
			errs[reports] = errors.Join(errs[reports], locker.Do(ctx, "catalog", func(context.Context, *sqllock.Lock) error {
				books.replace()

				return nil
			}))
		}
	})

	group.Wait()

	if err := errors.Join(errs...); err != nil {
		return err
	}

	fmt.Printf("%d reports saw whole catalogs while %d new ones came\n", reports, editions)

	return nil
}

// report reads both parts.
func (c *catalog) report() error {
	goods := c.goods.Load()

	<-time.After(20 * time.Millisecond) // the work

	if prices := c.prices.Load(); prices != goods {
		return fmt.Errorf("the goods of edition %d have the prices of edition %d", goods, prices)
	}

	return nil
}

// replace writes both parts.
func (c *catalog) replace() {
	c.goods.Add(1)

	<-time.After(20 * time.Millisecond)

	c.prices.Add(1)
}
