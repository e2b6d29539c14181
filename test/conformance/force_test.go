package conformance_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/insert"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestForceOfAnotherUsersSession: who may not end the session of a holder has taken its lock away all the same.
func TestForceOfAnotherUsersSession(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			grant, db, all := restricted(t, server)
			grant("SELECT, INSERT, UPDATE, DELETE")

			for _, strategy := range catalog.ConnectionHeld() {
				t.Run(strategy.Name, func(t *testing.T) {
					name := uniqueName()
					lock := acquire(t, lockerOn(t, strategy.Make(all)), name)

					err := sqllocktest.ForceRelease(t.Context(), lockerOn(t, strategy.Make(db)), name, "for a test")
					if !errors.Is(err, sqllock.ErrNotAllowed) || !strings.Contains(err.Error(), "taken away") || strings.Contains(err.Error(), "doctor") {
						t.Errorf("ForceRelease() = %v, want ErrNotAllowed, and that the lock was taken away", err)
					}

					lost := new(sqllock.LostError)
					if err := lock.Check(t.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.ReasonForced {
						t.Errorf("Check() = %v, want a loss, forced", err)
					}
				})
			}
		})
	}
}

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
