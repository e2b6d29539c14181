package tidb_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"

	"github.com/sqllock/sqllock/databases/tidb"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

func ExampleNew() {
	db, err := sql.Open("mysql", "app:secret@tcp(localhost:4000)/app")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	locker, err := sqllock.New(cas.New(tidb.New(db)))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(locker.Features().Database)
	// Output: tidb
}

// The transaction commits only if the lock is still ours. It begins after the
// lock was acquired, so that it sees what the last holder committed.
func ExampleTx() {
	ctx := context.Background()

	db, err := sql.Open("mysql", "app:secret@tcp(localhost:4000)/app")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	locker, err := sqllock.New(cas.New(tidb.New(db)))
	if err != nil {
		log.Fatal(err)
	}

	err = locker.Do(ctx, "account/7", func(ctx context.Context, lock *sqllock.Lock) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()

		if err := lock.Guard(ctx, tidb.Tx(tx)); err != nil {
			return err // Not ours any more: roll back.
		}

		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET amount = amount + 10 WHERE id = 7"); err != nil {
			return err
		}

		return tx.Commit()
	})
	if err != nil {
		log.Fatal(err)
	}
}
