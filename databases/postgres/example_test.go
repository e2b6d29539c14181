package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

func ExampleNew() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	locker, err := sqllock.New(cas.New(postgres.New(pool)))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(locker.Features().Database)
}

// Behind a proxy that pools transactions, such as PgBouncer, pgx must not
// prepare statements under names.
func ExampleNew_transactionPooler() {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}

	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec

	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	locker, err := sqllock.New(cas.New(postgres.New(pool)))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(locker.Features().Strategy)
}

// The driver may be any: pgx's, lib/pq, or one that wraps them.
func ExampleNewStd() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	locker, err := sqllock.New(cas.New(postgres.NewStd(db)))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(locker.Features().Database)
}

// The transaction commits only if the lock is still ours.
func ExampleTx() {
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

	err = locker.Do(ctx, "account/7", func(ctx context.Context, lock *sqllock.Lock) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := lock.Guard(ctx, postgres.Tx(tx)); err != nil {
				return err // Not ours any more: roll back.
			}

			_, err := tx.Exec(ctx, "UPDATE accounts SET amount = amount + 10 WHERE id = 7")

			return err
		})
	})
	fmt.Println(err)
}

func ExampleStdTx() {
	ctx := context.Background()

	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	locker, err := sqllock.New(cas.New(postgres.NewStd(db)))
	if err != nil {
		log.Fatal(err)
	}

	err = locker.Do(ctx, "account/7", func(ctx context.Context, lock *sqllock.Lock) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()

		if err := lock.Guard(ctx, postgres.StdTx(tx)); err != nil {
			return err
		}

		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET amount = amount + 10 WHERE id = 7"); err != nil {
			return err
		}

		return tx.Commit()
	})
	fmt.Println(err)
}
