package cron_test

import (
	"context"
	"database/sql"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// deadline bounds every wait of a test.
const deadline = time.Minute

// newFile returns the path of an SQLite file with the tables.
func newFile(t *testing.T) string {
	t.Helper()

	file := filepath.Join(t.TempDir(), "locks.db")
	db := open(t, file)

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

func open(t *testing.T, file string) *sql.DB {
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

// newLocker returns a locker on the file that has a pool of its own, as another process has it.
func newLocker(t *testing.T, file string) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(cas.New(sqlite.New(open(t, file))))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()

		if err := locker.Close(ctx); err != nil {
			t.Error(err)
		}
	})

	return locker
}

// eventually polls until there is no error.
func eventually(t *testing.T, f func() error) {
	t.Helper()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for end := time.Now().Add(deadline); ; <-tick.C {
		err := f()
		if err == nil {
			return
		}

		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
