package quorum_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/quorum"
)

// ExampleNew locks on three servers, of which one may fail.
func ExampleNew() {
	ctx := context.Background()

	var servers []strategies.Strategy

	for url := range strings.FieldsSeq(os.Getenv("DATABASE_URLS")) {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			log.Fatal(err)
		}
		defer pool.Close()

		servers = append(servers, cas.New(postgres.New(pool)))
	}

	locker, err := sqllock.New(quorum.New(servers...))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(ctx) }()

	err = locker.Do(ctx, "switch", func(ctx context.Context, lock *sqllock.Lock) error {
		fmt.Println("a late writer is refused by the token", lock.Token())

		return ctx.Err() // It ends when the lock is lost.
	})
	if err != nil {
		fmt.Println(err)
	}
}
