package cas_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

// ExampleNew is what most programs need.
func ExampleNew() {
	ctx := context.Background()

	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	locker, err := sqllock.New(cas.New(postgres.New(pool)))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(ctx) }()

	err = locker.TryDo(ctx, "nightly", func(ctx context.Context, lock *sqllock.Lock) error {
		fmt.Println("working with token", lock.Token())

		return ctx.Err() // It ends when the lock is lost.
	})

	switch {
	case errors.Is(err, strategies.ErrNotAcquired):
		fmt.Println("another process does it:", err)
	case err != nil:
		fmt.Println(err)
	}
}
