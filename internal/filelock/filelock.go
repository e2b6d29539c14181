// Package filelock is for tests of modules that have SQLite's driver: lockers on a file, each with a pool of its own, as
// processes have it. The test imports the driver, which must be called "sqlite".
package filelock

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/cas"
)

// Deadline bounds every wait of a test.
const Deadline = time.Minute

// NewFile returns the path of an SQLite file with the tables.
func NewFile(t *testing.T) string {
	t.Helper()

	file := filepath.Join(t.TempDir(), "locks.db")
	db := Open(t, file)

	files, err := migrations.For("sqlite")
	if err != nil {
		t.Fatal(err)
	}

	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}

		up, _, _ := strings.Cut(string(text), "-- +goose Down")

		if _, err := db.ExecContext(t.Context(), up); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	return file
}

// Open opens a file as the README says.
func Open(t *testing.T, file string) *sql.DB {
	t.Helper()

	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})

	return db
}

// NewLocker returns a locker on the file that has a pool of its own, as another process has it.
func NewLocker(t *testing.T, file string, options ...sqllock.LockerOption) *sqllock.Locker {
	t.Helper()

	return LockerOn(t, sqlite.New(Open(t, file)), options...)
}

// NewFaultyLocker also returns what makes the locker's statements fail.
func NewFaultyLocker(t *testing.T, file string, options ...sqllock.LockerOption) (*sqllock.Locker, *sqllocktest.Faulty) {
	t.Helper()

	faulty := sqllocktest.NewFaulty(sqlite.New(Open(t, file)))

	return LockerOn(t, faulty, options...), faulty
}

// LockerOn returns a locker on a database, and closes it in the end.
func LockerOn(t *testing.T, db databases.DB, options ...sqllock.LockerOption) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(cas.New(db), options...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Deadline)
		defer cancel()

		if err := locker.Close(ctx); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})

	return locker
}

// Acquire acquires a lock.
func Acquire(t *testing.T, locker *sqllock.Locker, name string, options ...sqllock.LockOption) *sqllock.Lock {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()

	lock, err := locker.Acquire(ctx, name, options...)
	if err != nil {
		t.Fatalf("Acquire(%q) = %v", name, err)
	}

	return lock
}

// Release releases it.
func Release(t *testing.T, lock *sqllock.Lock) {
	t.Helper()

	if err := lock.Release(t.Context()); err != nil {
		t.Fatalf("Release of %q = %v", lock.Name(), err)
	}
}

// Eventually polls until there is no error.
func Eventually(t *testing.T, f func() error) {
	t.Helper()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for end := time.Now().Add(Deadline); ; <-tick.C {
		err := f()
		if err == nil {
			return
		}

		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// UntilWaiting waits until so many wait for the name.
func UntilWaiting(t *testing.T, locker *sqllock.Locker, name string, n int) {
	t.Helper()

	Eventually(t, func() error {
		waiters, err := locker.Waiters(t.Context(), sqllock.WaiterFilter{Name: name})
		if err == nil && len(waiters) != n {
			err = fmt.Errorf("%d wait for %q, want %d", len(waiters), name, n)
		}

		return err
	})
}
