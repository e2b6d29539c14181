// Permits lets at most three of eight exports run at a time, and gives each of them a number
// that no other has meanwhile, here for a port. It needs no server; with DATABASE_URL, a
// postgres URL, it uses that instead, and several of it share the three:
//
//	go run ./examples/permits
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	go run ./examples/permits & go run ./examples/permits
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
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

const exports, atATime = 8, 3

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
		group sync.WaitGroup
		ports = make([]int, exports)
		errs  = make([]error, exports)
	)

	for i := range exports {
		group.Go(func() {
			errs[i] = locker.Do(ctx, "export", func(_ context.Context, lock *sqllock.Lock) error {
				ports[i] = 9000 + lock.Slot()

				<-time.After(50 * time.Millisecond) // the work

				return nil
			}, sqllock.WithPermits(atATime))
		})
	}

	group.Wait()

	used := make(map[int]int)
	for _, port := range ports {
		used[port]++
	}

	fmt.Printf("%d exports ran on %d ports\n", exports, len(used))

	return errors.Join(errs...)
}
