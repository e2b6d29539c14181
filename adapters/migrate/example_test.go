package migratelock_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	_ "modernc.org/sqlite" // of the version in go.mod: migrate asks for one that is too old for sqllock

	migratelock "github.com/sqllock/sqllock/adapters/migrate"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// A service migrates its SQLite file when it starts. Several may start at once.
func Example() {
	folder, err := os.MkdirTemp("", "migratelock")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)

	if err := up(context.Background(), folder); err != nil {
		log.Print(err)
	}
	// Output: version 1
}

// The migrations, which are in an embed.FS as a rule.
var files = fstest.MapFS{"1_accounts.up.sql": {Data: []byte("CREATE TABLE accounts (id INTEGER PRIMARY KEY);")}}

func up(ctx context.Context, folder string) error {
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

	driver, err := migratesqlite.WithInstance(db, &migratesqlite.Config{})
	if err != nil {
		return err
	}

	source, err := iofs.New(files, ".")
	if err != nil {
		return err
	}

	m, err := migrate.NewWithInstance("iofs", source, "sqlite", migratelock.New(driver, locker, "migrations"))
	if err != nil {
		return err
	}
	defer m.Close()

	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return err
	}

	version, _, err := m.Version()
	fmt.Println("version", version)

	return err
}

func open(file string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
}

// tables makes the tables of sqllock for this example. A service leaves that to "sqllock migrate up".
func tables(ctx context.Context, db *sql.DB) error {
	text, err := migrations.FS.ReadFile("sqlite/00001_create_locks.sql")
	if err != nil {
		return err
	}

	// What is above "-- +goose Down".
	create, _, _ := bytes.Cut(text, []byte("-- +goose Down"))
	_, err = db.ExecContext(ctx, string(create))

	return err
}
