package forupdate_test

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
	"github.com/sqllock/sqllock/strategies/forupdate"
)

// ExampleNew gives the locks a pool of their own: each lock holds a connection,
// and one more is used to renew and release.
func ExampleNew() {
	ctx := context.Background()

	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}

	config.MaxConns = 5 // Four locks at a time.

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	locker, err := sqllock.New(forupdate.New(postgres.New(pool)))
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
