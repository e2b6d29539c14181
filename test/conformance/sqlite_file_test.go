package conformance_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// sqliteLocker is a locker of one strategy.
func sqliteLocker(t *testing.T, strategy catalog.Strategy, db *sql.DB) *sqllock.Locker {
	t.Helper()

	return lockerOn(t, strategy.Make(sqlite.New(db)), sqllock.WithLease(30*time.Second))
}

// TestFileReplaced: who holds a lock in a file that was removed, and made anew by
// another, has none. The connections that are open would not notice.
func TestFileReplaced(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	for _, strategy := range catalog.All() {
		if strategy.Name != "cas" && strategy.Name != "insert" {
			continue
		}

		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			file := sqliteFile(t)
			before := sqliteLocker(t, strategy, sqlitePool(t, file))

			lock, err := before.TryAcquire(t.Context(), "name")
			if err != nil {
				t.Fatal(err)
			}

			if err := lock.Check(t.Context()); err != nil {
				t.Fatal(err)
			}

			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(file + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}

			db := sqlitePool(t, file)
			migrate(t, db, databases.SQLite)

			if _, err := sqliteLocker(t, strategy, db).TryAcquire(t.Context(), "name"); err != nil {
				t.Fatalf("TryAcquire() in the new file = %v", err)
			}

			var lost *sqllock.LostError
			if err := lock.Check(t.Context()); !errors.As(err, &lost) || !errors.Is(lost.Err, databases.ErrReplaced) {
				t.Errorf("Check() of the lock in the old file = %v, want a LostError of ErrReplaced", err)
			}

			select {
			case <-lock.Context().Done():
			default:
				t.Error("the context of the lock in the old file goes on")
			}

			_, err = before.TryAcquire(t.Context(), "another")
			if !errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), "removed or replaced") {
				t.Errorf("TryAcquire() in the old file = %v, want ErrUnsupported that says why", err)
			}
		})
	}
}

// TestFileNotReplaced: of a database in memory there is no file to look at, and a
// file that goes by a link is the same.
func TestFileNotReplaced(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	file := sqliteFile(t)
	link := file + ".link"

	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}

	for name, source := range map[string]string{
		"memory": "file::memory:", "shared": "file:/TestFileNotReplaced?vfs=memdb", "link": "file:" + link,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db, err := sql.Open("sqlite", source)
			if err != nil {
				t.Fatal(err)
			}

			db.SetMaxOpenConns(1)
			t.Cleanup(func() { _ = db.Close() })
			migrate(t, db, databases.SQLite)

			locker := sqliteLocker(t, catalog.All()[0], db)

			for range 3 {
				lock, err := locker.TryAcquire(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}

				if err := lock.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestFileOfTwoNames: SQLite keeps the WAL beside the path that a file was opened by, so that those who open it by
// another one do not see each other's locks.
func TestFileOfTwoNames(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	for _, strategy := range catalog.Leased() {
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			file := sqliteFile(t)
			other := filepath.Join(filepath.Dir(file), "other.db")

			if err := os.Link(file, other); err != nil {
				t.Fatal(err)
			}

			wantTry(t, strategy.Make(sqlite.New(sqlitePool(t, file))), sqllock.ErrUnsupported, "has 2 names (hard links)")

			if err := os.Remove(other); err != nil {
				t.Fatal(err)
			}

			if _, err := sqliteLocker(t, strategy, sqlitePool(t, file)).TryAcquire(t.Context(), "name"); err != nil {
				t.Errorf("TryAcquire() with one name = %v", err)
			}
		})
	}
}
