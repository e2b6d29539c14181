package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	_ "modernc.org/sqlite"

	gooselock "github.com/sqllock/sqllock/adapters/goose"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// A service migrates its SQLite file when it starts. Several may start at once.
func Example() {
	folder, err := os.MkdirTemp("", "gooselock")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)

	if err := migrate(context.Background(), folder); err != nil {
		log.Print(err)
	}
	// Output: 00001_accounts.sql
}

// The migrations, which are in an embed.FS as a rule.
var files = fstest.MapFS{"00001_accounts.sql": {Data: []byte("-- +goose Up\nCREATE TABLE accounts (id INTEGER PRIMARY KEY);\n")}}

func migrate(ctx context.Context, folder string) error {
	// The locks are in a file of their own: a long migration does not keep their renewals waiting.
	locks, err := open(filepath.Join(folder, "locks.db"))
	if err != nil {
		return err
	}
	defer locks.Close()

	if err := tables(ctx, locks); err != nil {
		return err
	}

	locker, err := sqllock.New(cas.New(sqlite.New(locks)))
	if err != nil {
		return err
	}
	defer locker.Close(ctx)

	db, err := open(filepath.Join(folder, "app.db"))
	if err != nil {
		return err
	}
	defer db.Close()

	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithLocker(gooselock.New(locker, "migrations")))
	if err != nil {
		return err
	}

	ctx, cancel := gooselock.WithCancel(ctx) // ends if the lock is lost
	defer cancel()

	results, err := provider.Up(ctx)
	for _, result := range results {
		fmt.Println(result.Source.Path)
	}

	return err
}

func open(file string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
}

// tables makes the tables of sqllock, as "sqllock migrate up" does. There is no lock before them: of
// processes that do this at the same time some may fail, and have to try again.
func tables(ctx context.Context, db *sql.DB) error {
	sqllockFiles, err := migrations.For("sqlite")
	if err != nil {
		return err
	}

	store, err := database.NewStore(goose.DialectSQLite3, migrations.TableName)
	if err != nil {
		return err
	}

	provider, err := goose.NewProvider("", db, sqllockFiles, goose.WithStore(store))
	if err != nil {
		return err
	}

	_, err = provider.Up(ctx)

	return err
}
