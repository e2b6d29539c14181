package bench_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
)

// openSQLite is a file in WAL mode, synced at each commit. There is no network
// to count round trips on.
func openSQLite(b *testing.B, _ bool) pool {
	b.Helper()
	dsn(b, "sqlite")

	source := "file:" + filepath.Join(b.TempDir(), "locks.db") +
		"?_pragma=busy_timeout(2000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"
	db := sqliteStd(b, source)
	migrate(b, db, databases.SQLite)

	var layout string

	err := db.QueryRowContext(b.Context(), "SELECT sql FROM sqlite_schema WHERE name = 'sqllock_locks'").Scan(&layout)
	if err != nil {
		b.Fatal(err)
	}

	exec(b, db, strings.Replace(layout, "sqllock_locks", "sqllock_bare", 1))

	p := stdPool(db, sqlite.New(db), nil)
	p.another = func(b *testing.B, size int, _ bool) pool {
		b.Helper()

		db := sqliteStd(b, source)
		db.SetMaxOpenConns(size)

		return stdPool(db, sqlite.New(db), nil)
	}

	return p
}

func sqliteStd(b *testing.B, source string) *sql.DB {
	b.Helper()

	db, err := sql.Open("sqlite", source)
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() { _ = db.Close() })

	return db
}
