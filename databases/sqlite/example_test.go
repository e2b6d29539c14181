package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// The DSN is that of modernc.org/sqlite, which the program imports. The busy
// timeout makes a writer wait for the other's commit.
func ExampleNew() {
	db, err := sql.Open("sqlite", "file:app.db?_txlock=immediate&_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	locker, err := sqllock.New(cas.New(sqlite.New(db)))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(locker.Features().Database)
}

// The transaction begins with BEGIN IMMEDIATE (_txlock), so that it is a writer
// from the start. Keep it short: renewals wait for it.
func ExampleTx() {
	ctx := context.Background()

	db, err := sql.Open("sqlite", "file:app.db?_txlock=immediate&_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	locker, err := sqllock.New(cas.New(sqlite.New(db)))
	if err != nil {
		log.Fatal(err)
	}

	err = locker.Do(ctx, "account/7", func(ctx context.Context, lock *sqllock.Lock) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()

		if err := lock.Guard(ctx, sqlite.Tx(tx)); err != nil {
			return err // Not ours any more: roll back.
		}

		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET amount = amount + 10 WHERE id = 7"); err != nil {
			return err
		}

		return tx.Commit()
	})
	fmt.Println(err)
}
