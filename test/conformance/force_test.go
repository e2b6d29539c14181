package conformance_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/insert"
)

// TestForceBesideAWriter forces a lock of insert, which is two statements on SQLite. The
// grant ends with the first, though somebody writes to the file for long before the other.
func TestForceBesideAWriter(t *testing.T) {
	t.Parallel()

	pool, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "locks.db")+
		"?_txlock=immediate&_pragma=busy_timeout(100)&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = pool.Close() })
	migrate(t, pool, databases.SQLite)

	written := false
	db := watched{sqlite.New(pool), func(stmt databases.Statement, _ databases.Values) {
		if stmt.Name != "insert.gone" || written {
			return
		}

		written = true

		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Errorf("BeginTx() = %v", err)

			return
		}

		t.Cleanup(func() { _ = tx.Rollback() })
	}}

	lock, err := lockerOn(t, insert.New(sqlite.New(pool))).TryAcquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}

	if err := sqllocktest.ForceRelease(t.Context(), lockerOn(t, insert.New(db)), "a", "for a test"); err != nil {
		t.Errorf("ForceRelease() beside a writer = %v, want nil", err)
	}

	if !written {
		t.Error("nobody wrote between the statements")
	}

	lost := new(sqllock.LostError)
	if err := lock.Check(t.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.ReasonForced {
		t.Errorf("Check() = %v, want a loss, forced", err)
	}
}
