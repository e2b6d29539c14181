// Guarded-pgx adds to a balance under a lock, with pgx. The guard makes sure
// that the transaction commits only if the lock is still ours, even if this
// process was paused for an hour before COMMIT. Start some of them at once, as
// a user who may create tables.
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	go run ./examples/guarded-pgx
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, os.Getenv("DATABASE_URL")); err != nil {
		if errors.Is(err, sqllock.ErrNoSchema) {
			fmt.Fprintln(os.Stderr, "the database has no tables of sqllock; run: sqllock migrate up")
		} else {
			fmt.Fprintln(os.Stderr, err)
		}

		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()

	locker, err := sqllock.New(cas.New(postgres.New(pool)), sqllock.WithMaxWait(30*time.Second))
	if err != nil {
		return err
	}
	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }()

	return locker.Do(ctx, "example/balance", func(ctx context.Context, lock *sqllock.Lock) error {
		// The application's own table; a real one has it in its migrations.
		_, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS example_balances (id bigint PRIMARY KEY, amount bigint NOT NULL)`)
		if err != nil {
			return err
		}

		return add(ctx, pool, lock, 10)
	})
}

// add reads, computes and writes, as two processes must not do at once. The
// transaction begins after the lock was acquired, so that it sees what the
// holder before committed, whatever its isolation level.
func add(ctx context.Context, pool *pgxpool.Pool, lock *sqllock.Lock, amount int64) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// An error here rolls the transaction back. From here on to its end
		// nobody else is granted the lock, whatever clocks and pauses do.
		if err := lock.Guard(ctx, postgres.Tx(tx)); err != nil {
			return err
		}

		var balance int64

		err := tx.QueryRow(ctx, `SELECT amount FROM example_balances WHERE id = 1`).Scan(&balance)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}

		_, err = tx.Exec(ctx, `INSERT INTO example_balances VALUES (1, $1)
			ON CONFLICT (id) DO UPDATE SET amount = excluded.amount`, balance+amount)
		if err != nil {
			return err
		}

		fmt.Printf("token %d: %d -> %d\n", lock.Token(), balance, balance+amount)

		return nil
	})
}
