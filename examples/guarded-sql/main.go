// Guarded-sql is guarded-pgx for MySQL and MariaDB, with database/sql, and
// releases the lock as part of the transaction. DATABASE_DSN is in the form of
// go-sql-driver/mysql; the command sqllock wants a URL. The user may create
// tables.
//
//	export DATABASE_DSN='app:secret@tcp(localhost:3306)/app?interpolateParams=true'
//	DATABASE_URL=mysql://app:secret@localhost:3306/app sqllock migrate up
//	go run ./examples/guarded-sql
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"

	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, os.Getenv("DATABASE_DSN")); err != nil {
		if errors.Is(err, sqllock.ErrNoSchema) {
			fmt.Fprintln(os.Stderr, "the database has no tables of sqllock; run: sqllock migrate up")
		} else {
			fmt.Fprintln(os.Stderr, err)
		}

		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()

	locker, err := sqllock.New(cas.New(mysql.New(db)), sqllock.WithMaxWait(30*time.Second))
	if err != nil {
		return err
	}
	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }()

	// Before the lock: on MySQL DDL commits the transaction that it is in. A
	// real application has its table in its migrations.
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS example_balances (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL)`)
	if err != nil {
		return err
	}

	return locker.Do(ctx, "example/balance", func(ctx context.Context, lock *sqllock.Lock) error {
		return add(ctx, db, lock, 10)
	})
}

// add reads, computes and writes, as two processes must not do at once.
func add(ctx context.Context, db *sql.DB, lock *sqllock.Lock, amount int64) error {
	// After the lock was acquired: MySQL's default, REPEATABLE READ, would
	// otherwise show the data as it was before the last holder's commit.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()

	// First, so that what is read next is ours to change. From here on to the
	// end of the transaction nobody else is granted the lock.
	if err := lock.Guard(ctx, mysql.Tx(tx)); err != nil {
		return err
	}

	var balance int64

	err = tx.QueryRowContext(ctx, `SELECT amount FROM example_balances WHERE id = 1`).Scan(&balance)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}

	_, err = tx.ExecContext(ctx, `INSERT INTO example_balances VALUES (1, ?) ON DUPLICATE KEY UPDATE amount = VALUES(amount)`,
		balance+amount)
	if err != nil {
		return err
	}

	// Optional: the lock is free at the moment that the transaction commits.
	// It is not renewed any more from here on.
	if err := lock.ReleaseTx(ctx, mysql.Tx(tx)); err != nil {
		return err
	}

	if err := tx.Commit(); err != nil {
		return err
	}

	fmt.Printf("token %d: %d -> %d\n", lock.Token(), balance, balance+amount)

	return nil
}
