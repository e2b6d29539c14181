// Transfer moves money between two accounts at a time, in both directions at once. Each transfer has the locks of
// both accounts or of none, so that no two transfers wait for each other. It needs no server; with DATABASE_URL, a
// postgres URL, it uses that instead:
//
//	go run ./examples/transfer
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	go run ./examples/transfer
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

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

const (
	accounts  = 4
	transfers = 100
)

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

	// In a database the balances would be rows, and the transaction that changes them would begin with
	// lock.Guard(ctx, tx): see examples/guarded-pgx.
	balances := make([]int, accounts)
	for i := range balances {
		balances[i] = 100
	}

	var group sync.WaitGroup

	errs := make([]error, transfers)

	for i := range transfers {
		from, to := i%accounts, (i*3+1)%accounts

		group.Go(func() {
			other := sqllock.WithNames(fmt.Sprintf("account/%d", to))

			errs[i] = locker.Do(ctx, fmt.Sprintf("account/%d", from), func(context.Context, *sqllock.Lock) error {
				balances[from] -= 10
				balances[to] += 10

				return nil
			}, other)
		})
	}

	group.Wait()

	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	sum := 0
	for _, balance := range balances {
		sum += balance
	}

	fmt.Printf("after %d transfers %d accounts have %d\n", transfers, accounts, sum)

	return nil
}
